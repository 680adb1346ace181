//! Limits of what one query reads from blocks in object storage.
//!
//! Invariants: bytes, series and chunks are counted before they are requested, whether they are cached or
//! not; a query whose count is above a limit fails.
//! Not here: memory of the query (`base::MemoryBudget`).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::FetchLimits;

/// Kind of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchLimit {
    /// Bytes.
    Bytes,
    /// Series.
    Series,
    /// Chunks.
    Chunks,
}

impl FetchLimit {
    /// All kinds.
    pub const ALL: [FetchLimit; 3] = [FetchLimit::Bytes, FetchLimit::Series, FetchLimit::Chunks];

    /// Name of its setting.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            FetchLimit::Bytes => "query.max-fetched-bytes",
            FetchLimit::Series => "query.max-fetched-series",
            FetchLimit::Chunks => "query.max-fetched-chunks",
        }
    }

    const fn what(self) -> &'static str {
        match self {
            FetchLimit::Bytes => {
                "reads more bytes of blocks in the bucket than query.max-fetched-bytes allows"
            }
            FetchLimit::Series => {
                "selects more series of blocks in the bucket than query.max-fetched-series allows"
            }
            FetchLimit::Chunks => {
                "selects more chunks of blocks in the bucket than query.max-fetched-chunks allows"
            }
        }
    }

    pub(super) const fn of(self, limits: &FetchLimits) -> u64 {
        match self {
            FetchLimit::Bytes => limits.bytes_max,
            FetchLimit::Series => limits.series_max,
            FetchLimit::Chunks => limits.chunks_max,
        }
    }
}

/// A limit that a query exceeds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exceeded {
    /// The query, and the setting.
    pub(super) what: &'static str,
    /// Value of the setting.
    pub(super) max: u64,
}

/// Counts of one query.
#[derive(Debug, Default)]
pub(super) struct FetchCounts {
    counts: [AtomicU64; FetchLimit::ALL.len()],
    /// One bit per limit that was exceeded.
    exceeded: AtomicU64,
}

impl FetchCounts {
    /// Adds to the count of `limit`.
    pub(super) fn add(&self, limits: &FetchLimits, limit: FetchLimit, count: u64) -> Result<(), Exceeded> {
        if limit.of(limits) == 0 {
            return Ok(());
        }
        let before = self.counts[limit as usize].fetch_add(count, Ordering::Relaxed);
        self.check(limits, limit, before.saturating_add(count))
    }

    /// Checks the count of a part, which never exceeds the count of the whole query.
    pub(super) fn check(&self, limits: &FetchLimits, limit: FetchLimit, count: u64) -> Result<(), Exceeded> {
        let max = limit.of(limits);
        if max == 0 || count <= max {
            return Ok(());
        }
        self.exceeded.fetch_or(1 << limit as u64, Ordering::Relaxed);
        Err(Exceeded { what: limit.what(), max })
    }

    /// Returns true if the query failed because of `limit`.
    pub(super) fn is_exceeded(&self, limit: FetchLimit) -> bool {
        self.exceeded.load(Ordering::Relaxed) & (1 << limit as u64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_at_the_limit_passes_and_one_above_fails() {
        let limits = FetchLimits { bytes_max: 10, series_max: 10, chunks_max: 10 };
        for limit in FetchLimit::ALL {
            let counts = FetchCounts::default();
            assert!(counts.add(&limits, limit, 7).is_ok() && counts.add(&limits, limit, 3).is_ok());
            assert!(!counts.is_exceeded(limit));
            let error = counts.add(&limits, limit, 1).unwrap_err();
            assert!(error.what.contains(limit.setting()) && error.max == 10, "{error:?}");
            let exceeded: Vec<bool> = FetchLimit::ALL.iter().map(|one| counts.is_exceeded(*one)).collect();
            assert_eq!(exceeded, FetchLimit::ALL.map(|one| one == limit));
            let unlimited = FetchCounts::default();
            assert!(unlimited.add(&FetchLimits::default(), limit, u64::MAX).is_ok());
        }
    }

    #[test]
    fn a_part_above_the_limit_fails_without_being_counted() {
        let limits = FetchLimits { series_max: 10, ..FetchLimits::default() };
        let counts = FetchCounts::default();
        assert!(counts.check(&limits, FetchLimit::Series, 10).is_ok());
        assert!(counts.check(&limits, FetchLimit::Series, 11).is_err());
        assert!(counts.add(&limits, FetchLimit::Series, 10).is_ok());
    }
}
