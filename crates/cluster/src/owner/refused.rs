//! Records that cannot be applied, kept for an operator.
//!
//! Invariant: a record is passed over only after it is kept.
//! Not here: the decision that a record cannot be applied (the parent).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Clock;
use chronolith_bucket::{Purpose, RequestContext, Store};
use chronolith_model::log_position::LogPartition;
use tokio::runtime::Handle;

use crate::folder::{CLUSTER_FOLDER, cluster_folder};

/// Longest time of one upload.
const PUT_TIMEOUT: Duration = Duration::from_secs(10);

/// Store of records that cannot be applied.
pub trait RefusedRecords: Send + Sync {
    /// Stores the bytes of a record durably. The same record may be stored again.
    ///
    /// # Errors
    /// The reason; the caller tries again later.
    fn keep(&self, partition: LogPartition, offset: u64, record: &Bytes) -> Result<(), String>;
}

/// Refused records in the bucket: `cluster/refused/PARTITION/OFFSET`.
pub struct BucketRefusals {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    handle: Handle,
}

impl BucketRefusals {
    /// Requests run on the runtime of `handle`; the caller's thread is none of it.
    #[must_use]
    pub fn new(store: Arc<Store>, clock: Arc<dyn Clock>, handle: Handle) -> BucketRefusals {
        BucketRefusals { store, clock, handle }
    }
}

/// Returns the key of a refused record.
fn key_of(partition: LogPartition, offset: u64) -> String {
    format!("{CLUSTER_FOLDER}/refused/{}/{offset}", partition.number)
}

impl RefusedRecords for BucketRefusals {
    fn keep(&self, partition: LogPartition, offset: u64, record: &Bytes) -> Result<(), String> {
        let request =
            RequestContext::with_timeout(&*self.clock, cluster_folder(), PUT_TIMEOUT, Purpose::Upload);
        let key = key_of(partition, offset);
        let put = self.handle.block_on(self.store.put(&request, &key, record.clone()));
        put.map_err(|error| format!("keeping a refused record as {key} failed: {error}"))
    }
}

#[cfg(test)]
mod tests;
