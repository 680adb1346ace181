//! A block in the bucket, the head of its sidecar or else its index header read at the first query.
//!
//! Invariants: concurrent queries read the header once; it stays in memory within the memory budget of the
//! bucket; a failed read is not remembered, a sidecar that is missing or damaged is.
//! Not here: which blocks a tenant has (`catalog`), memory of headers and ranges (`cache`), selections
//! (`select`), the object with the sidecar (`sidecar`).

mod listed;
mod local_sidecar;
pub(crate) mod page_costs;
mod recorded;
pub(crate) mod rollups;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::utc::rfc3339_ms;
use chronolith_block::source::{BlockFile, BlockFiles};
use chronolith_block::{Block, SidecarBlock, open_error};
use chronolith_format::block::meta::{BlockMeta, Provenance, Ulid};
use chronolith_format::bucket::catalogue::{self, BlockFolder};
use chronolith_format::bucket::sidecar::{SIDECAR_OBJECT, SidecarFile, SidecarHead};
use chronolith_model::query::Layered;
use chronolith_model::{Labels, QueryError, Queryable, ReadContext, TimeRange, TimeUnit};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use self::listed::IndexPart;
use self::local_sidecar::LocalSidecar;
use self::page_costs::PageCosts;
use self::recorded::BlockObjects;
use self::rollups::RollupTables;
use crate::cache::disk::FileVersions;
use crate::cache::{BlockCache, BlockKey, HeaderOwner};
use crate::external_labels::ExternalLabels;
use crate::remote::{Remote, RemoteFiles, WaitingSource, query_error};
use crate::sidecar::{HeadError, read_head, read_local_head};
use crate::sidecar_queue::SidecarQueue;
use crate::store::request::Purpose;

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
    origin: BlockOrigin,
    page_costs: PageCosts,
    local_sidecar: LocalSidecar,
    opened: Mutex<OpenedReaders>,
    /// Held while the header is read.
    opening: tokio::sync::Mutex<()>,
    cache: Arc<BlockCache>,
    /// Key of its ranges in the cache.
    cache_key: BlockKey,
}

/// Source of the list that names a block.
enum BlockOrigin {
    /// The record of a catalogue.
    Catalogue(Box<catalogue::BucketBlock>),
    /// A listing: `meta.json` if the listing read it, until the block is opened.
    Listing(Mutex<Option<Box<BlockMeta>>>),
    /// A listing, which found that `meta.json` is damaged, and how. The block may be of any time.
    DamagedMeta(String),
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
        self.all().map(|opened| opened.reader.heap_bytes() + opened.rollups.heap_bytes()).sum()
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
    /// Objects by which the index was found, of which a sidecar can be made.
    objects: Option<Box<BlockObjects>>,
    /// Tables of roll-ups that were read.
    pub(crate) rollups: RollupTables,
}

/// Index of a block of which a sidecar is made.
pub(crate) struct BuildSource {
    pub(crate) index: Arc<Block>,
    /// Files for reading the index, under a key of their own in the cache.
    pub(crate) files: RemoteFiles,
    /// Files with the sidecar, for keeping it.
    pub(crate) target: RemoteFiles,
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
    /// The block below the key of `remote`, found by a listing, with its `meta.json` if the listing read it.
    pub(crate) fn listed(
        identity: BlockIdentity,
        meta: Option<Box<BlockMeta>>,
        remote: Remote,
        cache: Arc<BlockCache>,
    ) -> Arc<BucketBlock> {
        BucketBlock::new(identity, remote, BlockOrigin::Listing(Mutex::new(meta)), cache)
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
        BucketBlock::new(identity, remote, BlockOrigin::Catalogue(Box::new(record.clone())), cache)
    }

    /// The block below the key of `remote` whose `meta.json` is damaged: it cannot be opened.
    pub(crate) fn with_damaged_meta(
        ulid: Ulid,
        damage: String,
        remote: Remote,
        cache: Arc<BlockCache>,
    ) -> Arc<BucketBlock> {
        let identity = BlockIdentity {
            ulid,
            range: TimeRange::ALL,
            precedence: (ulid, ulid),
            sources: Arc::default(),
            split_set: None,
            external_labels: None,
            is_of_chronolith: false,
        };
        BucketBlock::new(identity, remote, BlockOrigin::DamagedMeta(damage), cache)
    }

    fn new(
        identity: BlockIdentity,
        remote: Remote,
        origin: BlockOrigin,
        cache: Arc<BlockCache>,
    ) -> Arc<BucketBlock> {
        Arc::new(BucketBlock {
            identity,
            is_sidecar_unusable: AtomicBool::new(false),
            remote,
            origin,
            page_costs: PageCosts::default(),
            local_sidecar: LocalSidecar::default(),
            opened: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            cache_key: cache.new_block(),
            cache,
        })
    }

    /// Record of the catalogue; `None` for a block that was found by a listing.
    #[must_use]
    pub fn record(&self) -> Option<&catalogue::BucketBlock> {
        match &self.origin {
            BlockOrigin::Catalogue(record) => Some(record),
            BlockOrigin::Listing(_) | BlockOrigin::DamagedMeta(_) => None,
        }
    }

    /// Returns true if its `meta.json` was found damaged.
    pub(crate) fn is_meta_damaged(&self) -> bool {
        matches!(self.origin, BlockOrigin::DamagedMeta(_))
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

    /// Times that it covers, in whole milliseconds around it.
    pub(crate) fn range_ms(&self) -> TimeRange {
        let unit = self.record().map_or(TimeUnit::Milli, |record| record.time_unit);
        unit.range_to_ms(self.identity.range)
    }

    /// Name and time range, for messages.
    #[must_use]
    pub fn description(&self) -> String {
        let BlockIdentity { ulid, range, .. } = &self.identity;
        if self.is_meta_damaged() {
            return format!("block {ulid} (of unknown time)");
        }
        let unit = self.record().map_or(TimeUnit::Milli, |record| record.time_unit);
        let text = |time: i64| rfc3339_ms(unit.to_ms(time));
        format!("block {ulid} ({} to {})", text(range.start), text(range.end))
    }

    /// Order of blocks: of two samples with the same timestamp, the sample of the lower block is read.
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
            Some(layer) => work(&Layered { layer, source }),
        }
    }

    /// Returns false if the parts in memory prove that no series has the label; true otherwise.
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
        let (objects, ends) = match &self.origin {
            BlockOrigin::Catalogue(record) => (recorded::objects(record, &self.remote.key), Vec::new()),
            BlockOrigin::Listing(meta) => {
                // A cache directory may have the header: the listing has the versions of its objects.
                let reads_index = self.cache.disk().is_none()
                    && self.local_sidecar.len().is_none()
                    && self.used(ReaderChoice::Index).is_none();
                let meta = meta.lock().take().map(|meta| *meta);
                listed::objects(&self.remote, meta, reads_index, deadline_ns).await?
            }
            BlockOrigin::DamagedMeta(damage) => {
                let path = format!("{}/meta.json", self.remote.key);
                return Err(QueryError::Corrupt { path, what: damage.clone() });
            }
        };
        let by_sidecar = match choice {
            ReaderChoice::Any => self.open_by_sidecar(&objects, deadline_ns).await?,
            ReaderChoice::Index => None,
        };
        let opened = match by_sidecar {
            Some(opened) => opened,
            // Work that needs the index may have read it before.
            None => match self.used(ReaderChoice::Index) {
                Some(opened) => return Ok(opened),
                None => self.read_index_header(objects, ends, deadline_ns).await?,
            },
        };
        let opened = Arc::new(opened);
        self.opened.lock().add(&opened);
        self.note_memory();
        Ok(opened)
    }

    /// Opens the block by its sidecar in the bucket, else by a local one; `None` if it has neither.
    async fn open_by_sidecar(
        &self,
        objects: &BlockObjects,
        deadline_ns: u64,
    ) -> Result<Option<OpenedBlock>, QueryError> {
        if objects.has_sidecar {
            let opened = self.read_sidecar(&objects.versions, deadline_ns).await?;
            if opened.is_some() {
                return Ok(opened);
            }
        }
        self.is_sidecar_unusable.store(true, Ordering::Relaxed);
        self.open_local_sidecar(objects, deadline_ns).await
    }

    async fn read_index_header(
        &self,
        objects: BlockObjects,
        ends: Vec<IndexPart>,
        deadline_ns: u64,
    ) -> Result<OpenedBlock, QueryError> {
        let opened = match self.read_header(&objects, ends, deadline_ns).await {
            // The transfer may have caused the damage.
            Err(QueryError::Corrupt { .. }) => {
                self.forget();
                self.read_header(&objects, Vec::new(), deadline_ns).await
            }
            result => result,
        };
        Ok(OpenedBlock { objects: Some(Box::new(objects)), ..opened? })
    }

    /// Opens the block by its local sidecar; `None` if the cache does not have all of it, or it does not fit
    /// to `objects`.
    async fn open_local_sidecar(
        &self,
        objects: &BlockObjects,
        deadline_ns: u64,
    ) -> Result<Option<OpenedBlock>, QueryError> {
        let lacks_deletions = objects.meta.stats.num_tombstones > 0 && objects.tombstones.is_none();
        let known = self.local_sidecar.len();
        let found = known.or_else(|| self.files_with_local_sidecar(objects, 0).local_sidecar_end());
        // Without its deletions the block is damaged, which opening its index reports.
        let Some(len) = found.filter(|_| !lacks_deletions) else {
            self.local_sidecar.note_missing();
            return Ok(None);
        };
        let files = Arc::new(self.files_with_local_sidecar(objects, len));
        let head = read_local_head(&files, self.ulid(), deadline_ns).await;
        let is_of_objects = |head: &SidecarHead| {
            head.time_unit == objects.meta.time_unit()
                && head.file(SidecarFile::Index).map(|sum| sum.len) == objects.files.len(BlockFile::Index)
        };
        let Some(head) = head?.filter(is_of_objects) else {
            files.drop_sidecar();
            self.note_sidecar_loss();
            return Ok(None);
        };
        self.local_sidecar.note_found(len);
        let source = Box::new(WaitingSource(files.clone()));
        let reader = BlockReader::Sidecar(SidecarBlock::new(head, self.range(), source));
        Ok(Some(OpenedBlock { reader, files, objects: None, rollups: RollupTables::default() }))
    }

    /// Files of the block with its local sidecar, which has `len` bytes.
    fn files_with_local_sidecar(&self, objects: &BlockObjects, len: u64) -> RemoteFiles {
        let mut versions = objects.versions.clone();
        versions.add_local_sidecar(objects.files.segment_count());
        let files = objects.files.clone().with_tombstones(objects.tombstones.clone()).with_sidecar(len);
        self.files(files, &versions).with_local_sidecar()
    }

    /// Index of which a local sidecar can be made.
    ///
    /// # Errors
    /// As [`BucketBlock::open`].
    pub(crate) async fn build_source(
        self: &Arc<BucketBlock>,
        deadline_ns: u64,
    ) -> Result<BuildSource, QueryError> {
        let opened = self.open(ReaderChoice::Index, deadline_ns).await?;
        let (BlockReader::Index(index), Some(objects)) = (&opened.reader, &opened.objects) else {
            return Err(QueryError::Canceled);
        };
        let remote = Remote { purpose: Purpose::Maintenance, ..self.remote.clone() };
        let mut versions = FileVersions::default();
        versions.add_etags_of(&objects.versions);
        let cache_key = self.cache.new_block();
        Ok(BuildSource {
            index: index.clone(),
            files: RemoteFiles::new(remote, objects.files.clone(), &versions, self.cache.clone(), cache_key),
            target: self.files_with_local_sidecar(objects, 0),
        })
    }

    /// Reads the block by its local sidecar from now on, which was made and has `len` bytes. Returns false if
    /// the cache does not have all of it.
    ///
    /// # Errors
    /// As [`BucketBlock::open`].
    pub(crate) async fn use_local_sidecar(
        self: &Arc<BucketBlock>,
        len: u64,
        deadline_ns: u64,
    ) -> Result<bool, QueryError> {
        let by_index = self.open(ReaderChoice::Index, deadline_ns).await?;
        let Some(objects) = &by_index.objects else { return Ok(false) };
        let _opening = self.opening.lock().await;
        if !self.files_with_local_sidecar(objects, len).has_whole_sidecar() {
            return Ok(false);
        }
        self.local_sidecar.note_found(len);
        let Some(opened) = self.open_local_sidecar(objects, deadline_ns).await? else { return Ok(false) };
        {
            let mut readers = self.opened.lock();
            readers.by_sidecar = Some(Arc::new(opened));
            readers.by_index = None;
        }
        self.note_memory();
        Ok(true)
    }

    /// Drops the local sidecar, of which `opened` has met a missing or damaged part.
    pub(crate) fn lose_local_sidecar(&self, opened: &Arc<OpenedBlock>) {
        let is_current = {
            let mut readers = self.opened.lock();
            readers.by_sidecar.take_if(|current| Arc::ptr_eq(current, opened)).is_some()
        };
        if is_current {
            opened.files.drop_sidecar();
            self.note_sidecar_loss();
        }
    }

    fn note_sidecar_loss(&self) {
        self.local_sidecar.note_missing();
        self.local_sidecar.note_failure(self.now_ns());
        self.remote.sidecars.losses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn local_sidecar(&self) -> &LocalSidecar {
        &self.local_sidecar
    }

    /// Tasks that make local sidecars.
    pub(crate) fn sidecar_queue(&self) -> &Arc<SidecarQueue> {
        &self.remote.sidecars
    }

    /// Monotonic time of the clock of the requests, ns.
    pub(crate) fn now_ns(&self) -> u64 {
        self.remote.clock.mono_ns()
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

    /// Drops a reader, which remembers its damage.
    pub(crate) fn close(&self, opened: &Arc<OpenedBlock>) {
        let mut readers = self.opened.lock();
        readers.by_sidecar.take_if(|current| Arc::ptr_eq(current, opened));
        readers.by_index.take_if(|current| Arc::ptr_eq(current, opened));
    }

    /// Logs the damage once per block, and has it read by its index from now on.
    pub(crate) fn refuse_sidecar(&self, damage: &str) {
        if !self.is_sidecar_unusable.swap(true, Ordering::Relaxed) {
            let key = format!("{}/{SIDECAR_OBJECT}", self.remote.key);
            tracing::warn!(%key, %damage, "sidecar of a block is damaged, reading the block by its index");
        }
    }

    /// Reads the head of the sidecar; `None` if the block has none that can be used. `known` has the ETags of
    /// the objects.
    async fn read_sidecar(
        &self,
        known: &FileVersions,
        deadline_ns: u64,
    ) -> Result<Option<OpenedBlock>, QueryError> {
        if self.is_sidecar_unusable.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let read = || read_head(&self.remote, self.ulid(), self.record(), self.cache.disk(), deadline_ns);
        let found = match read().await {
            // The transfer may have caused the damage.
            Err(HeadError::Damaged(_)) => {
                self.forget_on_disk();
                read().await
            }
            found => found,
        };
        let mut found = match found {
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
        found.versions.add_etags_of(known);
        let files = Arc::new(self.files(found.files, &found.versions));
        files.keep(BlockFile::Sidecar, found.read_from, &found.read);
        let source = Box::new(WaitingSource(files.clone()));
        let reader = BlockReader::Sidecar(SidecarBlock::new(found.head, self.range(), source));
        Ok(Some(OpenedBlock { reader, files, objects: None, rollups: RollupTables::default() }))
    }

    /// Files of the block, with the roll-ups that the catalogue records.
    fn files(&self, files: BlockFiles, versions: &FileVersions) -> RemoteFiles {
        let mut versions = versions.clone();
        let mut files = files;
        if let Some(record) = self.record() {
            for rollup in &record.files.rollups {
                versions.add_recorded(BlockFile::Rollup(rollup.span), rollup.len, record);
            }
            files = files.with_rollups(record.files.rollups.clone());
        }
        RemoteFiles::new(self.remote.clone(), files, &versions, self.cache.clone(), self.cache_key)
    }

    /// Drops its objects from the cache directory.
    fn forget_on_disk(&self) {
        if let Some(disk) = self.cache.disk() {
            disk.remove_folder(&self.remote.folder(disk.bucket()));
        }
    }

    /// Returns a reader that is in memory; for [`ReaderChoice::Any`] the reader by the index only if the
    /// sidecar cannot be used.
    fn used(&self, choice: ReaderChoice) -> Option<Arc<OpenedBlock>> {
        let is_unusable = self.is_sidecar_unusable.load(Ordering::Relaxed);
        let has_sidecar = !is_unusable || self.local_sidecar.may_exist();
        let opened = {
            let opened = self.opened.lock();
            match choice {
                ReaderChoice::Index => opened.by_index.clone(),
                ReaderChoice::Any if has_sidecar => opened.by_sidecar.clone(),
                ReaderChoice::Any => opened.by_index.clone(),
            }
        };
        if opened.is_some() {
            self.cache.note_header_use(self);
        }
        opened
    }

    /// `ends` are parts of the index that were read before.
    async fn read_header(
        &self,
        objects: &BlockObjects,
        ends: Vec<IndexPart>,
        deadline_ns: u64,
    ) -> Result<OpenedBlock, QueryError> {
        let files = Arc::new(self.files(objects.files.clone(), &objects.versions));
        let tombstones = match &objects.tombstones {
            Some(file) => Some(files.read_tombstones(file, deadline_ns).await?),
            None => None,
        };
        let meta = objects.meta.clone();
        ends.iter().for_each(|end| files.keep(BlockFile::Index, end.start, &end.bytes));
        let source = Box::new(WaitingSource(files.clone()));
        let open = move || Block::open_remote(meta, tombstones.as_deref(), source);
        let opened = self.remote.handle.spawn_blocking(open).await;
        let block = opened.map_err(|_| QueryError::Canceled)?.map_err(open_error)?;
        files.drop_header_sections();
        Ok(OpenedBlock {
            reader: BlockReader::Index(block),
            files,
            objects: None,
            rollups: RollupTables::default(),
        })
    }

    /// Calls `visit` with the labels of each series, without external ones, until it returns `false`. Waits
    /// on the calling thread, which is none of the runtime. Cost: the index.
    ///
    /// # Errors
    /// [`QueryError`] if the bucket does not answer or the index is damaged.
    pub fn for_each_labels(
        self: &Arc<BucketBlock>,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&Labels) -> bool,
    ) -> Result<(), QueryError> {
        let opened = self.handle().block_on(self.open(ReaderChoice::Index, self.deadline_ns(ctx)))?;
        match &opened.reader {
            BlockReader::Index(index) => index.for_each_labels(visit),
            BlockReader::Sidecar(_) => {
                let what = format!("block {} was opened without its index", self.ulid());
                Err(QueryError::Unavailable { what })
            }
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

    /// Has the next query read its headers and ranges again from the bucket.
    pub(crate) fn reopen(&self) {
        self.cache.remove_block(self.cache_key);
        self.forget_on_disk();
        self.drop_header();
    }

    /// Returns true if a reader by the sidecar is in memory and in use.
    #[cfg(test)]
    pub(crate) fn is_read_by_sidecar(&self) -> bool {
        self.opened.lock().by_sidecar.is_some()
    }

    #[cfg(test)]
    pub(crate) fn cache_key(&self) -> BlockKey {
        self.cache_key
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
