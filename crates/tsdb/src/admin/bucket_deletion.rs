//! Deletions in blocks that only the bucket has: new tombstones, entered in the catalogue.
//!
//! Invariants: blocks and their tombstones are never changed; each deletion writes an object of its own and
//! one snapshot that names it, so readers see all of the deletion or nothing. The deletion of another writer
//! in between is kept: then the tombstones are made again.
//! Not here: blocks with a local copy, which the next upload brings up to date.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use chronolith_base::MemoryBudget;
use chronolith_base::crc::crc32c;
use chronolith_block::DeleteError;
use chronolith_bucket::snapshots::Change;
use chronolith_bucket::{BucketError, Folder};
use chronolith_format::block::meta::Ulid;
use chronolith_format::block::tombstones::Tombstones;
use chronolith_format::bucket::catalogue::{Snapshot, TombstonesObject};
use chronolith_model::{Deletion, Matcher, QueryError, ReadContext, StoreId, TimeRange};

use super::error::AdminError;
use super::report::DeleteReport;
use crate::bucket::upload_state::UploadState;
use crate::storage::Storage;

/// Attempts while other writers change the tombstones of the same blocks.
const ATTEMPTS_MAX: usize = 5;
/// Time for finding the series.
const READ_TIMEOUT_NS: u64 = 600_000_000_000;

/// New tombstones of a block.
struct NewTombstones {
    /// Tombstones that they were made from.
    before: Option<TombstonesObject>,
    object: TombstonesObject,
    interval_count: u64,
}

/// Deletes samples in the blocks of the store that have no local copy. Waits on the calling thread.
///
/// # Errors
/// [`AdminError::Bucket`]: nothing is deleted in the bucket then, or all of it.
pub(super) fn delete_in_bucket(
    state: &UploadState,
    storage: &Storage,
    deletion: &Deletion,
    report: &mut DeleteReport,
) -> Result<(), AdminError> {
    let Deletion { store: tenant, selectors, range } = deletion;
    // Without a folder the bucket has no block of the store.
    let Some(folder) = storage.folder_of(tenant) else { return Ok(()) };
    let selectors = selectors.as_slice().into();
    let run = DeletionRun { state, storage, tenant, folder, selectors, range: *range };
    for _ in 0..ATTEMPTS_MAX {
        if let Some(done) = run.attempt()? {
            report.series_count += done.series_count;
            report.block_count += done.block_count;
            return Ok(());
        }
    }
    Err(AdminError::Bucket("other writers delete samples of the same blocks, try again".to_owned()))
}

/// One deletion of a tenant.
struct DeletionRun<'a> {
    state: &'a UploadState,
    storage: &'a Storage,
    tenant: &'a StoreId,
    folder: Folder,
    selectors: Arc<[Vec<Matcher>]>,
    range: TimeRange,
}

impl DeletionRun<'_> {
    /// Returns `None` if another writer deleted samples of the same blocks meanwhile.
    fn attempt(&self) -> Result<Option<DeleteReport>, AdminError> {
        let mut report = DeleteReport::default();
        let Some(snapshot) = self.state.read(&self.folder).map_err(failed)? else { return Ok(Some(report)) };
        let mut deletions = BTreeMap::new();
        for (ulid, tombstones, series_count) in self.find()? {
            let record = snapshot.blocks.iter().find(|record| record.ulid == ulid);
            let Some(record) = record.filter(|_| series_count > 0) else { continue };
            let object = self.write(ulid, &tombstones)?;
            let interval_count = tombstones.interval_count() as u64;
            deletions
                .insert(ulid, NewTombstones { before: record.tombstones.clone(), object, interval_count });
            report.series_count += series_count;
            report.block_count += 1;
        }
        if deletions.is_empty() {
            return Ok(Some(report));
        }
        let mut is_current = true;
        let change = |snapshot: &mut Snapshot| {
            is_current = enter(snapshot, &deletions);
            if is_current { Change::Write } else { Change::Keep }
        };
        let request = self.state.catalog_request(&self.folder);
        let updated = self.state.bucket().update(&request, change).map_err(failed)?;
        if let Some(snapshot) = updated {
            self.state.record(&self.folder, &snapshot).map_err(failed)?;
        }
        Ok(is_current.then_some(report))
    }

    /// Returns the tombstones of each block after the deletion, and the number of series that lose samples.
    fn find(&self) -> Result<Vec<(Ulid, Tombstones, u64)>, QueryError> {
        let clock = self.storage.env().clock.clone();
        let deadline_ns = clock.mono_ns().saturating_add(READ_TIMEOUT_NS);
        let ctx = ReadContext::new(clock, deadline_ns, MemoryBudget::new("deleting samples", u64::MAX));
        let local = self.storage.blocks().tenant(self.tenant).map(|blocks| blocks.list()).unwrap_or_default();
        let catalog = self.state.bucket().catalog();
        let mut blocks = catalog.blocks_in(&self.folder, self.range, &ctx)?;
        blocks.retain(|block| local.iter().all(|entry| entry.ulid() != block.ulid()));
        let selectors = self.selectors.clone();
        let range = self.range;
        let started = catalog.start_on_indexed(&blocks, &ctx, move |block| {
            let after = block.tombstones_after(&selectors, range).map_err(|error| match error {
                DeleteError::Read(error) => error,
                DeleteError::Write(error) => QueryError::Unavailable { what: error.to_string() },
            });
            let (tombstones, series_count) = after?;
            Ok((block.meta().ulid, tombstones, series_count))
        });
        started.wait()
    }

    /// Writes tombstones as an object of their own.
    fn write(&self, ulid: Ulid, tombstones: &Tombstones) -> Result<TombstonesObject, AdminError> {
        let mut bytes = Vec::new();
        tombstones.encode(&mut bytes);
        let name = format!("tombstones-{:016x}", self.storage.env().rng.next_u64());
        let object = TombstonesObject { len: bytes.len() as u64, crc: crc32c(&bytes), name };
        let request = self.state.catalog_request(&self.folder);
        let bucket = self.state.bucket();
        bucket.write_object(&request, ulid, &object.name, Bytes::from(bytes)).map_err(failed)?;
        Ok(object)
    }
}

fn failed(error: BucketError) -> AdminError {
    AdminError::Bucket(error.to_string())
}

/// Enters deletions in a snapshot; returns false, and enters none, if the tombstones of a block are others
/// than those that its deletion was made from. A block that is gone was merged or removed meanwhile.
fn enter(snapshot: &mut Snapshot, deletions: &BTreeMap<Ulid, NewTombstones>) -> bool {
    let is_current = deletions.iter().all(|(ulid, deletion)| {
        let record = snapshot.blocks.iter().find(|record| record.ulid == *ulid);
        record.is_some_and(|record| record.tombstones == deletion.before)
    });
    if is_current {
        for record in &mut snapshot.blocks {
            if let Some(deletion) = deletions.get(&record.ulid) {
                record.tombstones = Some(deletion.object.clone());
                record.counts.tombstones = deletion.interval_count;
            }
        }
    }
    is_current
}
