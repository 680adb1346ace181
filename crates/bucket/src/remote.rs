//! Files of a block in the bucket: waves of byte ranges, all requests of a round at once.
//!
//! Invariants: a wave is read in rounds, and the ranges of a round are all known before its first request;
//! memory for the fetched bytes is reserved before the requests are sent.
//! Not here: the ranges of a wave (`block`), retries and limits of requests (`store`).

pub(crate) mod parts;
mod round;
mod through;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::crc::crc32c;
use chronolith_base::{Clock, MemoryBudget};
use chronolith_block::source::{
    BlockFile, BlockFiles, ByteRange, ByteSource, FetchedBatch, FetchedPart, FetchedRanges, ROUND_COUNT_MAX,
    RangeBytes, Reread, TombstonesFile, WAVE_BYTES_MAX, Wave,
};
use chronolith_block::{INDEX_END_BYTES, INDEX_START_BYTES};
use chronolith_model::{QueryError, ReadContext};
use tokio::runtime::Handle;

use crate::buffers::BufferPool;
use crate::cache::disk::{FileVersions, ObjectFolder};
use crate::cache::{BlockCache, BlockKey, CachedObjects};
use crate::folder::Folder;
use crate::object_tags::ObjectTags;
use crate::ranges::{self, Speed};
use crate::sidecar_queue::SidecarQueue;
use crate::store::meter::Estimates;
use crate::store::read::{Piece, ReadRange};
use crate::{BucketError, Purpose, RequestContext, Store};

/// Requests of one round that are sent before the first of them is answered.
pub(crate) const REQUESTS_AHEAD: usize = 16;
/// Time of the requests of a query without a deadline.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Speed of S3 within a region, assumed until the speed was measured.
const FIRST_BYTE_US: f64 = 30_000.0;
const BYTES_PER_US: f64 = 90.0;
/// Speed of a local directory: a read is a system call and a copy, and none waits for another.
const LOCAL_SPEED: Speed = Speed { first_byte_us: 1.0, bytes_per_us: 8000.0, connection_count: usize::MAX };

/// Objects below one key of the bucket, on behalf of one store.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Runtime of the requests.
    pub(crate) handle: Handle,
    pub(crate) folder: Folder,
    /// Without a slash at its end; empty for the whole bucket.
    pub(crate) key: String,
    pub(crate) rules: ReadRules,
    /// Reason of its reads.
    pub(crate) purpose: Purpose,
    pub(crate) buffers: Arc<BufferPool>,
    /// Tasks that make sidecars of blocks that have none.
    pub(crate) sidecars: Arc<SidecarQueue>,
}

/// Treatment of chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadRules {
    /// Ranges of chunks stay in the cache.
    pub(crate) keeps_chunks: bool,
    /// Chunks are verified when they are fetched.
    pub(crate) verifies_chunks: bool,
}

impl Default for ReadRules {
    fn default() -> ReadRules {
        ReadRules { keeps_chunks: true, verifies_chunks: false }
    }
}

impl Remote {
    /// Time at which requests for a query end.
    pub(crate) fn deadline_ns(&self, ctx: &ReadContext) -> u64 {
        let left_ns =
            ctx.source_remaining_ns().min(u64::try_from(READ_TIMEOUT.as_nanos()).unwrap_or(u64::MAX));
        self.clock.mono_ns().saturating_add(left_ns)
    }

    /// Measured speed of the storage.
    pub(crate) fn speed(&self) -> Speed {
        match self.store.is_local() {
            true => LOCAL_SPEED,
            false => speed(self.store.estimates()),
        }
    }

    /// Objects of the block in the cache directory that serves `bucket`.
    pub(crate) fn folder(&self, bucket: &str) -> ObjectFolder {
        ObjectFolder::new(self.folder.tenant(), bucket, &self.key)
    }

    pub(crate) fn request(&self, deadline_ns: u64) -> RequestContext {
        RequestContext { folder: self.folder.clone(), deadline_ns, purpose: self.purpose }
    }

    /// Key of the object or folder `name` below the key.
    pub(crate) fn key_of(&self, name: &str) -> String {
        if self.key.is_empty() { name.to_owned() } else { format!("{}/{name}", self.key) }
    }

    /// Reads an object below the key as a whole.
    pub(crate) async fn read_whole(&self, name: &str, deadline_ns: u64) -> Result<Bytes, BucketError> {
        let key = self.key_of(name);
        Ok(self.store.read(&self.request(deadline_ns), &key, ReadRange::Whole, None).await?.bytes)
    }
}

/// Files of one block in the bucket of which ranges are read.
pub(crate) struct RemoteFiles {
    pub(crate) remote: Remote,
    files: Arc<BlockFiles>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) cache_key: BlockKey,
    /// Files of the block in the cache directory, if there is one.
    pub(crate) objects: Option<Arc<CachedObjects>>,
    /// Length and CRC-32C of whole files, where both are known.
    sums: BTreeMap<BlockFile, (u64, u32)>,
    tags: ObjectTags,
    /// Loss of a local sidecar, which the cache alone has: true once a part of it was missing.
    local_sidecar_loss: Option<AtomicBool>,
}

impl RemoteFiles {
    /// The files of a block, with the lengths in `files`, below the key of `remote`.
    pub(crate) fn new(
        remote: Remote,
        files: BlockFiles,
        versions: &FileVersions,
        cache: Arc<BlockCache>,
        cache_key: BlockKey,
    ) -> RemoteFiles {
        let objects = cache
            .disk()
            .map(|disk| CachedObjects::new(disk, &remote.folder(disk.bucket()), &files, versions));
        let files = Arc::new(files);
        let sums = versions.sums().clone();
        let tags = ObjectTags::new(versions.etags().clone());
        RemoteFiles { remote, files, cache, cache_key, objects, sums, tags, local_sidecar_loss: None }
    }

    /// With a local sidecar: what the cache does not have of it is requested from nowhere.
    pub(crate) fn with_local_sidecar(self) -> RemoteFiles {
        RemoteFiles { local_sidecar_loss: Some(AtomicBool::new(false)), ..self }
    }

    /// Returns true if its sidecar is a local one.
    pub(crate) fn has_local_sidecar(&self) -> bool {
        self.local_sidecar_loss.is_some()
    }

    /// Returns true if a part of its local sidecar was missing.
    pub(crate) fn has_lost_sidecar(&self) -> bool {
        self.local_sidecar_loss.as_ref().is_some_and(|loss| loss.load(Ordering::Relaxed))
    }

    /// Bytes of the index; `u64::MAX` if they are not known.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.files.len(BlockFile::Index).unwrap_or(u64::MAX)
    }

    /// Reads the items of `wave` until `deadline_ns` of the clock. Items that fail their checksums are read
    /// by `reread`, if there is one. `count` gets the bytes of each round before they are requested.
    ///
    /// # Errors
    /// The error of `count`; [`QueryError::Memory`] without room in the budget;
    /// [`QueryError::Unavailable`] if the bucket does not answer or the object is gone,
    /// [`QueryError::Corrupt`] if it is shorter than it was.
    pub(crate) async fn read(
        &self,
        wave: &dyn Wave,
        budget: &MemoryBudget,
        deadline_ns: u64,
        reread: Option<Arc<dyn Reread>>,
        count: &(dyn Fn(u64) -> Result<(), QueryError> + Sync),
    ) -> Result<RangeBytes, QueryError> {
        let mut fetched = FetchedRanges::new(self.files.clone());
        if let Some(reread) = reread {
            fetched = fetched.with_reread(reread);
        }
        let mut ranges = Vec::new();
        wave.ranges(&mut ranges);
        for _ in 0..ROUND_COUNT_MAX {
            self.files.clip(&mut ranges);
            if ranges.is_empty() {
                break;
            }
            let round = std::mem::take(&mut ranges);
            count(round.iter().map(ByteRange::len).sum())?;
            let batch = match self.is_kept(&round) {
                true => self.read_cached(round, budget, deadline_ns).await?,
                false => self.read_round(round, budget, deadline_ns).await?,
            };
            fetched.push(batch);
            wave.missing(&fetched, &mut ranges);
        }
        Ok(RangeBytes::Fetched(Arc::new(fetched)))
    }

    /// Returns true if the cache keeps the ranges of a round.
    fn is_kept(&self, round: &[ByteRange]) -> bool {
        let has_chunks = round.iter().any(|range| matches!(range.file, BlockFile::Segment(_)));
        self.remote.rules.keeps_chunks || !has_chunks
    }

    /// Reads a round past the cache to one reused buffer.
    async fn read_round(
        &self,
        mut ranges: Vec<ByteRange>,
        budget: &MemoryBudget,
        deadline_ns: u64,
    ) -> Result<FetchedBatch, QueryError> {
        ranges::join(&mut ranges, &self.speed());
        let round_bytes: u64 = ranges.iter().map(ByteRange::len).sum();
        let memory = budget.reserve(round_bytes)?;
        let request = self.remote.request(deadline_ns);
        let mut buffer = self.remote.buffers.take(usize::try_from(round_bytes).unwrap_or(usize::MAX));
        let keys = FileKeys::new(&self.remote.key, &self.files, &ranges);
        let mut requests = ranges.clone();
        ranges::split(&mut requests, &self.speed());
        let mut rest = buffer.as_mut();
        let mut pieces = Vec::with_capacity(requests.len());
        let mut etags: Vec<Option<String>> = vec![None; requests.len()];
        for (range, etag) in requests.iter().zip(&mut etags) {
            let rest_of_buffer = std::mem::take(&mut rest);
            let Some((out, after)) = rest_of_buffer.split_at_mut_checked(range.len() as usize) else { break };
            assert!(self.files.len(range.file).is_none_or(|len| range.end <= len), "rounds are clipped");
            rest = after;
            let object_bytes = self.files.len(range.file);
            pieces.push(Piece { key: keys.get(range.file), object_bytes, offset: range.start, out, etag });
        }
        // A byte without a request would be one of an earlier use of the buffer.
        assert!(rest.is_empty() && pieces.len() == requests.len(), "requests fill the buffer of their round");
        self.remote.store.read_pieces(&request, pieces, REQUESTS_AHEAD).await.map_err(query_error)?;
        for (range, etag) in requests.iter().zip(&etags) {
            let key = keys.get(range.file);
            let checked =
                self.tags.check(&self.remote.store, &request, range.file, key, etag.as_deref()).await;
            checked.map_err(query_error)?;
        }
        let all = buffer.freeze();
        let mut at = 0;
        let parts = ranges.iter().map(|range| {
            let start = at;
            at += range.len() as usize;
            FetchedPart { file: range.file, start: range.start, bytes: all.slice(start..at) }
        });
        Ok(FetchedBatch::new(parts.collect(), memory))
    }

    /// Requests a range from the bucket, and has it written to the cache directory.
    pub(crate) async fn fetch(
        &self,
        request: &RequestContext,
        range: ByteRange,
    ) -> Result<FetchedPart, QueryError> {
        let ByteRange { file, start, end } = range;
        if let Some(loss) = self.local_sidecar_loss.as_ref().filter(|_| file == BlockFile::Sidecar) {
            loss.store(true, Ordering::Relaxed);
            let path = self.files.path(file).display().to_string();
            return Err(QueryError::Corrupt { path, what: "the cache has lost a part of it".to_owned() });
        }
        let key = format!("{}/{}", self.remote.key, self.files.name(file));
        let part = match self.files.len(file) {
            Some(object_bytes) => ReadRange::Part { range: start..end, object_bytes },
            None => ReadRange::Exact(start..end),
        };
        let read = self.remote.store.read(request, &key, part, None).await.map_err(query_error)?;
        self.check_sum(range, &read.bytes)?;
        let checked = self.tags.check(&self.remote.store, request, file, &key, read.etag.as_deref()).await;
        checked.map_err(query_error)?;
        let bytes = read.bytes;
        if let Some(objects) = &self.objects {
            objects.write(range, &bytes);
        }
        Ok(FetchedPart { file, start, bytes })
    }

    /// Compares the bytes of a whole file with its checksum, if that is known.
    fn check_sum(&self, range: ByteRange, bytes: &[u8]) -> Result<(), QueryError> {
        let Some(&(len, expected)) = self.sums.get(&range.file) else { return Ok(()) };
        if range.start > 0 || range.end != len {
            return Ok(());
        }
        let found = crc32c(bytes);
        if found == expected {
            return Ok(());
        }
        let path = self.files.path(range.file).display().to_string();
        let what = format!("CRC of the file: expected {expected:08x}, found {found:08x}");
        Err(QueryError::Corrupt { path, what })
    }

    /// Reads the tombstones `file` of the block as a whole.
    ///
    /// # Errors
    /// As [`RemoteFiles::fetch`].
    pub(crate) async fn read_tombstones(
        &self,
        file: &TombstonesFile,
        deadline_ns: u64,
    ) -> Result<Bytes, QueryError> {
        let request = self.remote.request(deadline_ns);
        let key = self.remote.key_of(&file.name);
        let read =
            self.remote.store.read(&request, &key, ReadRange::Whole, None).await.map_err(query_error)?;
        let checked = self
            .tags
            .check(&self.remote.store, &request, BlockFile::Tombstones, &key, read.etag.as_deref())
            .await;
        checked.map_err(query_error)?;
        let end = read.bytes.len() as u64;
        if end != file.len {
            let what = format!("bytes of the tombstones: expected {}, found {end}", file.len);
            return Err(QueryError::Corrupt { path: key, what });
        }
        self.check_sum(ByteRange { file: BlockFile::Tombstones, start: 0, end }, &read.bytes)?;
        Ok(read.bytes)
    }

    /// Drops the sections of a large index from the cache: its header has a copy of them. A small index stays
    /// as a whole, with its postings and series entries.
    pub(crate) fn drop_header_sections(&self) {
        let end = self.index_bytes();
        if end > INDEX_START_BYTES + INDEX_END_BYTES {
            self.cache.remove_ranges(self.cache_key, &[ByteRange { file: BlockFile::Index, start: 0, end }]);
        }
    }

    /// Keeps a piece of the local sidecar in the cache directory, or in memory without one. Returns false if
    /// the directory refuses it. May wait for the disk.
    pub(crate) fn keep_sidecar(&self, start: u64, bytes: &Bytes) -> bool {
        let range = ByteRange { file: BlockFile::Sidecar, start, end: start + bytes.len() as u64 };
        match self.sidecar_directory() {
            Some(objects) => objects.write_and_wait(range, bytes),
            None => {
                self.keep(BlockFile::Sidecar, start, bytes);
                true
            }
        }
    }

    /// Returns the end of the local sidecar in the cache directory, if the directory has one.
    pub(crate) fn local_sidecar_end(&self) -> Option<u64> {
        self.objects.as_ref()?.end_of(BlockFile::Sidecar)
    }

    /// Returns true if the cache has all of the local sidecar.
    pub(crate) fn has_whole_sidecar(&self) -> bool {
        let end = self.files.len(BlockFile::Sidecar).unwrap_or(0);
        let whole = ByteRange { file: BlockFile::Sidecar, start: 0, end };
        match self.sidecar_directory() {
            Some(objects) => objects.has(whole),
            None => self.cache.has(self.cache_key, whole),
        }
    }

    /// Bytes of the cache that keeps local sidecars.
    pub(crate) fn cache_bytes_max(&self) -> u64 {
        match (self.sidecar_directory(), self.cache.disk()) {
            (Some(_), Some(disk)) => disk.bytes_max(),
            _ => self.cache.bytes_max(),
        }
    }

    /// The cache directory, if it can keep a local sidecar.
    fn sidecar_directory(&self) -> Option<&Arc<CachedObjects>> {
        self.objects.as_ref().filter(|objects| objects.has_version(BlockFile::Sidecar))
    }

    /// Drops its local sidecar from the cache.
    pub(crate) fn drop_sidecar(&self) {
        let end = self.files.len(BlockFile::Sidecar).unwrap_or(0);
        let whole = [ByteRange { file: BlockFile::Sidecar, start: 0, end }];
        self.cache.remove_ranges(self.cache_key, &whole);
        if let Some(objects) = &self.objects {
            objects.remove_ranges(&whole);
        }
    }

    /// Drops all its ranges from the cache in memory.
    pub(crate) fn drop_ranges(&self) {
        self.cache.remove_block(self.cache_key);
    }

    /// Drops ranges from the cache in memory that are kept elsewhere.
    pub(crate) fn drop_cached(&self, ranges: &[ByteRange]) {
        self.cache.remove_ranges(self.cache_key, ranges);
    }

    /// Drops cached ranges of which one is damaged, in memory and on disk.
    pub(crate) fn remove_ranges(&self, ranges: &[ByteRange]) {
        self.cache.note_damage();
        self.cache.remove_ranges(self.cache_key, ranges);
        if let Some(objects) = &self.objects {
            objects.remove_ranges(ranges);
        }
    }

    pub(crate) fn speed(&self) -> Speed {
        self.remote.speed()
    }

    /// Bytes of the sidecar, if there is one.
    pub(crate) fn sidecar_bytes(&self) -> Option<u64> {
        self.files.len(BlockFile::Sidecar)
    }

    /// Reads one range, past the budgets of queries.
    ///
    /// # Errors
    /// As [`RemoteFiles::read`].
    pub(crate) async fn read_exact(&self, range: ByteRange, deadline_ns: u64) -> Result<Bytes, QueryError> {
        let budget = MemoryBudget::new("range of a block", u64::MAX);
        let mut fetched = FetchedRanges::new(self.files.clone());
        fetched.push(self.read_cached(vec![range], &budget, deadline_ns).await?);
        Ok(Bytes::copy_from_slice(fetched.at(range.file, range.start)))
    }

    /// Keeps bytes in the cache that were read together with others.
    pub(crate) fn keep(&self, file: BlockFile, start: u64, bytes: &Bytes) {
        let range = ByteRange { file, start, end: start + bytes.len() as u64 };
        let tenant = self.remote.folder.tenant();
        let looked = self.cache.look_up(self.cache_key, tenant, &[range], &self.speed(), u64::MAX, None);
        for flight in looked.own {
            let ByteRange { start: from, end: until, .. } = flight.range();
            let piece = usize::try_from(from - start).ok().zip(usize::try_from(until - start).ok());
            if let Some((from, until)) = piece {
                flight.complete(&bytes.slice(from..until));
            }
        }
    }
}

fn speed(estimates: Estimates) -> Speed {
    Speed {
        first_byte_us: estimates.first_byte_ns.map_or(FIRST_BYTE_US, |ns| ns as f64 / 1e3),
        bytes_per_us: estimates.bytes_per_second.map_or(BYTES_PER_US, |rate| rate as f64 / 1e6),
        connection_count: REQUESTS_AHEAD,
    }
}

/// Keys of the files of a round.
struct FileKeys(Vec<(BlockFile, String)>);

impl FileKeys {
    /// The files of `ranges`, which are sorted, below `key`.
    fn new(key: &str, files: &BlockFiles, ranges: &[ByteRange]) -> FileKeys {
        assert!(ranges::are_disjoint(ranges), "the requests of a round are joined");
        let mut used: Vec<BlockFile> = ranges.iter().map(|range| range.file).collect();
        used.dedup();
        FileKeys(used.into_iter().map(|file| (file, format!("{key}/{}", files.name(file)))).collect())
    }

    fn get(&self, file: BlockFile) -> &str {
        let key = self.0.iter().find(|(found, _)| *found == file).map(|(_, key)| key.as_str());
        assert!(key.is_some(), "a piece is of a file of its round");
        key.unwrap_or_default()
    }
}

/// The answer to a query whose request to the bucket failed.
pub(crate) fn query_error(error: BucketError) -> QueryError {
    match error {
        BucketError::Deadline { .. } => QueryError::Timeout,
        BucketError::Canceled { .. } => QueryError::Canceled,
        BucketError::Corrupt { ref key, .. } => {
            QueryError::Corrupt { path: key.clone(), what: error.to_string() }
        }
        // A removed or changed object was replaced: the query may succeed on the next list of blocks.
        other => QueryError::Unavailable { what: other.to_string() },
    }
}

/// Reads of a thread that waits: opening a block, label queries. No thread of the runtime may wait.
pub(crate) struct WaitingSource(pub(crate) Arc<RemoteFiles>);

impl ByteSource for WaitingSource {
    fn files(&self) -> &BlockFiles {
        &self.0.files
    }

    fn read(&self, wave: &dyn Wave, budget: &MemoryBudget) -> Result<RangeBytes, QueryError> {
        let remote = &self.0.remote;
        let timeout_ns = u64::try_from(READ_TIMEOUT.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = remote.clock.mono_ns().saturating_add(timeout_ns);
        remote.handle.block_on(self.0.read(wave, budget, deadline_ns, None, &|_| Ok(())))
    }

    fn wave_bytes_max(&self) -> Option<u64> {
        Some(WAVE_BYTES_MAX)
    }

    fn has_readers(&self) -> bool {
        false
    }
}
