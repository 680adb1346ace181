//! Late samples of the few series that have some, sorted by time.
//! Holds: one sample a time in a buffer; a sample here is younger than one of the same time in a chunk, and wins.

use chronolith_model::{Columns, TimeRange};

/// Late samples of one series at which they are sealed.
pub(crate) const LATE_COUNT_MAX: usize = 256;
/// Late samples of a series whose sealed chunks are so many that merging pays only with more.
const LATE_COUNT_LIMIT: usize = 4096;
/// Chunk samples that one late sample may make the head encode again.
const MERGE_FACTOR: usize = 8;
/// Bytes of late samples in a stripe that halve [`LATE_COUNT_MAX`], and halve it again with every further
/// portion: all stripes together never hold more than half a gigabyte.
const LATE_BYTES_STEP: usize = 4 << 20;

/// Samples that a buffer has room for at first: most series that have a late sample get some more.
const ROOM_COUNT: usize = 8;

/// The late samples of one series, times and value bits side by side: a lookup and the insertion behind it touch
/// the same lines.
#[derive(Default)]
struct Buffer {
    samples: Vec<(i64, u64)>,
    /// No sealed chunk of the series has an earlier sample. May be too early, never too late.
    sealed_from: i64,
}

impl Buffer {
    fn heap_bytes(&self) -> usize {
        size_of::<(i64, u64)>() * self.samples.capacity()
    }

    /// Where the samples in `range` are.
    fn places(&self, range: TimeRange) -> std::ops::Range<usize> {
        let start = self.samples.partition_point(|s| s.0 < range.start);
        start..self.samples.partition_point(|s| s.0 < range.end).max(start)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct LateSamples {
    buffers: Vec<Buffer>,
    free: Vec<u32>,
    /// Heap bytes of the samples of all buffers.
    sample_bytes: usize,
}

impl LateSamples {
    /// An empty buffer of a series whose sealed chunks start at `sealed_from`.
    pub(crate) fn alloc(&mut self) -> u32 {
        if let Some(handle) = self.free.pop() {
            return handle;
        }
        self.buffers.push(Buffer::default());
        (self.buffers.len() - 1) as u32
    }

    /// Says that no sealed chunk of the series has a sample before `time`.
    pub(crate) fn set_sealed_from(&mut self, handle: u32, time: i64) {
        self.buffers[handle as usize].sealed_from = time;
    }

    /// A chunk that starts at `time` has been sealed.
    pub(crate) fn note_sealed(&mut self, handle: u32, time: i64) {
        let from = &mut self.buffers[handle as usize].sealed_from;
        *from = time.min(*from);
    }

    /// Whether sealed chunks of the series may have samples of `time`.
    pub(crate) fn may_be_sealed(&self, handle: u32, time: i64) -> bool {
        time >= self.buffers[handle as usize].sealed_from
    }

    /// Inserts a sample whose time is not there yet at `place`, which [`LateSamples::find`] gave; gives the count.
    pub(crate) fn insert(&mut self, handle: u32, place: usize, time: i64, value_bits: u64) -> usize {
        let buffer = &mut self.buffers[handle as usize];
        let before = buffer.samples.capacity();
        let samples = &mut buffer.samples;
        debug_assert!(samples[..place].last().is_none_or(|s| s.0 < time), "samples ascend");
        debug_assert!(samples.get(place).is_none_or(|s| s.0 > time), "equal times are found before");
        if samples.is_empty() {
            samples.reserve_exact(ROOM_COUNT);
        }
        samples.insert(place, (time, value_bits));
        self.sample_bytes += size_of::<(i64, u64)>() * (samples.capacity() - before);
        samples.len()
    }

    /// Replaces the value at `time`; false if there is none.
    pub(crate) fn replace(&mut self, handle: u32, time: i64, value_bits: u64) -> bool {
        let samples = &mut self.buffers[handle as usize].samples;
        let Ok(at) = samples.binary_search_by_key(&time, |s| s.0) else { return false };
        samples[at].1 = value_bits;
        true
    }

    /// Whether a buffer of `count` samples is to be sealed; `overlapped_count` tells how many samples that would
    /// encode again.
    pub(crate) fn is_full(&self, count: usize, overlapped_count: impl FnOnce() -> usize) -> bool {
        let halvings = (self.sample_bytes / LATE_BYTES_STEP).min(LATE_COUNT_MAX.ilog2() as usize);
        let count_max = LATE_COUNT_MAX >> halvings;
        if count < count_max || (halvings == 0 && !count.is_multiple_of(LATE_COUNT_MAX)) {
            return false;
        }
        halvings > 0 || count >= LATE_COUNT_LIMIT || overlapped_count() <= MERGE_FACTOR * count
    }

    /// Bits of the value at `time`, or where a sample of that time belongs.
    pub(crate) fn find(&self, handle: u32, time: i64) -> Result<u64, usize> {
        let samples = &self.buffers[handle as usize].samples;
        if samples.last().is_none_or(|last| last.0 < time) {
            return Err(samples.len());
        }
        let place = samples.partition_point(|s| s.0 < time);
        samples.get(place).filter(|s| s.0 == time).map(|s| s.1).ok_or(place)
    }

    /// A copy of all samples.
    pub(crate) fn samples(&self, handle: u32) -> Columns {
        self.samples_in(handle, TimeRange { start: i64::MIN, end: i64::MAX })
    }

    /// A copy of the samples in `range`.
    pub(crate) fn samples_in(&self, handle: u32, range: TimeRange) -> Columns {
        let buffer = &self.buffers[handle as usize];
        columns(&buffer.samples[buffer.places(range)])
    }

    /// Whether a sample lies in `range`.
    pub(crate) fn overlaps(&self, handle: u32, range: TimeRange) -> bool {
        !self.buffers[handle as usize].places(range).is_empty()
    }

    /// How many samples lie before `time`, and how many there are.
    pub(crate) fn counts(&self, handle: u32, time: i64) -> (usize, usize) {
        let samples = &self.buffers[handle as usize].samples;
        (samples.partition_point(|s| s.0 < time), samples.len())
    }

    /// Replaces the samples of a new buffer (restart).
    pub(crate) fn fill(&mut self, handle: u32, samples: Columns) {
        let bits = samples.values.iter().map(|v| v.to_bits());
        let samples = samples.times.iter().copied().zip(bits).collect();
        let buffer = &mut self.buffers[handle as usize];
        *buffer = Buffer { samples, sealed_from: i64::MIN };
        self.sample_bytes += buffer.heap_bytes();
    }

    /// Removes and returns the samples in `range`.
    pub(crate) fn take(&mut self, handle: u32, range: TimeRange) -> Columns {
        let buffer = &mut self.buffers[handle as usize];
        let places = buffer.places(range);
        if places.is_empty() {
            return Columns::default();
        }
        let before = buffer.heap_bytes();
        let taken = columns(&buffer.samples[places.clone()]);
        buffer.samples.drain(places);
        buffer.samples.shrink_to(2 * buffer.samples.len());
        self.sample_bytes -= before - buffer.heap_bytes();
        taken
    }

    pub(crate) fn is_empty(&self, handle: u32) -> bool {
        self.buffers[handle as usize].samples.is_empty()
    }

    /// Buffers in use.
    pub(crate) fn count(&self) -> u64 {
        (self.buffers.len() - self.free.len()) as u64
    }

    /// Gives the buffer and its memory back.
    pub(crate) fn free(&mut self, handle: u32) {
        let buffer = std::mem::take(&mut self.buffers[handle as usize]);
        self.sample_bytes -= buffer.heap_bytes();
        self.free.push(handle);
        if self.free.len() == self.buffers.len() {
            // After a peak nothing is kept of it, not even the lists.
            (self.buffers, self.free) = (Vec::new(), Vec::new());
        }
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        let lists = self.buffers.capacity() * size_of::<Buffer>() + 4 * self.free.capacity();
        (self.sample_bytes + lists) as u64
    }
}

fn columns(samples: &[(i64, u64)]) -> Columns {
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
        let mut late = LateSamples::default();
        assert!(!late.is_full(LATE_COUNT_MAX - 1, || 0));
        assert!(late.is_full(LATE_COUNT_MAX, || MERGE_FACTOR * LATE_COUNT_MAX));
        assert!(!late.is_full(LATE_COUNT_MAX, || MERGE_FACTOR * LATE_COUNT_MAX + 1));
        assert!(late.is_full(LATE_COUNT_LIMIT, || usize::MAX));
        let mut handles = Vec::new();
        let mut bytes_max = 0;
        for i in 0..3_000_000i64 {
            let handle = late.alloc();
            let count = late.insert(handle, 0, i, 1);
            if late.is_full(count, || usize::MAX) {
                late.free(handle);
            } else {
                handles.push(handle);
            }
            bytes_max = bytes_max.max(late.sample_bytes);
        }
        assert!(bytes_max <= 9 * LATE_BYTES_STEP, "{bytes_max}");
        handles.into_iter().for_each(|handle| late.free(handle));
        assert_eq!((late.sample_bytes, late.heap_bytes()), (0, 0));
    }
}
