//! Deletions in blocks that only the bucket has: new tombstones, entered in the catalogue.
//!
//! Invariants: blocks and their tombstones are never changed; each deletion writes an object of its own and
//! one snapshot that names it, so readers see all of the deletion or nothing. The deletion of another writer
//! in between is kept: then the tombstones are made again.
//! Not here: blocks with a local copy, which the next upload brings up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_base::MemoryBudget;
use chronolith_block::DeleteError;
use chronolith_bucket::snapshots::Change;
use chronolith_bucket::tombstones::{NewTombstones, enter};
use chronolith_bucket::{BucketBlock, BucketError, Folder};
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

/// Block, its tombstones after the deletion, and the number of series that lose samples.
type FoundBlock = (Arc<BucketBlock>, Tombstones, u64);

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
    /// Returns `None` if another writer deleted samples of the same blocks, or compacted them, meanwhile.
    fn attempt(&self) -> Result<Option<DeleteReport>, AdminError> {
        let mut report = DeleteReport::default();
        if self.read()?.is_none() {
            return Ok(Some(report));
        }
        let local = self.storage.blocks().tenant(self.tenant).map(|blocks| blocks.list()).unwrap_or_default();
        let local: BTreeSet<Ulid> = local.iter().map(|entry| entry.ulid()).collect();
        let found = self.find(&local)?;
        let Some(snapshot) = self.read()? else { return Ok(None) };
        if !self.is_complete(&snapshot, &local, &found) {
            return Ok(None);
        }
        let mut deletions = BTreeMap::new();
        for (block, tombstones, series_count) in found {
            let ulid = block.ulid();
            // The catalogue has no blocks of writers with other external labels.
            let record = snapshot.blocks.iter().find(|record| record.ulid == ulid);
            let Some(record) = record.filter(|_| series_count > 0) else { continue };
            deletions.insert(ulid, self.write(ulid, &tombstones, record.tombstones.clone())?);
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

    fn read(&self) -> Result<Option<Arc<Snapshot>>, AdminError> {
        self.state.read(&self.folder).map_err(failed)
    }

    /// Returns true if each block of the catalogue without a local copy was found with its tombstones: other
    /// processes may compact blocks, and delete samples of them, at any time.
    fn is_complete(&self, snapshot: &Snapshot, local: &BTreeSet<Ulid>, found: &[FoundBlock]) -> bool {
        let read: BTreeMap<Ulid, &BucketBlock> =
            found.iter().map(|(block, ..)| (block.ulid(), &**block)).collect();
        let records = snapshot.blocks.iter().filter(|record| record.range.overlaps(self.range));
        records.filter(|record| !local.contains(&record.ulid)).all(|record| {
            let known = read.get(&record.ulid).and_then(|block| block.record());
            known.is_some_and(|known| known.tombstones == record.tombstones)
        })
    }

    /// Returns the blocks without a local copy, by a list that is read again, since the one of queries may
    /// lack blocks and tombstones of other processes.
    fn find(&self, local: &BTreeSet<Ulid>) -> Result<Vec<FoundBlock>, QueryError> {
        let clock = self.storage.env().clock.clone();
        let deadline_ns = clock.mono_ns().saturating_add(READ_TIMEOUT_NS);
        let ctx = ReadContext::new(clock, deadline_ns, MemoryBudget::new("deleting samples", u64::MAX));
        let catalog = self.state.bucket().catalog();
        catalog.refresh_waiting(&self.folder, &ctx)?;
        let mut blocks = catalog.blocks_in(&self.folder, self.range, &ctx)?;
        blocks.retain(|block| !local.contains(&block.ulid()));
        let selectors = self.selectors.clone();
        let range = self.range;
        let started = catalog.start_on_indexed(&blocks, &ctx, move |block| {
            block.tombstones_after(&selectors, range).map_err(|error| match error {
                DeleteError::Read(error) => error,
                DeleteError::Write(error) => QueryError::Unavailable { what: error.to_string() },
            })
        });
        let found: Vec<(Tombstones, u64)> = started.wait()?;
        let of_each = blocks.into_iter().zip(found);
        Ok(of_each.map(|(block, (tombstones, series_count))| (block, tombstones, series_count)).collect())
    }

    /// Writes tombstones as an object of their own.
    fn write(
        &self,
        ulid: Ulid,
        tombstones: &Tombstones,
        before: Option<TombstonesObject>,
    ) -> Result<NewTombstones, AdminError> {
        let (new, bytes) = NewTombstones::new(&self.storage.env().rng, tombstones, before);
        let request = self.state.catalog_request(&self.folder);
        self.state.bucket().write_object(&request, ulid, new.name(), bytes).map_err(failed)?;
        Ok(new)
    }
}

fn failed(error: BucketError) -> AdminError {
    AdminError::Bucket(error.to_string())
}
