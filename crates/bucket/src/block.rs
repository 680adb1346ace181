//! A block in the bucket, the head of its sidecar or else its index header read at the first query.
//!
//! Invariants: concurrent queries read the header once; it stays in memory within the memory budget of the
//! bucket; a failed read is not remembered, a sidecar that is missing or damaged is.
//! Not here: which blocks a tenant has (`catalog`), memory of headers and ranges (`cache`), selections
//! (`select`), the object with the sidecar (`sidecar`).

pub(crate) mod page_costs;
mod recorded;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::utc::rfc3339_ms;
use chronolith_block::source::{BlockFile, BlockFiles};
use chronolith_block::{Block, SidecarBlock, open_error};
use chronolith_format::block::meta::{BlockMeta, Provenance, Ulid};
use chronolith_format::bucket::catalogue::{self, BlockFolder};
use chronolith_format::bucket::sidecar::SIDECAR_OBJECT;
use chronolith_model::{QueryError, Queryable, ReadContext, TimeRange, TimeUnit};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use self::page_costs::PageCosts;
use self::recorded::BlockObjects;
use crate::cache::disk::FileVersions;
use crate::cache::{BlockCache, BlockKey, HeaderOwner};
use crate::external_labels::{ExtendedBlock, ExternalLabels};
use crate::remote::{Remote, RemoteFiles, WaitingSource, query_error};
use crate::sidecar::{HeadError, read_head};
use crate::store::list::{ListOptions, ListedObject};

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
    /// Set of blocks that one compaction split by series.
    pub(crate) split_set: Option<Ulid>,
    /// Labels that each series has in addition to its own.
    pub(crate) external_labels: Option<ExternalLabels>,
    /// Chronolith uploaded it.
    pub(crate) is_of_chronolith: bool,
}

/// A block in the bucket that can be queried.
pub struct BucketBlock {
    identity: BlockIdentity,
    /// The sidecar is missing or damaged.
    is_sidecar_unusable: AtomicBool,
    remote: Remote,
    /// Record of the catalogue; `None` for a block that was found by a listing.
    record: Option<Box<catalogue::BucketBlock>>,
    page_costs: PageCosts,
    opened: Mutex<OpenedReaders>,
    /// Held while the header is read.
    opening: tokio::sync::Mutex<()>,
    cache: Arc<BlockCache>,
    /// Key of its ranges in the cache.
    cache_key: BlockKey,
}

/// Readers of a block whose headers are in memory.
#[derive(Default)]
struct OpenedReaders {
    by_sidecar: Option<Arc<OpenedBlock>>,
    by_index: Option<Arc<OpenedBlock>>,
    /// Memory of both, as the cache has it.
    cached_bytes: u64,
}

impl OpenedReaders {
    fn all(&self) -> impl Iterator<Item = &Arc<OpenedBlock>> {
        self.by_sidecar.iter().chain(&self.by_index)
    }

    fn heap_bytes(&self) -> u64 {
        self.all().map(|opened| opened.reader.heap_bytes()).sum()
    }

    fn add(&mut self, opened: &Arc<OpenedBlock>) {
        match opened.reader {
            BlockReader::Sidecar(_) => self.by_sidecar = Some(opened.clone()),
            BlockReader::Index(_) => self.by_index = Some(opened.clone()),
        }
    }
}

/// A block whose header is in memory.
pub(crate) struct OpenedBlock {
    pub(crate) reader: BlockReader,
    pub(crate) files: Arc<RemoteFiles>,
}

/// Readers that some work can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReaderChoice {
    /// The sidecar if there is a sound one, else the index.
    Any,
    /// The index, also of a block with a sidecar.
    Index,
}

/// Reader of a block.
pub(crate) enum BlockReader {
    /// By its sidecar.
    Sidecar(SidecarBlock),
    /// By its index.
    Index(Arc<Block>),
}

impl BlockReader {
    /// Answers questions on threads that may wait.
    pub(crate) fn queryable(&self) -> &dyn Queryable {
        match self {
            BlockReader::Sidecar(block) => block,
            BlockReader::Index(block) => &**block,
        }
    }

    /// Damage of the sidecar by which the block is read.
    pub(crate) fn sidecar_damage(&self) -> Option<&str> {
        match self {
            BlockReader::Sidecar(block) => block.damage(),
            BlockReader::Index(_) => None,
        }
    }

    fn may_have_label_name(&self, name: &str) -> bool {
        match self {
            BlockReader::Sidecar(block) => block.may_have_label_name(name),
            BlockReader::Index(block) => block.has_label_name(name),
        }
    }

    fn heap_bytes(&self) -> u64 {
        let bytes = match self {
            BlockReader::Sidecar(block) => block.heap_bytes(),
            BlockReader::Index(block) => block.heap_bytes(),
        };
        bytes as u64
    }
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

    /// The block of a record of the catalogue in the folder that is the key of `folder`.
    pub(crate) fn recorded(
        record: &catalogue::BucketBlock,
        folder: &Remote,
        external_labels: Option<ExternalLabels>,
        cache: Arc<BlockCache>,
    ) -> Arc<BucketBlock> {
        let identity = BlockIdentity {
            ulid: record.ulid,
            range: record.range,
            precedence: (record.ancestry.oldest_source, record.ulid),
            sources: record.ancestry.sources.as_slice().into(),
            split_set: record.ancestry.split_set,
            external_labels,
            is_of_chronolith: true,
        };
        let key = match record.folder {
            BlockFolder::Mimir => format!("{}/{}", folder.key, record.ulid),
            BlockFolder::Thanos => record.ulid.to_string(),
        };
        let remote = Remote { key, ..folder.clone() };
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
            is_sidecar_unusable: AtomicBool::new(false),
            remote,
            record,
            page_costs: PageCosts::default(),
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

    /// Costs of selections by the pages of its sidecar.
    pub(crate) fn page_costs(&self) -> &PageCosts {
        &self.page_costs
    }

    /// Bytes of all its chunks; `u64::MAX` if they are not known.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.record().map_or(u64::MAX, |record| record.files.segments.iter().sum())
    }

    /// Name and time range, for messages.
    #[must_use]
    pub fn description(&self) -> String {
        let BlockIdentity { ulid, range, .. } = &self.identity;
        let unit = self.record().map_or(TimeUnit::Milli, |record| record.time_unit);
        let text = |time: i64| rfc3339_ms(unit.to_ms(time));
        format!("block {ulid} ({} to {})", text(range.start), text(range.end))
    }

    /// Order of blocks: of two samples with the same timestamp, that of the lower one is read.
    #[must_use]
    pub fn precedence(&self) -> (Ulid, Ulid) {
        self.identity.precedence
    }

    /// Identity of the block and of the blocks from the head in it.
    #[must_use]
    pub fn provenance(&self) -> Provenance<'_> {
        let BlockIdentity { ulid, ref sources, split_set, .. } = self.identity;
        Provenance { ulid, sources, split_set }
    }

    /// Labels that each series has in addition to its own.
    pub(crate) fn external_labels(&self) -> Option<&ExternalLabels> {
        self.identity.external_labels.as_ref()
    }

    /// Returns true if Chronolith uploaded it.
    pub(crate) fn is_of_chronolith(&self) -> bool {
        self.identity.is_of_chronolith
    }

    /// Key of its folder.
    pub(crate) fn key(&self) -> &str {
        &self.remote.key
    }

    /// Runs `work` on `source`, the reader of this block, whose series get the external labels of the block.
    pub(crate) fn with_external_labels<T>(
        &self,
        source: &dyn Queryable,
        work: impl FnOnce(&dyn Queryable) -> T,
    ) -> T {
        match self.external_labels() {
            None => work(source),
            Some(labels) => work(&ExtendedBlock { labels, block: self.key(), source }),
        }
    }

    /// Returns false if what is in memory shows that no series has the label; true otherwise.
    #[must_use]
    pub fn may_have_label_name(&self, name: &str) -> bool {
        self.opened.lock().all().all(|opened| opened.reader.may_have_label_name(name))
    }

    /// Returns the block with its header, which the first caller reads.
    pub(crate) async fn open(
        self: &Arc<BucketBlock>,
        choice: ReaderChoice,
        deadline_ns: u64,
    ) -> Result<Arc<OpenedBlock>, QueryError> {
        if let Some(opened) = self.used(choice) {
            return Ok(opened);
        }
        let _opening = self.opening.lock().await;
        if let Some(opened) = self.used(choice) {
            return Ok(opened);
        }
        let objects = match self.record() {
            Some(record) => recorded::objects(record, &self.remote.key),
            None => self.listed_objects(deadline_ns).await?,
        };
        let by_sidecar = match choice {
            ReaderChoice::Any if objects.has_sidecar => self.read_sidecar(deadline_ns).await?,
            ReaderChoice::Any => {
                self.is_sidecar_unusable.store(true, Ordering::Relaxed);
                None
            }
            ReaderChoice::Index => None,
        };
        let opened = match by_sidecar {
            Some(opened) => opened,
            // Work that needs the index may have read it before.
            None => match self.used(ReaderChoice::Index) {
                Some(opened) => return Ok(opened),
                None => self.read_index_header(&objects, deadline_ns).await?,
            },
        };
        let opened = Arc::new(opened);
        self.opened.lock().add(&opened);
        self.note_memory();
        Ok(opened)
    }

    async fn read_index_header(
        &self,
        objects: &BlockObjects,
        deadline_ns: u64,
    ) -> Result<OpenedBlock, QueryError> {
        match self.read_header(objects, deadline_ns).await {
            // The damage may be that of the transfer.
            Err(QueryError::Corrupt { .. }) => {
                self.forget();
                self.read_header(objects, deadline_ns).await
            }
            result => result,
        }
    }

    /// Passes the memory of the headers to the cache if it has changed: parts of a sidecar are read at their
    /// first use.
    pub(crate) fn note_memory(self: &Arc<BucketBlock>) {
        let bytes = {
            let mut opened = self.opened.lock();
            let bytes = opened.heap_bytes();
            if bytes == std::mem::replace(&mut opened.cached_bytes, bytes) {
                return;
            }
            bytes
        };
        self.cache.add_header(self, self.remote.folder.tenant(), bytes);
    }

    /// Drops a reader by the sidecar, which remembers its damage.
    pub(crate) fn close(&self, opened: &Arc<OpenedBlock>) {
        self.opened.lock().by_sidecar.take_if(|current| Arc::ptr_eq(current, opened));
    }

    /// Logs the damage once per block, and has it read by its index from now on.
    pub(crate) fn refuse_sidecar(&self, damage: &str) {
        if !self.is_sidecar_unusable.swap(true, Ordering::Relaxed) {
            let key = format!("{}/{SIDECAR_OBJECT}", self.remote.key);
            tracing::warn!(%key, %damage, "sidecar of a block is damaged, reading the block by its index");
        }
    }

    /// Reads the head of the sidecar; `None` if the block has none that can be used.
    async fn read_sidecar(&self, deadline_ns: u64) -> Result<Option<OpenedBlock>, QueryError> {
        if self.is_sidecar_unusable.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let read = || read_head(&self.remote, self.ulid(), self.record(), self.cache.disk(), deadline_ns);
        let found = match read().await {
            // The damage may be that of the transfer.
            Err(HeadError::Damaged(_)) => {
                self.forget_on_disk();
                read().await
            }
            found => found,
        };
        let found = match found {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.is_sidecar_unusable.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            Err(HeadError::Damaged(damage)) => {
                self.refuse_sidecar(&damage);
                return Ok(None);
            }
            Err(HeadError::Bucket(error)) => return Err(query_error(error)),
        };
        let files = Arc::new(self.files(found.files, &found.versions));
        files.start_caching();
        files.keep(BlockFile::Sidecar, found.read_from, &found.read);
        let source = Box::new(WaitingSource(files.clone()));
        let reader = BlockReader::Sidecar(SidecarBlock::new(found.head, self.range(), source));
        Ok(Some(OpenedBlock { reader, files }))
    }

    fn files(&self, files: BlockFiles, versions: &FileVersions) -> RemoteFiles {
        RemoteFiles::new(self.remote.clone(), files, versions, self.cache.clone(), self.cache_key)
    }

    /// Drops its objects from the cache directory.
    fn forget_on_disk(&self) {
        if let Some(disk) = self.cache.disk() {
            disk.remove_folder(&self.remote.folder(disk.bucket()));
        }
    }

    /// Returns a reader that is in memory; for [`ReaderChoice::Any`] that of the index only if the sidecar
    /// cannot be used.
    fn used(&self, choice: ReaderChoice) -> Option<Arc<OpenedBlock>> {
        let by_index = choice == ReaderChoice::Index || self.is_sidecar_unusable.load(Ordering::Relaxed);
        let opened = {
            let opened = self.opened.lock();
            if by_index { opened.by_index.clone() } else { opened.by_sidecar.clone() }
        };
        if opened.is_some() {
            self.cache.note_header_use(self);
        }
        opened
    }

    async fn read_header(&self, objects: &BlockObjects, deadline_ns: u64) -> Result<OpenedBlock, QueryError> {
        let tombstones = match &objects.tombstones {
            Some(name) => Some(self.remote.read_whole(name, deadline_ns).await.map_err(query_error)?),
            None => None,
        };
        let meta = objects.meta.clone();
        let files = Arc::new(self.files(objects.files.clone(), &objects.versions));
        let source = Box::new(WaitingSource(files.clone()));
        let open = move || Block::open_remote(meta, tombstones.as_deref(), source);
        let opened = self.remote.handle.spawn_blocking(open).await;
        let block = opened.map_err(|_| QueryError::Canceled)?.map_err(open_error)?;
        files.start_caching();
        Ok(OpenedBlock { reader: BlockReader::Index(block), files })
    }

    async fn listed_objects(&self, deadline_ns: u64) -> Result<BlockObjects, QueryError> {
        let key = &self.remote.key;
        let options = ListOptions { prefix: key.clone(), ..ListOptions::default() };
        let request = self.remote.request(deadline_ns);
        let listed = self.remote.store.list(&request, &options);
        let (meta, listed) = futures_util::future::join(self.read_meta(deadline_ns), listed).await;
        let meta = meta?;
        let listed = listed.map_err(query_error)?;
        let objects = || {
            let name_of = |key_of: &str| key_of.strip_prefix(key)?.strip_prefix('/').map(str::to_owned);
            listed.objects.iter().filter_map(move |object| Some((name_of(&object.key)?, object.object_bytes)))
        };
        let len_of = |name: &str| objects().find(|(found, _)| found == name).map(|(_, len)| len);
        let mut versions = FileVersions::default();
        let mut add_version = |file: BlockFile| {
            let key_of = |object: &&ListedObject| object.key == format!("{key}/{}", file.name());
            if let Some(object) = listed.objects.iter().find(key_of) {
                versions.add_etag(file, object.object_bytes, object.etag.as_deref());
            }
        };
        add_version(BlockFile::Index);
        let mut segments = Vec::new();
        for number in 1..=objects().count() {
            let Some(len) = len_of(&format!("{CHUNKS}{number:06}")) else { break };
            segments.push(len);
            add_version(BlockFile::Segment(number as u32 - 1));
        }
        let segment_count = objects().filter(|(name, _)| name.starts_with(CHUNKS)).count();
        let Some(index_bytes) = len_of(INDEX).filter(|_| segments.len() == segment_count) else {
            let what = format!("block {key} is incomplete: its index or a chunk segment is missing");
            return Err(QueryError::Unavailable { what });
        };
        let tombstones = len_of(TOMBSTONES).map(|_| TOMBSTONES.to_owned());
        Ok(BlockObjects {
            meta,
            has_sidecar: len_of(SIDECAR_OBJECT).is_some(),
            files: BlockFiles::new(PathBuf::from(key), index_bytes, segments),
            versions,
            tombstones,
        })
    }

    /// Reads `meta.json`, once more if it is damaged: the damage may be that of the transfer.
    async fn read_meta(&self, deadline_ns: u64) -> Result<BlockMeta, QueryError> {
        let read = async || {
            let text = self.remote.read_whole(META, deadline_ns).await.map_err(query_error)?;
            BlockMeta::decode(&text).map_err(|error| {
                let path = format!("{}/{META}", self.remote.key);
                QueryError::Corrupt { path, what: error.to_string() }
            })
        };
        match read().await {
            Err(QueryError::Corrupt { .. }) => read().await,
            result => result,
        }
    }

    /// Time at which requests for a query end.
    pub(crate) fn deadline_ns(&self, ctx: &ReadContext) -> u64 {
        self.remote.deadline_ns(ctx)
    }

    /// Drops its ranges from the cache, as one of them is damaged.
    pub(crate) fn forget(&self) {
        self.cache.note_damage();
        self.cache.remove_block(self.cache_key);
        self.forget_on_disk();
    }

    /// Returns true if a reader by the sidecar is in memory and in use.
    #[cfg(test)]
    pub(crate) fn is_read_by_sidecar(&self) -> bool {
        self.opened.lock().by_sidecar.is_some() && !self.is_sidecar_unusable.load(Ordering::Relaxed)
    }

    /// Returns true if a reader by the index is in memory.
    #[cfg(test)]
    pub(crate) fn has_index_reader(&self) -> bool {
        self.opened.lock().by_index.is_some()
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.remote.handle
    }
}

impl HeaderOwner for BucketBlock {
    fn drop_header(&self) {
        let opened = std::mem::take(&mut *self.opened.lock());
        drop(opened);
    }
}

impl Drop for BucketBlock {
    fn drop(&mut self) {
        self.cache.remove_header(self);
        self.cache.remove_block(self.cache_key);
    }
}
