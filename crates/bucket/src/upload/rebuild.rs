//! Catalogue of a folder whose newest snapshots are damaged or lost: made of the newest one that can be read
//! and of the folders of blocks.
//!
//! Invariants: a block with all its objects is entered unless it has a deletion mark or others that are there
//! were made of it; a damaged block ends it, as answers would be short in silence. Deletions that the folder
//! of a block has are recorded.
//! Not here: a block that retention removed in a lost snapshot, or one without samples that are not deleted,
//! is entered again, with its deletions, while its objects are there.

use std::collections::{BTreeMap, BTreeSet};

use chronolith_base::crc::crc32c;
use chronolith_format::block::meta::Ulid;
use chronolith_format::block::tombstones::{Interval, Tombstones};
use chronolith_format::bucket::NumberedSnapshot;
use chronolith_format::bucket::catalogue::{
    BucketBlock, DeletionMark, SidecarObject, Snapshot, TombstonesObject,
};
use chronolith_format::bucket::sidecar::{SIDECAR_OBJECT, SidecarHead, head_len};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::first_catalogue::{BLOCKS_AT_ONCE, Objects};
use super::local::TOMBSTONES;
use super::publish::Publisher;
use crate::layout::is_later_tombstones;
use crate::store::read::ReadRange;
use crate::{BucketError, RequestContext};

/// Source of the record of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebuiltFrom {
    /// The newest snapshot that can be read.
    Snapshot,
    /// The newest readable snapshot, with later deletions.
    SnapshotAndDeletions,
    /// `meta.json` and objects in the folder of the block.
    Folder,
}

/// Catalogue that takes the place of a lost one.
#[derive(Debug, Clone)]
pub struct RebuiltCatalogue {
    /// Without number and writer.
    pub snapshot: Snapshot,
    /// Blocks of the catalogue, ascending.
    pub blocks: BTreeMap<Ulid, RebuiltFrom>,
    /// Blocks that others were made of, and one of those.
    pub replaced: BTreeMap<Ulid, Ulid>,
    /// Blocks of an unfinished split: others that were written together with them are missing.
    pub partial: BTreeSet<Ulid>,
    /// Blocks of the readable snapshot without a complete folder, of which no other block was made.
    pub gone: BTreeSet<Ulid>,
}

impl Publisher {
    /// Makes the catalogue of the folder of `request` again, from `readable` and the folders of blocks.
    /// Nothing is written.
    ///
    /// Cost: listings of the folder; per block of no readable snapshot its `meta.json` and sidecar; all later
    /// tombstones.
    ///
    /// # Errors
    /// [`BucketError::Corrupt`] for a damaged block; as other requests.
    pub async fn rebuild_catalogue(
        &self,
        request: &RequestContext,
        readable: Option<&Snapshot>,
    ) -> Result<RebuiltCatalogue, BucketError> {
        let base = readable.cloned().unwrap_or_else(Snapshot::empty);
        let known: BTreeMap<Ulid, &BucketBlock> =
            base.blocks.iter().map(|block| (block.ulid, block)).collect();
        let is_removed = |ulid: Ulid| {
            !known.contains_key(&ulid) && base.deletion_marks.iter().any(|mark| mark.ulid == ulid)
        };
        let mut folders = self.folders(request).await?;
        folders.retain(|ulid, _| !is_removed(*ulid));
        let records = stream::iter(folders).map(|(ulid, objects)| {
            let known = known.get(&ulid).copied();
            self.rebuilt(request, ulid, objects, known)
        });
        let records: Vec<Option<(BucketBlock, RebuiltFrom)>> =
            records.buffer_unordered(BLOCKS_AT_ONCE).try_collect().await?;
        let found: BTreeMap<Ulid, (BucketBlock, RebuiltFrom)> =
            records.into_iter().flatten().map(|rebuilt| (rebuilt.0.ulid, rebuilt)).collect();
        Ok(chosen(base, found, self.now_ms()))
    }

    /// The record of one block; `None` for one that is not read.
    async fn rebuilt(
        &self,
        request: &RequestContext,
        ulid: Ulid,
        objects: Objects,
        known: Option<&BucketBlock>,
    ) -> Result<Option<(BucketBlock, RebuiltFrom)>, BucketError> {
        let (mut record, mut from) = match known.filter(|known| has_files(&objects, known)) {
            Some(known) => (known.clone(), RebuiltFrom::Snapshot),
            None => match self.record_of(request, ulid, objects.clone()).await? {
                Some(record) => (record, RebuiltFrom::Folder),
                None => return Ok(None),
            },
        };
        if from == RebuiltFrom::Folder {
            record.uploaded_ms = self.now_ms();
            if let Some(entry) = objects.get(SIDECAR_OBJECT) {
                record.sidecar = self.sidecar_of(request, ulid).await?;
                record.etags.sidecar = if record.sidecar.is_some() { entry.etag } else { 0 };
            }
        }
        let deletions = self.latest_tombstones(request, ulid, &objects).await?;
        if let Some((object, interval_count)) = deletions
            && record.tombstones.as_ref() != Some(&object)
        {
            record.tombstones = Some(object);
            record.counts.tombstones = interval_count;
            if from == RebuiltFrom::Snapshot {
                from = RebuiltFrom::SnapshotAndDeletions;
            }
        }
        Ok(Some((record, from)))
    }

    /// The sidecar of a block; `None` for a damaged one, without which the block is read by its index.
    async fn sidecar_of(
        &self,
        request: &RequestContext,
        ulid: Ulid,
    ) -> Result<Option<SidecarObject>, BucketError> {
        let keys = self.store.layout().block_keys(&request.folder);
        let key = format!("{}/{SIDECAR_OBJECT}", keys.of_block(ulid));
        let bytes = self.store.read(request, &key, ReadRange::Whole, None).await?.bytes;
        let head = SidecarHead::decode(&bytes);
        let is_own = head.is_ok_and(|head| head.block == ulid && !head.is_of_index_alone());
        Ok(head_len(&bytes).ok().filter(|_| is_own).map(|head_len| SidecarObject {
            len: bytes.len() as u64,
            head_len,
            crc: crc32c(&bytes),
        }))
    }

    /// The tombstones of a block that have the deletions of all others, and the number of their intervals.
    async fn latest_tombstones(
        &self,
        request: &RequestContext,
        ulid: Ulid,
        objects: &Objects,
    ) -> Result<Option<(TombstonesObject, u64)>, BucketError> {
        let folder = self.store.layout().block_keys(&request.folder).of_block(ulid);
        let mut found: Vec<(TombstonesObject, Tombstones)> = Vec::new();
        for name in objects.keys().filter(|name| *name == TOMBSTONES || is_later_tombstones(name)) {
            let key = format!("{folder}/{name}");
            let bytes = self.store.read(request, &key, ReadRange::Whole, None).await?.bytes;
            let object =
                TombstonesObject { name: name.clone(), len: bytes.len() as u64, crc: crc32c(&bytes) };
            match Tombstones::decode(&bytes) {
                Ok(tombstones) => found.push((object, tombstones)),
                Err(error) => return Err(damaged_tombstones(key, error.to_string())),
            }
        }
        let has_all =
            |(_, one): &&(TombstonesObject, Tombstones)| found.iter().all(|(_, other)| covers(one, other));
        match found.iter().find(has_all) {
            _ if found.is_empty() => Ok(None),
            Some((_, tombstones)) if tombstones.is_empty() => Ok(None),
            Some((object, tombstones)) => Ok(Some((object.clone(), tombstones.interval_count() as u64))),
            None => {
                Err(damaged_tombstones(folder, "several, none with the deletions of all others".to_owned()))
            }
        }
    }
}

#[cold]
fn damaged_tombstones(key: String, found: String) -> BucketError {
    let expected = "the deletions of the block".to_owned();
    BucketError::Corrupt { key, what: "tombstones", expected, found }
}

/// Returns true if the folder has index and segments of the sizes of the record, and its other objects.
fn has_files(objects: &Objects, record: &BucketBlock) -> bool {
    let has = |name: &str, len: u64| objects.get(name).is_some_and(|object| object.len == len);
    let mut segments = (1..).zip(&record.files.segments);
    has("index", record.files.index)
        && segments.all(|(number, len)| has(&format!("chunks/{number:06}"), *len))
        && record.sidecar.is_none_or(|sidecar| has(SIDECAR_OBJECT, sidecar.len))
        && record.tombstones.as_ref().is_none_or(|object| has(&object.name, object.len))
}

/// Returns true if all deletions of `other` are in `one`.
fn covers(one: &Tombstones, other: &Tombstones) -> bool {
    let is_within =
        |outer: &Interval, inner: &Interval| outer.first <= inner.first && inner.last <= outer.last;
    other.iter().all(|(series_ref, intervals)| {
        let own = one.get(series_ref);
        intervals.iter().all(|inner| own.iter().any(|outer| is_within(outer, inner)))
    })
}

/// Chooses the blocks of the catalogue.
fn chosen(
    base: Snapshot,
    found: BTreeMap<Ulid, (BucketBlock, RebuiltFrom)>,
    now_ms: i64,
) -> RebuiltCatalogue {
    let is_complete =
        |block: &BucketBlock| block.ancestry.split_blocks.iter().all(|other| found.contains_key(other));
    let in_base: BTreeSet<Ulid> = base.blocks.iter().map(|block| block.ulid).collect();
    let partial: BTreeSet<Ulid> = found
        .values()
        .filter(|(block, _)| !in_base.contains(&block.ulid) && !is_complete(block))
        .map(|(block, _)| block.ulid)
        .collect();
    let whole: Vec<&BucketBlock> =
        found.values().map(|(block, _)| block).filter(|block| !partial.contains(&block.ulid)).collect();
    let replacement =
        |block: &BucketBlock| whole.iter().find(|other| other.replaces(block)).map(|other| other.ulid);
    let replaced: BTreeMap<Ulid, Ulid> =
        whole.iter().filter_map(|block| Some((block.ulid, replacement(block)?))).collect();
    let is_gone = |block: &&BucketBlock| !found.contains_key(&block.ulid) && replacement(block).is_none();
    let gone = base.blocks.iter().filter(is_gone).map(|block| block.ulid).collect();
    let kept = || whole.iter().filter(|block| !replaced.contains_key(&block.ulid));
    let mut snapshot = Snapshot { blocks: kept().map(|block| (*block).clone()).collect(), ..base };
    for ulid in replaced.keys() {
        if !snapshot.deletion_marks.iter().any(|mark| mark.ulid == *ulid) {
            snapshot.deletion_marks.push(DeletionMark { ulid: *ulid, marked_ms: now_ms });
        }
    }
    let blocks = kept().filter_map(|block| Some((block.ulid, found.get(&block.ulid)?.1))).collect();
    RebuiltCatalogue { snapshot, blocks, replaced, partial, gone }
}
