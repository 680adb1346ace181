//! Pool of write batches for reuse. Invariant: it has few and small ones, so that one big request does not
//! pin its memory for ever.

use chronolith_model::WriteBatch;
use parking_lot::Mutex;

use crate::limits::{BATCH_POOL_BYTES_MAX, BATCH_POOL_COUNT_MAX};

/// Empty batches of one protocol.
pub struct BatchPool {
    free: Mutex<Vec<WriteBatch>>,
    new_batch: fn() -> WriteBatch,
}

impl BatchPool {
    /// A pool of batches of one protocol.
    pub fn new(new_batch: fn() -> WriteBatch) -> BatchPool {
        BatchPool { free: Mutex::default(), new_batch }
    }

    /// An empty batch.
    pub fn take(&self) -> WriteBatch {
        self.free.lock().pop().unwrap_or_else(self.new_batch)
    }

    /// Gives a batch back; kept if there is room and it is not large.
    pub fn give(&self, mut batch: WriteBatch) {
        if heap_bytes(&batch) > BATCH_POOL_BYTES_MAX {
            return;
        }
        batch.clear();
        // A decoder may have changed the parser of its wire keys.
        batch.source = (self.new_batch)().source;
        let mut free = self.free.lock();
        if free.len() < BATCH_POOL_COUNT_MAX {
            free.push(batch);
        }
    }

    /// Bytes of the batches at hand, and how many they are.
    pub fn bytes_and_len(&self) -> (u64, u64) {
        let free = self.free.lock();
        (free.iter().map(|batch| heap_bytes(batch) as u64).sum(), free.len() as u64)
    }

    /// Batches at hand.
    pub fn free_count(&self) -> usize {
        self.free.lock().len()
    }
}

fn heap_bytes(batch: &WriteBatch) -> usize {
    batch.raw.capacity()
        + batch.series.capacity() * size_of::<chronolith_model::BatchSeries>()
        + (batch.times.capacity() + batch.values.capacity() + batch.start_times.capacity()) * 8
        + (batch.fields.capacity() + batch.texts.capacity()) * 8
        + batch.rows.capacity() * 4
}
