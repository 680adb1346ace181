//! First catalogue snapshot of a tenant whose folder has blocks already: uploaded by other programs, or by a
//! Chronolith whose catalogue is lost. In Thanos's layout the latter only.
//!
//! Invariants: blocks are entered only into a catalogue that does not exist yet, in its first snapshot, so
//! that readers see all of them or none; blocks that readers of a listing leave out are left out here, and
//! damaged ones end it: a catalogue without them would make answers short in silence. In Thanos's layout no
//! block of another program or writer is entered.
//! Not here: listings of readers (`catalog::listing`).

use std::collections::{BTreeMap, BTreeSet};

use chronolith_format::block::meta::Ulid;
use chronolith_format::block::rollup::{ROLLUPS_DIR, archive_of_name};
use chronolith_format::bucket::catalogue::{
    BlockFiles, BucketBlock, EtagSums, RollupObject, TombstonesObject,
};
use chronolith_format::bucket::mimir::{DELETION_MARK, NO_COMPACT_MARK, deletion_marker_of};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::claim::is_upload_of;
use super::local::{META, TOMBSTONES};
use super::publish::Publisher;
use super::record::record_of_meta;
use super::send::sum_of;
use crate::meta::{Unread, decode_meta, decode_read_meta};
use crate::snapshots::Change;
use crate::store::list::{ListOptions, ListedObject};
use crate::store::read::ReadRange;
use crate::{BucketError, RequestContext};

const INDEX: &str = "index";
const CHUNKS: &str = "chunks/";
/// Blocks that are read at the same time.
pub(super) const BLOCKS_AT_ONCE: usize = 16;

/// Objects of a block, by name within its folder.
pub(super) type Objects = BTreeMap<String, ObjectEntry>;

/// An object of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectEntry {
    pub(super) len: u64,
    /// Sum of its ETag, as a catalogue records it; 0 without one.
    pub(super) etag: u32,
}

impl ObjectEntry {
    fn of(object: &ListedObject) -> ObjectEntry {
        ObjectEntry { len: object.object_bytes, etag: sum_of(object.etag.as_deref()) }
    }
}

impl Publisher {
    /// Enters the blocks in the folder of the tenant of `request` in its catalogue, if it has none. Returns
    /// the number of blocks that were entered.
    ///
    /// Cost: a listing of the folder, one or two reads per block.
    ///
    /// # Errors
    /// As other requests; nothing is entered then, or all.
    pub async fn create_catalogue(&self, request: &RequestContext) -> Result<usize, BucketError> {
        if self.snapshots.reader().read_latest(request).await?.is_some() {
            return Ok(0);
        }
        let folders = self.folders(request).await?;
        let records = stream::iter(folders).map(|(ulid, objects)| self.record_of(request, ulid, objects));
        let records: Vec<Option<BucketBlock>> =
            records.buffer_unordered(BLOCKS_AT_ONCE).try_collect().await?;
        let records: Vec<BucketBlock> = records.into_iter().flatten().collect();
        if records.is_empty() {
            return Ok(0);
        }
        let updated = self.snapshots.update(request, |snapshot| {
            // Number 0 stands for no snapshot: another process may have been first.
            if snapshot.number > 0 {
                return Change::Keep;
            }
            snapshot.blocks.clone_from(&records);
            Change::Write
        });
        Ok(if updated.await?.is_written { records.len() } else { 0 })
    }

    /// Objects of the blocks of a tenant that have no deletion marker.
    pub(super) async fn folders(
        &self,
        request: &RequestContext,
    ) -> Result<BTreeMap<Ulid, Objects>, BucketError> {
        let layout = self.store.layout();
        let keys = layout.block_keys(&request.folder);
        let mut options = ListOptions { prefix: keys.prefix().to_owned(), ..ListOptions::default() };
        let mut folders: BTreeMap<Ulid, Objects> = BTreeMap::new();
        let mut marked = BTreeSet::new();
        loop {
            let page = self.store.list_confirmed(request, &options).await?;
            for object in page.objects {
                marked.extend(keys.below(&object.key).and_then(deletion_marker_of));
                let Some((ulid, name)) = keys.split(&object.key) else { continue };
                folders.entry(ulid).or_default().insert(name.to_owned(), ObjectEntry::of(&object));
            }
            options.after = page.next_after;
            if options.after.is_none() {
                break;
            }
        }
        let is_flat = layout.is_flat(&request.folder);
        let is_marked = |ulid: &Ulid, objects: &Objects| {
            marked.contains(ulid) || is_flat && objects.contains_key(DELETION_MARK)
        };
        // Each upload at the top level begins with the claim.
        folders.retain(|_, objects| !is_flat || objects.contains_key(NO_COMPACT_MARK));
        folders.retain(|ulid, objects| !is_marked(ulid, objects) && objects.contains_key(META));
        Ok(folders)
    }

    /// The record of a block; `None` for one that is not read, with a line in the log.
    pub(super) async fn record_of(
        &self,
        request: &RequestContext,
        ulid: Ulid,
        objects: Objects,
    ) -> Result<Option<BucketBlock>, BucketError> {
        let layout = self.store.layout();
        let folder = layout.block_keys(&request.folder).of_block(ulid);
        let key = format!("{folder}/{META}");
        let found = self.store.read_confirmed(request, &key).await?;
        let text = found.ok_or_else(|| BucketError::NotFound { key: key.clone() })?.bytes;
        if layout.is_flat(&request.folder) && !self.has_uploaded(ulid, &text) {
            return Ok(None);
        }
        let record = match record_in(ulid, &text, &objects) {
            Ok(record) => BucketBlock { folder: layout.block_folder(&request.folder), ..record },
            Err(Unread::LeftOut(why)) => {
                tracing::warn!(key, why, "block left out of the new catalogue");
                return Ok(None);
            }
            Err(Unread::Damaged(found)) => {
                let expected = "a block for the new catalogue, or a deletion mark".to_owned();
                return Err(BucketError::Corrupt { key, what: "block", expected, found });
            }
        };
        let Some(&ObjectEntry { len, .. }) = objects.get(TOMBSTONES) else { return Ok(Some(record)) };
        let key = format!("{folder}/{TOMBSTONES}");
        let bytes = self.store.read(request, &key, ReadRange::Whole, None).await?.bytes;
        let crc = chronolith_base::crc::crc32c(&bytes);
        let tombstones = Some(TombstonesObject { name: TOMBSTONES.to_owned(), len, crc });
        Ok(Some(BucketBlock { tombstones, ..record }))
    }

    /// Returns true if a block at the top level was uploaded by this server, or one with its external labels.
    fn has_uploaded(&self, ulid: Ulid, text: &[u8]) -> bool {
        let thanos = decode_meta(ulid, text).ok().and_then(|(_, thanos)| thanos);
        self.store.layout().writer().is_some_and(|writer| is_upload_of(thanos.as_ref(), writer))
    }
}

/// The record of a block without tombstones, or the reason why it is not read.
fn record_in(ulid: Ulid, text: &[u8], objects: &Objects) -> Result<BucketBlock, Unread> {
    let (meta, _) = decode_read_meta(ulid, text)?;
    let damaged = |what: &str| Unread::Damaged(what.to_owned());
    let index = *objects.get(INDEX).ok_or_else(|| damaged("its index is missing"))?;
    let segment_count = objects.keys().filter(|name| name.starts_with(CHUNKS)).count();
    let segment = |number: usize| objects.get(&format!("{CHUNKS}{number:06}")).copied();
    let segments: Vec<ObjectEntry> = (1..=segment_count).map_while(segment).collect();
    if segments.len() < segment_count {
        return Err(damaged("a chunk segment is missing"));
    }
    let rollup = |(name, object): (&String, &ObjectEntry)| {
        let span = archive_of_name(name.strip_prefix(ROLLUPS_DIR)?.strip_prefix('/')?)?;
        Some((RollupObject { span, len: object.len }, object.etag))
    };
    let (rollups, rollup_etags) = objects.iter().filter_map(rollup).unzip();
    let etags = EtagSums {
        index: index.etag,
        segments: segments.iter().map(|object| object.etag).collect(),
        rollups: rollup_etags,
        sidecar: 0,
    };
    let segments = segments.iter().map(|object| object.len).collect();
    let files = BlockFiles { index: index.len, segments, meta: text.len() as u64, rollups };
    Ok(BucketBlock { etags, ..record_of_meta(&meta, files) })
}
