//! Downloads of databases in a cluster: the bucket has the original, each process makes its local catalogue
//! equal to it.
//!
//! Invariants: this process never writes its own databases to the bucket, so a database that another one has
//! dropped cannot come back; a copy that cannot be read changes nothing.
//! Not here: changes by statements (`bucket::databases`), the rules (`model::databases`).

use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::backoff::Backoff;
use chronolith_bucket::Folder;
use chronolith_model::TenantId;
use parking_lot::Mutex;

use super::adoption::{after_failed_read, follow};
use super::databases::OwnerUpload;
use crate::bucket::upload_state::{CATALOG_TIMEOUT, UploadState, text};
use crate::storage::Storage;

/// Time between two reads of the databases of tenants with stores. A store that is new here is read at once
/// when a record names it.
const KNOWN_INTERVAL_NS: u64 = 300_000_000_000;
/// Time between two reads of the databases of all tenants of the bucket.
const ALL_INTERVAL_NS: u64 = 3_600_000_000_000;

/// Databases of all tenants, read again and again by the upload thread.
#[derive(Default)]
pub(super) struct DatabaseDownloads(Mutex<Schedule>);

/// Times of the next reads, in ns of the monotonic clock.
#[derive(Default, Clone, Copy)]
struct Schedule {
    known_ns: u64,
    all_ns: u64,
    backoff: Backoff,
}

impl DatabaseDownloads {
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
            true => download_all(storage, state, is_stopped),
            false => download_known(storage, state, is_stopped),
        };
        let next = match done {
            Ok(()) => Schedule {
                known_ns: mono_ns.saturating_add(KNOWN_INTERVAL_NS),
                all_ns: if reads_all { mono_ns.saturating_add(ALL_INTERVAL_NS) } else { before.all_ns },
                backoff: Backoff::default(),
            },
            Err(_) if is_stopped.load(Ordering::SeqCst) => return,
            Err(error) => {
                Schedule { backoff: after_failed_read(storage, state, before.backoff, error), ..before }
            }
        };
        *self.0.lock() = next;
    }
}

fn download_all(storage: &Storage, state: &UploadState, is_stopped: &AtomicBool) -> Result<(), String> {
    let request = state.catalog_request(&Folder::of_tenant(&TenantId::anonymous()));
    let tenants = state.bucket().tenants(&request).map_err(text)?;
    download_each(storage, state, tenants, is_stopped)?;
    state.known().complete();
    Ok(())
}

fn download_known(storage: &Storage, state: &UploadState, is_stopped: &AtomicBool) -> Result<(), String> {
    let catalog = storage.databases().catalog();
    let with_stores = catalog.tenants.iter().filter(|(_, own)| own.has_stores());
    download_each(storage, state, with_stores.map(|(owner, _)| owner.clone()).collect(), is_stopped)
}

/// Takes over the databases of each tenant, and removes the objects of stores that were dropped long ago.
fn download_each(
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
