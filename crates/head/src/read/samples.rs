//! Samples of the series of a selection.
//!
//! Invariant: a read returns the samples at the time of the selection.
//! Not here: chunks and their order (`source`), copying under the lock of a stripe (`copy`).

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use chronolith_base::{Disk, Reservation};
use chronolith_model::query::{SamplesPart, TypedColumns, TypedValues, VisitSamples};
use chronolith_model::rollup::{RollupArchive, RollupRead};
use chronolith_model::{Columns, QueryError, SampleSource, TimeRange};

use crate::read::copy::CopiedChunks;
use crate::read::source::{ChunkMemory, HeadChunk, merge_chunks, overlapping_len};
use crate::texts::HeadTexts;

/// Distance of the bytes that a prefetch reads.
const CACHE_LINE_BYTES: usize = 64;

/// Chunks of series that were selected together.
pub(crate) struct SelectedChunks {
    copied: CopiedChunks,
    /// Texts of the tenant; `None` if it has none.
    texts: Option<HeadTexts>,
    disk: Arc<dyn Disk>,
    _memory: Reservation,
}

impl SelectedChunks {
    /// Keeps `memory`, the reservation for all chunks and the labels of their series, as long as one of them
    /// may be read.
    pub(crate) fn new(
        copied: CopiedChunks,
        texts: Option<HeadTexts>,
        disk: Arc<dyn Disk>,
        memory: Reservation,
    ) -> Arc<SelectedChunks> {
        Arc::new(SelectedChunks { copied, texts, disk, _memory: memory })
    }

    /// Returns the chunks of one series.
    pub(super) fn chunks(&self, range: &Range<u32>) -> &[HeadChunk] {
        &self.copied.chunks()[range.start as usize..range.end as usize]
    }
}

/// Samples of a selected series of the head.
pub(crate) struct HeadSamples {
    selected: Arc<SelectedChunks>,
    /// Chunks of the series in `selected`.
    range: Range<u32>,
}

impl HeadSamples {
    /// Samples of the chunks `range` of `selected`.
    pub(crate) fn new(selected: Arc<SelectedChunks>, range: Range<u32>) -> HeadSamples {
        HeadSamples { selected, range }
    }

    fn chunks(&self) -> &[HeadChunk] {
        self.selected.chunks(&self.range)
    }
}

/// Appends the samples in `range` of chunks that overlap each other, or of one that overlaps no other.
fn decode_group(
    memory: ChunkMemory<'_>,
    group: &[HeadChunk],
    range: TimeRange,
    out: &mut Columns,
) -> Result<(), QueryError> {
    match group {
        [one] if range.overlaps_inclusive(one.min_time(), one.max_time()) => one.decode(memory, range, out),
        [_] => Ok(()),
        several => merge_chunks(memory, several, range, out),
    }
}

#[cold]
fn no_text(time: i64) -> QueryError {
    let what = format!("the text of the sample at {time} is missing");
    QueryError::Corrupt { path: "head memory".to_owned(), what }
}

impl SampleSource for HeadSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let memory = self.selected.copied.memory(&*self.selected.disk);
        let mut rest = self.chunks();
        while !rest.is_empty() {
            let (group, others) = rest.split_at(overlapping_len(rest));
            rest = others;
            decode_group(memory, group, range, out)?;
        }
        Ok(())
    }

    /// Visits chunks that overlap no other without decoding them.
    fn visit_chunks(
        &self,
        range: TimeRange,
        accepts: &dyn Fn(u8) -> bool,
        scratch: &mut Columns,
        visit: &mut VisitSamples<'_>,
    ) -> Result<(), QueryError> {
        let memory = self.selected.copied.memory(&*self.selected.disk);
        let mut rest = self.chunks();
        while !rest.is_empty() {
            let group = &rest[..overlapping_len(rest)];
            rest = &rest[group.len()..];
            if let [one] = group
                && one.visit_stored(memory, range, accepts, visit)?
            {
                continue;
            }
            scratch.clear();
            decode_group(memory, group, range, scratch)?;
            if !scratch.is_empty() {
                visit(SamplesPart::Decoded(scratch))?;
            }
        }
        Ok(())
    }

    /// Texts as texts; all other values as [`SampleSource::read`] returns them.
    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        let mut columns = Columns::default();
        self.read(range, &mut columns)?;
        let TypedValues::Texts(texts) = &mut out.values else {
            out.extend_cast(&columns);
            return Ok(());
        };
        for (&time, value) in columns.times.iter().zip(&columns.values) {
            let found = self.selected.texts.as_ref().and_then(|texts| texts.get(time, value.to_bits()));
            texts.push(found.ok_or_else(|| no_text(time))?);
            out.times.push(time);
        }
        Ok(())
    }

    // PERF: chunks are copied in the order of series ids and read in the order of labels, so that each is a
    // cache miss: a quarter of the time of an instant query over rates. cargo xtask bench queries --head
    // --only chronolith
    fn prefetch(&self) {
        let bytes = self.selected.copied.memory(&*self.selected.disk).open_bytes;
        for chunk in self.chunks() {
            if let HeadChunk::Open(open) = chunk {
                let chunk_bytes = &bytes[open.start as usize..][..open.len as usize];
                chunk_bytes.iter().step_by(CACHE_LINE_BYTES).for_each(|byte| {
                    black_box(*byte);
                });
            }
        }
    }

    fn sample_count_hint(&self) -> usize {
        self.chunks().iter().map(HeadChunk::count).sum()
    }

    fn read_rollup(
        &self,
        archive: &RollupArchive,
        range: TimeRange,
        out: &mut RollupRead,
    ) -> Result<(), QueryError> {
        for chunk in self.chunks() {
            out.add_raw(archive, TimeRange::inclusive(chunk.min_time(), chunk.max_time()), range);
        }
        Ok(())
    }

    fn chunk_count_hint(&self) -> usize {
        self.chunks().len()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        let chunks = self.chunks();
        Some((chunks.first()?.min_time(), chunks.iter().map(HeadChunk::max_time).max()?))
    }
}
