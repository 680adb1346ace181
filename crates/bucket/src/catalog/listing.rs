//! Lists the blocks of a tenant in Mimir's layout: `<tenant>/<ULID>/`, deletion markers in
//! `<tenant>/markers/`, Mimir's bucket index. Or all blocks of Thanos's layout: `<ULID>/`, with deletion
//! markers in the folders of the blocks, and the catalogues of the Chronolith servers among the writers.
//!
//! Invariants: markers are listed before blocks, and blocks before catalogues, so that a block which replaces
//! another one is seen. A block without `meta.json` is being uploaded, and not in the list; so is a block of
//! a Chronolith server whose catalogue does not name it. Files of others decide nothing but whether a block
//! is left out.
//! Not here: when to list (`catalog`), reading the catalogues (`writers`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_block::precedence;
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::bucket::catalogue::{FOLDER, Snapshot};
use chronolith_format::bucket::mimir::{
    BUCKET_INDEX, BucketIndex, DELETION_MARK, MARKERS_FOLDER, ThanosMeta, deletion_marker_of,
};
use chronolith_model::TimeRange;
use futures_util::{StreamExt, stream};

use super::writers::{WriterCatalogue, WriterCatalogues};
use crate::BucketError;
use crate::block::{BlockIdentity, BucketBlock};
use crate::cache::BlockCache;
use crate::external_labels::ExternalLabels;
use crate::layout::{WRITERS_FOLDER, writer_of_catalogue};
use crate::meta::{Unread, decode_read_meta};
use crate::remote::Remote;
use crate::store::list::ListOptions;
use crate::store::read::ReadRange;
use crate::store::request::RequestContext;

const META: &str = "meta.json";
/// Folder of the catalogue snapshots.
const CATALOGUE: &str = "catalog";
/// Files `meta.json` that are read at the same time.
const METAS_AT_ONCE: usize = 32;

/// One listing of a tenant.
pub(super) struct Listing<'a> {
    /// Directory of the tenant.
    pub(super) remote: &'a Remote,
    /// Catalogues of a bucket in Thanos's layout.
    pub(super) writers: &'a WriterCatalogues,
    pub(super) request: &'a RequestContext,
    pub(super) cache: &'a Arc<BlockCache>,
    /// Blocks of the list before, which stay the same objects.
    pub(super) known: &'a [Arc<BucketBlock>],
}

/// Result of a listing.
#[derive(Default)]
pub(super) struct Listed {
    /// Blocks that can be queried, and those whose `meta.json` is damaged, by precedence.
    pub(super) blocks: Vec<Arc<BucketBlock>>,
    /// Blocks that are left out, with the reason.
    pub(super) left_out: Vec<String>,
    /// True if the tenant has catalogue snapshots.
    pub(super) has_catalogue: bool,
}

/// Outcome of looking at one block.
enum Found {
    Block(Arc<BucketBlock>),
    LeftOut(String),
    /// The upload of the block is not complete, or its removal has begun.
    Incomplete,
}

impl Listing<'_> {
    /// Cost: two requests at the same time for the blocks, in Thanos's layout per 1000 objects, and one per
    /// 1000 blocks by folder; at first one per 1000 objects; one for each block that has no `meta.json`, two
    /// for each that is neither known nor in the bucket index or a catalogue.
    pub(super) async fn run(&self) -> Result<Listed, BucketError> {
        let layout = self.remote.store.layout();
        match layout.is_flat(&self.request.folder) {
            false => self.run_mimir().await,
            // The other blocks at the top level are not its own.
            true if layout.writer().is_some() => Ok(Listed::default()),
            true => self.run_thanos().await,
        }
    }

    /// Blocks of a snapshot, whose series get `external_labels`. Blocks with the same record as
    /// before stay the same objects.
    pub(super) fn recorded(
        &self,
        snapshot: &Snapshot,
        external_labels: Option<&ExternalLabels>,
    ) -> Vec<Arc<BucketBlock>> {
        let known: BTreeMap<Ulid, &Arc<BucketBlock>> =
            self.known.iter().map(|block| (block.ulid(), block)).collect();
        let blocks = snapshot.blocks.iter().map(|record| {
            let is_same = |block: &&&Arc<BucketBlock>| {
                block.record() == Some(record) && block.external_labels() == external_labels
            };
            match known.get(&record.ulid).filter(is_same) {
                Some(block) => (*block).clone(),
                None => {
                    BucketBlock::recorded(record, self.remote, external_labels.cloned(), self.cache.clone())
                }
            }
        });
        let mut blocks: Vec<Arc<BucketBlock>> = blocks.collect();
        blocks.sort_by_key(|block| block.precedence());
        blocks
    }

    async fn run_mimir(&self) -> Result<Listed, BucketError> {
        let marked = self.marked().await?;
        let options =
            ListOptions { prefix: self.remote.key.clone(), is_delimited: true, ..ListOptions::default() };
        let page = self.remote.store.list_confirmed(self.request, &options).await?;
        let prefix = format!("{}/", self.remote.key);
        let name_of = |key: &str| key.strip_prefix(&prefix).map(|name| name.trim_end_matches('/').to_owned());
        let ulids = page.prefixes.iter().filter_map(|key| name_of(key)?.parse::<Ulid>().ok());
        let mut ulids: BTreeSet<Ulid> = ulids.collect();
        if self.known.is_empty() {
            ulids.extend(self.ulids_of_objects().await?);
        }
        ulids.retain(|ulid| !marked.contains(ulid));
        let lost = self.lost(&ulids, &marked);
        ulids.extend(&lost);
        let has_index =
            page.objects.iter().any(|object| name_of(&object.key).is_some_and(|n| n == BUCKET_INDEX));
        let has_unknown = ulids.iter().any(|ulid| !self.known.iter().any(|known| known.ulid() == *ulid));
        let indexed = if has_index && has_unknown { self.bucket_index().await } else { BTreeMap::new() };
        let has_catalogue = page.prefixes.iter().any(|key| name_of(key).is_some_and(|n| n == CATALOGUE));
        Ok(Listed { has_catalogue, ..self.look_at(ulids, &lost, &indexed).await? })
    }

    /// Blocks of the list before that are neither listed nor left out: a listing that lacks them may be
    /// damaged, so their `meta.json` is looked for.
    fn lost(&self, listed: &BTreeSet<Ulid>, left_out: &BTreeSet<Ulid>) -> BTreeSet<Ulid> {
        let by_listing = self.known.iter().filter(|block| block.record().is_none());
        let ulids = by_listing.map(|block| block.ulid());
        ulids.filter(|ulid| !listed.contains(ulid) && !left_out.contains(ulid)).collect()
    }

    /// Blocks of which a listing without a delimiter has an object. One with a delimiter may lack some every
    /// time. Cost: one request per 1000 objects.
    async fn ulids_of_objects(&self) -> Result<BTreeSet<Ulid>, BucketError> {
        let keys = self.remote.store.layout().block_keys(&self.request.folder);
        let mut options = ListOptions { prefix: self.remote.key.clone(), ..ListOptions::default() };
        let mut ulids = BTreeSet::new();
        loop {
            let page = self.remote.store.list(self.request, &options).await?;
            ulids.extend(page.objects.iter().filter_map(|object| Some(keys.split(&object.key)?.0)));
            options.after = page.next_after;
            if options.after.is_none() {
                return Ok(ulids);
            }
        }
    }

    /// Blocks and folders of writers by listings with a delimiter: one without may lack some every time.
    async fn folders(&self) -> Result<(BTreeSet<Ulid>, BTreeSet<String>), BucketError> {
        let list = async |prefix: &str| {
            let options =
                ListOptions { prefix: prefix.to_owned(), is_delimited: true, ..ListOptions::default() };
            self.remote.store.list(self.request, &options).await
        };
        let (top, writers) = futures_util::future::try_join(list(""), list(WRITERS_FOLDER)).await?;
        let ulids = top.prefixes.iter().filter_map(|key| key.trim_end_matches('/').parse().ok());
        let writer = |key: &String| {
            let name = key.strip_prefix(WRITERS_FOLDER)?.strip_prefix('/')?;
            Some(name.trim_end_matches('/').to_owned())
        };
        Ok((ulids.collect(), writers.prefixes.iter().filter_map(writer).collect()))
    }

    async fn run_thanos(&self) -> Result<Listed, BucketError> {
        let mut options = ListOptions::default();
        let keys = self.remote.store.layout().block_keys(&self.request.folder);
        let (folders, mut writers) = self.folders().await?;
        let mut complete = BTreeSet::new();
        let mut unread = BTreeSet::new();
        loop {
            let page = self.remote.store.list_confirmed(self.request, &options).await?;
            for object in &page.objects {
                match keys.split(&object.key) {
                    Some((ulid, META)) => drop(complete.insert(ulid)),
                    Some((ulid, DELETION_MARK)) => drop(unread.insert(ulid)),
                    Some(_) => {}
                    None => writers.extend(writer_of_catalogue(&object.key, FOLDER).map(str::to_owned)),
                }
            }
            options.after = page.next_after;
            if options.after.is_none() {
                break;
            }
        }
        let catalogues = self.writers.read(self.request, &writers).await?;
        let mut recorded = Vec::new();
        for WriterCatalogue { labels, snapshot } in &catalogues {
            recorded.extend(self.recorded(snapshot, Some(labels)));
            unread.extend(snapshot.blocks.iter().map(|record| record.ulid));
            unread.extend(snapshot.deletion_marks.iter().map(|mark| mark.ulid));
        }
        let left_out: BTreeSet<Ulid> = complete.union(&unread).copied().collect();
        let mut unsure = self.lost(&complete, &unread);
        unsure.extend(folders.difference(&left_out));
        let ulids = complete.difference(&unread).chain(&unsure).copied().collect();
        let mut listed = self.look_at(ulids, &unsure, &BTreeMap::new()).await?;
        // The writer's catalogue decides: the block is being uploaded, was replaced or is left over.
        listed.blocks.retain(|block| {
            let is_of = |catalogue: &WriterCatalogue| block.external_labels() == Some(&catalogue.labels);
            !block.is_of_chronolith() || !catalogues.iter().any(is_of)
        });
        listed.blocks.extend(recorded);
        listed.blocks.sort_by_key(|block| block.precedence());
        Ok(listed)
    }

    /// Blocks by their `meta.json`, unless they are known or in the bucket index. Blocks of `unsure`, which a
    /// listing lacks, are not there if their `meta.json` has no head.
    async fn look_at(
        &self,
        ulids: BTreeSet<Ulid>,
        unsure: &BTreeSet<Ulid>,
        indexed: &BTreeMap<Ulid, BlockIdentity>,
    ) -> Result<Listed, BucketError> {
        let known: BTreeMap<Ulid, &Arc<BucketBlock>> =
            self.known.iter().map(|block| (block.ulid(), block)).collect();
        let looks = stream::iter(ulids).map(|ulid| {
            let is_usable = |block: &&Arc<BucketBlock>| block.record().is_none() && !block.is_meta_damaged();
            let known = known.get(&ulid).copied().filter(is_usable);
            let indexed = indexed.get(&ulid).cloned();
            let is_unsure = unsure.contains(&ulid);
            async move {
                if is_unsure && !self.has_meta(ulid).await? {
                    return Ok(Found::Incomplete);
                }
                match (known, indexed) {
                    (Some(block), _) => Ok(Found::Block(block.clone())),
                    (None, Some(identity)) => Ok(Found::Block(self.block(ulid, identity, None))),
                    (None, None) => self.look(ulid).await,
                }
            }
        });
        let mut looks = looks.buffer_unordered(METAS_AT_ONCE);
        let mut listed = Listed::default();
        while let Some(found) = looks.next().await {
            match found? {
                Found::Block(block) => listed.blocks.push(block),
                Found::LeftOut(why) => listed.left_out.push(why),
                Found::Incomplete => {}
            }
        }
        listed.blocks.sort_by_key(|block| block.precedence());
        listed.left_out.sort_unstable();
        Ok(listed)
    }

    async fn has_meta(&self, ulid: Ulid) -> Result<bool, BucketError> {
        let key = self.remote.key_of(&format!("{ulid}/{META}"));
        match self.remote.store.head(self.request, &key).await {
            Ok(_) => Ok(true),
            Err(BucketError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Blocks with a deletion marker.
    async fn marked(&self) -> Result<BTreeSet<Ulid>, BucketError> {
        let folder = format!("{}/{}", self.remote.key, MARKERS_FOLDER.trim_end_matches('/'));
        let objects = self.remote.store.list_folder_confirmed(self.request, &folder).await?;
        let tenant = format!("{}/", self.remote.key);
        let marker = |key: &str| deletion_marker_of(key.strip_prefix(&tenant)?);
        Ok(objects.iter().filter_map(|object| marker(&object.key)).collect())
    }

    /// Blocks that Mimir's bucket index describes; none if it cannot be read, as it only saves requests.
    async fn bucket_index(&self) -> BTreeMap<Ulid, BlockIdentity> {
        let key = format!("{}/{BUCKET_INDEX}", self.remote.key);
        let read = self.remote.store.read(self.request, &key, ReadRange::Whole, None).await;
        let bytes = match read {
            Ok(read) => read.bytes,
            Err(error) => {
                tracing::warn!(%error, "reading Mimir's bucket index failed, reading meta.json of each block instead");
                return BTreeMap::new();
            }
        };
        match BucketIndex::decode(&bytes) {
            Ok(index) => {
                let identity = |ulid: Ulid, min_time, max_time| BlockIdentity {
                    ulid,
                    range: TimeRange::new(min_time, max_time),
                    precedence: (ulid, ulid),
                    sources: Arc::default(),
                    split_set: None,
                    external_labels: None,
                    is_of_chronolith: false,
                };
                let blocks = index.blocks.iter().filter(|block| block.min_time < block.max_time);
                blocks.map(|b| (b.block_id, identity(b.block_id, b.min_time, b.max_time))).collect()
            }
            Err(error) => {
                tracing::warn!(%key, %error, "Mimir's bucket index is damaged, reading meta.json of each block instead");
                BTreeMap::new()
            }
        }
    }

    /// Reads `meta.json` of a block.
    async fn look(&self, ulid: Ulid) -> Result<Found, BucketError> {
        let key = self.remote.key_of(&format!("{ulid}/{META}"));
        // `meta.json` has no checksum: one wrong digit would make the block shorter in silence.
        let Some(read) = self.remote.store.read_confirmed(self.request, &key).await? else {
            return Ok(Found::Incomplete);
        };
        let is_flat = self.remote.store.layout().is_flat(&self.request.folder);
        Ok(match identity_of(is_flat, ulid, &read.bytes) {
            Ok((identity, meta)) => Found::Block(self.block(ulid, identity, Some(Box::new(meta)))),
            Err(Unread::LeftOut(why)) => Found::LeftOut(format!("{key}: {why}")),
            Err(Unread::Damaged(why)) => {
                tracing::error!(key, why, "meta.json of a block is damaged, refusing queries");
                let remote = Remote { key: self.remote.key_of(&ulid.to_string()), ..self.remote.clone() };
                Found::Block(BucketBlock::with_damaged_meta(ulid, why, remote, self.cache.clone()))
            }
        })
    }

    fn block(&self, ulid: Ulid, identity: BlockIdentity, meta: Option<Box<BlockMeta>>) -> Arc<BucketBlock> {
        let remote = Remote { key: self.remote.key_of(&ulid.to_string()), ..self.remote.clone() };
        BucketBlock::listed(identity, meta, remote, self.cache.clone())
    }
}

/// Identity of the block `ulid` and its `meta.json`, or the reason why its samples are not read. `is_flat` is
/// true in Thanos's layout.
fn identity_of(is_flat: bool, ulid: Ulid, text: &[u8]) -> Result<(BlockIdentity, BlockMeta), Unread> {
    let (meta, thanos) = decode_read_meta(ulid, text)?;
    let is_of_chronolith = thanos.as_ref().is_some_and(ThanosMeta::is_of_chronolith);
    // In Mimir's layout they name tenant and shard, which are no labels of series.
    let external_labels = thanos.filter(|_| is_flat).and_then(|thanos| ExternalLabels::new(&thanos.labels));
    let identity = BlockIdentity {
        ulid,
        range: meta.range(),
        precedence: precedence(&meta),
        sources: meta.compaction.sources.as_slice().into(),
        split_set: meta.compaction.split_set,
        external_labels,
        is_of_chronolith,
    };
    Ok((identity, meta))
}
