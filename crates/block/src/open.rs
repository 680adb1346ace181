//! Opens the files of a block: mapped or copied whole, or read by range.
//!
//! Invariant: `meta.json`, tombstones, both ends of the index, its symbols and its postings offset table, and
//! the headers of local chunk segments are verified here; series, postings and chunks when they are read.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::{DecodeError, Env, Mapped, MemoryBudget};
use chronolith_format::block::chunks;
use chronolith_format::block::index::{self, IndexHeader, SectionBytes, Toc};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::block::tombstones::Tombstones;
use chronolith_model::QueryError;

use crate::BlockError;
use crate::contents::BlockContents;
use crate::layout::{INDEX_FILE, META_FILE, TOMBSTONES_FILE};
use crate::open_counts::{OpenCounts, OpenPermit, OpenSizes};
use crate::postings::new_regex_cache;
use crate::rollup::Rollups;
use crate::source::{BlockFile, BlockFiles, ByteRange, ByteSource, MappedFiles, segment_paths};
use crate::waves::ExactWave;

/// Memory of an open block besides its files and index: `meta.json`, paths, tombstones.
const BLOCK_BYTES: u64 = 2048;

/// Options of opening a block.
#[derive(Default)]
pub(crate) struct OpenOptions {
    /// Files of at most this size are copied, not mapped.
    pub copy_bytes_max: u64,
    /// Counters of what open blocks take.
    pub counts: Option<Arc<OpenCounts>>,
}

/// A block with the bytes on disk of its small files.
pub(crate) struct Opened {
    pub contents: BlockContents,
    /// Bytes of `meta.json` and tombstones.
    pub mutable_bytes: u64,
}

/// Files of a block as they are opened, and what they take.
struct FileOpener<'a> {
    env: &'a Env,
    copy_bytes_max: u64,
    sizes: OpenSizes,
}

impl FileOpener<'_> {
    fn open(&mut self, path: &Path) -> Result<Mapped, BlockError> {
        let bytes = self.env.disk.map_or_copy(path, self.copy_bytes_max).map_err(BlockError::io(path))?;
        match bytes.copied_bytes() {
            Some(len) => self.sizes.heap_bytes += len as u64,
            None => {
                self.sizes.maps += 1;
                self.sizes.mapped_bytes += bytes.len() as u64;
            }
        }
        Ok(bytes)
    }
}

/// Bytes of an index that are read at first, from its start for the symbols and from its end for the postings
/// offset table: together a few milliseconds of a distant storage, and so less than another request.
pub const INDEX_START_BYTES: u64 = 128 << 10;
/// The same from its end.
pub const INDEX_END_BYTES: u64 = 256 << 10;

/// Opens the block in `dir` with its files mapped or copied. Cost: one pass over symbols and postings offset
/// table; chunk segments are touched at their first page.
///
/// # Errors
/// [`BlockError`].
pub(crate) fn open_mapped(env: &Env, dir: &Path, options: &OpenOptions) -> Result<Opened, BlockError> {
    let sizes = OpenSizes { blocks: 1, ..OpenSizes::default() };
    let mut opener = FileOpener { env, copy_bytes_max: options.copy_bytes_max, sizes };
    let (meta, meta_bytes) = read_meta(env, dir)?;
    let index_path = dir.join(INDEX_FILE);
    let index = opener.open(&index_path)?;
    let header = IndexHeader::of_file(&index).map_err(BlockError::corrupt(&index_path))?;
    let (tombstones, tombstones_bytes) = read_tombstones(env, dir, &meta)?;
    let mut segments = Vec::new();
    for path in segment_paths(env, dir)? {
        let segment = opener.open(&path)?;
        chunks::check_header(&segment).map_err(BlockError::corrupt(&path))?;
        segments.push(segment);
    }
    let rollups = Rollups::open(env, dir, meta.range(), |path| opener.open(path));
    opener.sizes.heap_bytes += header.heap_bytes() as u64 + tombstones_bytes + BLOCK_BYTES;
    let permit = options.counts.as_ref().map(|counts| OpenPermit::new(counts.clone(), opener.sizes));
    let segment_bytes = segments.iter().map(|segment| segment.len() as u64).collect();
    let files = BlockFiles::new(dir.to_owned(), index.len() as u64, segment_bytes);
    let source = Box::new(Arc::new(MappedFiles::new(files, index, segments, permit)));
    let contents = BlockContents::new(meta, header, tombstones, source, new_regex_cache());
    let contents = contents.with_rollups(rollups);
    Ok(Opened { contents, mutable_bytes: meta_bytes + tombstones_bytes })
}

/// Opens a block of which `source` reads ranges, with its small files in `dir`. Cost: two waves and the
/// memory of symbols and postings offset table.
///
/// # Errors
/// [`BlockError`].
pub(crate) fn open_ranged(env: &Env, dir: &Path, source: Box<dyn ByteSource>) -> Result<Opened, BlockError> {
    let (meta, meta_bytes) = read_meta(env, dir)?;
    let (tombstones, tombstones_bytes) = read_tombstones(env, dir, &meta)?;
    let header = read_header(&*source)?;
    let contents = BlockContents::new(meta, header, tombstones, source, new_regex_cache());
    Ok(Opened { contents, mutable_bytes: meta_bytes + tombstones_bytes })
}

/// Opens a block all of whose files are remote; `meta` and `tombstones` were read before.
///
/// # Errors
/// [`BlockError`].
pub(crate) fn open_remote(
    meta: BlockMeta,
    tombstones: Option<&[u8]>,
    source: Box<dyn ByteSource>,
) -> Result<Opened, BlockError> {
    let path = source.files().dir().join(TOMBSTONES_FILE);
    let mutable_bytes = tombstones.map_or(0, |bytes| bytes.len() as u64);
    let tombstones = match tombstones {
        Some(bytes) => decode_tombstones(&path, bytes, &meta)?,
        None => no_tombstones(path, &meta)?,
    };
    let header = read_header(&*source)?;
    let contents = BlockContents::new(meta, header, tombstones, source, new_regex_cache());
    Ok(Opened { contents, mutable_bytes })
}

/// Reads the index header: both ends of the index at once, which suffice for most blocks, then the missing
/// parts of symbols and postings offset table. The headers of chunk segments are not read: each chunk has its
/// checksum.
fn read_header(source: &dyn ByteSource) -> Result<IndexHeader, BlockError> {
    let files = source.files();
    let budget = MemoryBudget::new("opening a block", u64::MAX);
    let file = BlockFile::Index;
    let file_len = files.len(file).unwrap_or(0);
    let toc_start = file_len.saturating_sub(index::TOC_BYTES as u64);
    let ends = match file_len <= INDEX_START_BYTES + INDEX_END_BYTES {
        true => vec![ByteRange { file, start: 0, end: file_len }],
        false => vec![
            ByteRange { file, start: 0, end: INDEX_START_BYTES },
            ByteRange { file, start: file_len - INDEX_END_BYTES, end: file_len },
        ],
    };
    let ends = source.read(&ExactWave(ends), &budget).map_err(read_error)?;
    let corrupt = |error: DecodeError| BlockError::corrupt(&files.path(file))(error);
    let version = index::decode_version(ends.at(file, 0)).map_err(corrupt)?;
    let toc = Toc::decode(ends.at(file, toc_start), file_len).map_err(corrupt)?;
    let sections = [toc.symbols, toc.postings_table].map(|start| toc.section(start, file_len));
    let is_read = |section: &Range<u64>| {
        let read = ends.at(file, section.start).len() as u64;
        read >= section.end.saturating_sub(section.start)
    };
    let missing = sections.iter().filter(|section| !is_read(section));
    let missing: Vec<ByteRange> =
        missing.map(|section| ByteRange { file, start: section.start, end: section.end }).collect();
    let rest = match missing.is_empty() {
        true => None,
        false => Some(source.read(&ExactWave(missing), &budget).map_err(read_error)?),
    };
    let sections = sections.map(|section| {
        let from = rest.as_ref().filter(|_| !is_read(&section)).unwrap_or(&ends);
        let read = from.at(file, section.start);
        let len = usize::try_from(section.end.saturating_sub(section.start)).unwrap_or(usize::MAX);
        SectionBytes::new(Mapped::from_slice(read.get(..len).unwrap_or(read)), section.start)
    });
    IndexHeader::of_sections(version, toc, file_len, sections).map_err(corrupt)
}

/// Error of reading a part of a block that is being opened or read as a whole.
pub(crate) fn read_error(error: QueryError) -> BlockError {
    match error {
        QueryError::Io { path, error } => BlockError::Io { path: PathBuf::from(path), error },
        other => BlockError::Source(other),
    }
}

/// Reads `meta.json` of the block in `dir`; also returns the size of the file.
pub(crate) fn read_meta(env: &Env, dir: &Path) -> Result<(BlockMeta, u64), BlockError> {
    let path = dir.join(META_FILE);
    let text = env.disk.read(&path).map_err(BlockError::io(&path))?;
    let meta = BlockMeta::decode(&text).map_err(|error| BlockError::Meta { path, error })?;
    Ok((meta, text.len() as u64))
}

/// Reads `meta.json` of the block in `dir` without opening the block.
///
/// # Errors
/// [`BlockError`] if the file is missing or damaged.
pub fn read_block_meta(env: &Env, dir: &Path) -> Result<BlockMeta, BlockError> {
    read_meta(env, dir).map(|(meta, _)| meta)
}

/// # Errors
/// [`BlockError::OtherBlock`] if `meta.json` of the block in `dir` names another block than `ulid`.
pub(crate) fn check_name(dir: &Path, ulid: Ulid, meta: &BlockMeta) -> Result<(), BlockError> {
    if meta.ulid == ulid {
        return Ok(());
    }
    Err(BlockError::OtherBlock { path: dir.join(META_FILE), found: meta.ulid })
}

/// Reads the tombstones of the block in `dir`; also returns the size of the file.
pub(crate) fn read_tombstones(
    env: &Env,
    dir: &Path,
    meta: &BlockMeta,
) -> Result<(Tombstones, u64), BlockError> {
    let path = dir.join(TOMBSTONES_FILE);
    match env.disk.read(&path) {
        Ok(bytes) => Ok((decode_tombstones(&path, &bytes, meta)?, bytes.len() as u64)),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BlockError::Io { path, error }),
        Err(_) => Ok((no_tombstones(path, meta)?, 0)),
    }
}

fn decode_tombstones(path: &Path, bytes: &[u8], meta: &BlockMeta) -> Result<Tombstones, BlockError> {
    let tombstones = Tombstones::decode(bytes).map_err(BlockError::corrupt(path))?;
    if tombstones.unit() != meta.time_unit() {
        return Err(BlockError::corrupt(path)(DecodeError::Invalid {
            what: "tombstones version",
            offset: 4,
            expected: "the one of the unit in meta.json",
            found: bytes.get(4).copied().map_or(0, u64::from),
        }));
    }
    Ok(tombstones)
}

/// Tombstones of a block that has no such file. Blocks of old versions of Prometheus, and those that Thanos
/// fetched, have none without deletions.
fn no_tombstones(path: PathBuf, meta: &BlockMeta) -> Result<Tombstones, BlockError> {
    match meta.stats.num_tombstones {
        0 => Ok(Tombstones::of_unit(meta.time_unit())),
        count => Err(BlockError::TombstonesMissing { path, count }),
    }
}
