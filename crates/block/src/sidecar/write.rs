//! Writes the sidecar of a local block, in one pass over its series.
//!
//! Invariants: series come in order of the index; each entry, chunk and postings list is verified before
//! anything is derived from it, so a damaged block gets no sidecar. Equal files give equal bytes.
//! Memory: the writer of the format, a batch of series entries, the postings offset table.

use std::io;
use std::path::Path;

use chronolith_base::crc::{Crc32c, crc32c};
use chronolith_base::{DecodeError, Env, MemoryBudget};
use chronolith_format::block::chunks::{ChunkRef, chunk_len};
use chronolith_format::block::index::{ChunkMeta, Postings, SeriesEntry};
use chronolith_format::bucket::sidecar::{
    FileSum, SidecarFile, SidecarSummary, SidecarWriter, SizedChunk, SparseOffsets,
};
use chronolith_model::Labels;

use crate::chunk::{raw_chunk, times_offset};
use crate::contents::BlockContents;
use crate::layout::{META_FILE, TOMBSTONES_FILE};
use crate::open::read_error;
use crate::postings::postings_at;
use crate::series_reader::{SERIES_PER_WAVE, SeriesReader, has_repeated_chunk};
use crate::source::{BlockFile, ByteRange, RangeBytes};
use crate::waves::{ExactWave, PostingsWave};
use crate::{Block, BlockError};

/// Bytes of a file that are read at once for its checksum.
const SUM_BYTES: u64 = 4 << 20;
/// Indexes of this version have a postings offset table in no order.
const VERSION_UNORDERED: u8 = 1;

/// Writes the sidecar of `block`; bytes are passed to `sink` as they are complete. `meta.json` and tombstones
/// are read from its directory as they are there. Cost: each chunk is verified, and each file read once more
/// for its checksum.
///
/// # Errors
/// [`BlockError::Corrupt`] with file and offset of the damage, [`BlockError::Sidecar`] for a series that no
/// page can hold, [`BlockError::Io`], [`BlockError::Source`]. Bytes that were passed to `sink` are of no use
/// then.
pub fn write_sidecar(
    env: &Env,
    block: &Block,
    sink: impl FnMut(&[u8]),
) -> Result<SidecarSummary, BlockError> {
    let contents = &**block.contents();
    let meta = contents.meta();
    let mut writer = SidecarWriter::new(meta.ulid, meta.time_unit(), sink);
    let mut source = SeriesSource { contents, budget: MemoryBudget::new("writing a sidecar", u64::MAX) };
    source.add_series(&mut writer)?;
    let offsets = source.sparse_offsets()?;
    let files = source.file_sums(env)?;
    Ok(writer.finish(&files, offsets.as_ref()))
}

/// The block that a sidecar is made of.
struct SeriesSource<'a> {
    contents: &'a BlockContents,
    budget: MemoryBudget,
}

/// The shared times that were recorded last: chunks of one target mostly refer to the same chunk.
type LastTimes = Option<ChunkRef>;

impl SeriesSource<'_> {
    fn add_series<S: FnMut(&[u8])>(&mut self, writer: &mut SidecarWriter<S>) -> Result<(), BlockError> {
        let contents = self.contents;
        let Some(list) = contents.header().postings_range("", "").map_err(self.corrupt_index())? else {
            return Ok(());
        };
        let bytes = contents.read(&PostingsWave(std::slice::from_ref(&list)), &self.budget);
        let bytes = bytes.map_err(read_error)?;
        let all: Postings<'_> = postings_at(&bytes, &list).map_err(self.corrupt_index())?;
        let mut refs = all.iter().peekable();
        let mut checks = EntryChecks::default();
        let mut last_times = None;
        let mut chunks = Vec::new();
        while refs.peek().is_some() {
            let batch: Vec<u32> = refs.by_ref().take(SERIES_PER_WAVE).collect();
            let mut series = SeriesReader::new(batch);
            while let Some(series_ref) = series.next_ref(contents, &self.budget).map_err(read_error)? {
                let entry = series.decode(contents, series_ref).map_err(self.corrupt_index())?;
                let labels = checks.labels(contents, series_ref, entry)?;
                self.sized_chunks(&entry.chunks, &mut chunks, &mut last_times, writer)?;
                self.add_one(writer, series_ref, &labels, &chunks)?;
            }
        }
        Ok(())
    }

    fn add_one<S: FnMut(&[u8])>(
        &self,
        writer: &mut SidecarWriter<S>,
        series_ref: u32,
        labels: &Labels,
        chunks: &[SizedChunk],
    ) -> Result<(), BlockError> {
        let path = || self.contents.files().path(BlockFile::Index);
        let added = writer.add_series(series_ref, labels.iter(), chunks);
        added.map_err(|error| BlockError::Sidecar { path: path(), error })
    }

    /// Replaces `out` by `chunks` with the lengths of their frames, and records the chunks that have their
    /// times.
    fn sized_chunks<S: FnMut(&[u8])>(
        &self,
        chunks: &[ChunkMeta],
        out: &mut Vec<SizedChunk>,
        last_times: &mut LastTimes,
        writer: &mut SidecarWriter<S>,
    ) -> Result<(), BlockError> {
        out.clear();
        let wave = [chunks];
        let bytes = self.contents.read(&self.contents.chunk_wave(&wave), &self.budget).map_err(read_error)?;
        for &meta in chunks {
            let chunk_ref = meta.chunk_ref;
            let raw = raw_chunk(&bytes, chunk_ref).map_err(self.corrupt_segment(chunk_ref))?;
            out.push(SizedChunk { meta, len: frame_len(&bytes, chunk_ref) });
            let offset = times_offset(raw).map_err(|_| {
                let what = "chunk with shared times";
                let expected = "an offset in the segment";
                let offset = chunk_ref.offset() as usize;
                let found = u64::from(raw.encoding);
                self.corrupt_segment(chunk_ref)(DecodeError::Invalid { what, offset, expected, found })
            })?;
            let Some(offset) = offset else { continue };
            let times_ref = ChunkRef::new(chunk_ref.segment_idx(), offset);
            if *last_times != Some(times_ref) {
                raw_chunk(&bytes, times_ref).map_err(self.corrupt_segment(times_ref))?;
                writer.add_times_chunk(times_ref, frame_len(&bytes, times_ref));
                *last_times = Some(times_ref);
            }
        }
        Ok(())
    }

    /// Samples of the postings offset table; `None` for an index whose table is in no order.
    fn sparse_offsets(&self) -> Result<Option<SparseOffsets>, BlockError> {
        if has_unordered_table(self.contents) {
            return Ok(None);
        }
        let range = table_range(self.contents);
        let bytes = self.contents.read(&ExactWave(vec![range]), &self.budget).map_err(read_error)?;
        offsets_of_table(self.contents, &bytes).map(Some)
    }

    /// Lengths and checksums of all files.
    fn file_sums(&self, env: &Env) -> Result<Vec<FileSum>, BlockError> {
        let files = self.contents.files();
        let mut sums = vec![self.sum_of(BlockFile::Index, SidecarFile::Index)?];
        for idx in (0u32..).take(files.segment_count()) {
            sums.push(self.sum_of(BlockFile::Segment(idx), SidecarFile::Segment(idx))?);
        }
        let dir = self.contents.dir();
        for (name, file) in [(META_FILE, SidecarFile::Meta), (TOMBSTONES_FILE, SidecarFile::Tombstones)] {
            sums.extend(sum_of_small(env, &dir.join(name), file)?);
        }
        Ok(sums)
    }

    fn sum_of(&self, file: BlockFile, name: SidecarFile) -> Result<FileSum, BlockError> {
        let files = self.contents.files();
        let len = files.len(file).unwrap_or(0);
        let mut sum = Crc32c::new();
        let mut start = 0;
        while start < len {
            let range = ByteRange { file, start, end: len.min(start + SUM_BYTES) };
            let bytes = self.contents.read(&ExactWave(vec![range]), &self.budget).map_err(read_error)?;
            let missing = || BlockError::io(&files.path(file))(io::ErrorKind::UnexpectedEof.into());
            sum.update(exact(&bytes, &range).ok_or_else(missing)?);
            start = range.end;
        }
        Ok(FileSum { file: name, len, crc: Some(sum.finish()) })
    }

    fn corrupt_index(&self) -> impl FnOnce(DecodeError) -> BlockError {
        self.corrupt(BlockFile::Index)
    }

    fn corrupt_segment(&self, chunk_ref: ChunkRef) -> impl FnOnce(DecodeError) -> BlockError {
        self.corrupt(BlockFile::Segment(chunk_ref.segment_idx()))
    }

    /// The error of a damaged `file`; its path is made only then.
    fn corrupt(&self, file: BlockFile) -> impl FnOnce(DecodeError) -> BlockError {
        move |error| BlockError::Corrupt { path: self.contents.files().path(file), error }
    }
}

/// Checks of series entries before anything is derived from them: the checks of the index readers, and that
/// the labels of an entry and its postings lists give the same matches.
#[derive(Default)]
pub(super) struct EntryChecks {
    last_labels: Option<Labels>,
}

impl EntryChecks {
    /// Returns the labels of the entry of `series_ref`, which comes after those that were checked before.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`].
    pub(super) fn labels(
        &mut self,
        contents: &BlockContents,
        series_ref: u32,
        entry: &mut SeriesEntry,
    ) -> Result<Labels, BlockError> {
        let error = |expected, found| series_error(contents, series_ref, expected, found);
        let pair_count = entry.pairs().count();
        let labels = entry.labels();
        if labels.len() != pair_count {
            return Err(error("each label once, with a value", pair_count));
        }
        if self.last_labels.as_ref().is_some_and(|last| *last >= labels) {
            return Err(error("labels after those of the series before", 0));
        }
        if has_repeated_chunk(&entry.chunks) {
            return Err(error("each chunk once", entry.chunks.len()));
        }
        self.last_labels = Some(labels.clone());
        Ok(labels)
    }
}

#[cold]
fn series_error(
    contents: &BlockContents,
    series_ref: u32,
    expected: &'static str,
    found: usize,
) -> BlockError {
    let offset = usize::try_from(contents.header().series_offset(series_ref)).unwrap_or(usize::MAX);
    let what = "series entry";
    let error = DecodeError::Invalid { what, offset, expected, found: found as u64 };
    BlockError::Corrupt { path: contents.files().path(BlockFile::Index), error }
}

/// Range of the postings offset table.
pub(super) fn table_range(contents: &BlockContents) -> ByteRange {
    let header = contents.header();
    let table = header.toc().section(header.toc().postings_table, header.file_len());
    ByteRange { file: BlockFile::Index, start: table.start, end: table.end }
}

/// Samples of the postings offset table, from `bytes` that have it.
///
/// # Errors
/// [`BlockError::Corrupt`].
pub(super) fn offsets_of_table(
    contents: &BlockContents,
    bytes: &RangeBytes,
) -> Result<SparseOffsets, BlockError> {
    let header = contents.header();
    let lists_end = header.toc().section(header.toc().postings, header.file_len()).end;
    let range = table_range(contents);
    let section = exact(bytes, &range).unwrap_or_default();
    let offsets = SparseOffsets::of_table(section, range.start, lists_end);
    let path = || contents.files().path(BlockFile::Index);
    offsets.map_err(|error| BlockError::Corrupt { path: path(), error: shifted(error, range.start) })
}

/// Returns true if the postings offset table is in no order and cannot be sampled.
pub(super) fn has_unordered_table(contents: &BlockContents) -> bool {
    contents.header().version() == VERSION_UNORDERED
}

/// Bytes of the frame of a chunk that was verified.
fn frame_len(bytes: &RangeBytes, chunk_ref: ChunkRef) -> u32 {
    let frame = bytes.at(BlockFile::Segment(chunk_ref.segment_idx()), u64::from(chunk_ref.offset()));
    chunk_len(frame).and_then(|len| u32::try_from(len).ok()).unwrap_or(u32::MAX)
}

/// Bytes of `range`; `None` if the file ends before.
fn exact<'a>(bytes: &'a RangeBytes, range: &ByteRange) -> Option<&'a [u8]> {
    bytes.at(range.file, range.start).get(..usize::try_from(range.len()).ok()?)
}

/// `error`, whose offset counts from `start` of the file, with the offset of the file.
fn shifted(mut error: DecodeError, start: u64) -> DecodeError {
    let (DecodeError::Short { offset, .. }
    | DecodeError::Invalid { offset, .. }
    | DecodeError::Checksum { offset, .. }) = &mut error;
    *offset = offset.saturating_add(usize::try_from(start).unwrap_or(usize::MAX));
    error
}

/// Sum of a file that is read whole; `None` if there is no such file.
fn sum_of_small(env: &Env, path: &Path, file: SidecarFile) -> Result<Option<FileSum>, BlockError> {
    match env.disk.read(path) {
        Ok(bytes) => Ok(Some(FileSum { file, len: bytes.len() as u64, crc: Some(crc32c(&bytes)) })),
        // Blocks of other writers may have no tombstones.
        Err(error) if error.kind() == io::ErrorKind::NotFound && file == SidecarFile::Tombstones => Ok(None),
        Err(error) => Err(BlockError::io(path)(error)),
    }
}
