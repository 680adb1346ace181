//! Blocks of one tenant as status pages list them: local ones, and blocks of the bucket's catalogue.
//!
//! Invariants: a block is listed once, with all its locations; blocks with the latest ends come first.
//! Not here: which blocks a query reads (`query::blocks`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_block::{BlockEntry, read_block_meta};
use chronolith_bucket::{BucketBlock, Folder};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_model::databases::{RetentionPolicy, TenantCatalog};
use chronolith_model::{QueryError, ReadContext, StoreId, TenantId, TimeRange, TimeUnit};

use crate::bucket::folder_source::FolderSource;
use crate::bucket_sources::BucketSources;
use crate::storage::Storage;

/// Name of the Graphite store in the list.
const GRAPHITE_STORE: &str = "graphite";

/// Location of the files of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockLocation {
    /// On the local disk alone.
    Local,
    /// In the bucket alone.
    Bucket,
    /// On the local disk and in the bucket.
    Both,
}

impl BlockLocation {
    /// Returns the name in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BlockLocation::Local => "local",
            BlockLocation::Bucket => "bucket",
            BlockLocation::Both => "both",
        }
    }
}

/// A block of the list. `None` stands for what its catalogue does not record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSummary {
    /// Store: empty for the tenant's own, `graphite`, or `DATABASE/POLICY`.
    pub store: String,
    /// Name of the block.
    pub ulid: String,
    /// Time that it covers, in whole milliseconds.
    pub range_ms: TimeRange,
    /// Samples, deleted ones included.
    pub sample_count: Option<u64>,
    /// Series.
    pub series_count: Option<u64>,
    /// Chunks of all series.
    pub chunk_count: Option<u64>,
    /// 1 when written from the head, else one more than the highest of the blocks merged.
    pub level: Option<u32>,
    /// Blocks from the head that went in.
    pub sources: Vec<String>,
    /// Bytes of its files.
    pub bytes: Option<u64>,
    /// Location of its files.
    pub location: BlockLocation,
}

/// Blocks of a tenant, those with the latest ends first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockList {
    /// The listed blocks.
    pub blocks: Vec<BlockSummary>,
    /// Number of all blocks, listed or not.
    pub total: usize,
    /// Error of the bucket whose blocks are missing in the list.
    pub bucket_error: Option<String>,
}

/// Copies of a block.
struct Copies {
    store_idx: usize,
    range_ms: TimeRange,
    local: Option<Arc<BlockEntry>>,
    in_bucket: Option<Arc<BucketBlock>>,
}

/// A store of a tenant: its name in the list and its parts.
struct ListedStore {
    name: String,
    /// Id of the local store.
    local: Option<StoreId>,
    in_bucket: Option<FolderSource>,
}

/// Returns the `limit` blocks of `tenant` with the latest ends. Cost: `meta.json` of each listed local block;
/// requests to the bucket if its list is not known yet.
///
/// # Errors
/// As [`ReadContext::check`].
pub(crate) fn of_storage(
    storage: &Storage,
    tenant: &TenantId,
    limit: usize,
    ctx: &ReadContext,
) -> Result<BlockList, QueryError> {
    let catalog = storage.databases().catalog();
    let mut stores = vec![(String::new(), StoreId::from(tenant))];
    if let Some(of_tenant) = catalog.of(tenant) {
        stores.extend(named_policies(of_tenant).map(|(name, policy)| (name, policy.store.clone())));
    }
    let with_sources = stores.into_iter().map(|(name, store)| ListedStore {
        name,
        in_bucket: storage.bucket_blocks(&store),
        local: Some(store),
    });
    let stores: Vec<ListedStore> = with_sources.collect();
    let mut copies = BTreeMap::new();
    for (store_idx, store) in stores.iter().enumerate() {
        let Some(id) = &store.local else { continue };
        let Some(blocks) = storage.blocks().tenant(id) else { continue };
        for entry in blocks.list().iter() {
            let range_ms = id.time_unit().range_to_ms(entry.range());
            let one = Copies { store_idx, range_ms, local: Some(entry.clone()), in_bucket: None };
            copies.insert((store_idx, entry.ulid()), one);
        }
    }
    let bucket_error = add_in_bucket(&stores, &mut copies, ctx)?;
    let total = copies.len();
    let meta_of = |one: &Copies, entry: &BlockEntry| {
        let store = stores.get(one.store_idx)?.local.as_ref()?;
        let dir = storage.blocks().tenant(store)?.block_dir(entry.ulid());
        // A block that was replaced meanwhile has no file any more, and is listed without these details.
        read_block_meta(storage.env(), &dir).ok()
    };
    let blocks = newest(copies, limit).iter().map(|one| summary(one, &stores, meta_of)).collect();
    Ok(BlockList { blocks, total, bucket_error })
}

impl BucketSources {
    /// Returns the `limit` blocks of `tenant` with the latest ends. Requests to the bucket if its lists are
    /// not known yet.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] if the bucket does not name its databases; as [`ReadContext::check`].
    pub fn block_list(
        &self,
        tenant: &TenantId,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<BlockList, QueryError> {
        ctx.begin_wait()?;
        let catalog = self.databases_of(tenant, ctx)?;
        let own = self.folder_source(tenant.into());
        let mut stores = vec![ListedStore { name: String::new(), local: None, in_bucket: Some(own) }];
        stores.extend(named_policies(&catalog).filter_map(|(name, policy)| {
            let source = self.folder_source(Folder::of_store(tenant, policy.bucket_id?));
            Some(ListedStore { name, local: None, in_bucket: Some(source) })
        }));
        let mut copies = BTreeMap::new();
        let bucket_error = add_in_bucket(&stores, &mut copies, ctx)?;
        let total = copies.len();
        let no_meta = |_: &Copies, _: &BlockEntry| None;
        let blocks = newest(copies, limit).iter().map(|one| summary(one, &stores, no_meta)).collect();
        Ok(BlockList { blocks, total, bucket_error })
    }
}

/// Returns the retention policies of a tenant with their names in the list.
fn named_policies(catalog: &TenantCatalog) -> impl Iterator<Item = (String, &RetentionPolicy)> {
    let graphite = catalog.graphite.iter().map(|policy| (GRAPHITE_STORE.to_owned(), policy));
    let of_database = catalog.databases.iter().flat_map(|database| {
        database.policies.iter().map(|policy| (format!("{}/{}", database.name, policy.name), policy))
    });
    graphite.chain(of_database)
}

/// Adds the blocks of the bucket. Returns the error of a bucket that does not answer.
fn add_in_bucket(
    stores: &[ListedStore],
    copies: &mut BTreeMap<(usize, Ulid), Copies>,
    ctx: &ReadContext,
) -> Result<Option<String>, QueryError> {
    for (store_idx, store) in stores.iter().enumerate() {
        let Some(source) = &store.in_bucket else { continue };
        ctx.begin_wait()?;
        let blocks = match source.blocks_in(TimeRange::ALL, ctx) {
            Ok(blocks) => blocks,
            Err(error @ (QueryError::Canceled | QueryError::Timeout)) => return Err(error),
            Err(error) => return Ok(Some(error.to_string())),
        };
        for block in blocks {
            let unit = block.record().map_or(TimeUnit::Milli, |record| record.time_unit);
            let range_ms = unit.range_to_ms(block.range());
            let fresh = || Copies { store_idx, range_ms, local: None, in_bucket: None };
            let key = (store_idx, block.ulid());
            copies.entry(key).or_insert_with(fresh).in_bucket = Some(block);
        }
    }
    Ok(None)
}

/// Returns the `limit` blocks with the latest ends; of equal ends, the one with the later name first.
fn newest(copies: BTreeMap<(usize, Ulid), Copies>, limit: usize) -> Vec<Copies> {
    let mut all: Vec<((usize, Ulid), Copies)> = copies.into_iter().collect();
    all.sort_by(|(key, one), (other_key, other)| {
        other.range_ms.end.cmp(&one.range_ms.end).then_with(|| other_key.1.cmp(&key.1))
    });
    all.into_iter().take(limit).map(|(_, one)| one).collect()
}

fn summary(
    one: &Copies,
    stores: &[ListedStore],
    meta_of: impl Fn(&Copies, &BlockEntry) -> Option<BlockMeta>,
) -> BlockSummary {
    let record = one.in_bucket.as_ref().and_then(|block| block.record());
    let local = one.local.as_ref();
    // The record of the bucket has all of it, and costs no read.
    let meta = match (record, local) {
        (None, Some(entry)) => meta_of(one, entry),
        _ => None,
    };
    let ulid = local.map(|entry| entry.ulid()).or(one.in_bucket.as_ref().map(|block| block.ulid()));
    let of_local = local.map(|entry| entry.record());
    let sources = record.map(|record| record.ancestry.sources.as_slice());
    let sources = sources.or(meta.as_ref().map(|meta| meta.compaction.sources.as_slice()));
    BlockSummary {
        store: stores.get(one.store_idx).map_or_else(String::new, |store| store.name.clone()),
        ulid: ulid.map_or_else(String::new, |ulid| ulid.to_string()),
        range_ms: one.range_ms,
        sample_count: of_local
            .and_then(|of_local| of_local.sample_count)
            .or(record.map(|record| record.counts.samples))
            .or(meta.as_ref().map(|meta| meta.stats.num_samples)),
        series_count: of_local.map(|of_local| of_local.series_count).or(record.map(|r| r.counts.series)),
        chunk_count: record
            .map(|record| record.counts.chunks)
            .or(meta.as_ref().map(|meta| meta.stats.num_chunks)),
        level: record.map(|record| record.ancestry.level).or(meta.as_ref().map(|meta| meta.compaction.level)),
        sources: sources.unwrap_or_default().iter().map(Ulid::to_string).collect(),
        bytes: of_local.map(|of_local| of_local.size_bytes).or(record.map(|record| record.files.bytes())),
        location: match (local, &one.in_bucket) {
            (Some(_), Some(_)) => BlockLocation::Both,
            (Some(_), None) => BlockLocation::Local,
            (None, _) => BlockLocation::Bucket,
        },
    }
}
