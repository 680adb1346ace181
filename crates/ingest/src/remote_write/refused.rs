//! Series, histograms and exemplars that were refused while the others of their request are decoded.
//!
//! Invariant: only the first reason is kept, as Prometheus reports it.

/// What was refused while decoding a request of which the rest is good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// Series.
    pub series_count: u64,
    /// Float samples of these series.
    pub sample_count: u64,
    /// Native histograms of these series.
    pub histogram_count: u64,
    /// Native histograms of other series that are not valid.
    pub invalid_histogram_count: u64,
    /// Exemplars, of these series and of others.
    pub exemplar_count: u64,
    /// What is wrong with the first of them, in Prometheus's words.
    pub first: Option<String>,
}

impl Refused {
    /// Returns true if nothing was refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn note(&mut self, why: impl FnOnce() -> String) {
        if self.first.is_none() {
            self.first = Some(why());
        }
    }
}
