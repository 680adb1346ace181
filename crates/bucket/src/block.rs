//! A block in the bucket, the head of its sidecar or else its index header read at the first query.
//!
//! Invariants: concurrent queries read the header once; it stays in memory within the budget of headers; a
//! failed read is not remembered, a sidecar that is missing or damaged is.
//! Not here: which blocks a tenant has (`catalog`), memory of headers (`headers`), selections (`select`), the
//! object with the sidecar (`sidecar`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_block::source::BlockFiles;
use chronolith_block::{Block, SidecarBlock, open_error};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::bucket::sidecar::SIDECAR_OBJECT;
use chronolith_model::{QueryError, Queryable, ReadContext, TimeRange};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::headers::{HeaderBudget, HeaderOwner};
use crate::remote::{Remote, RemoteFiles, WaitingSource, query_error};
use crate::sidecar::{BlockObjects, HeadError, read_head};
use crate::store::list::ListOptions;

const META: &str = "meta.json";
const TOMBSTONES: &str = "tombstones";
const INDEX: &str = "index";
const CHUNKS: &str = "chunks/";

/// Name, time range and precedence of a block, as a listing finds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockIdentity {
    pub(crate) ulid: Ulid,
    pub(crate) range: TimeRange,
    /// Order among blocks, as [`chronolith_block::precedence`].
    pub(crate) precedence: (Ulid, Ulid),
}

/// A block in the bucket that can be queried.
pub struct BucketBlock {
    identity: BlockIdentity,
    objects: BlockObjects,
    /// The sidecar is missing or damaged.
    is_sidecar_unusable: AtomicBool,
    remote: Remote,
    opened: Mutex<Option<Arc<OpenedBlock>>>,
    /// Held while the header is read.
    opening: tokio::sync::Mutex<()>,
    headers: Arc<HeaderBudget>,
}

/// A block whose header is in memory.
pub(crate) struct OpenedBlock {
    pub(crate) reader: BlockReader,
    pub(crate) files: Arc<RemoteFiles>,
    /// Memory as the budget of headers has it.
    budgeted_bytes: AtomicU64,
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

/// Lengths of the objects of a block.
struct ObjectSizes {
    files: BlockFiles,
    has_tombstones: bool,
}

impl BucketBlock {
    /// The block below the key of `remote`, with what is known of its objects.
    pub(crate) fn new(
        identity: BlockIdentity,
        objects: BlockObjects,
        remote: Remote,
        headers: Arc<HeaderBudget>,
    ) -> Arc<BucketBlock> {
        Arc::new(BucketBlock {
            identity,
            objects,
            is_sidecar_unusable: AtomicBool::new(false),
            remote,
            opened: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            headers,
        })
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

    /// Returns false if what is in memory shows that no series has the label; true otherwise.
    #[must_use]
    pub fn may_have_label_name(&self, name: &str) -> bool {
        self.opened.lock().as_ref().is_none_or(|opened| opened.reader.may_have_label_name(name))
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
        let (reader, files) = match self.read_sidecar(deadline_ns).await? {
            Some(opened) => opened,
            None => self.read_header(deadline_ns).await?,
        };
        let opened = Arc::new(OpenedBlock { reader, files, budgeted_bytes: AtomicU64::new(0) });
        *self.opened.lock() = Some(opened.clone());
        self.note_memory(&opened);
        Ok(opened)
    }

    /// Passes the memory of `opened` to the budget of headers if it has grown.
    pub(crate) fn note_memory(self: &Arc<BucketBlock>, opened: &Arc<OpenedBlock>) {
        let bytes = opened.reader.heap_bytes();
        let is_current = self.opened.lock().as_ref().is_some_and(|current| Arc::ptr_eq(current, opened));
        if is_current && opened.budgeted_bytes.swap(bytes, Ordering::Relaxed) != bytes {
            self.headers.add(self, bytes);
        }
    }

    /// Has the block read by its index from now on: its sidecar is damaged.
    pub(crate) fn drop_sidecar(&self, damage: &str) {
        self.refuse_sidecar(damage);
        let mut opened = self.opened.lock();
        if opened.as_ref().is_some_and(|opened| matches!(opened.reader, BlockReader::Sidecar(_))) {
            *opened = None;
        }
    }

    /// Logs the damage once per block.
    fn refuse_sidecar(&self, damage: &str) {
        if !self.is_sidecar_unusable.swap(true, Ordering::Relaxed) {
            let key = format!("{}/{SIDECAR_OBJECT}", self.remote.key);
            tracing::warn!(%key, %damage, "sidecar of a block is damaged, reading the block by its index");
        }
    }

    /// Reads the head of the sidecar; `None` if the block has none that can be used.
    async fn read_sidecar(
        &self,
        deadline_ns: u64,
    ) -> Result<Option<(BlockReader, Arc<RemoteFiles>)>, QueryError> {
        if self.is_sidecar_unusable.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let read = match read_head(&self.remote, self.ulid(), &self.objects, deadline_ns).await {
            Ok(Some(read)) => read,
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
        let files = Arc::new(RemoteFiles::new(self.remote.clone(), read.files));
        let source = Box::new(WaitingSource(files.clone()));
        let block = SidecarBlock::new(read.head, self.range(), source);
        Ok(Some((BlockReader::Sidecar(block), files)))
    }

    fn used(self: &Arc<BucketBlock>) -> Option<Arc<OpenedBlock>> {
        let is_usable = |opened: &Arc<OpenedBlock>| match opened.reader {
            BlockReader::Sidecar(_) => !self.is_sidecar_unusable.load(Ordering::Relaxed),
            BlockReader::Index(_) => true,
        };
        let opened = self.opened.lock().clone().filter(is_usable);
        if opened.is_some() {
            self.headers.note_use(&**self);
        }
        opened
    }

    async fn read_header(&self, deadline_ns: u64) -> Result<(BlockReader, Arc<RemoteFiles>), QueryError> {
        let meta = self.remote.read_whole(META, deadline_ns).await.map_err(query_error)?;
        let meta = BlockMeta::decode(&meta).map_err(|error| {
            let path = format!("{}/{META}", self.remote.key);
            QueryError::Corrupt { path, what: error.to_string() }
        })?;
        let sizes = self.list_objects(deadline_ns).await?;
        let later = self.objects.tombstones.as_ref().map(|file| file.name.as_str());
        let name = later.or(sizes.has_tombstones.then_some(TOMBSTONES));
        let tombstones = match name {
            Some(name) => Some(self.remote.read_whole(name, deadline_ns).await.map_err(query_error)?),
            None => None,
        };
        let files = Arc::new(RemoteFiles::new(self.remote.clone(), sizes.files));
        let source = Box::new(WaitingSource(files.clone()));
        let open = move || Block::open_remote(meta, tombstones.as_deref(), source);
        let opened = self.remote.handle.spawn_blocking(open).await;
        let block = opened.map_err(|_| QueryError::Canceled)?.map_err(open_error)?;
        Ok((BlockReader::Index(block), files))
    }

    async fn list_objects(&self, deadline_ns: u64) -> Result<ObjectSizes, QueryError> {
        let key = &self.remote.key;
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
        let has_tombstones = len_of(TOMBSTONES).is_some();
        Ok(ObjectSizes { files: BlockFiles::new(PathBuf::from(key), index_bytes, segments), has_tombstones })
    }

    /// Time at which requests for a query end.
    pub(crate) fn deadline_ns(&self, ctx: &ReadContext) -> u64 {
        self.remote.deadline_ns(ctx)
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
        self.headers.remove(self);
    }
}
