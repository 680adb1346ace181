//! Deletions of samples in blocks of the bucket: tombstones, each an object of its own, which one snapshot of
//! the catalogue names.
//!
//! Invariants: blocks and their tombstones are never changed, so readers see all of a deletion in a folder or
//! nothing; tombstones are entered only if the blocks are as they were read: a deletion or compaction of
//! another process in between is kept, and the caller starts again.
//! Not here: the choice of the moment (`model::cluster_deletion`, `tsdb`), bytes of tombstones (`format`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::crc::crc32c;
use chronolith_base::{Clock, Env, MemoryBudget, Rng};
use chronolith_block::DeleteError;
use chronolith_format::block::meta::Ulid;
use chronolith_format::block::tombstones::Tombstones;
use chronolith_format::bucket::catalogue::{Snapshot, TombstonesObject};
use chronolith_model::{Matcher, QueryError, ReadContext, TimeRange};
use tokio::runtime::Handle;

use crate::snapshots::Change;
use crate::upload::{Uploader, catalogue_for_cuts};
use crate::{BlockCatalog, BucketBlock, BucketError, CatalogOptions, Folder, Purpose, RequestContext, Store};

/// Time for reading or updating the catalogue.
const CATALOGUE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for finding the series.
const READ_TIMEOUT: Duration = Duration::from_secs(600);
/// Memory of the headers and ranges of blocks while series are found.
const CACHE_BYTES_MAX: u64 = 32 << 20;

/// New tombstones of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTombstones {
    /// Tombstones that they were made from.
    before: Option<TombstonesObject>,
    object: TombstonesObject,
    interval_count: u64,
}

impl NewTombstones {
    /// Returns the tombstones as an object with a random name, and its bytes. `before` is the object of the
    /// block that they were made from.
    #[must_use]
    pub fn new(
        rng: &Rng,
        tombstones: &Tombstones,
        before: Option<TombstonesObject>,
    ) -> (NewTombstones, Bytes) {
        assert!(tombstones.interval_count() > 0, "a deletion has an interval");
        let mut bytes = Vec::new();
        tombstones.encode(&mut bytes);
        let name = format!("tombstones-{:016x}", rng.next_u64());
        let object = TombstonesObject { len: bytes.len() as u64, crc: crc32c(&bytes), name };
        let interval_count = tombstones.interval_count() as u64;
        (NewTombstones { before, object, interval_count }, Bytes::from(bytes))
    }

    /// Name of the object, within the folder of the block.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.name
    }
}

/// Enters tombstones in a snapshot. Returns false, and enters none, if a block is gone, or its tombstones are
/// others than those that its new ones were made from.
pub fn enter(snapshot: &mut Snapshot, new: &BTreeMap<Ulid, NewTombstones>) -> bool {
    let is_current = new.iter().all(|(ulid, new)| {
        let record = snapshot.blocks.iter().find(|record| record.ulid == *ulid);
        record.is_some_and(|record| record.tombstones == new.before)
    });
    if is_current {
        for record in &mut snapshot.blocks {
            if let Some(new) = new.get(&record.ulid) {
                record.tombstones = Some(new.object.clone());
                record.counts.tombstones = new.interval_count;
            }
        }
    }
    is_current
}

/// Samples to delete in the blocks of a folder.
#[derive(Debug, Clone)]
pub struct FolderDeletion {
    /// The folder.
    pub folder: Folder,
    /// Series must be selected by all matchers of one of them.
    pub selectors: Arc<[Vec<Matcher>]>,
    /// Times of the samples, in the unit of the store.
    pub range: TimeRange,
}

/// Result of an attempt to enter the tombstones of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The catalogue has them.
    Entered {
        /// Number of a catalogue that has them, as all later ones; 0 if the folder has no blocks.
        catalogue: u64,
        /// Series that have lost samples, counted once per block.
        series_count: u64,
        /// Blocks with new tombstones.
        block_count: u64,
    },
    /// The blocks changed meanwhile: nothing was entered, and the next attempt may succeed.
    BlocksChanged,
    /// Nothing was entered, since the deletion is no longer due.
    NotDue,
}

/// The tombstones were not entered; the same attempt again may succeed.
#[derive(Debug, thiserror::Error)]
pub enum TombstonesError {
    /// The blocks cannot be read.
    #[error(transparent)]
    Read(#[from] QueryError),
    /// The bucket does not answer, or refuses.
    #[error(transparent)]
    Bucket(#[from] BucketError),
}

/// Writer of the tombstones of deletions.
pub struct TombstonesWriter {
    store: Arc<Store>,
    catalog: Arc<BlockCatalog>,
    uploader: Uploader,
    env: Env,
    handle: Handle,
}

impl TombstonesWriter {
    /// A writer; requests run on the runtime of `handle`. Sends none.
    #[must_use]
    pub fn new(store: Arc<Store>, env: &Env, handle: Handle) -> TombstonesWriter {
        let options = CatalogOptions { memory_bytes_max: CACHE_BYTES_MAX, ..CatalogOptions::default() };
        let catalog = BlockCatalog::new(store.clone(), env.clock.clone(), handle.clone(), &options);
        let uploader = Uploader::new(store.clone(), env, handle.clone());
        TombstonesWriter { store, catalog, uploader, env: env.clone(), handle }
    }

    /// Reads the blocks of the folder, asks `is_due` afterwards, and enters the tombstones if the blocks are
    /// as they were read. Blocks the thread; must not be called from a task of the runtime. Cost: the
    /// catalogue, the index of each block within the range, an object per block with samples of the deletion.
    ///
    /// # Errors
    /// [`TombstonesError`]; the tombstones may be entered then, and the same attempt again finds nothing to
    /// enter.
    pub fn attempt(
        &self,
        deletion: &FolderDeletion,
        is_due: &mut dyn FnMut() -> Result<bool, BucketError>,
    ) -> Result<Attempt, TombstonesError> {
        let FolderDeletion { folder, range, .. } = deletion;
        let clock = self.env.clock.clone();
        let timeout_ns = u64::try_from(READ_TIMEOUT.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = clock.mono_ns().saturating_add(timeout_ns);
        let ctx = ReadContext::new(clock, deadline_ns, MemoryBudget::new("deleting samples", u64::MAX));
        self.catalog.refresh_waiting(folder, &ctx)?;
        let blocks = self.catalog.blocks_in(folder, *range, &ctx)?;
        // After the blocks: blocks of later cuts are published once the deletion is done, and then it is not
        // due.
        if !is_due()? {
            return Ok(Attempt::NotDue);
        }
        if blocks.iter().any(|block| block.record().is_none()) {
            // Blocks of other programs, found by a listing: tombstones need a catalogue.
            let request = self.request(folder);
            let created = catalogue_for_cuts(self.uploader.publisher(), &request);
            self.handle.block_on(created)?;
            return Ok(Attempt::BlocksChanged);
        }
        let (new, series_count) = self.write(deletion, &blocks, &ctx)?;
        let block_count = new.len() as u64;
        let mut is_current = true;
        let request = self.request(folder);
        let update = self.uploader.publisher().snapshots().update(&request, |snapshot| {
            is_current = enter(snapshot, &new);
            if is_current && !new.is_empty() { Change::Write } else { Change::Keep }
        });
        let catalogue = self.handle.block_on(update)?.snapshot.map_or(0, |snapshot| snapshot.number);
        Ok(match is_current {
            true => Attempt::Entered { catalogue, series_count, block_count },
            false => Attempt::BlocksChanged,
        })
    }

    /// Writes the tombstones of each block that loses samples; returns them with the number of its series.
    fn write(
        &self,
        deletion: &FolderDeletion,
        blocks: &[Arc<BucketBlock>],
        ctx: &ReadContext,
    ) -> Result<(BTreeMap<Ulid, NewTombstones>, u64), TombstonesError> {
        let FolderDeletion { folder, selectors, range } = deletion;
        let selectors = selectors.clone();
        let range = *range;
        let found = self.catalog.start_on_indexed(blocks, ctx, move |block| {
            block.tombstones_after(&selectors, range).map_err(|error| match error {
                DeleteError::Read(error) => error,
                DeleteError::Write(error) => QueryError::Unavailable { what: error.to_string() },
            })
        });
        let found: Vec<(Tombstones, u64)> = found.wait()?;
        assert_eq!(found.len(), blocks.len(), "each block has its tombstones");
        let mut new = BTreeMap::new();
        let mut series_sum = 0;
        let keys = self.store.layout().block_keys(folder);
        for (block, (tombstones, series_count)) in blocks.iter().zip(found) {
            let before = block.record().and_then(|record| record.tombstones.clone());
            if series_count == 0 {
                continue;
            }
            series_sum += series_count;
            let (object, bytes) = NewTombstones::new(&self.env.rng, &tombstones, before);
            let key = format!("{}/{}", keys.of_block(block.ulid()), object.name());
            self.handle.block_on(self.store.put(&self.request(folder), &key, bytes))?;
            new.insert(block.ulid(), object);
        }
        Ok((new, series_sum))
    }

    fn request(&self, folder: &Folder) -> RequestContext {
        let clock: &dyn Clock = &*self.env.clock;
        RequestContext::with_timeout(clock, folder, CATALOGUE_TIMEOUT, Purpose::Upload)
    }
}
