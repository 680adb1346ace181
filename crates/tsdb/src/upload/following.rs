//! Databases of a cluster: the bucket has the original, which the local catalogue of each process follows.
//!
//! Invariants: this process never writes its own databases to the bucket, so a database that another one has
//! dropped cannot come back; a copy that cannot be read changes nothing.
//! Not here: changes by statements (`bucket::databases`), the rules (`model::databases`).

use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::backoff::Backoff;
use chronolith_bucket::Folder;
use chronolith_model::TenantId;
use parking_lot::Mutex;

use super::adoption::follow;
use super::databases::OwnerUpload;
use crate::bucket::upload_state::{CATALOG_TIMEOUT, RETRY_PAUSES, UploadState, text};
use crate::storage::Storage;

/// Time between two reads of the databases of tenants with stores. A store that is new here is read at once
/// when a record names it.
const KNOWN_INTERVAL_NS: u64 = 300_000_000_000;
/// Time between two reads of the databases of all tenants of the bucket.
const ALL_INTERVAL_NS: u64 = 3_600_000_000_000;

/// Schedule of the reads.
#[derive(Default)]
pub(super) struct Following(Mutex<Schedule>);

/// Times of the next reads, in ns of the monotonic clock.
#[derive(Default, Clone, Copy)]
struct Schedule {
    known_ns: u64,
    all_ns: u64,
    backoff: Backoff,
}

impl Following {
    /// Reads the databases that are due. Blocks the thread until then; a failure is logged, counted and
    /// retried by a later call.
    pub(super) fn run(&self, storage: &Storage, state: &UploadState, is_stopped: &AtomicBool) {
        let clock = &storage.env().clock;
        let mono_ns = clock.mono_ns();
        let before = *self.0.lock();
        if before.known_ns > mono_ns || !before.backoff.is_due(mono_ns) {
            return;
        }
        let reads_all = before.all_ns <= mono_ns;
        let done = match reads_all {
            true => follow_all(storage, state, is_stopped),
            false => follow_known(storage, state, is_stopped),
        };
        let next = match done {
            Ok(()) => Schedule {
                known_ns: mono_ns.saturating_add(KNOWN_INTERVAL_NS),
                all_ns: if reads_all { mono_ns.saturating_add(ALL_INTERVAL_NS) } else { before.all_ns },
                backoff: Backoff::default(),
            },
            Err(_) if is_stopped.load(Ordering::SeqCst) => return,
            Err(error) => {
                let backoff = before.backoff.after_failure(clock.mono_ns(), RETRY_PAUSES);
                let retry_s = backoff.pause_s();
                tracing::error!(
                    error,
                    retry_s,
                    "reading the databases of the bucket failed, retrying after retry_s"
                );
                state.counters().count_failure();
                Schedule { backoff, ..before }
            }
        };
        *self.0.lock() = next;
    }
}

fn follow_all(storage: &Storage, state: &UploadState, is_stopped: &AtomicBool) -> Result<(), String> {
    let request = state.catalog_request(&Folder::of_tenant(&TenantId::anonymous()));
    let tenants = state.bucket().tenants(&request).map_err(text)?;
    follow_each(storage, state, tenants, is_stopped)?;
    state.known().complete();
    Ok(())
}

fn follow_known(storage: &Storage, state: &UploadState, is_stopped: &AtomicBool) -> Result<(), String> {
    let catalog = storage.databases().catalog();
    let with_stores = catalog.tenants.iter().filter(|(_, own)| own.has_stores());
    follow_each(storage, state, with_stores.map(|(owner, _)| owner.clone()).collect(), is_stopped)
}

/// Follows the databases of each tenant, and removes the objects of stores that were dropped long enough ago.
fn follow_each(
    storage: &Storage,
    state: &UploadState,
    owners: Vec<TenantId>,
    is_stopped: &AtomicBool,
) -> Result<(), String> {
    for owner in &owners {
        if is_stopped.load(Ordering::SeqCst) {
            return Err("stopped".to_owned());
        }
        let request = state.request(&Folder::of_tenant(owner), CATALOG_TIMEOUT);
        let Some(copy) = state.bucket().databases(&request).map_err(text)? else { continue };
        follow(storage, owner, &copy)?;
        OwnerUpload { storage, state, owner }.remove_dropped(copy)?;
    }
    Ok(())
}
