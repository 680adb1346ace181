//! Open chunks of native histograms, of the few series that have one.
//!
//! Invariant: a series has at most one open chunk: of words in its record, or of histograms here.
//! Not here: chunk bytes (`format::chunk::histogram`), sealed chunks and out-of-order histograms, which are
//! stored like words.

mod budget;

use chronolith_base::hash::HashMap;
use chronolith_format::chunk::histogram::HistogramAppender;

use crate::memory_part::MemoryPart;

pub(crate) use budget::HistogramBudget;

/// Open chunk of histograms of one series.
struct OpenChunk {
    appender: HistogramAppender,
    /// End of the window of the chunk.
    window_end: i64,
    bytes: usize,
}

/// Open chunks of histograms of a stripe.
#[derive(Default)]
pub(super) struct OpenHistograms {
    by_series: HashMap<u32, Box<OpenChunk>>,
    open_bytes: usize,
    /// Bytes last reported to the budget of the head.
    reported_bytes: u64,
}

impl OpenHistograms {
    /// Returns the open chunk of a series.
    pub(super) fn get(&self, id: u32) -> Option<&HistogramAppender> {
        // Most stripes have none, and skip the hash.
        if self.by_series.is_empty() { None } else { self.by_series.get(&id).map(|open| &open.appender) }
    }

    /// Calls `append` with the open chunk of a series, if there is one, and the end of its window; counts its
    /// bytes again.
    pub(super) fn update<R>(
        &mut self,
        id: u32,
        append: impl FnOnce(&mut HistogramAppender, i64) -> R,
    ) -> Option<R> {
        let open = self.by_series.get_mut(&id)?;
        let result = append(&mut open.appender, open.window_end);
        let bytes = open.appender.heap_bytes();
        self.open_bytes = self.open_bytes + bytes - std::mem::replace(&mut open.bytes, bytes);
        Some(result)
    }

    /// Adds the open chunk of a series that has none.
    pub(super) fn insert(&mut self, id: u32, appender: HistogramAppender, window_end: i64) {
        let bytes = appender.heap_bytes();
        self.open_bytes += bytes;
        let before = self.by_series.insert(id, Box::new(OpenChunk { appender, window_end, bytes }));
        debug_assert!(before.is_none(), "a series has one open chunk");
    }

    /// Removes and returns the open chunk of a series.
    pub(super) fn remove(&mut self, id: u32) -> Option<HistogramAppender> {
        if self.by_series.is_empty() {
            return None;
        }
        let open = self.by_series.remove(&id)?;
        self.open_bytes -= open.bytes;
        if self.by_series.is_empty() {
            // Frees all memory after a peak.
            *self = OpenHistograms { reported_bytes: self.reported_bytes, ..OpenHistograms::default() };
        }
        Some(open.appender)
    }

    /// Returns the series with open chunks, the largest first.
    pub(super) fn largest(&self) -> Vec<u32> {
        let mut all: Vec<(usize, u32)> = self.by_series.iter().map(|(&id, open)| (open.bytes, id)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    pub(super) fn count(&self) -> u64 {
        self.by_series.len() as u64
    }

    /// Reports the bytes of open and `buffered_bytes` of out-of-order histograms of the stripe; returns true
    /// if all stripes together exceed the budget and this one has more than it may keep.
    pub(super) fn report(&mut self, budget: &HistogramBudget, buffered_bytes: usize) -> bool {
        let bytes = (self.open_bytes + buffered_bytes) as u64;
        let change = bytes.wrapping_sub(std::mem::replace(&mut self.reported_bytes, bytes));
        budget.is_exceeded_after(change) && bytes > budget.kept_bytes()
    }

    /// Returns the memory of open chunks and of `buffered_bytes` of out-of-order histograms.
    pub(super) fn memory(&self, buffered_bytes: usize) -> MemoryPart {
        let entry_bytes = size_of::<(u32, Box<OpenChunk>)>();
        let open = self.open_bytes + self.by_series.len() * size_of::<OpenChunk>();
        let bytes = open + buffered_bytes + self.by_series.capacity() * entry_bytes;
        MemoryPart::new("histograms", bytes as u64, self.count())
    }
}
