//! Cache of catalogue numbers by store: the catalogue that a reader needs for samples which left the head
//! before the start of the process.
//!
//! An owner does not remember these samples. Each is in a block of the newest catalogue, so the number of the
//! newest one is read from the bucket with the first query of a store.
//! Invariant: a cached number was read after the start.
//! Not here: samples that leave later (`windows`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Env;
use chronolith_base::hash::HashMap;
use chronolith_bucket::snapshots::SnapshotReader;
use chronolith_bucket::{BucketError, Purpose, RequestContext, Store};
use chronolith_format::bucket::catalogue::Snapshot;
use chronolith_format::record::RecordStore;
use chronolith_model::TenantId;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::folder::store_folder;

/// Time for the answer of the bucket, for which a query waits.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time after a failure in which queries do not wait for the bucket.
const PAUSE_NS: u64 = 10_000_000_000;
/// Stores whose numbers are kept; one more forgets all, which are read again.
const STORES_MAX: usize = 10_000;

/// Numbers of catalogues by store.
pub(super) struct StartCatalogues {
    reader: SnapshotReader<Snapshot>,
    env: Env,
    handle: Handle,
    known: Mutex<HashMap<(TenantId, RecordStore), u64>>,
    /// Monotonic time of the last failure.
    failed_ns: Mutex<Option<u64>>,
}

impl StartCatalogues {
    /// Nothing is read yet. Requests run on the runtime of `handle`.
    pub(super) fn new(bucket: &Arc<Store>, env: &Env, handle: &Handle) -> StartCatalogues {
        StartCatalogues {
            reader: SnapshotReader::of_kind(bucket.clone(), env.clock.clone()),
            env: env.clone(),
            handle: handle.clone(),
            known: Mutex::default(),
            failed_ns: Mutex::default(),
        }
    }

    /// Returns the number of a store that was read; `None` before.
    pub(super) fn known(&self, tenant: &TenantId, store: RecordStore) -> Option<u64> {
        self.known.lock().get(&(tenant.clone(), store)).copied()
    }

    /// Returns true if the number of a store is not known, and the bucket has not failed recently.
    pub(super) fn is_due(&self, tenant: &TenantId, store: RecordStore) -> bool {
        let now_ns = self.env.clock.mono_ns();
        let is_paused = self.failed_ns.lock().is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < PAUSE_NS);
        !is_paused && self.known(tenant, store).is_none()
    }

    /// Reads the number of the newest catalogue of a store; 0 if there is none. Blocks the thread.
    ///
    /// # Errors
    /// [`BucketError`]; nothing is known then.
    pub(super) fn read(&self, tenant: &TenantId, store: RecordStore) -> Result<(), BucketError> {
        let folder = store_folder(tenant, store);
        let request = RequestContext::with_timeout(&*self.env.clock, folder, TIMEOUT, Purpose::Catalog);
        let latest = self.handle.block_on(self.reader.read_latest(&request));
        let latest = latest.inspect_err(|_| *self.failed_ns.lock() = Some(self.env.clock.mono_ns()))?;
        let number = latest.map_or(0, |latest| latest.snapshot.number);
        let mut known = self.known.lock();
        if known.len() >= STORES_MAX {
            known.clear();
        }
        known.insert((tenant.clone(), store), number);
        Ok(())
    }
}
