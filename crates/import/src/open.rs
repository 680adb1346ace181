//! Samples of a series that are not in a chunk yet, packed to about a third of their size.
//!
//! Samples wait as they are until there are eight, which are packed together: a head, then of each value the bytes
//! that differ within the group. Within a group the step of time is one; a group ends early where it changes.
//! Holds: any times and value bits come back.
//! Not here: where the bytes lie (`slab`), chunks (`output`).
//!
//! Layout of a stream: time before the first sample, step, base (8 bytes each, little-endian), then groups. A group is
//! its head, if bit 7 says so the number of its samples and the change of the step behind it (varint), then the values.

use chronolith_base::bytes::{put_uvarint, unzigzag, zigzag};
use chronolith_model::Columns;

use crate::slab::{Slab, Stream};

/// Samples that are packed together.
///
/// The nodes of thousands of series share no cache line, so each visit waits for memory; with groups it is one visit
/// in eight samples, and packing needs one head for eight.
const GROUP: usize = 8;
/// Bit of the head that says that length and change of step follow.
const ENDS_STEP: u8 = 0x80;
/// Bits of the head that say how many bytes of the values differ: 0 to 8. Those above say how many in front do not.
const LENGTH_BITS: u32 = 4;
const VALUE_BYTES: usize = 8;
/// Bytes in front of the groups.
const PREFIX_BYTES: usize = 3 * VALUE_BYTES;
/// Most bytes that packing a group writes: head, number of samples, a varint, values.
const GROUP_BYTES_MAX: usize = 2 + 10 + GROUP * VALUE_BYTES;

/// Where a series stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenSeries {
    /// Time of the newest sample, `i64::MIN` without one.
    pub(crate) last_time: i64,
    /// End of the block's range that the waiting samples lie in.
    pub(crate) range_end: i64,
    /// Distance of the samples in `group`, that to the sample before them included.
    step: i64,
    /// Bits of the value before `group`.
    base: u64,
    stream: Stream,
    /// Waiting samples, those in `group` included.
    pub(crate) count: u16,
    group_len: u8,
    /// Value bits that are not packed yet.
    group: [u64; GROUP],
}

const _: () = assert!(size_of::<OpenSeries>() <= 112, "one series, less than two cache lines");

impl OpenSeries {
    pub(crate) const NEW: OpenSeries = OpenSeries {
        last_time: i64::MIN,
        range_end: 0,
        step: 0,
        base: 0,
        stream: Stream::EMPTY,
        count: 0,
        group_len: 0,
        group: [0; GROUP],
    };

    /// Value bits of the newest sample.
    pub(crate) fn last_bits(&self) -> u64 {
        usize::from(self.group_len).checked_sub(1).map_or(self.base, |last| self.group[last])
    }

    /// Whether a sample may [`OpenSeries::join`]: it lies behind the newest one by the step of its group, which is
    /// not full, and in the same chunk of at most `chunk_samples`.
    #[inline]
    pub(crate) fn joins(&self, time: i64, chunk_samples: u16) -> bool {
        time.wrapping_sub(self.last_time) == self.step
            && time > self.last_time
            && time < self.range_end
            && usize::from(self.group_len) < GROUP
            && self.count != 0
            && self.count != chunk_samples
    }

    /// Appends a sample that may do so.
    #[inline]
    pub(crate) fn join(&mut self, time: i64, bits: u64) {
        self.group[usize::from(self.group_len) % GROUP] = bits;
        self.group_len += 1;
        self.count += 1;
        self.last_time = time;
    }

    /// Appends a sample behind the newest one.
    pub(crate) fn push(&mut self, slab: &mut Slab, time: i64, bits: u64) {
        let step = time.wrapping_sub(self.last_time);
        if step != self.step || usize::from(self.group_len) == GROUP {
            self.make_room(slab, step);
        }
        self.join(time, bits);
    }

    /// Packs the group unless a sample `step` behind it may join it.
    fn make_room(&mut self, slab: &mut Slab, step: i64) {
        match self.count {
            // A first sample goes with any step, so the one of the chunk before stays.
            0 => {}
            1 => self.step = step,
            _ => {
                self.pack(slab, step);
                self.step = step;
            }
        }
    }

    /// Packs the group, which holds a sample.
    ///
    /// PERF: whole groups within a step, nearly all, go straight to where the bytes stay, by values that stand in
    /// registers: what is written to the stack and read back in other widths waits until all stores before are
    /// through, and those miss the cache.
    ///   cargo run --release -p chronolith-import --example import_speed
    fn pack(&mut self, slab: &mut Slab, next_step: i64) {
        let group_len = usize::from(self.group_len);
        if group_len == usize::from(self.count) {
            self.begin_stream(slab);
        }
        let differing = Differing::of(&self.group[..group_len], self.base);
        if group_len == GROUP
            && next_step == self.step
            && let Some(room) = slab.room(&self.stream, differing.group_bytes())
        {
            put_whole_group(&self.group, self.base, differing, room);
            self.stream.take_room(1 + GROUP * differing.len as usize);
            (self.base, self.group_len) = (self.group[GROUP - 1], 0);
            return;
        }
        let mut packed = [0u8; GROUP_BYTES_MAX];
        let change = next_step.wrapping_sub(self.step);
        let len = put_group_packed(&self.group[..group_len], self.base, differing, change, &mut packed);
        slab.append(&mut self.stream, &packed[..len]);
        (self.base, self.group_len) = (self.last_bits(), 0);
    }

    /// Writes what stands in front of the groups; all waiting samples are in the first one.
    #[cold]
    fn begin_stream(&mut self, slab: &mut Slab) {
        self.base = self.group[0];
        let before = self.last_time.wrapping_sub(self.step.wrapping_mul(i64::from(self.group_len)));
        for word in [before.cast_unsigned(), self.step.cast_unsigned(), self.base] {
            slab.append(&mut self.stream, &word.to_le_bytes());
        }
    }

    /// Replaces `columns` by the waiting samples; none wait afterwards. `scratch` is for their packed bytes.
    pub(crate) fn drain(&mut self, slab: &mut Slab, scratch: &mut Vec<u8>, columns: &mut Columns) {
        scratch.clear();
        slab.drain(&mut self.stream, scratch);
        columns.clear();
        let group = &self.group[..usize::from(self.group_len)];
        unpack(scratch, usize::from(self.count) - group.len(), columns);
        let before = self.last_time.wrapping_sub(self.step.wrapping_mul(group.len() as i64));
        put_group(before, self.step, group, columns);
        self.base = self.last_bits();
        (self.count, self.group_len) = (0, 0);
    }
}

/// Which bytes of a group's values differ from the base or from each other.
#[derive(Clone, Copy)]
struct Differing {
    /// Bytes in front that do not.
    front: u32,
    /// Bytes that do.
    len: u32,
    /// Bits behind that do not.
    shift: u32,
}

impl Differing {
    #[inline]
    fn of(group: &[u64], base: u64) -> Differing {
        let differs = group.iter().fold(0, |differs, bits| differs | (bits ^ base));
        // Without a difference all eight bytes in front are equal, which three bits cannot say: none differs then.
        let front = (differs.leading_zeros() / 8) & 7;
        let behind = differs.trailing_zeros() / 8;
        let len = 8u32.saturating_sub(front + behind) * u32::from(differs != 0);
        Differing { front, len, shift: 8 * behind % 64 }
    }

    fn head(self) -> u8 {
        (self.front << LENGTH_BITS | self.len) as u8
    }

    /// What [`put_whole_group`] touches: values are written eight bytes at a time.
    fn group_bytes(self) -> usize {
        1 + (GROUP - 1) * self.len as usize + VALUE_BYTES
    }
}

/// Writes a group of [`GROUP`] values whose step goes on behind it to `out`, which has the bytes that it touches.
#[inline]
fn put_whole_group(group: &[u64; GROUP], base: u64, differing: Differing, out: &mut [u8]) {
    out[0] = differing.head();
    put_values(group, base, differing, &mut out[1..]);
}

/// Writes any group to `out`; gives how many bytes count.
fn put_group_packed(
    group: &[u64],
    base: u64,
    differing: Differing,
    change: i64,
    out: &mut [u8; GROUP_BYTES_MAX],
) -> usize {
    out[0] = differing.head();
    let mut at = 1;
    if change != 0 || group.len() != GROUP {
        out[0] |= ENDS_STEP;
        let mut tail = vec![group.len() as u8];
        put_uvarint(&mut tail, zigzag(change));
        out[at..at + tail.len()].copy_from_slice(&tail);
        at += tail.len();
    }
    put_values(group, base, differing, &mut out[at..]);
    at + group.len() * differing.len as usize
}

#[inline]
fn put_values(group: &[u64], base: u64, differing: Differing, out: &mut [u8]) {
    let mut at = 0;
    for bits in group {
        out[at..at + VALUE_BYTES].copy_from_slice(&((bits ^ base) >> differing.shift).to_le_bytes());
        at += differing.len as usize;
    }
}

/// Appends the samples of a group; gives the time of the last one.
fn put_group(before: i64, step: i64, group: &[u64], columns: &mut Columns) -> i64 {
    let time_at = |samples: usize| before.wrapping_add(step.wrapping_mul(samples as i64));
    columns.times.extend(group.iter().enumerate().map(|(idx, _)| time_at(idx + 1)));
    columns.values.extend(group.iter().map(|&bits| f64::from_bits(bits)));
    time_at(group.len())
}

/// Reads `count` samples back. `packed` is our own memory: a bug, not an error, if it does not fit.
fn unpack(packed: &mut Vec<u8>, count: usize, columns: &mut Columns) {
    if count == 0 {
        assert!(packed.is_empty(), "without groups there is no stream");
        return;
    }
    // So that eight bytes can be read wherever a value starts.
    packed.extend_from_slice(&[0; VALUE_BYTES]);
    let mut time = word_at(packed, 0).cast_signed();
    let mut step = word_at(packed, 8).cast_signed();
    let mut base = word_at(packed, 16);
    let mut at = PREFIX_BYTES;
    let mut done = 0;
    while done < count {
        let head = packed[at];
        at += 1;
        let (mut group_len, mut change) = (GROUP, 0);
        if head & ENDS_STEP != 0 {
            group_len = usize::from(packed[at]);
            at += 1;
            change = take_change(packed, &mut at);
        }
        let len = u32::from(head) & ((1 << LENGTH_BITS) - 1);
        let front = (u32::from(head) >> LENGTH_BITS) & 7;
        // The shift by 64 that no difference asks for gives 0.
        let mask = u64::MAX.checked_shr(64 - 8 * len).unwrap_or(0);
        let shift = (8 * (8 - front - len)) & 63;
        let mut group = [0u64; GROUP];
        for bits in &mut group[..group_len] {
            *bits = base ^ ((word_at(packed, at) & mask) << shift);
            at += len as usize;
        }
        base = group[group_len - 1];
        time = put_group(time, step, &group[..group_len], columns);
        step = step.wrapping_add(change);
        done += group_len;
    }
    assert_eq!(at + VALUE_BYTES, packed.len(), "the stream ends with its last sample");
}

#[inline]
fn word_at(packed: &[u8], at: usize) -> u64 {
    let mut word = [0u8; VALUE_BYTES];
    word.copy_from_slice(&packed[at..at + VALUE_BYTES]);
    u64::from_le_bytes(word)
}

fn take_change(packed: &[u8], at: &mut usize) -> i64 {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let byte = packed[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return unzigzag(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn samples_come_back(samples in prop::collection::vec((any::<i64>(), any::<u64>(), 0..12u8), 1..300)) {
            let mut slab = Slab::new();
            let mut open = OpenSeries::NEW;
            let mut expected = Vec::new();
            let (mut last_time, mut last_bits) = (0i64, 0u64);
            for (time, bits, shape) in samples {
                let time = if shape < 11 { last_time.wrapping_add(15_000) } else { time };
                let bits = if shape < 8 { last_bits ^ (bits & 0xffff_0000) } else { bits };
                (last_time, last_bits) = (time, bits);
                open.push(&mut slab, time, bits);
                expected.push((time, bits));
                prop_assert_eq!(open.last_bits(), bits);
                if shape == 10 {
                    check_drained(&mut slab, &mut open, &mut expected);
                    prop_assert_eq!(open.last_bits(), bits);
                }
            }
            check_drained(&mut slab, &mut open, &mut expected);
        }
    }

    /// Compares with what was pushed, and empties both.
    #[track_caller]
    fn check_drained(slab: &mut Slab, open: &mut OpenSeries, expected: &mut Vec<(i64, u64)>) {
        let mut columns = Columns::default();
        open.drain(slab, &mut Vec::new(), &mut columns);
        let got: Vec<_> = columns.times.iter().zip(&columns.values).map(|(t, v)| (*t, v.to_bits())).collect();
        assert_eq!(&got, expected);
        expected.clear();
    }
}
