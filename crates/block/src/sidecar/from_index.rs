//! Sidecar made of the index of a block alone, in one pass over it: for a block in a bucket, whose chunks are
//! not read as a whole.
//!
//! A state machine without I/O, as `crate::selection` is.
//! Invariants: same as in `write`, except that no chunk is read. The length of a chunk is the distance to the
//! next one in order of the index, which is also the order of the segment for all known writers; otherwise it
//! is an estimate. Readers take the length from the chunk itself.
//! Memory: the writer of the format, 4 bytes per series, a wave of entries or the postings offset table.

use std::ops::Range;
use std::sync::Arc;

use chronolith_format::block::chunks::ChunkRef;
use chronolith_format::block::index::{ChunkMeta, SeriesEntry};
use chronolith_format::bucket::sidecar::{
    FileSum, SidecarFile, SidecarSummary, SidecarWriter, SizedChunk, SparseOffsets,
};
use chronolith_model::Labels;

use super::write::{EntryChecks, has_unordered_table, offsets_of_table, table_range};
use crate::contents::BlockContents;
use crate::postings::postings_at;
use crate::source::{BlockFile, RangeBytes, Wave};
use crate::waves::{ExactWave, PostingsWave};
use crate::{Block, BlockError};

/// Bytes of the entries of one wave, about.
const WAVE_BYTES: u64 = 4 << 20;
/// Longest distance to the next chunk that is taken for the length of a chunk.
const CHUNK_BYTES_MAX: u64 = 1 << 20;

/// Wave that is read next.
enum Phase {
    /// List of all series.
    AllSeries(Range<u64>),
    Entries,
    Table,
    Done,
}

/// A series whose last chunk ends where the first one of the next series begins.
struct PendingSeries {
    series_ref: u32,
    labels: Labels,
    chunks: Vec<SizedChunk>,
}

/// Makes the sidecar of a block of its index. [`IndexSidecar::next_wave`] and [`IndexSidecar::push`]
/// alternate.
pub struct IndexSidecar<S: FnMut(&[u8])> {
    contents: Arc<BlockContents>,
    writer: SidecarWriter<S>,
    phase: Phase,
    /// Refs of all series, ascending.
    refs: Vec<u32>,
    /// Number of those whose entries were read.
    read_count: usize,
    checks: EntryChecks,
    pending: Option<PendingSeries>,
    offsets: Option<SparseOffsets>,
}

impl<S: FnMut(&[u8])> IndexSidecar<S> {
    /// Begins the sidecar of `block`; bytes are passed to `sink` as they are complete.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] if the postings offset table is damaged.
    pub fn new(block: &Block, sink: S) -> Result<IndexSidecar<S>, BlockError> {
        let contents = block.contents();
        let all = contents.header().postings_range("", "").map_err(corrupt(contents))?;
        let meta = contents.meta();
        Ok(IndexSidecar {
            contents: contents.clone(),
            writer: SidecarWriter::new(meta.ulid, meta.time_unit(), sink),
            phase: all.map_or(Phase::Table, Phase::AllSeries),
            refs: Vec::new(),
            read_count: 0,
            checks: EntryChecks::default(),
            pending: None,
            offsets: None,
        })
    }

    /// The wave that is read next; `None` after the last one.
    #[must_use]
    pub fn next_wave(&self) -> Option<Box<dyn Wave + '_>> {
        match &self.phase {
            Phase::AllSeries(list) => Some(Box::new(PostingsWave(std::slice::from_ref(list)))),
            Phase::Entries => Some(Box::new(self.contents.series_wave(self.wave_refs()))),
            Phase::Table => Some(Box::new(ExactWave(vec![table_range(&self.contents)]))),
            Phase::Done => None,
        }
    }

    /// Takes the bytes of the wave that [`IndexSidecar::next_wave`] named.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] with the offset of the damage, [`BlockError::Sidecar`] for a series that no
    /// page can hold. Bytes that were passed to the sink are of no use then.
    pub fn push(&mut self, bytes: &RangeBytes) -> Result<(), BlockError> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::AllSeries(list) => {
                let all = postings_at(bytes, &list).map_err(corrupt(&self.contents))?;
                self.refs = all.iter().collect();
                self.phase = self.phase_of_entries();
            }
            Phase::Entries => {
                self.push_entries(bytes)?;
                self.phase = self.phase_of_entries();
            }
            Phase::Table => {
                if !has_unordered_table(&self.contents) {
                    self.offsets = Some(offsets_of_table(&self.contents, bytes)?);
                }
            }
            Phase::Done => {}
        }
        Ok(())
    }

    /// Writes the rest after the last wave.
    ///
    /// # Errors
    /// As [`IndexSidecar::push`].
    pub fn finish(mut self) -> Result<SidecarSummary, BlockError> {
        self.add_pending(None)?;
        let files = self.contents.files();
        let index_bytes = files.len(BlockFile::Index).unwrap_or(0);
        let mut sums = vec![FileSum { file: SidecarFile::Index, len: index_bytes, crc: None }];
        let segments = (0u32..).zip(files.segment_lens());
        sums.extend(segments.map(|(idx, len)| FileSum {
            file: SidecarFile::Segment(idx),
            len: *len,
            crc: None,
        }));
        Ok(self.writer.finish(&sums, self.offsets.as_ref()))
    }

    fn phase_of_entries(&self) -> Phase {
        if self.read_count < self.refs.len() { Phase::Entries } else { Phase::Table }
    }

    /// Refs of the next wave of entries: those that begin within [`WAVE_BYTES`], at least one.
    fn wave_refs(&self) -> &[u32] {
        let rest = self.refs.get(self.read_count..).unwrap_or_default();
        let offset_of = |series_ref: &u32| self.contents.header().series_offset(*series_ref);
        let end = rest.first().map_or(0, offset_of).saturating_add(WAVE_BYTES);
        let count = rest.partition_point(|series_ref| offset_of(series_ref) < end).max(1);
        rest.get(..count).unwrap_or_default()
    }

    fn push_entries(&mut self, bytes: &RangeBytes) -> Result<(), BlockError> {
        let refs = self.wave_refs().to_vec();
        self.read_count += refs.len();
        let shared = self.contents.clone();
        let contents = &*shared;
        let header = contents.header();
        let mut entry = SeriesEntry::new();
        for series_ref in refs {
            let found = bytes.at(BlockFile::Index, header.series_offset(series_ref));
            header.decode_series(series_ref, found, &mut entry).map_err(corrupt(contents))?;
            let labels = self.checks.labels(contents, series_ref, &mut entry)?;
            self.add_pending(entry.chunks.first().map(|chunk| chunk.chunk_ref))?;
            let chunks = sized_chunks(contents, &entry.chunks);
            self.pending = Some(PendingSeries { series_ref, labels, chunks });
        }
        Ok(())
    }

    /// Writes the series before the one whose chunks begin at `next`.
    fn add_pending(&mut self, next: Option<ChunkRef>) -> Result<(), BlockError> {
        let Some(mut series) = self.pending.take() else { return Ok(()) };
        if let Some(last) = series.chunks.last_mut() {
            last.len = expected_len(&self.contents, last.meta.chunk_ref, next);
        }
        let PendingSeries { series_ref, labels, chunks } = &series;
        let added = self.writer.add_series(*series_ref, labels.iter(), chunks);
        let path = || self.contents.files().path(BlockFile::Index);
        added.map_err(|error| BlockError::Sidecar { path: path(), error })
    }
}

/// The chunks of a series with their lengths; the last one gets its own when the next series is known.
fn sized_chunks(contents: &BlockContents, chunks: &[ChunkMeta]) -> Vec<SizedChunk> {
    let next_refs = chunks.iter().skip(1).map(|next| Some(next.chunk_ref)).chain([None]);
    let sized = chunks.iter().zip(next_refs);
    sized
        .map(|(&meta, next)| SizedChunk { meta, len: expected_len(contents, meta.chunk_ref, next) })
        .collect()
}

/// Length of the chunk that `next` follows in order of the index.
fn expected_len(contents: &BlockContents, chunk_ref: ChunkRef, next: Option<ChunkRef>) -> u32 {
    let start = u64::from(chunk_ref.offset());
    let end = match next {
        Some(next) if next.segment_idx() == chunk_ref.segment_idx() => u64::from(next.offset()),
        _ => contents.files().len(BlockFile::Segment(chunk_ref.segment_idx())).unwrap_or(0),
    };
    let distance = end.checked_sub(start).filter(|distance| (1..=CHUNK_BYTES_MAX).contains(distance));
    let len = distance.unwrap_or_else(|| contents.chunk_bytes_estimate());
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The error of a damaged index.
fn corrupt(contents: &BlockContents) -> impl FnOnce(chronolith_base::DecodeError) -> BlockError + '_ {
    |error| BlockError::Corrupt { path: contents.files().path(BlockFile::Index), error }
}
