//! Lost records that an operator has accepted, recorded for those who look for them later.
//!
//! Invariant: a gap is passed over only after it is recorded.
//! Not here: the decision that records are lost (the parent).

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Clock;
use chronolith_base::utc::rfc3339_ms;
use chronolith_bucket::{BucketError, Purpose, RequestContext, Store};
use chronolith_model::log_position::LogPartition;
use tokio::runtime::Handle;

use crate::folder::{CLUSTER_FOLDER, cluster_folder};

/// Longest time of one upload.
const PUT_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepted gaps in the bucket: `cluster/accepted-gaps/PARTITION/FROM-TO`, each with a line of text.
pub(super) struct AcceptedGaps {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    handle: Handle,
}

impl AcceptedGaps {
    /// Requests run on the runtime of `handle`.
    pub(super) fn new(store: Arc<Store>, clock: Arc<dyn Clock>, handle: Handle) -> AcceptedGaps {
        AcceptedGaps { store, clock, handle }
    }

    /// Records a gap of `partition` with the reason for its loss, and logs it. The same gap may be recorded
    /// again. Blocks the thread.
    ///
    /// # Errors
    /// As other requests.
    pub(super) fn record(
        &self,
        partition: LogPartition,
        lost: &Range<u64>,
        why: &str,
    ) -> Result<(), BucketError> {
        let request =
            RequestContext::with_timeout(&*self.clock, cluster_folder(), PUT_TIMEOUT, Purpose::Upload);
        let accepted = rfc3339_ms(self.clock.now_ms());
        let text = format!("accepted at {accepted} by --owner.accept-gap: {why}\n");
        let key = key_of(partition, lost);
        self.handle.block_on(self.store.put(&request, &key, Bytes::from(text)))?;
        tracing::error!(%partition, from = lost.start, to = lost.end, why, "skips lost records, as accepted");
        Ok(())
    }
}

fn key_of(partition: LogPartition, lost: &Range<u64>) -> String {
    format!("{CLUSTER_FOLDER}/accepted-gaps/{}/{}-{}", partition.number, lost.start, lost.end)
}
