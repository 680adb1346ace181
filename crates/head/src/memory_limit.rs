//! Limit of the memory of the whole head: what a batch may need is reserved before any of it is applied.
//!
//! Holds: a batch is refused whole or not at all. `used` is the last measurement plus what was reserved
//! since, an estimate from above, so between two measurements the head does not grow beyond the limit by more
//! than the batches under way.
//! Not here: measuring (`memory`), when it is done (`tsdb`).

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_model::WriteBatch;

use crate::append::AppendScratch;
use crate::head::Head;
use crate::options::WriteError;

/// Memory of a series beside the bytes of its labels: its record, index, keys, an open chunk.
const SERIES_BYTES: u64 = 320;
/// Memory of a float until the next measurement: in an open chunk.
const SAMPLE_BYTES: u64 = 4;
/// Memory of a native histogram until then.
const HISTOGRAM_BYTES: u64 = 256;

/// See the module.
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
}

impl Head {
    /// Reserves memory for a batch whose series have been looked up; none of it has been applied yet.
    pub(crate) fn reserve_memory(
        &self,
        batch: &WriteBatch,
        scratch: &AppendScratch,
    ) -> Result<(), WriteError> {
        if self.memory_limit.limit_bytes == 0 {
            return Ok(());
        }
        let label_bytes = |&idx: &u32| batch.raw_of(&batch.series[idx as usize]).len() as u64;
        let created_bytes = scratch.misses.iter().map(|idx| SERIES_BYTES + label_bytes(idx)).sum::<u64>();
        let float_bytes = batch.times.len() as u64 * SAMPLE_BYTES;
        let histogram_bytes = batch.histograms.len() as u64 * HISTOGRAM_BYTES;
        self.memory_limit.reserve(created_bytes + float_bytes + histogram_bytes)
    }

    /// Measures the memory of the head for its limit; to be called every second. Cost: as [`Head::memory`].
    pub fn measure_memory(&self) {
        if self.memory_limit.limit_bytes > 0 {
            let bytes = self.memory().iter().map(|part| part.bytes).sum();
            self.memory_limit.used_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Memory that counts against the limit, and the limit; both 0 if there is none.
    #[must_use]
    pub fn memory_used_and_limit(&self) -> (u64, u64) {
        (self.memory_limit.used_bytes.load(Ordering::Relaxed), self.memory_limit.limit_bytes)
    }
}
