//! Selected series, and reading their samples as columns.
//!
//! Invariants: as in `query`.

use super::error::QueryError;
use super::typed::{ColumnType, TypedColumns};
use crate::rollup::{RollupArchive, RollupRead};
use crate::{Columns, Labels, TimeRange};

/// Series per batch.
pub const SERIES_PER_BATCH_MAX: usize = 1024;

/// A chunk of a series as its source keeps it, its checksum verified.
#[derive(Debug, Clone, Copy)]
pub struct StoredChunk<'a> {
    /// Time of the first sample.
    pub min_time: i64,
    /// Time of the last sample.
    pub max_time: i64,
    /// Number of samples.
    pub sample_count: usize,
    /// Encoding byte of the chunk.
    pub encoding: u8,
    /// Samples.
    pub bytes: &'a [u8],
}

/// Consecutive samples of a series.
#[derive(Debug, Clone, Copy)]
pub enum SamplesPart<'a> {
    /// A chunk as it is kept.
    Stored(StoredChunk<'a>),
    /// Decoded samples, one at least.
    Decoded(&'a Columns),
}

/// Receiver of the samples of a series, in order of time.
pub type VisitSamples<'v> = dyn FnMut(SamplesPart<'_>) -> Result<(), QueryError> + 'v;

/// Samples of one series of one or several sources.
pub trait SampleSource: Send + Sync {
    /// Appends the samples in `range` to `out`: ascending, one per timestamp, later than what `out` holds.
    /// Decodes only chunks that overlap `range`.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`] if a chunk fails its checksum; samples before it have been appended.
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError>;

    /// Source of which this one is a view with the same type, unit and roll-ups; `None` for others. Methods
    /// without decoded samples ask it, unless the view implements them.
    fn inner(&self) -> Option<&dyn SampleSource> {
        None
    }

    /// Type of the samples. `read` casts them to floats.
    fn column_type(&self) -> ColumnType {
        self.inner().map_or(ColumnType::Float, SampleSource::column_type)
    }

    /// As [`SampleSource::read`], in the type of `out` and without staleness markers. A source of integers or
    /// texts implements it; others are read as floats, booleans among them as 0 and 1.
    ///
    /// # Errors
    /// As [`SampleSource::read`].
    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        let mut columns = Columns::default();
        self.read(range, &mut columns)?;
        out.extend_cast(&columns);
        Ok(())
    }

    /// Calls `visit` with the samples in `range` in order of time: with chunks as the source keeps them
    /// where all their samples are in the range and `accepts` their encoding, and with decoded samples
    /// elsewhere. `scratch` is for these. Most sources decode everything.
    ///
    /// # Errors
    /// As [`SampleSource::read`], and the error of `visit`.
    fn visit_chunks(
        &self,
        range: TimeRange,
        _accepts: &dyn Fn(u8) -> bool,
        scratch: &mut Columns,
        visit: &mut VisitSamples<'_>,
    ) -> Result<(), QueryError> {
        scratch.clear();
        self.read(range, scratch)?;
        if scratch.is_empty() { Ok(()) } else { visit(SamplesPart::Decoded(scratch)) }
    }

    /// Appends the archives of which the source keeps windows, with the methods that it keeps. Cost: a search
    /// per archive of each block.
    fn rollup_archives(&self, out: &mut Vec<RollupArchive>) {
        if let Some(inner) = self.inner() {
            inner.rollup_archives(out);
        }
    }

    /// Returns the windows of `archive` in `range`, which consists of whole windows. Windows that the source
    /// does not keep, or in which it has a sample outside of the archive, are left out. `out` is empty. Cost:
    /// the windows, and the headers of chunks.
    ///
    /// # Errors
    /// As [`SampleSource::read`]. A damaged roll-up is no error: samples are read instead.
    fn read_rollup(
        &self,
        archive: &RollupArchive,
        range: TimeRange,
        out: &mut RollupRead,
    ) -> Result<(), QueryError> {
        if let Some(inner) = self.inner() {
            return inner.read_rollup(archive, range, out);
        }
        let all = self.time_bounds().map(|(first, last)| TimeRange::inclusive(first, last));
        out.add_raw(archive, all.unwrap_or(range), range);
        Ok(())
    }

    /// Upper bound of the samples that `read` returns for the selected range, from chunk headers.
    fn sample_count_hint(&self) -> usize;

    /// Loads memory that `read` needs into the cache of the core. Called for several sources before they are
    /// read, so that their cache misses overlap.
    fn prefetch(&self) {
        if let Some(inner) = self.inner() {
            inner.prefetch();
        }
    }

    /// Estimate of the chunks that `read` decodes for the selected range, for reports; 0 if unknown.
    fn chunk_count_hint(&self) -> usize {
        self.inner().map_or(0, SampleSource::chunk_count_hint)
    }

    /// Bounds (inclusive) of the times of all samples; `None` if they are unknown without reading. Sources
    /// with disjoint bounds are read one after the other instead of merged.
    fn time_bounds(&self) -> Option<(i64, i64)> {
        self.inner()?.time_bounds()
    }
}

/// One selected series.
pub struct SeriesRead {
    /// Labels of the series.
    pub labels: Labels,
    /// Samples of the series.
    pub samples: Box<dyn SampleSource>,
}

/// Selected series, batch by batch, sorted by labels over all batches.
pub trait SeriesBatches: Send {
    /// Appends at most [`SERIES_PER_BATCH_MAX`] series to `out`; false when there are no more.
    ///
    /// # Errors
    /// As the source; no batches follow then.
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError>;
}

/// Batches of a vector of series, for sources that have all series in memory.
pub struct VecBatches {
    series: std::vec::IntoIter<SeriesRead>,
}

impl VecBatches {
    /// `series` must be sorted by labels.
    #[must_use]
    pub fn new(series: Vec<SeriesRead>) -> VecBatches {
        debug_assert!(series.is_sorted_by(|a, b| a.labels < b.labels), "series ascend, each once");
        VecBatches { series: series.into_iter() }
    }

    /// Batches of series with the labels of a projection, in the order of all their labels.
    #[must_use]
    pub fn projected(series: Vec<SeriesRead>) -> VecBatches {
        VecBatches { series: series.into_iter() }
    }
}

impl SeriesBatches for VecBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        out.extend(self.series.by_ref().take(SERIES_PER_BATCH_MAX));
        Ok(self.series.len() > 0)
    }
}
