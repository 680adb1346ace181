//! Open chunk of one series: float samples packed to about a third of their size until the chunk is full.
//!
//! Encoding: groups of eight samples with a constant time step. Values of a group are XORed with the last
//! value of the previous group; only the bytes that differ anywhere in the group are stored. A group ends
//! early where the step changes.
//! Invariants: decoding returns the timestamps and value bits that were appended.
//! Not here: memory of the packed bytes (`slab`), chunks of blocks (`write::chunk_encoder`).
//!
//! Layout of a stream: time before the first sample, step, base (8 bytes each, little-endian), then groups. A
//! group is a header byte; if its bit 7 is set, the sample count (u8) and the change of the step after the
//! group (varint); then the differing bytes of each value.

use chronolith_base::bytes::{put_uvarint, unzigzag, zigzag};
use chronolith_model::Columns;

use super::slab::{Slab, Stream};

/// Samples per group.
///
/// The slab nodes of thousands of series share no cache line, so each access is a cache miss; groups need one
/// access and one header per eight samples.
const GROUP: usize = 8;
/// Header bit: sample count and change of the step follow.
const ENDS_STEP: u8 = 0x80;
/// Low bits of the header: differing bytes per value, 0 to 8. The bits above: equal bytes before them.
const LENGTH_BITS: u32 = 4;
const VALUE_BYTES: usize = 8;
/// Bytes before the groups.
const PREFIX_BYTES: usize = 3 * VALUE_BYTES;
/// Bytes of the largest group: header, sample count, a varint, values.
const GROUP_BYTES_MAX: usize = 2 + 10 + GROUP * VALUE_BYTES;

/// Open samples of one series.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenChunk {
    /// Time of the newest sample of the series, also after the chunk was drained; `i64::MIN` without one.
    last_time: i64,
    /// End of the block range of the samples.
    range_end: i64,
    /// Time step from the previous sample to the first one of `group`, and between the samples of `group`.
    step: i64,
    /// Bits of the value before `group`.
    base: u64,
    stream: Stream,
    /// Samples of the chunk, `group` included.
    count: u16,
    group_len: u8,
    /// Value bits that are not packed yet.
    group: [u64; GROUP],
}

const _: () = assert!(size_of::<OpenChunk>() <= 112, "less than two cache lines");

impl OpenChunk {
    pub(super) const EMPTY: OpenChunk = OpenChunk {
        last_time: i64::MIN,
        range_end: 0,
        step: 0,
        base: 0,
        stream: Stream::EMPTY,
        count: 0,
        group_len: 0,
        group: [0; GROUP],
    };

    /// Time of the newest sample of the series; `i64::MIN` without one.
    pub(super) fn last_time(&self) -> i64 {
        self.last_time
    }

    /// Value bits of the newest sample.
    pub(super) fn last_bits(&self) -> u64 {
        usize::from(self.group_len).checked_sub(1).map_or(self.base, |last| self.group[last])
    }

    pub(super) fn sample_count(&self) -> u16 {
        self.count
    }

    /// Begins a chunk of samples before `range_end`; the one before was drained.
    pub(super) fn begin(&mut self, range_end: i64) {
        debug_assert_eq!(self.count, 0, "the samples of the chunk before are drained");
        self.range_end = range_end;
    }

    /// Returns true if a sample continues the chunk: it is newer, and the chunk has one to `sample_count_max
    /// - 1` samples of the same range.
    #[inline]
    pub(super) fn continues(&self, time: i64, sample_count_max: u16) -> bool {
        time > self.last_time && time < self.range_end && self.count != 0 && self.count != sample_count_max
    }

    /// Returns true if a sample continues the group: it continues the chunk, with the step of the group,
    /// which is not full.
    #[inline]
    pub(super) fn joins(&self, time: i64, sample_count_max: u16) -> bool {
        time.wrapping_sub(self.last_time) == self.step
            && time > self.last_time
            && time < self.range_end
            && usize::from(self.group_len) < GROUP
            && self.count != 0
            && self.count != sample_count_max
    }

    /// Appends a sample to the group, if [`OpenChunk::joins`] allows it.
    #[inline]
    pub(super) fn join(&mut self, time: i64, bits: u64) {
        self.group[usize::from(self.group_len) % GROUP] = bits;
        self.group_len += 1;
        self.count += 1;
        self.last_time = time;
    }

    /// Appends a sample newer than all of the series.
    pub(super) fn push(&mut self, slab: &mut Slab, time: i64, bits: u64) {
        let step = time.wrapping_sub(self.last_time);
        if step != self.step || usize::from(self.group_len) == GROUP {
            self.make_room(slab, step);
        }
        self.join(time, bits);
    }

    /// Packs the group unless a sample `step` after it can join it.
    fn make_room(&mut self, slab: &mut Slab, step: i64) {
        match self.count {
            // A first sample has no step, so the step of the previous chunk stays.
            0 => {}
            1 => self.step = step,
            _ => {
                self.pack(slab, step);
                self.step = step;
            }
        }
    }

    /// Packs the group, which is not empty.
    ///
    /// PERF: whole groups without a change of the step, nearly all, are written directly to the slab from
    /// registers. A buffer on the stack that is read back in other widths would wait for all earlier stores
    /// (no store forwarding), and those miss the cache.
    ///   cargo bench -p chronolith-import --bench import_speed
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

    /// Writes the prefix of the stream; all samples of the chunk are in the first group.
    #[cold]
    fn begin_stream(&mut self, slab: &mut Slab) {
        self.base = self.group[0];
        let before = self.last_time.wrapping_sub(self.step.wrapping_mul(i64::from(self.group_len)));
        for word in [before.cast_unsigned(), self.step.cast_unsigned(), self.base] {
            slab.append(&mut self.stream, &word.to_le_bytes());
        }
    }

    /// Replaces `columns` by the samples and empties the chunk. `scratch` is reused for packed bytes.
    pub(super) fn drain(&mut self, slab: &mut Slab, scratch: &mut Vec<u8>, columns: &mut Columns) {
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

/// Byte positions at which the values of a group differ from the base.
#[derive(Clone, Copy)]
struct Differing {
    /// Equal bytes at the high end.
    front: u32,
    len: u32,
    /// Equal bits at the low end.
    shift: u32,
}

impl Differing {
    #[inline]
    fn of(group: &[u64], base: u64) -> Differing {
        let differs = group.iter().fold(0, |differs, bits| differs | (bits ^ base));
        // Without a difference, all eight bytes are equal, which exceeds three bits: `len` is 0 then.
        let front = (differs.leading_zeros() / 8) & 7;
        let equal_low = differs.trailing_zeros() / 8;
        let len = 8u32.saturating_sub(front + equal_low) * u32::from(differs != 0);
        Differing { front, len, shift: 8 * equal_low % 64 }
    }

    fn header(self) -> u8 {
        (self.front << LENGTH_BITS | self.len) as u8
    }

    /// Bytes that [`put_whole_group`] writes to: values are written eight bytes at a time.
    fn group_bytes(self) -> usize {
        1 + (GROUP - 1) * self.len as usize + VALUE_BYTES
    }
}

/// Writes a full group without a change of the step to `out`, which has [`Differing::group_bytes`] bytes.
#[inline]
fn put_whole_group(group: &[u64; GROUP], base: u64, differing: Differing, out: &mut [u8]) {
    out[0] = differing.header();
    put_values(group, base, differing, &mut out[1..]);
}

/// Writes any group to `out`; returns its length.
fn put_group_packed(
    group: &[u64],
    base: u64,
    differing: Differing,
    change: i64,
    out: &mut [u8; GROUP_BYTES_MAX],
) -> usize {
    out[0] = differing.header();
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

/// Appends the samples of a group to `columns`; returns the time of the last one.
fn put_group(before: i64, step: i64, group: &[u64], columns: &mut Columns) -> i64 {
    let time_at = |samples: usize| before.wrapping_add(step.wrapping_mul(samples as i64));
    columns.times.extend(group.iter().enumerate().map(|(idx, _)| time_at(idx + 1)));
    columns.values.extend(group.iter().map(|&bits| f64::from_bits(bits)));
    time_at(group.len())
}

/// Decodes `count` samples. `packed` is memory of this process, so that damage is a bug, not an error.
fn unpack(packed: &mut Vec<u8>, count: usize, columns: &mut Columns) {
    if count == 0 {
        assert!(packed.is_empty(), "a stream without groups is empty");
        return;
    }
    // Padding, so that eight bytes can be read at each value.
    packed.extend_from_slice(&[0; VALUE_BYTES]);
    let mut time = word_at(packed, 0).cast_signed();
    let mut step = word_at(packed, 8).cast_signed();
    let mut base = word_at(packed, 16);
    let mut at = PREFIX_BYTES;
    let mut done = 0;
    while done < count {
        let header = packed[at];
        at += 1;
        let (mut group_len, mut change) = (GROUP, 0);
        if header & ENDS_STEP != 0 {
            group_len = usize::from(packed[at]);
            at += 1;
            change = take_change(packed, &mut at);
        }
        let len = u32::from(header) & ((1 << LENGTH_BITS) - 1);
        let front = (u32::from(header) >> LENGTH_BITS) & 7;
        // `len` 0 is a shift by 64, which is the mask 0.
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
        fn drained_samples_equal_appended_ones(samples in prop::collection::vec((any::<i64>(), any::<u64>(), 0..12u8), 1..300)) {
            let mut slab = Slab::new();
            let mut open = OpenChunk::EMPTY;
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

    /// Drains `open` and compares its samples with `expected`, which it empties.
    #[track_caller]
    fn check_drained(slab: &mut Slab, open: &mut OpenChunk, expected: &mut Vec<(i64, u64)>) {
        let mut columns = Columns::default();
        open.drain(slab, &mut Vec::new(), &mut columns);
        let got: Vec<_> = columns.times.iter().zip(&columns.values).map(|(t, v)| (*t, v.to_bits())).collect();
        assert_eq!(&got, expected);
        expected.clear();
    }
}
