//! First catalogue snapshot of a tenant whose folder has blocks already: uploaded by other programs, or by a
//! Chronolith whose catalogue is lost.
//!
//! Invariants: blocks are entered only into a catalogue that does not exist yet, in its first snapshot, so
//! that readers see all of them or none; blocks that readers of a listing leave out are left out here.
//! Not here: listings of readers (`catalog::listing`).

use std::collections::{BTreeMap, BTreeSet};

use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BlockFiles, BucketBlock, TombstonesObject};
use chronolith_format::bucket::mimir::deletion_marker_of;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::local::{META, TOMBSTONES};
use super::publish::Publisher;
use super::record::record_of_meta;
use crate::meta::decode_read_meta;
use crate::snapshots::Change;
use crate::store::list::ListOptions;
use crate::store::read::ReadRange;
use crate::{BucketError, RequestContext};

const INDEX: &str = "index";
const CHUNKS: &str = "chunks/";
/// Blocks that are read at the same time.
const BLOCKS_AT_ONCE: usize = 16;

/// Sizes of the objects of a block, by name within its folder.
type Objects = BTreeMap<String, u64>;

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
    async fn folders(&self, request: &RequestContext) -> Result<BTreeMap<Ulid, Objects>, BucketError> {
        let own = format!("{}/", request.folder);
        let mut options = ListOptions { prefix: request.folder.to_string(), ..ListOptions::default() };
        let mut folders: BTreeMap<Ulid, Objects> = BTreeMap::new();
        let mut marked = BTreeSet::new();
        loop {
            let page = self.store.list(request, &options).await?;
            for object in page.objects {
                let Some(name) = object.key.strip_prefix(&own) else { continue };
                marked.extend(deletion_marker_of(name));
                let Some((folder, name)) = name.split_once('/') else { continue };
                let Ok(ulid) = folder.parse::<Ulid>() else { continue };
                folders.entry(ulid).or_default().insert(name.to_owned(), object.object_bytes);
            }
            options.after = page.next_after;
            if options.after.is_none() {
                break;
            }
        }
        folders.retain(|ulid, objects| !marked.contains(ulid) && objects.contains_key(META));
        Ok(folders)
    }

    /// The record of a block; `None` for one that is not read, with a line in the log.
    async fn record_of(
        &self,
        request: &RequestContext,
        ulid: Ulid,
        objects: Objects,
    ) -> Result<Option<BucketBlock>, BucketError> {
        let key = format!("{}/{ulid}/{META}", request.folder);
        let text = self.store.read(request, &key, ReadRange::Whole, None).await?.bytes;
        let record = match record_in(ulid, &text, &objects) {
            Ok(record) => record,
            Err(why) => {
                tracing::warn!(key, why, "block left out of the new catalogue");
                return Ok(None);
            }
        };
        let Some(&len) = objects.get(TOMBSTONES) else { return Ok(Some(record)) };
        let key = format!("{}/{ulid}/{TOMBSTONES}", request.folder);
        let bytes = self.store.read(request, &key, ReadRange::Whole, None).await?.bytes;
        let crc = chronolith_base::crc::crc32c(&bytes);
        let tombstones = Some(TombstonesObject { name: TOMBSTONES.to_owned(), len, crc });
        Ok(Some(BucketBlock { tombstones, ..record }))
    }
}

/// The record of a block without tombstones, or the reason why it is not read.
fn record_in(ulid: Ulid, text: &[u8], objects: &Objects) -> Result<BucketBlock, String> {
    let meta = decode_read_meta(ulid, text)?;
    let index = objects.get(INDEX).copied().ok_or("its index is missing")?;
    let segment_count = objects.keys().filter(|name| name.starts_with(CHUNKS)).count();
    let segment = |number: usize| objects.get(&format!("{CHUNKS}{number:06}")).copied();
    let segments: Vec<u64> = (1..=segment_count).map_while(segment).collect();
    if segments.len() < segment_count {
        return Err("a chunk segment is missing".to_owned());
    }
    Ok(record_of_meta(&meta, BlockFiles { index, segments, meta: text.len() as u64 }))
}
