//! Decoded samples of one series as columns.
//!
//! Invariants: timestamps ascend; the columns of times and values have equal lengths.
//! Not here: columns of one type (`typed`), merge of columns (`mixed`).

use std::sync::Arc;

use crate::Histogram;

/// Decoded samples of a series as columns; reused from series to series.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Columns {
    /// In the unit of the source, ascending.
    pub times: Vec<i64>,
    /// One value per time; of a histogram its sum.
    pub values: Vec<f64>,
    /// Samples that are histograms: index into the other columns, ascending. Empty for a series of floats.
    pub histograms: Vec<(u32, Arc<Histogram>)>,
    /// Start timestamps in that unit; 0 if unknown. May be shorter than the other columns: the rest is
    /// unknown. Empty for a series without start timestamps.
    pub start_times: Vec<i64>,
}

impl Columns {
    /// Empties all columns, keeping their memory.
    pub fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.histograms.clear();
        self.start_times.clear();
    }

    /// Start timestamp of the sample at `idx`; 0 if unknown.
    #[must_use]
    pub fn start_time_at(&self, idx: usize) -> i64 {
        self.start_times.get(idx).copied().unwrap_or(0)
    }

    /// Sets the start timestamp of the last sample.
    pub fn set_start_time(&mut self, start_ms: i64) {
        let last = self.times.len().saturating_sub(1);
        self.start_times.resize(last, 0);
        self.start_times.push(start_ms);
    }

    /// Appends a sample.
    pub fn push(&mut self, time: i64, value: f64) {
        self.times.push(time);
        self.values.push(value);
    }

    /// Appends a sample that is a histogram.
    ///
    /// # Panics
    /// Beyond 4 G samples.
    pub fn push_histogram(&mut self, time: i64, histogram: Arc<Histogram>) {
        let idx = u32::try_from(self.times.len()).expect("columns are below 4 G samples");
        self.push(time, histogram.sum());
        self.histograms.push((idx, histogram));
    }

    /// The histogram at `idx`, if that sample is one. Cost: a binary search among the histograms.
    #[must_use]
    pub fn histogram_at(&self, idx: usize) -> Option<&Arc<Histogram>> {
        let idx = u32::try_from(idx).ok()?;
        let at = self.histograms.binary_search_by_key(&idx, |(idx, _)| *idx).ok()?;
        self.histograms.get(at).map(|(_, histogram)| histogram)
    }

    /// Appends sample `idx` of `other`, of either kind.
    ///
    /// # Panics
    /// If `other` has no such sample.
    pub fn push_from(&mut self, other: &Columns, idx: usize) {
        if other.histograms.is_empty() && other.start_times.is_empty() {
            self.push(other.times[idx], other.values[idx]);
            return;
        }
        match other.histogram_at(idx) {
            Some(histogram) => self.push_histogram(other.times[idx], histogram.clone()),
            None => self.push(other.times[idx], other.values[idx]),
        }
        let start_ms = other.start_time_at(idx);
        if start_ms != 0 {
            self.set_start_time(start_ms);
        }
    }

    /// Bytes of the histograms, for budgets; shared ones are counted in full.
    #[must_use]
    pub fn histogram_bytes(&self) -> usize {
        let bytes = |(_, histogram): &(u32, Arc<Histogram>)| histogram.memory_bytes() + 16;
        self.histograms.iter().map(bytes).sum()
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns true if there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }
}
