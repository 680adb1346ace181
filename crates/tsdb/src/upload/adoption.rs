//! Adoption of databases: those that the bucket has and the local catalogue does not become local ones, once
//! per tenant and process. In a cluster the bucket has the original, which the local catalogue follows.
//!
//! Invariants: a tenant counts as known only when its databases in the bucket were read and entered durably
//! in the local catalogue, by this process or, if that has ids of the bucket, by an earlier one. Until then
//! no answer may say that a database does not exist. Where names are equal the local database is kept, and
//! the conflict is logged.
//! Not here: the way back (`databases`), databases of a server without a data directory (`bucket`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronolith_base::backoff::Backoff;
use chronolith_bucket::Folder;
use chronolith_format::bucket::databases::DatabasesSnapshot;
use chronolith_model::databases::{Adopted, Followed};
use chronolith_model::{TenantId, TimeRange};

use crate::bucket::upload_state::{CATALOG_TIMEOUT, RETRY_PAUSES, UploadState, text};
use crate::storage::Storage;

/// Returns true if the local catalogue has all databases of `owner` that the bucket had at the start.
pub(crate) fn is_known(storage: &Storage, state: &UploadState, owner: &TenantId) -> bool {
    state.known().has(owner) || storage.databases().has_bucket_ids(owner)
}

/// Makes `owner` known. Waits on the calling thread for at most `timeout`, twice if another one reads them.
///
/// # Errors
/// The text for clients and logs; the tenant is not known then.
pub(crate) fn ensure_known(
    storage: &Storage,
    state: &UploadState,
    owner: &TenantId,
    timeout: Duration,
) -> Result<(), String> {
    if is_known(storage, state, owner) {
        return Ok(());
    }
    let slot = state.known().slot(owner);
    let Some(mut is_known) = slot.try_lock_for(timeout) else {
        return Err("another request is still reading them".to_owned());
    };
    if !*is_known {
        adopt(storage, state, owner, timeout)?;
        *is_known = true;
    }
    Ok(())
}

/// Enters the databases of `owner` in the bucket in the local catalogue again: another process may have added
/// some. Waits on the calling thread for at most `timeout`, twice if another one reads them.
///
/// # Errors
/// The text for logs.
pub(crate) fn read_again(
    storage: &Storage,
    state: &UploadState,
    owner: &TenantId,
    timeout: Duration,
) -> Result<(), String> {
    let slot = state.known().slot(owner);
    let Some(mut is_known) = slot.try_lock_for(timeout) else {
        return Err("another request is still reading them".to_owned());
    };
    adopt(storage, state, owner, timeout)?;
    *is_known = true;
    Ok(())
}

/// Makes all tenants of the bucket known; returns those with dropped stores whose objects are to be removed.
/// Cost: a listing of the tenants, two requests per tenant.
pub(super) fn adopt_all(
    storage: &Storage,
    state: &UploadState,
    is_stopped: &AtomicBool,
) -> Result<Vec<TenantId>, String> {
    let request = state.catalog_request(&Folder::of_tenant(&TenantId::anonymous()));
    let mut with_drops = Vec::new();
    for owner in state.bucket().tenants(&request).map_err(text)? {
        if is_stopped.load(Ordering::SeqCst) {
            return Err("stopped".to_owned());
        }
        // Under the same lock as requests: a copy that was read before a drop must not be adopted after it.
        let slot = state.known().slot(&owner);
        let mut is_known = slot.lock();
        if *is_known || adopt(storage, state, &owner, CATALOG_TIMEOUT)? {
            with_drops.push(owner);
        }
        *is_known = true;
    }
    state.known().complete();
    Ok(with_drops)
}

/// Logs and counts a failed read of the databases of all tenants; returns the time of the next one.
pub(super) fn after_failed_read(
    storage: &Storage,
    state: &UploadState,
    before: Backoff,
    error: String,
) -> Backoff {
    let backoff = before.after_failure(storage.env().clock.mono_ns(), RETRY_PAUSES);
    let retry_s = backoff.pause_s();
    tracing::error!(error, retry_s, "reading the databases of the bucket failed, retrying after retry_s");
    state.counters().count_failure();
    backoff
}

/// Makes the local databases of `owner` equal to a copy of the bucket.
pub(super) fn follow(storage: &Storage, owner: &TenantId, copy: &DatabasesSnapshot) -> Result<(), String> {
    let Followed { added_count, dropped_count } = storage.databases().follow(owner, copy).map_err(text)?;
    if added_count > 0 || dropped_count > 0 {
        storage.changes().note_range(&owner.into(), TimeRange::ALL);
        let number = copy.stamp.number;
        tracing::info!(tenant = %owner, number, added_count, dropped_count, "took over changed databases of the bucket");
    }
    Ok(())
}

/// Enters the databases of the bucket in the local catalogue. Returns true if the bucket has dropped stores.
fn adopt(
    storage: &Storage,
    state: &UploadState,
    owner: &TenantId,
    timeout: Duration,
) -> Result<bool, String> {
    let request = state.request(&Folder::of_tenant(owner), timeout);
    let Some(snapshot) = state.bucket().databases(&request).map_err(text)? else { return Ok(false) };
    if state.bucket().rules().has_original_databases() {
        follow(storage, owner, &snapshot)?;
        return Ok(!snapshot.content.dropped.is_empty());
    }
    let adopted = storage.databases().adopt(owner, &snapshot.content).map_err(text)?;
    storage.changes().note_range(&owner.into(), TimeRange::ALL);
    let Adopted { policy_count, conflicts } = adopted;
    if policy_count > 0 {
        let databases = snapshot.content.databases.len();
        tracing::info!(tenant = %owner, databases, policy_count, "databases of the bucket adopted");
    }
    for (database, policy, id) in conflicts {
        tracing::error!(
            tenant = %owner, database, policy, store = %id,
            "the bucket has another database of this name: the local one is kept, its samples in the bucket are not read"
        );
    }
    Ok(!snapshot.content.dropped.is_empty())
}
