//! Objects that an owner leaves in the bucket for an operator, below the folder of the cluster.
//!
//! Not here: which objects, and when (`refused`, `accepted_gaps`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Clock;
use chronolith_bucket::{BucketError, Purpose, RequestContext, Store};
use tokio::runtime::Handle;

use crate::folder::cluster_folder;

/// Longest time of one upload.
const PUT_TIMEOUT: Duration = Duration::from_secs(10);

/// Writer of such objects.
#[derive(Clone)]
pub(super) struct KeptObjects {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    handle: Handle,
}

impl KeptObjects {
    /// Requests run on the runtime of `handle`.
    pub(super) fn new(store: Arc<Store>, clock: Arc<dyn Clock>, handle: Handle) -> KeptObjects {
        KeptObjects { store, clock, handle }
    }

    /// Stores an object durably; replaces one that is there. Blocks the thread.
    ///
    /// # Errors
    /// [`BucketError`]; the object may be there.
    pub(super) fn put(&self, key: &str, bytes: Bytes) -> Result<(), BucketError> {
        let request =
            RequestContext::with_timeout(&*self.clock, cluster_folder(), PUT_TIMEOUT, Purpose::Upload);
        self.handle.block_on(self.store.put(&request, key, bytes)).map(drop)
    }

    /// Milliseconds since 1970.
    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }
}
