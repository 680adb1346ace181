//! Files of a block of which ranges are read when they are needed, with positional reads.
//!
//! Invariant: a wave is read in rounds; the ranges of a round are all known before its first request. The
//! first round has the ranges that the wave names, later ones what those bytes show to be missing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::{DecodeError, DiskFile, Env, MemoryBudget};
use chronolith_format::block::chunks;
use chronolith_format::bucket::sidecar::SidecarHead;
use chronolith_model::QueryError;

use super::bytes::{ByteSource, ROUND_COUNT_MAX, RangeBytes, Wave};
use super::fetched::{FetchedBatch, FetchedPart, FetchedRanges};
use super::range::{BlockFile, BlockFiles, ByteRange, TombstonesFile, coalesce};
use crate::BlockError;
use crate::layout::{CHUNKS_DIR, INDEX_FILE, TOMBSTONES_FILE, is_segment_name, segment_path};

/// Bytes that a wave should read at most.
pub const WAVE_BYTES_MAX: u64 = 16 << 20;

/// Requests and bytes of a [`RangedFiles`] so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RangedStats {
    /// Waves that read anything.
    pub waves: u64,
    /// Rounds of requests that were made at once.
    pub rounds: u64,
    /// Requests, each for one range.
    pub requests: u64,
    /// Bytes that were read, including the bytes of gaps.
    pub bytes: u64,
}

#[derive(Default)]
struct Counters {
    waves: AtomicU64,
    rounds: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// Index and chunk segments of a block, read by range.
pub struct RangedFiles {
    files: Arc<BlockFiles>,
    index: Box<dyn DiskFile>,
    segments: Vec<Box<dyn DiskFile>>,
    tombstones: Option<Box<dyn DiskFile>>,
    sidecar: Option<Box<dyn DiskFile>>,
    gap_bytes: u64,
    counters: Arc<Counters>,
}

/// Reads the counters of a [`RangedFiles`] that a block owns.
#[derive(Clone)]
pub struct RangedMeter(Arc<Counters>);

impl RangedMeter {
    /// Requests and bytes so far.
    #[must_use]
    pub fn stats(&self) -> RangedStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { waves, rounds, requests, bytes } = &*self.0;
        RangedStats { waves: load(waves), rounds: load(rounds), requests: load(requests), bytes: load(bytes) }
    }
}

/// Tombstones of the block in `dir`, which a sidecar of the index alone does not describe.
fn tombstones_in(env: &Env, dir: &Path) -> Result<Option<TombstonesFile>, BlockError> {
    let path = dir.join(TOMBSTONES_FILE);
    if !env.disk.exists(&path) {
        return Ok(None);
    }
    let file = env.disk.open_read(&path).map_err(BlockError::io(&path))?;
    let len = file.len().map_err(BlockError::io(&path))?;
    Ok(Some(TombstonesFile { name: TOMBSTONES_FILE.to_owned(), len }))
}

impl RangedFiles {
    /// Opens the files of the block in `dir`. Ranges with at most `gap_bytes` between them are read together.
    ///
    /// # Errors
    /// [`BlockError::Io`]; [`BlockError::SegmentMissing`] if segments are not numbered without a gap.
    pub fn open(env: &Env, dir: &Path, gap_bytes: u64) -> Result<RangedFiles, BlockError> {
        let open = |path: &Path| -> Result<(Box<dyn DiskFile>, u64), BlockError> {
            let file = env.disk.open_read(path).map_err(BlockError::io(path))?;
            let len = file.len().map_err(BlockError::io(path))?;
            Ok((file, len))
        };
        let (index, index_bytes) = open(&dir.join(INDEX_FILE))?;
        let (mut segments, mut segment_bytes) = (Vec::new(), Vec::new());
        for path in segment_paths(env, dir)? {
            let (file, len) = open(&path)?;
            segments.push(file);
            segment_bytes.push(len);
        }
        let files = Arc::new(BlockFiles::new(dir.to_owned(), index_bytes, segment_bytes));
        let counters = Arc::default();
        Ok(RangedFiles { files, index, segments, tombstones: None, sidecar: None, gap_bytes, counters })
    }

    /// Adds the sidecar at `path`, and reads the block by its head, which is returned.
    ///
    /// # Errors
    /// [`BlockError::Io`]; [`BlockError::Corrupt`] if the head is damaged.
    pub fn with_sidecar(mut self, env: &Env, path: &Path) -> Result<(RangedFiles, SidecarHead), BlockError> {
        let bytes = env.disk.read(path).map_err(BlockError::io(path))?;
        let head = SidecarHead::decode(&bytes).map_err(BlockError::corrupt(path))?;
        let dir = self.files.dir().to_owned();
        let files = BlockFiles::of_sidecar(dir, &head, bytes.len() as u64);
        let no_index =
            || DecodeError::Invalid { what: "sidecar head", offset: 0, expected: "an index", found: 0 };
        let mut files = files.ok_or_else(no_index).map_err(BlockError::corrupt(path))?;
        if head.is_of_index_alone() {
            files = files.with_tombstones(tombstones_in(env, self.files.dir())?);
        }
        self.files = Arc::new(files);
        self.sidecar = Some(env.disk.open_read(path).map_err(BlockError::io(path))?);
        if self.files.len(BlockFile::Tombstones).is_some() {
            let path = self.files.path(BlockFile::Tombstones);
            self.tombstones = Some(env.disk.open_read(&path).map_err(BlockError::io(&path))?);
        }
        Ok((self, head))
    }

    /// A reader of the counters.
    #[must_use]
    pub fn meter(&self) -> RangedMeter {
        RangedMeter(self.counters.clone())
    }

    fn file(&self, file: BlockFile) -> Option<&dyn DiskFile> {
        match file {
            BlockFile::Index => Some(&*self.index),
            BlockFile::Segment(idx) => self.segments.get(idx as usize).map(|file| &**file),
            BlockFile::Tombstones => self.tombstones.as_deref(),
            BlockFile::Sidecar => self.sidecar.as_deref(),
            BlockFile::Rollup(_) => None,
        }
    }

    /// Makes the requests of one round.
    fn fetch(&self, mut ranges: Vec<ByteRange>, budget: &MemoryBudget) -> Result<FetchedBatch, QueryError> {
        self.files.clip(&mut ranges);
        coalesce(&mut ranges, self.gap_bytes);
        let memory = budget.reserve(ranges.iter().map(ByteRange::len).sum())?;
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            let Some(file) = self.file(range.file) else { continue };
            let mut bytes = vec![0; range.len() as usize];
            file.read_at(&mut bytes, range.start).map_err(|error| {
                let path = self.files.path(range.file).display().to_string();
                QueryError::Io { path, error }
            })?;
            self.counters.requests.fetch_add(1, Ordering::Relaxed);
            self.counters.bytes.fetch_add(range.len(), Ordering::Relaxed);
            parts.push(FetchedPart { file: range.file, start: range.start, bytes: bytes.into() });
        }
        self.counters.rounds.fetch_add(u64::from(!parts.is_empty()), Ordering::Relaxed);
        Ok(FetchedBatch::new(parts, memory))
    }
}

/// Paths of the chunk segments in order.
///
/// # Errors
/// [`BlockError::Io`]; [`BlockError::SegmentMissing`] if one between others is not there.
pub(crate) fn segment_paths(env: &Env, dir: &Path) -> Result<Vec<PathBuf>, BlockError> {
    let chunks_dir = dir.join(CHUNKS_DIR);
    let entries = env.disk.list(&chunks_dir).map_err(BlockError::io(&chunks_dir))?;
    let names = entries.iter().filter(|e| !e.is_dir && is_segment_name(&e.name)).map(|e| &e.name);
    let mut paths = Vec::new();
    for (segment_idx, name) in (0u32..).zip(names) {
        let path = segment_path(dir, segment_idx);
        if *name != chunks::segment_name(segment_idx) {
            return Err(BlockError::SegmentMissing { path });
        }
        paths.push(path);
    }
    Ok(paths)
}

impl ByteSource for RangedFiles {
    fn files(&self) -> &BlockFiles {
        &self.files
    }

    fn read(&self, wave: &dyn Wave, budget: &MemoryBudget) -> Result<RangeBytes, QueryError> {
        let mut fetched = FetchedRanges::new(self.files.clone());
        let mut ranges = Vec::new();
        wave.ranges(&mut ranges);
        self.counters.waves.fetch_add(u64::from(!ranges.is_empty()), Ordering::Relaxed);
        for _ in 0..ROUND_COUNT_MAX {
            if ranges.is_empty() {
                break;
            }
            fetched.push(self.fetch(std::mem::take(&mut ranges), budget)?);
            wave.missing(&fetched, &mut ranges);
        }
        Ok(RangeBytes::Fetched(Arc::new(fetched)))
    }

    fn wave_bytes_max(&self) -> Option<u64> {
        Some(WAVE_BYTES_MAX)
    }

    fn has_readers(&self) -> bool {
        false
    }
}
