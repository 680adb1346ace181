//! Late samples that wait for a chunk: an unrolled linked list per series in order of arrival, a B-tree for a
//! series that has more of them than a list finds quickly.
//!
//! Holds: one sample a time in a chain; a sample here is younger than one of the same time in a chunk, and wins.
//! All links of a chain but the first, which took the last sample, are full. What is handed out is sorted.
//! Not here: whether a time is free (`order`, `free`), when a chain is sealed (`seal`).

mod trees;

use chronolith_model::{Columns, TimeRange};

use trees::Trees;

use super::NONE;
use crate::slots::{SLOT_NONE, Slot, Slots};

/// Late samples of one series at which they are sealed.
pub(crate) const LATE_COUNT_MAX: usize = 256;
/// Late samples of a series whose sealed chunks are so many that merging pays only with more. A checkpoint
/// writes them as one chunk, whose count has 16 bits; appenders that run at the same time may exceed the
/// limit by some thousands.
const LATE_COUNT_LIMIT: usize = 1 << 15;
/// Chunk samples that one late sample may make the head encode again, as long as the limit is not reached.
const MERGE_FACTOR: usize = 8;
/// Late samples beyond [`LATE_COUNT_MAX`] after which the limit is checked again.
const CHECK_COUNT: usize = 64;
/// Bytes of late samples in a stripe that halve [`LATE_COUNT_MAX`], and halve it again with every further
/// portion: all stripes together never hold more than half a gigabyte.
const LATE_BYTES_STEP: usize = 4 << 20;
/// Samples of a link, which is a cache line.
const LINK_COUNT: usize = 3;

/// A few samples of a series and what is known of it up to them.
// PERF: a late sample touches this line only, and allocates every third time; a sorted buffer a series touched its
// record, its middle and what lies behind it, and moved as it grew. With `free`: 260 -> 160 ns for each sample of a load of
// which a tenth is late, 124 with the same series in the same order and nothing late (a busy machine).
//   cargo run --release -p chronolith-head --example late_speed -- 4000 1440 10 withheld 60000
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Link {
    samples: [(i64, u64); LINK_COUNT],
    /// In the first link: no sample of the chain is newer.
    newest: i64,
    /// The link that was filled before.
    next: u32,
    /// Samples of this link and those behind it; in the others that is a multiple of those of a link.
    count: u32,
}

const _: () = assert!(size_of::<Link>() == 64 && NONE == SLOT_NONE);

impl Slot for Link {
    const EMPTY: Link = Link { samples: [(0, 0); LINK_COUNT], newest: i64::MIN, next: SLOT_NONE, count: 0 };
    const PAGE_BITS: u32 = 10;

    fn link(&self) -> u32 {
        self.next
    }

    fn set_link(&mut self, link: u32) {
        self.next = link;
    }
}

impl Link {
    /// Samples of this link alone.
    fn own(&self) -> &[(i64, u64)] {
        &self.samples[..own_count(self.count)]
    }
}

/// How many of the `count` samples of a chain are in its first link.
fn own_count(count: u32) -> usize {
    match count as usize % LINK_COUNT {
        0 => LINK_COUNT.min(count as usize),
        rest => rest,
    }
}

/// Returns true if `count` out-of-order samples of a series are to be sealed, where those of the stripe take
/// `buffered_bytes`. `sealed_count` gives how many samples the sealed chunks of the series have: sealing encodes
/// those again that lie where the buffer has samples, all of them in the worst order.
pub(super) fn is_buffer_full(
    count: usize,
    buffered_bytes: usize,
    sealed_count: impl FnOnce() -> usize,
) -> bool {
    let halvings = (buffered_bytes / LATE_BYTES_STEP).min(LATE_COUNT_MAX.ilog2() as usize);
    if count < LATE_COUNT_MAX >> halvings || (halvings == 0 && !count.is_multiple_of(CHECK_COUNT)) {
        return false;
    }
    let count_max = (sealed_count() / MERGE_FACTOR).clamp(LATE_COUNT_MAX, LATE_COUNT_LIMIT);
    // Memory goes first to those who have few.
    count >= (count_max >> (2 * halvings)).max(LATE_COUNT_MAX >> halvings)
}

/// See the module. A chain is named by its first link or by its tree; [`NONE`] is the chain without samples.
pub(crate) struct LateSamples {
    links: Slots<Link>,
    trees: Trees,
    chain_count: u64,
}

impl LateSamples {
    pub(crate) fn new() -> LateSamples {
        LateSamples { links: Slots::new(), trees: Trees::default(), chain_count: 0 }
    }

    /// Adds a sample whose time the chain does not have; gives the name of the chain and its count from then on.
    pub(crate) fn insert(&mut self, chain: u32, time: i64, value_bits: u64) -> (u32, usize) {
        let (mut count, mut newest) = (0, i64::MIN);
        if let Some(first) = self.links.get_mut(chain) {
            newest = first.newest.max(time);
            let own = own_count(first.count);
            if own < LINK_COUNT {
                first.samples[own] = (time, value_bits);
                first.newest = newest;
                first.count += 1;
                return (chain, first.count as usize);
            }
            count = first.count;
            if count as usize >= LATE_COUNT_MAX {
                return self.insert_into_new_tree(chain, time, value_bits);
            }
        } else if let Some(count) = self.trees.insert(chain, time, value_bits) {
            return (chain, count);
        } else {
            self.chain_count += 1;
        }
        let mut link = Link { newest: newest.max(time), next: chain, count: count + 1, ..Link::EMPTY };
        link.samples[0] = (time, value_bits);
        (self.links.alloc(link), count as usize + 1)
    }

    /// As [`LateSamples::insert`] for a list of links that is long enough to become a tree.
    #[cold]
    fn insert_into_new_tree(&mut self, chain: u32, time: i64, value_bits: u64) -> (u32, usize) {
        let samples: Vec<(i64, u64)> = self.each(chain).chain([(time, value_bits)]).collect();
        self.free_links(chain);
        let count = samples.len();
        (self.trees.add(samples.into_iter()), count)
    }

    /// Returns true if the chain is a tree, so that it may have more samples than can be sealed in one go.
    pub(crate) fn is_tree(&self, chain: u32) -> bool {
        self.trees.get(chain).is_some()
    }

    /// The time of the first sample of a tree in `range`.
    pub(crate) fn first_of_tree(&self, chain: u32, range: TimeRange) -> Option<i64> {
        self.trees.range(chain, range).next().map(|s| s.0)
    }

    /// A chain of samples that it has alone.
    pub(crate) fn store(&mut self, samples: &Columns) -> u32 {
        let mut chain = NONE;
        for (&time, value) in samples.times.iter().zip(&samples.values) {
            chain = self.insert(chain, time, value.to_bits()).0;
        }
        chain
    }

    /// Replaces the value at `time`, which the chain has.
    pub(crate) fn replace(&mut self, chain: u32, time: i64, value_bits: u64) {
        if self.is_tree(chain) {
            self.trees.insert(chain, time, value_bits);
            return;
        }
        let mut at = chain;
        while let Some(link) = self.links.get_mut(at) {
            let own = own_count(link.count);
            if let Some(sample) = link.samples[..own].iter_mut().find(|s| s.0 == time) {
                sample.1 = value_bits;
                return;
            }
            at = link.next;
        }
        unreachable!("the sample was found before");
    }

    /// As [`is_buffer_full`] for a chain of `count` samples.
    pub(crate) fn is_full(&self, count: usize, sealed_count: impl FnOnce() -> usize) -> bool {
        is_buffer_full(count, self.sample_bytes(), sealed_count)
    }

    /// Bits of the value at `time`. Samples that came last are found first. Cost: one cache line for a time that is
    /// newer than all, else up to all of the chain.
    pub(crate) fn find(&self, chain: u32, time: i64) -> Option<u64> {
        let Some(first) = self.links.get(chain) else { return self.trees.get(chain)?.get(&time).copied() };
        if first.newest < time {
            return None;
        }
        self.list(chain).find_map(|link| link.own().iter().find(|s| s.0 == time)).map(|s| s.1)
    }

    /// Puts the samples of a chain in order of time, so that whoever copies them after that need not sort; those that
    /// come later stand in front of them.
    pub(crate) fn settle(&mut self, chain: u32) {
        if self.is_tree(chain) || self.each(chain).is_sorted_by_key(|s| s.0) {
            return;
        }
        let mut samples: Vec<(i64, u64)> = self.each(chain).collect();
        sort(&mut samples);
        let (mut at, mut samples) = (chain, samples.into_iter());
        while let Some(link) = self.links.get_mut(at) {
            let own = own_count(link.count);
            link.samples[..own].iter_mut().zip(&mut samples).for_each(|(slot, sample)| *slot = sample);
            at = link.next;
        }
    }

    /// A sorted copy of all samples.
    pub(crate) fn samples(&self, chain: u32) -> Columns {
        self.samples_in(chain, TimeRange { start: i64::MIN, end: i64::MAX })
    }

    /// A sorted copy of the samples in `range`.
    pub(crate) fn samples_in(&self, chain: u32, range: TimeRange) -> Columns {
        let mut found = Columns::default();
        if self.is_tree(chain) {
            self.trees.range(chain, range).for_each(|(time, bits)| found.push(time, f64::from_bits(bits)));
            return found;
        }
        let count = self.links.get(chain).map_or(0, |first| first.count as usize);
        found.times.reserve(count);
        found.values.reserve(count);
        for (time, value_bits) in self.each(chain).filter(|s| range.contains(s.0)) {
            found.push(time, f64::from_bits(value_bits));
        }
        if found.times.is_sorted() {
            return found;
        }
        sorted(self.each(chain).filter(|s| range.contains(s.0)).collect())
    }

    /// Whether a sample lies in `range`.
    pub(crate) fn overlaps(&self, chain: u32, range: TimeRange) -> bool {
        let Some(first) = self.links.get(chain) else { return self.first_of_tree(chain, range).is_some() };
        first.newest >= range.start && self.each(chain).any(|s| range.contains(s.0))
    }

    /// Whether all samples, if there are any, are certain not to lie after `time`.
    pub(crate) fn is_before(&self, chain: u32, time: i64) -> bool {
        let newest = match self.links.get(chain) {
            Some(first) => Some(first.newest),
            None => self.trees.get(chain).and_then(|tree| tree.last_key_value()).map(|(&newest, _)| newest),
        };
        newest.is_none_or(|newest| newest <= time)
    }

    /// How many samples lie before `time`, and how many there are.
    pub(crate) fn counts(&self, chain: u32, time: i64) -> (usize, usize) {
        let Some(first) = self.links.get(chain) else {
            let count = self.trees.get(chain).map_or(0, |tree| tree.len());
            let behind = TimeRange { start: time, end: i64::MAX };
            return (count - self.trees.range(chain, behind).count(), count);
        };
        let count = first.count as usize;
        if first.newest < time {
            return (count, count);
        }
        (self.each(chain).filter(|s| s.0 < time).count(), count)
    }

    /// Times of the chain, in no order.
    pub(crate) fn times(&self, chain: u32) -> impl Iterator<Item = i64> {
        self.times_in(chain, TimeRange { start: i64::MIN, end: i64::MAX })
    }

    /// Times of the chain in `range`, in no order.
    pub(crate) fn times_in(&self, chain: u32, range: TimeRange) -> impl Iterator<Item = i64> {
        let of_links = self.each(chain).map(|s| s.0).filter(move |&time| range.contains(time));
        of_links.chain(self.trees.range(chain, range).map(|s| s.0))
    }

    /// Removes and returns the samples in `range`, sorted, and the name of the chain from then on.
    pub(crate) fn take(&mut self, chain: u32, range: TimeRange) -> (u32, Columns) {
        if self.is_tree(chain) {
            let (is_left, taken) = self.trees.take(chain, range);
            self.chain_count -= u64::from(!is_left);
            return (if is_left { chain } else { NONE }, taken);
        }
        let (mut first, mut at, mut taken) = (chain, chain, Vec::new());
        while let Some(link) = self.links.get(at).copied() {
            let mut place = 0;
            while let Some(&sample) = self.links.get(at).and_then(|link| link.own().get(place)) {
                if !range.contains(sample.0) {
                    place += 1;
                    continue;
                }
                taken.push(sample);
                // The last one of the first link takes its place, so that the others stay where they are.
                let was_first = first;
                let moved;
                (first, moved) = self.pop(first);
                if was_first == at && first != at {
                    break;
                }
                if let Some(place) = self.links.get_mut(at).and_then(|link| link.samples.get_mut(place)) {
                    *place = moved;
                }
            }
            at = link.next;
        }
        self.chain_count -= u64::from(chain != NONE && first == NONE);
        (first, sorted(taken))
    }

    /// Takes the last sample of the first link of a chain, which is not empty, and the link with it if it had no other;
    /// gives the name of the chain from then on.
    fn pop(&mut self, chain: u32) -> (u32, (i64, u64)) {
        let link = self.links.get_mut(chain).expect("a chain that has samples has links");
        let own = own_count(link.count);
        let (last, next, newest) = (link.samples[own - 1], link.next, link.newest);
        link.count -= 1;
        if own > 1 {
            return (chain, last);
        }
        self.links.free(chain);
        if let Some(first) = self.links.get_mut(next) {
            // It may have got samples of links that were in front of it.
            first.newest = newest;
        }
        (next, last)
    }

    /// Reads what an insertion will touch.
    pub(crate) fn touch(&self, chain: u32) -> u32 {
        self.links.get(chain).map_or(0, |first| first.count)
    }

    /// Chains with samples.
    pub(crate) fn count(&self) -> u64 {
        self.chain_count
    }

    /// Gives the links of a chain back.
    pub(crate) fn free(&mut self, chain: u32) {
        self.chain_count -= u64::from(chain != NONE);
        if !self.trees.remove(chain) {
            self.free_links(chain);
        }
    }

    fn free_links(&mut self, chain: u32) {
        let mut at = chain;
        while let Some(next) = self.links.get(at).map(|link| link.next) {
            self.links.free(at);
            at = next;
        }
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        self.links.heap_bytes() + self.trees.heap_bytes() as u64
    }

    fn sample_bytes(&self) -> usize {
        size_of::<Link>() * self.links.used_count() as usize + self.trees.sample_bytes()
    }

    /// The links of a chain, the youngest samples first.
    fn list(&self, chain: u32) -> impl Iterator<Item = &Link> {
        let mut at = chain;
        std::iter::from_fn(move || {
            let link = self.links.get(at)?;
            at = link.next;
            Some(link)
        })
    }

    /// The samples of a chain, the youngest link first.
    fn each(&self, chain: u32) -> impl Iterator<Item = (i64, u64)> {
        self.list(chain).flat_map(|link| link.own().iter().copied())
    }
}

/// What was in order before is a run, which the stable sort only merges with what has come since.
fn sort(samples: &mut [(i64, u64)]) {
    samples.sort_by_key(|s| s.0);
}

fn sorted(mut samples: Vec<(i64, u64)>) -> Columns {
    sort(&mut samples);
    Columns {
        times: samples.iter().map(|s| s.0).collect(),
        values: samples.iter().map(|s| f64::from_bits(s.1)).collect(),
        ..Columns::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bound holds however many series have late samples: the more bytes wait, the sooner a series seals.
    #[test]
    fn full_earlier_the_more_waits() {
        let mut late = LateSamples::new();
        assert!(!late.is_full(LATE_COUNT_MAX - 1, || 0));
        assert!(late.is_full(LATE_COUNT_MAX, || MERGE_FACTOR * LATE_COUNT_MAX));
        assert!(!late.is_full(LATE_COUNT_MAX, || MERGE_FACTOR * (LATE_COUNT_MAX + 1)));
        assert!(late.is_full(LATE_COUNT_LIMIT, || usize::MAX));
        let mut chains = Vec::new();
        let mut bytes_max = 0;
        for i in 0..3_000_000i64 {
            let (chain, count) = late.insert(NONE, i, 1);
            if late.is_full(count, || usize::MAX) {
                late.free(chain);
            } else {
                chains.push(chain);
            }
            bytes_max = bytes_max.max(late.sample_bytes());
        }
        assert!(bytes_max <= 9 * LATE_BYTES_STEP, "{bytes_max}");
        chains.into_iter().for_each(|chain| late.free(chain));
        assert_eq!((late.sample_bytes(), late.count()), (0, 0));
    }

    /// Against a map: whatever is added, replaced and taken out, of several chains at once.
    #[test]
    fn chains_hold_what_a_map_would() {
        let rng = chronolith_base::Rng::from_seed(3);
        let mut late = LateSamples::new();
        let mut chains = vec![(NONE, std::collections::BTreeMap::new()); 6];
        for step in 0..24_000u64 {
            let idx = rng.below(6) as usize;
            let (chain, want) = &mut chains[idx];
            // One of them grows into a tree, and loses it again.
            let is_large = idx == 5 && step % 12_000 > 2_000;
            let time = rng.below(if is_large { 6_000 } else { 60 }) as i64;
            assert_eq!(late.find(*chain, time), want.get(&time).copied());
            if want.insert(time, step).is_some() {
                late.replace(*chain, time, step);
            } else {
                let count;
                (*chain, count) = late.insert(*chain, time, step);
                assert_eq!(count, want.len());
            }
            let range = TimeRange { start: time - rng.below(30) as i64, end: time + rng.below(5) as i64 };
            let inside: Vec<(i64, u64)> = want.range(range.start..range.end).map(|(t, v)| (*t, *v)).collect();
            assert_eq!(late.overlaps(*chain, range), !inside.is_empty());
            assert_eq!(late.counts(*chain, time), (want.range(..time).count(), want.len()));
            if rng.below(6) == 0 {
                late.settle(*chain);
                assert!(late.times(*chain).is_sorted() && late.find(*chain, time).is_some());
            }
            let mut got = late.samples_in(*chain, range);
            if rng.below(if is_large { 200 } else { 8 }) == 0 {
                (*chain, got) = late.take(*chain, range);
                want.retain(|time, _| !range.contains(*time));
            }
            let got: Vec<(i64, u64)> =
                got.times.iter().copied().zip(got.values.iter().map(|v| v.to_bits())).collect();
            assert_eq!(got, inside);
            assert_eq!(late.samples(*chain).times, want.keys().copied().collect::<Vec<_>>());
        }
        assert_eq!(late.count(), chains.iter().filter(|(_, want)| !want.is_empty()).count() as u64);
        chains.iter().for_each(|(chain, _)| late.free(*chain));
        assert_eq!((late.sample_bytes(), late.count()), (0, 0));
    }
}
