//! Late samples of the few series that have some, sorted by time.
//! Holds: at most [`LATE_COUNT_MAX`] samples a series, one a time.

use chronolith_model::{Columns, TimeRange};

/// Late samples of one series at which they are sealed.
pub(crate) const LATE_COUNT_MAX: usize = 128;

/// See the module.
#[derive(Default)]
pub(crate) struct LateSamples {
    buffers: Vec<Columns>,
    free: Vec<u32>,
}

impl LateSamples {
    /// An empty buffer.
    pub(crate) fn alloc(&mut self) -> u32 {
        if let Some(handle) = self.free.pop() {
            return handle;
        }
        self.buffers.push(Columns::default());
        (self.buffers.len() - 1) as u32
    }

    /// Inserts a sample whose time is not there yet; gives the count.
    pub(crate) fn insert(&mut self, handle: u32, time: i64, value_bits: u64) -> usize {
        let buffer = &mut self.buffers[handle as usize];
        let at = buffer.times.partition_point(|&t| t < time);
        debug_assert!(buffer.times.get(at) != Some(&time), "conflicts are found before");
        buffer.times.insert(at, time);
        buffer.values.insert(at, f64::from_bits(value_bits));
        buffer.len()
    }

    /// Bits of the value at `time`.
    pub(crate) fn value(&self, handle: u32, time: i64) -> Option<u64> {
        let buffer = &self.buffers[handle as usize];
        buffer.times.binary_search(&time).ok().map(|i| buffer.values[i].to_bits())
    }

    /// All samples.
    pub(crate) fn samples(&self, handle: u32) -> &Columns {
        &self.buffers[handle as usize]
    }

    /// Replaces the samples of a new buffer (restart).
    pub(crate) fn fill(&mut self, handle: u32, samples: Columns) {
        self.buffers[handle as usize] = samples;
    }

    /// Removes and returns the samples in `range`.
    pub(crate) fn take(&mut self, handle: u32, range: TimeRange) -> Columns {
        let buffer = &mut self.buffers[handle as usize];
        let start = buffer.times.partition_point(|&t| t < range.start);
        let end = buffer.times.partition_point(|&t| t < range.end);
        let taken = Columns {
            times: buffer.times.drain(start..end).collect(),
            values: buffer.values.drain(start..end).collect(),
            ..Columns::default()
        };
        buffer.times.shrink_to(2 * buffer.times.len());
        buffer.values.shrink_to(2 * buffer.values.len());
        taken
    }

    pub(crate) fn is_empty(&self, handle: u32) -> bool {
        self.buffers[handle as usize].is_empty()
    }

    /// Buffers in use.
    pub(crate) fn count(&self) -> u64 {
        (self.buffers.len() - self.free.len()) as u64
    }

    /// Gives the buffer and its memory back.
    pub(crate) fn free(&mut self, handle: u32) {
        self.buffers[handle as usize] = Columns::default();
        self.free.push(handle);
        if self.free.len() == self.buffers.len() {
            // After a peak nothing is kept of it, not even the lists.
            (self.buffers, self.free) = (Vec::new(), Vec::new());
        }
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        let samples: usize =
            self.buffers.iter().map(|b| 8 * (b.times.capacity() + b.values.capacity())).sum();
        (samples + self.buffers.capacity() * size_of::<Columns>() + 4 * self.free.capacity()) as u64
    }
}
