//! An open block: its files mapped or, if small, copied; its index checked.
//!
//! Holds: chunks, series and postings are verified when read, not when opened; a reader handed out keeps the
//! files mapped, so a block may be removed while queries run on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::{DecodeError, Env, Mapped};
use chronolith_format::block::catalogue::{BlockRecord, ImmutableBytes};
use chronolith_format::block::chunks::{self, ChunkRef, RawChunk, Segment};
use chronolith_format::block::index::{ChunkMeta, IndexReader};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::block::tombstones::Tombstones;
use chronolith_format::{chunk::dense, chunk::histogram, chunk::kinds, chunk::xor, chunk::xor2};
use chronolith_model::{Columns, QueryError, TimeRange};

use crate::error::query_error;
use crate::pool::{OpenCounts, OpenPermit};
use crate::searches::Searches;
use crate::{BlockError, CHUNKS_DIR, INDEX_FILE, META_FILE, TOMBSTONES_FILE};

/// A block that can be queried.
pub struct Block {
    pub(crate) files: Arc<BlockFiles>,
}

/// What readers of a block share and keep alive.
pub(crate) struct BlockFiles {
    pub(crate) dir: PathBuf,
    pub(crate) meta: BlockMeta,
    pub(crate) index: IndexReader,
    pub(crate) segments: Vec<Segment>,
    pub(crate) tombstones: Tombstones,
    pub(crate) searches: Searches,
    size_bytes: u64,
    /// Behind the files, so that they are closed when it is given back.
    _permit: Option<OpenPermit>,
}

/// An open block takes this much beside its files and index: `meta.json`, paths, tombstones.
const BLOCK_BYTES: u64 = 2048;

/// How a block is opened.
#[derive(Default)]
pub(crate) struct OpenOptions {
    /// Files of at most this size are copied, not mapped.
    pub(crate) copy_bytes_max: u64,
    /// Where it is counted while it is open.
    pub(crate) counts: Option<Arc<OpenCounts>>,
}

/// Files of a block as they are opened, and what they take.
struct FileOpener<'a> {
    env: &'a Env,
    copy_bytes_max: u64,
    maps: u64,
    mapped_bytes: u64,
    copied_bytes: u64,
}

impl FileOpener<'_> {
    fn open(&mut self, path: &Path) -> Result<Mapped, BlockError> {
        let bytes = self.env.disk.map_or_copy(path, self.copy_bytes_max).map_err(BlockError::io(path))?;
        match bytes.copied_bytes() {
            Some(len) => self.copied_bytes += len as u64,
            None => {
                self.maps += 1;
                self.mapped_bytes += bytes.len() as u64;
            }
        }
        Ok(bytes)
    }
}

impl Block {
    /// Opens the block in directory `dir`. Cost: one pass over symbols and postings offset table of the index; chunk
    /// files are mapped and touched at their first page.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn open(env: &Env, dir: &Path) -> Result<Arc<Block>, BlockError> {
        Block::open_with(env, dir, &OpenOptions::default())
    }

    pub(crate) fn open_with(env: &Env, dir: &Path, options: &OpenOptions) -> Result<Arc<Block>, BlockError> {
        let copy_bytes_max = options.copy_bytes_max;
        let mut opener = FileOpener { env, copy_bytes_max, maps: 0, mapped_bytes: 0, copied_bytes: 0 };
        let (meta, meta_bytes) = read_meta(env, dir)?;
        let index_path = dir.join(INDEX_FILE);
        let index = IndexReader::open(opener.open(&index_path)?).map_err(BlockError::corrupt(&index_path))?;
        let (tombstones, tombstones_bytes) = open_tombstones(env, dir, &meta)?;
        let segments = open_segments(env, &mut opener, &dir.join(CHUNKS_DIR))?;
        let segments_bytes: u64 = segments.iter().map(Segment::size_bytes).sum();
        let size_bytes = meta_bytes + index.size_bytes() + tombstones_bytes + segments_bytes;
        let heap_bytes = opener.copied_bytes + index.heap_bytes() as u64 + tombstones_bytes + BLOCK_BYTES;
        let permit = |counts: &Arc<OpenCounts>| {
            OpenPermit::new(counts.clone(), opener.maps, opener.mapped_bytes, heap_bytes)
        };
        let _permit = options.counts.as_ref().map(permit);
        let (dir, searches) = (dir.to_owned(), Searches::default());
        let files = BlockFiles { dir, meta, index, segments, tombstones, searches, size_bytes, _permit };
        Ok(Arc::new(Block { files: Arc::new(files) }))
    }

    /// What `meta.json` says.
    #[must_use]
    pub fn meta(&self) -> &BlockMeta {
        &self.files.meta
    }

    /// Where it lies.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.files.dir
    }

    /// Time that it covers.
    #[must_use]
    pub fn range(&self) -> TimeRange {
        self.files.range()
    }

    /// Bytes on disk.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.files.size_bytes
    }

    /// Of these, bytes of files that never change.
    #[must_use]
    pub fn immutable_bytes(&self) -> ImmutableBytes {
        let chunks = self.files.segments.iter().map(Segment::size_bytes).sum();
        ImmutableBytes { index: self.files.index.size_bytes(), chunks }
    }

    /// Compares the sizes of index and chunk segments with the record.
    ///
    /// # Errors
    /// [`BlockError::Mismatch`].
    pub fn compare_sizes(&self, record: &BlockRecord) -> Result<(), BlockError> {
        let (found, dir) = (self.immutable_bytes(), &self.files.dir);
        let Some(expected) = record.immutable_bytes else { return Ok(()) };
        let both = [(INDEX_FILE, expected.index, found.index), (CHUNKS_DIR, expected.chunks, found.chunks)];
        match both.into_iter().find(|(_, expected, found)| expected != found) {
            None => Ok(()),
            Some((name, expected, found)) => {
                let (expected, found) = (expected as i64, found as i64);
                Err(BlockError::Mismatch { path: dir.join(name), what: "bytes", expected, found })
            }
        }
    }

    /// Compares the name and time range in `meta.json`, which has no checksum, with the record: a query would not look
    /// for samples outside of the range.
    ///
    /// # Errors
    /// [`BlockError::Mismatch`], [`BlockError::OtherBlock`].
    pub fn compare_meta(&self, record: &BlockRecord) -> Result<(), BlockError> {
        let meta = &self.files.meta;
        check_name(&self.files.dir, record.ulid, meta)?;
        let both = [("minTime", record.min_time, meta.min_time), ("maxTime", record.max_time, meta.max_time)];
        match both.into_iter().find(|(_, expected, found)| expected != found) {
            None => Ok(()),
            Some((what, expected, found)) => {
                let path = self.files.dir.join(META_FILE);
                Err(BlockError::Mismatch { path, what, expected, found })
            }
        }
    }

    /// Bytes of memory that the open block keeps beside the maps.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.files.index.heap_bytes()
    }

    /// Bytes of what it remembers of patterns that were asked for.
    #[must_use]
    pub fn search_bytes(&self) -> usize {
        self.files.searches.heap_bytes()
    }
}

/// How a chunk cannot be read.
pub(crate) enum ChunkError {
    /// Damage at an offset of the segment.
    Segment(DecodeError),
    /// The chunk's own bytes are damaged, or of a kind that is not known.
    Content(String),
}

impl BlockFiles {
    pub(crate) fn range(&self) -> TimeRange {
        TimeRange::new(self.meta.min_time, self.meta.max_time)
    }

    pub(crate) fn index_error(&self, error: &DecodeError) -> QueryError {
        query_error(&self.dir.join(INDEX_FILE), error)
    }

    pub(crate) fn segment_path(&self, chunk_ref: ChunkRef) -> PathBuf {
        self.dir.join(CHUNKS_DIR).join(chunks::segment_name(chunk_ref.segment_idx()))
    }

    /// A chunk with its checksum verified.
    pub(crate) fn chunk(&self, chunk_ref: ChunkRef) -> Result<RawChunk<'_>, DecodeError> {
        let idx = chunk_ref.segment_idx();
        match self.segments.get(idx as usize) {
            Some(segment) => segment.chunk(chunk_ref.offset()),
            None => Err(DecodeError::Invalid {
                what: "chunk segment",
                offset: chunk_ref.offset() as usize,
                expected: "a segment that exists",
                found: u64::from(idx) + 1,
            }),
        }
    }

    /// Appends the samples of a chunk that lie in `range` and in the time that the index gives it.
    pub(crate) fn decode(
        &self,
        chunk: &ChunkMeta,
        range: TimeRange,
        out: &mut Columns,
    ) -> Result<(), ChunkError> {
        let raw = self.chunk(chunk.chunk_ref).map_err(ChunkError::Segment)?;
        // Where the index is wrong about a chunk's times, order between chunks must hold nevertheless.
        let whole = TimeRange::inclusive(chunk.min_time, chunk.max_time);
        let range = TimeRange::new(range.start.max(whole.start), range.end.min(whole.end));
        match raw.encoding {
            xor::ENCODING_XOR => {
                xor::decode(raw.bytes, range, out).map_err(|error| ChunkError::Content(error.to_string()))
            }
            dense::ENCODING_DENSE => {
                dense::decode(raw.bytes, range, out).map_err(|error| ChunkError::Content(error.to_string()))
            }
            dense::ENCODING_PACKED => {
                let segment_idx = chunk.chunk_ref.segment_idx();
                let times_chunk = |offset| self.chunk(ChunkRef::new(segment_idx, offset));
                let done = dense::decode_packed(raw.bytes, range, times_chunk, out);
                done.map_err(|error| ChunkError::Content(error.to_string()))
            }
            dense::ENCODING_DENSE_STARTS => {
                let segment_idx = chunk.chunk_ref.segment_idx();
                let times_chunk = |offset| self.chunk(ChunkRef::new(segment_idx, offset));
                let done = dense::decode_starts(raw.bytes, range, times_chunk, out);
                done.map_err(|error| ChunkError::Content(error.to_string()))
            }
            xor2::ENCODING_XOR2 => {
                xor2::decode(raw.bytes, range, out).map_err(|error| ChunkError::Content(error.to_string()))
            }
            encoding if kinds::is_histogram(encoding) => histogram::decode(encoding, raw.bytes, range, out)
                .map_err(|error| ChunkError::Content(error.to_string())),
            encoding => Err(ChunkError::Content(format!("unknown chunk encoding {encoding}"))),
        }
    }

    pub(crate) fn chunk_error(&self, chunk: &ChunkMeta, error: ChunkError) -> QueryError {
        let path = self.segment_path(chunk.chunk_ref);
        match error {
            ChunkError::Segment(error) => query_error(&path, &error),
            ChunkError::Content(what) => {
                let offset = chunk.chunk_ref.offset();
                let what = format!("chunk at offset {offset}: {what}");
                QueryError::Corrupt { path: path.display().to_string(), what }
            }
        }
    }
}

/// Reads `meta.json` of the block in `dir`; also gives the size of the file.
pub(crate) fn read_meta(env: &Env, dir: &Path) -> Result<(BlockMeta, u64), BlockError> {
    let path = dir.join(META_FILE);
    let text = env.disk.read(&path).map_err(BlockError::io(&path))?;
    let meta = BlockMeta::decode(&text).map_err(|error| BlockError::Meta { path, error })?;
    Ok((meta, text.len() as u64))
}

/// # Errors
/// [`BlockError::OtherBlock`] if `meta.json` of the block in `dir` names another block than `ulid`.
pub(crate) fn check_name(dir: &Path, ulid: Ulid, meta: &BlockMeta) -> Result<(), BlockError> {
    if meta.ulid == ulid {
        return Ok(());
    }
    Err(BlockError::OtherBlock { path: dir.join(META_FILE), found: meta.ulid })
}

pub(crate) fn tombstones_missing(path: PathBuf, meta: &BlockMeta) -> BlockError {
    BlockError::TombstonesMissing { path, count: meta.stats.num_tombstones }
}

fn open_tombstones(env: &Env, dir: &Path, meta: &BlockMeta) -> Result<(Tombstones, u64), BlockError> {
    let path = dir.join(TOMBSTONES_FILE);
    match env.disk.read(&path) {
        Ok(bytes) => {
            let tombstones = Tombstones::decode(&bytes).map_err(BlockError::corrupt(&path))?;
            Ok((tombstones, bytes.len() as u64))
        }
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BlockError::Io { path, error }),
        // Blocks of old versions of Prometheus, and those that Thanos fetched, have no such file without deletions.
        Err(_) if meta.stats.num_tombstones == 0 => Ok((Tombstones::new(), 0)),
        Err(_) => Err(tombstones_missing(path, meta)),
    }
}

/// Returns true if a file of this name in `chunks/` is a segment.
pub(crate) fn is_segment_name(name: &str) -> bool {
    name.len() >= 6 && name.bytes().all(|b| b.is_ascii_digit())
}

fn open_segments(env: &Env, opener: &mut FileOpener<'_>, dir: &Path) -> Result<Vec<Segment>, BlockError> {
    let entries = env.disk.list(dir).map_err(BlockError::io(dir))?;
    let names = entries.iter().filter(|e| !e.is_dir && is_segment_name(&e.name)).map(|e| &e.name);
    let mut segments = Vec::new();
    for (segment_idx, name) in (0u32..).zip(names) {
        let path = dir.join(chunks::segment_name(segment_idx));
        if *name != chunks::segment_name(segment_idx) {
            return Err(BlockError::SegmentMissing { path });
        }
        segments.push(Segment::open(opener.open(&path)?).map_err(BlockError::corrupt(&path))?);
    }
    Ok(segments)
}
