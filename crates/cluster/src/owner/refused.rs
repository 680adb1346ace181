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

/// Refused records in the bucket: `cluster/refused/PARTITION/OFFSET`.
pub(super) struct RefusedRecords {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    handle: Handle,
}

impl RefusedRecords {
    /// Requests run on the runtime of `handle`.
    pub(super) fn new(store: Arc<Store>, clock: Arc<dyn Clock>, handle: Handle) -> RefusedRecords {
        RefusedRecords { store, clock, handle }
    }

    /// Stores the bytes of a record durably. The same record may be stored again. Blocks the thread.
    ///
    /// # Errors
    /// The reason; the caller tries again later.
    pub(super) fn keep(&self, partition: LogPartition, offset: u64, record: &Bytes) -> Result<(), String> {
        let request =
            RequestContext::with_timeout(&*self.clock, cluster_folder(), PUT_TIMEOUT, Purpose::Upload);
        let key = key_of(partition, offset);
        let put = self.handle.block_on(self.store.put(&request, &key, record.clone()));
        put.map_err(|error| format!("keeping a refused record as {key} failed: {error}"))
    }
}

/// Returns the key of a refused record.
fn key_of(partition: LogPartition, offset: u64) -> String {
    format!("{CLUSTER_FOLDER}/refused/{}/{offset}", partition.number)
}

#[cfg(test)]
mod tests;
