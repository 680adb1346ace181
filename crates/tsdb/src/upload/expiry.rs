//! Expiry of blocks in the bucket: blocks older than the duration of their retention policy leave the
//! catalogue of its store, unless a local block overlaps them.
//!
//! Invariants: age is measured by the clock of local retention, which does not follow jumps, so that a clock
//! set ahead removes nothing; a failure is logged and retried with the next call that finds the block.
//! Not here: removal of their files, which get a deletion mark; default stores.

use chronolith_base::backoff::Backoff;
use chronolith_base::hash::HashSet;
use chronolith_bucket::Folder;
use chronolith_bucket::maintenance::retention::expire;
use chronolith_bucket::snapshots::Change;
use chronolith_model::{StoreId, TimeRange};
use parking_lot::Mutex;

use crate::bucket::upload_state::{RETRY_PAUSES, UploadState, text};
use crate::storage::Storage;

/// Expiry of the stores of all retention policies.
#[derive(Default)]
pub(super) struct Expiry {
    /// Stores whose catalogue was read by this process.
    read: Mutex<HashSet<StoreId>>,
    backoff: Mutex<Backoff>,
}

impl Expiry {
    /// Lets expired blocks leave the catalogues. Cost: nothing for a store without an expired block, but one
    /// read of its catalogue per process.
    pub(super) fn run(&self, storage: &Storage, state: &UploadState) {
        let clock = &storage.env().clock;
        let before = *self.backoff.lock();
        if !before.is_due(clock.mono_ns()) {
            return;
        }
        let catalog = storage.databases().catalog();
        let stores: HashSet<&StoreId> = catalog.policies().map(|(_, policy)| &policy.store).collect();
        self.read.lock().retain(|store| stores.contains(store));
        for (_, policy) in catalog.policies().filter(|(_, policy)| policy.duration_ns > 0) {
            let Some(folder) = storage.folder_of(&policy.store) else { continue };
            let Some(expired_end) = state.expired_end(policy.duration_ns) else { return };
            if let Err(error) = self.expire(storage, state, &policy.store, &folder, expired_end) {
                let backoff = before.after_failure(clock.mono_ns(), RETRY_PAUSES);
                let retry_s = backoff.pause_s();
                tracing::error!(%folder, error, retry_s, "removing expired blocks from the catalogue failed, retrying after retry_s");
                state.counters().count_failure();
                *self.backoff.lock() = backoff;
                return;
            }
        }
        *self.backoff.lock() = Backoff::default();
    }

    fn expire(
        &self,
        storage: &Storage,
        state: &UploadState,
        store: &StoreId,
        folder: &Folder,
        expired_end: i64,
    ) -> Result<(), String> {
        if !self.read.lock().contains(store) {
            state.read(folder).map_err(text)?;
            self.read.lock().insert(store.clone());
        }
        let local = storage.blocks().tenant(store).map(|blocks| blocks.list()).unwrap_or_default();
        // A local block of the same time may have been made of it and wait for its upload.
        let is_expired = |range: TimeRange| {
            range.end <= expired_end && !local.iter().any(|entry| entry.range().overlaps(range))
        };
        if !state.places(folder).is_some_and(|places| places.iter().any(|place| is_expired(place.range))) {
            return Ok(());
        }
        let request = state.catalog_request(folder);
        let marked_ms = state.now_ms();
        let mut expired_count = 0;
        let updated = state.bucket().update(&request, |snapshot| {
            expired_count = expire(snapshot, marked_ms, |block| is_expired(block.range)).len();
            if expired_count > 0 { Change::Write } else { Change::Keep }
        });
        let Some(snapshot) = updated.map_err(text)? else { return Ok(()) };
        if expired_count > 0 {
            state.record(folder, &snapshot).map_err(text)?;
            tracing::info!(%folder, expired_count, "expired blocks removed from the catalogue");
        }
        Ok(())
    }
}
