//! Memory limit of the whole head: the estimate of a batch is reserved before any of it is applied.
//!
//! Invariants: a batch is refused whole or not at all. `used_bytes` is the last measurement plus all
//! reservations since, an upper estimate: between two measurements the head exceeds the limit by the running
//! batches at most.
//! Not here: measuring (`statistics`) and its schedule (`tsdb`).

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_model::WriteBatch;

use crate::options::WriteError;

/// Memory of a series in addition to its label bytes: record, index, keys, an open chunk.
const SERIES_BYTES: u64 = 320;
/// Memory of a float until the next measurement: its share of an open chunk.
const SAMPLE_BYTES: u64 = 4;
/// Memory of a native histogram until the next measurement.
const HISTOGRAM_BYTES: u64 = 256;

/// Byte counter with a limit, from which appends reserve.
#[derive(Debug, Default)]
pub(crate) struct MemoryLimit {
    /// 0 = no limit.
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

impl MemoryLimit {
    pub(crate) fn new(limit_bytes: u64) -> MemoryLimit {
        MemoryLimit { limit_bytes, used_bytes: AtomicU64::new(0) }
    }

    fn reserve(&self, bytes: u64) -> Result<(), WriteError> {
        let limit_bytes = self.limit_bytes;
        if bytes > limit_bytes {
            return Err(WriteError::NeverFits { needed_bytes: bytes, limit_bytes });
        }
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit_bytes);
        let reserved = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        reserved.map(drop).map_err(|used_bytes| WriteError::HeadFull { used_bytes, limit_bytes })
    }

    /// Reserves memory for a batch that is not applied yet; `misses` are its new series.
    ///
    /// # Errors
    /// [`WriteError`]: the limit does not allow it.
    pub(crate) fn reserve_batch(&self, batch: &WriteBatch, misses: &[u32]) -> Result<(), WriteError> {
        if self.limit_bytes == 0 {
            return Ok(());
        }
        let label_bytes = |&idx: &u32| {
            let key = batch.key_of(idx as usize);
            (key.raw.len() + key.field.len()) as u64
        };
        let created_bytes = misses.iter().map(|idx| SERIES_BYTES + label_bytes(idx)).sum::<u64>();
        let float_bytes = batch.times.len() as u64 * SAMPLE_BYTES;
        let histogram_bytes = batch.histograms.len() as u64 * HISTOGRAM_BYTES;
        self.reserve(created_bytes + float_bytes + histogram_bytes)
    }

    /// Records a measurement; `measure` is called only if there is a limit.
    pub(crate) fn update(&self, measure: impl FnOnce() -> u64) {
        if self.limit_bytes > 0 {
            self.used_bytes.store(measure(), Ordering::Relaxed);
        }
    }

    /// Returns the last measurement plus reservations since, in bytes, and the limit; 0 = no limit.
    pub(crate) fn used_and_limit(&self) -> (u64, u64) {
        (self.used_bytes.load(Ordering::Relaxed), self.limit_bytes)
    }
}
