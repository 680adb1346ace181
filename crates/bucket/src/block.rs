//! A block in the bucket, its index header read at the first query.
//!
//! Invariants: concurrent queries read the header once; it stays in memory within the memory budget of the
//! bucket; a failed read is not remembered.
//! Not here: which blocks a tenant has (`catalog`), memory of headers and ranges (`cache`), selections
//! (`select`).

mod recorded;

use std::path::PathBuf;
use std::sync::Arc;

use chronolith_block::source::BlockFiles;
use chronolith_block::{Block, open_error};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::bucket::catalogue::{self, BlockFolder};
use chronolith_model::{QueryError, ReadContext, TimeRange};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use self::recorded::BlockObjects;
use crate::cache::{BlockCache, BlockKey, HeaderOwner};
use crate::remote::{Remote, RemoteFiles, WaitingSource, query_error};
use crate::store::list::ListOptions;

const META: &str = "meta.json";
const TOMBSTONES: &str = "tombstones";
const INDEX: &str = "index";
const CHUNKS: &str = "chunks/";

/// Name, time range and ancestry of a block, as a listing finds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockIdentity {
    pub(crate) ulid: Ulid,
    pub(crate) range: TimeRange,
    /// Order among blocks, as [`chronolith_block::precedence`].
    pub(crate) precedence: (Ulid, Ulid),
    /// Blocks from the head that went in; empty if the program that wrote it records none.
    pub(crate) sources: Arc<[Ulid]>,
}

/// A block in the bucket that can be queried.
pub struct BucketBlock {
    identity: BlockIdentity,
    remote: Remote,
    /// Record of the catalogue; `None` for a block that was found by a listing.
    record: Option<Box<catalogue::BucketBlock>>,
    opened: Mutex<Option<Arc<OpenedBlock>>>,
    /// Held while the header is read.
    opening: tokio::sync::Mutex<()>,
    cache: Arc<BlockCache>,
    /// Key of its ranges in the cache.
    cache_key: BlockKey,
}

/// A block whose header is in memory.
pub(crate) struct OpenedBlock {
    pub(crate) block: Arc<Block>,
    pub(crate) files: Arc<RemoteFiles>,
}

impl BucketBlock {
    /// The block below the key of `remote`, found by a listing.
    pub(crate) fn listed(
        identity: BlockIdentity,
        remote: Remote,
        cache: Arc<BlockCache>,
    ) -> Arc<BucketBlock> {
        BucketBlock::new(identity, remote, None, cache)
    }

    /// The block of a record of the catalogue of the tenant whose folder is the key of `tenant`.
    pub(crate) fn recorded(
        record: &catalogue::BucketBlock,
        tenant: &Remote,
        cache: Arc<BlockCache>,
    ) -> Arc<BucketBlock> {
        let identity = BlockIdentity {
            ulid: record.ulid,
            range: record.range,
            precedence: (record.ancestry.oldest_source, record.ulid),
            sources: record.ancestry.sources.as_slice().into(),
        };
        let key = match record.folder {
            BlockFolder::Mimir => format!("{}/{}", tenant.key, record.ulid),
            BlockFolder::Thanos => record.ulid.to_string(),
        };
        let remote = Remote { key, ..tenant.clone() };
        BucketBlock::new(identity, remote, Some(Box::new(record.clone())), cache)
    }

    fn new(
        identity: BlockIdentity,
        remote: Remote,
        record: Option<Box<catalogue::BucketBlock>>,
        cache: Arc<BlockCache>,
    ) -> Arc<BucketBlock> {
        Arc::new(BucketBlock {
            identity,
            remote,
            record,
            opened: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            cache_key: cache.new_block(),
            cache,
        })
    }

    /// Record of the catalogue; `None` for a block that was found by a listing.
    #[must_use]
    pub fn record(&self) -> Option<&catalogue::BucketBlock> {
        self.record.as_deref()
    }

    /// Name.
    #[must_use]
    pub fn ulid(&self) -> Ulid {
        self.identity.ulid
    }

    /// Time that it covers.
    #[must_use]
    pub fn range(&self) -> TimeRange {
        self.identity.range
    }

    /// Order of blocks: of two samples with the same timestamp, that of the lower one is read.
    #[must_use]
    pub fn precedence(&self) -> (Ulid, Ulid) {
        self.identity.precedence
    }

    /// Blocks from the head that went in; empty if that is not known.
    #[must_use]
    pub fn sources(&self) -> &[Ulid] {
        &self.identity.sources
    }

    /// Returns false if the header is in memory and no series has the label; true otherwise.
    #[must_use]
    pub fn may_have_label_name(&self, name: &str) -> bool {
        self.opened.lock().as_ref().is_none_or(|opened| opened.block.has_label_name(name))
    }

    /// Returns the block with its header, which the first caller reads.
    pub(crate) async fn open(
        self: &Arc<BucketBlock>,
        deadline_ns: u64,
    ) -> Result<Arc<OpenedBlock>, QueryError> {
        if let Some(opened) = self.used() {
            return Ok(opened);
        }
        let _opening = self.opening.lock().await;
        if let Some(opened) = self.used() {
            return Ok(opened);
        }
        let opened = match self.read_header(deadline_ns).await {
            // The damage may be that of the transfer.
            Err(QueryError::Corrupt { .. }) => {
                self.forget();
                self.read_header(deadline_ns).await?
            }
            result => result?,
        };
        let opened = Arc::new(opened);
        *self.opened.lock() = Some(opened.clone());
        self.cache.add_header(self, &self.remote.tenant, opened.block.heap_bytes() as u64);
        Ok(opened)
    }

    fn used(self: &Arc<BucketBlock>) -> Option<Arc<OpenedBlock>> {
        let opened = self.opened.lock().clone();
        if opened.is_some() {
            self.cache.note_header_use(&**self);
        }
        opened
    }

    async fn read_header(&self, deadline_ns: u64) -> Result<OpenedBlock, QueryError> {
        let objects = match self.record() {
            Some(record) => recorded::objects(record, &self.remote.key),
            None => self.listed_objects(deadline_ns).await?,
        };
        let tombstones = match &objects.tombstones {
            Some(name) => Some(self.remote.read_whole(name, deadline_ns).await.map_err(query_error)?),
            None => None,
        };
        let meta = objects.meta;
        let cache = self.cache.clone();
        let files = Arc::new(RemoteFiles::new(self.remote.clone(), objects.files, cache, self.cache_key));
        let source = Box::new(WaitingSource(files.clone()));
        let open = move || Block::open_remote(meta, tombstones.as_deref(), source);
        let opened = self.remote.handle.spawn_blocking(open).await;
        let block = opened.map_err(|_| QueryError::Canceled)?.map_err(open_error)?;
        files.start_caching();
        Ok(OpenedBlock { block, files })
    }

    async fn listed_objects(&self, deadline_ns: u64) -> Result<BlockObjects, QueryError> {
        let key = &self.remote.key;
        let meta = self.remote.read_whole(META, deadline_ns).await.map_err(query_error)?;
        let meta = BlockMeta::decode(&meta).map_err(|error| {
            let path = format!("{key}/{META}");
            QueryError::Corrupt { path, what: error.to_string() }
        })?;
        let options = ListOptions { prefix: key.clone(), ..ListOptions::default() };
        let listed = self.remote.store.list(&self.remote.request(deadline_ns), &options).await;
        let listed = listed.map_err(query_error)?;
        let objects = || {
            let name_of = |key_of: &str| key_of.strip_prefix(key)?.strip_prefix('/').map(str::to_owned);
            listed.objects.iter().filter_map(move |object| Some((name_of(&object.key)?, object.object_bytes)))
        };
        let len_of = |name: &str| objects().find(|(found, _)| found == name).map(|(_, len)| len);
        let mut segments = Vec::new();
        for number in 1..=objects().count() {
            let Some(len) = len_of(&format!("{CHUNKS}{number:06}")) else { break };
            segments.push(len);
        }
        let segment_count = objects().filter(|(name, _)| name.starts_with(CHUNKS)).count();
        let Some(index_bytes) = len_of(INDEX).filter(|_| segments.len() == segment_count) else {
            let what = format!("block {key} is incomplete: its index or a chunk segment is missing");
            return Err(QueryError::Unavailable { what });
        };
        let tombstones = len_of(TOMBSTONES).map(|_| TOMBSTONES.to_owned());
        Ok(BlockObjects {
            meta,
            files: BlockFiles::new(PathBuf::from(key), index_bytes, segments),
            tombstones,
        })
    }

    /// Time at which requests for a query end.
    pub(crate) fn deadline_ns(&self, ctx: &ReadContext) -> u64 {
        self.remote.deadline_ns(ctx)
    }

    /// Drops its ranges from the cache, as one of them is damaged.
    pub(crate) fn forget(&self) {
        self.cache.note_damage();
        self.cache.remove_block(self.cache_key);
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.remote.handle
    }
}

impl HeaderOwner for BucketBlock {
    fn drop_header(&self) {
        let opened = self.opened.lock().take();
        drop(opened);
    }
}

impl Drop for BucketBlock {
    fn drop(&mut self) {
        self.cache.remove_header(self);
        self.cache.remove_block(self.cache_key);
    }
}
