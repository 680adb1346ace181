//! Which times of a chunk are taken: a bit a step, so that most late samples need no look into chunks.
//!
//! Holds: of a time up to the last one that it has seen, an entry says for certain whether its chunk has a sample.
//! A chunk whose times lie on a grid gets an entry when it is decoded, in a table of bounded size where chunks may
//! push others out: what is not known costs a look, never a wrong answer.
//! Not here: values, late samples that wait (`late`), what lies between chunks.

use crate::sealed::SealedPlace;

/// Steps from the first to the last time of a chunk that an entry has bits for: a full chunk may have half of its
/// samples still to come.
const STEP_COUNT: usize = 256;
const WORD_COUNT: usize = STEP_COUNT / 64;
/// Entries of the first table; it doubles from there.
const ENTRY_COUNT_MIN: usize = 64;
/// 2 MiB a stripe.
const ENTRY_COUNT_MAX: usize = 1 << 15;
/// Places of the table where an entry may be.
const PROBE_COUNT: usize = 4;
/// High half of the key of an open chunk: no sealed file has this number.
const OPEN: u32 = u32::MAX;

/// Name of a chunk. That of an open one is used again, by the next of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkKey(u64);

impl ChunkKey {
    const NONE: ChunkKey = ChunkKey(u64::MAX);

    /// The open chunk of series `id`.
    pub(super) fn open(id: u32) -> ChunkKey {
        ChunkKey(u64::from(OPEN) << 32 | u64::from(id))
    }

    /// A sealed chunk.
    pub(super) fn sealed(place: SealedPlace) -> ChunkKey {
        debug_assert!(place.file != OPEN, "files are numbered from the start");
        ChunkKey(u64::from(place.file) << 32 | u64::from(place.offset))
    }
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Entry {
    key: ChunkKey,
    first: i64,
    last: i64,
    step_ms: u32,
    steps: [u64; WORD_COUNT],
}

const _: () = assert!(size_of::<Entry>() == 64, "an entry is one cache line");

impl Entry {
    const NONE: Entry = Entry { key: ChunkKey::NONE, first: 0, last: 0, step_ms: 1, steps: [0; WORD_COUNT] };

    /// The entry of a chunk with these times; `None` if they are no grid.
    fn new(key: ChunkKey, times: &[i64]) -> Option<Entry> {
        let (&first, &last) = (times.first()?, times.last()?);
        let step_ms = step_of(times)?;
        let step_count = u64::try_from(last.checked_sub(first)?).ok()? / u64::from(step_ms);
        if step_count >= STEP_COUNT as u64 {
            return None;
        }
        let mut steps = [0; WORD_COUNT];
        for time in times {
            // The span fits, so each of the ascending times does.
            let step = (time - first) as u64 / u64::from(step_ms);
            steps[step as usize / 64] |= 1 << (step % 64);
        }
        Some(Entry { key, first, last, step_ms, steps })
    }

    fn has(&self, time: i64) -> bool {
        let distance_ms = (time - self.first) as u64;
        let (step, rest) = (distance_ms / u64::from(self.step_ms), distance_ms % u64::from(self.step_ms));
        rest == 0 && self.steps[step as usize / 64] >> (step % 64) & 1 == 1
    }
}

/// The largest step of which all distances are multiples; any if there is but one time.
fn step_of(times: &[i64]) -> Option<u32> {
    let mut step_ms = 0;
    for (&before, &time) in times.iter().zip(times.get(1..)?) {
        let distance_ms = u32::try_from(time.checked_sub(before)?).ok()?;
        if distance_ms != step_ms {
            step_ms = common_divisor(distance_ms, step_ms);
        }
    }
    Some(step_ms.max(1))
}

fn common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// See the module.
#[derive(Default)]
pub(super) struct Taken {
    /// Empty, or a power of two.
    entries: Box<[Entry]>,
    used_count: usize,
}

impl Taken {
    /// Whether the chunk, which starts at `first`, has for certain no sample of `time`, which is not before that.
    pub(super) fn is_free(&self, key: ChunkKey, first: i64, time: i64) -> bool {
        let Some(entry) = self.places(key).map(|at| &self.entries[at]).find(|e| e.key == key) else {
            return false;
        };
        entry.first == first && first <= time && time <= entry.last && !entry.has(time)
    }

    /// Notes the times that a chunk has; it gets no other ones before the last of them.
    pub(super) fn note(&mut self, key: ChunkKey, times: &[i64]) {
        let Some(entry) = Entry::new(key, times) else {
            self.forget(key);
            return;
        };
        if 2 * self.used_count >= self.entries.len() && self.entries.len() < ENTRY_COUNT_MAX {
            self.grow();
        }
        self.put(entry);
    }

    /// The open chunk of series `id` is not the one that was seen any more.
    pub(super) fn forget_open(&mut self, id: u32) {
        self.forget(ChunkKey::open(id));
    }

    /// Forgets everything and gives the memory back.
    pub(super) fn clear(&mut self) {
        *self = Taken::default();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.entries)
    }

    fn forget(&mut self, key: ChunkKey) {
        if let Some(at) = self.places(key).find(|&at| self.entries[at].key == key) {
            self.entries[at] = Entry::NONE;
            self.used_count -= 1;
        }
    }

    fn put(&mut self, entry: Entry) {
        let at = self
            .places(entry.key)
            .find(|&at| self.entries[at].key == entry.key)
            .or_else(|| self.places(entry.key).find(|&at| self.entries[at].key == ChunkKey::NONE));
        let Some(at) = at.or_else(|| self.places(entry.key).next()) else { return };
        self.used_count += usize::from(self.entries[at].key == ChunkKey::NONE);
        self.entries[at] = entry;
    }

    fn grow(&mut self) {
        let entry_count = (2 * self.entries.len()).max(ENTRY_COUNT_MIN);
        let fresh = vec![Entry::NONE; entry_count].into_boxed_slice();
        let old = std::mem::replace(&mut self.entries, fresh);
        self.used_count = 0;
        for entry in old.into_iter().filter(|e| e.key != ChunkKey::NONE) {
            self.put(entry);
        }
    }

    /// Where the entry of a chunk may be.
    fn places(&self, key: ChunkKey) -> impl Iterator<Item = usize> + use<> {
        let mask = self.entries.len().wrapping_sub(1);
        let hash = (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let probe_count = if self.entries.is_empty() { 0 } else { PROBE_COUNT };
        (0..probe_count).map(move |probe| hash.wrapping_add(probe) & mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ChunkKey = ChunkKey(7 << 32 | 9);

    #[track_caller]
    fn check(times: &[i64], is_known: impl Fn(i64) -> bool) {
        let mut taken = Taken::default();
        taken.note(KEY, times);
        let (first, last) = (times[0], times[times.len() - 1]);
        for time in first - 5..last + 5 {
            let want = first <= time && time <= last && is_known(time) && !times.contains(&time);
            assert_eq!(taken.is_free(KEY, first, time), want, "{time} of {times:?}");
            assert!(!taken.is_free(KEY, first + 1, time), "another chunk of the same name");
            assert!(!taken.is_free(ChunkKey::open(9), first, time), "another chunk");
        }
    }

    #[test]
    fn free_times_of_a_grid_are_known() {
        check(&[-40], |_| true);
        check(&[-40, 10], |_| true);
        check(&[-40, -20, 20, 30, 60], |_| true);
        check(&[0, 3, 9, 12, 255 * 3], |_| true);
    }

    #[test]
    fn nothing_is_known_of_times_that_are_no_grid() {
        check(&[0, 3, 9, 12, 256 * 3], |_| false);
        check(&[0, 100, 199, 300], |_| false);
    }

    #[test]
    fn a_chunk_that_is_no_grid_any_more_is_forgotten() {
        let mut taken = Taken::default();
        taken.note(KEY, &[0, 100]);
        assert!(taken.is_free(KEY, 0, 50));
        taken.note(KEY, &[0, 50, 100, 1001]);
        assert!(!taken.is_free(KEY, 0, 51));
        taken.note(ChunkKey::open(1), &[0, 100]);
        taken.forget_open(1);
        assert!(!taken.is_free(ChunkKey::open(1), 0, 50));
        assert_eq!(taken.used_count, 0);
        taken.note(KEY, &[i64::MIN, i64::MAX]);
        assert!(!taken.is_free(KEY, i64::MIN, 0));
    }

    /// More chunks than the table ever holds: it stays within its bound, and what it says is true.
    #[test]
    fn full_tables_forget() {
        let mut taken = Taken::default();
        let chunk = |i: u32| (ChunkKey(u64::from(i / 100) << 32 | u64::from(i % 100 * 600)), i64::from(i));
        let count = 3 * ENTRY_COUNT_MAX as u32;
        for (key, first) in (0..count).map(chunk) {
            taken.note(key, &[first, first + 20, first + 30]);
        }
        assert_eq!(taken.heap_bytes(), 64 * ENTRY_COUNT_MAX);
        let known = (0..count).map(chunk).filter(|&(key, first)| {
            assert!(!taken.is_free(key, first, first + 20));
            taken.is_free(key, first, first + 10)
        });
        let known = known.count();
        assert!(known <= taken.used_count && known > ENTRY_COUNT_MAX / 2, "{known}");
        taken.clear();
        assert_eq!(taken.heap_bytes(), 0);
    }
}
