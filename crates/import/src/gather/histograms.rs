//! Native histograms of the source's head: kept up to a limit, then written to blocks of their own.
//!
//! Holds: of equal times of a series the histogram that came first is written; what blocks of floats cover the same
//! time have been begun before, so reading prefers them. Compaction joins the blocks.

use std::sync::Arc;

use chronolith_block::BlockError;
use chronolith_format::upstream::histograms::HistogramRecord;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use chronolith_model::{Columns, Histogram, TimeRange};

use super::Gather;
use crate::refs::NONE;

/// Bytes of histograms in memory.
const HISTOGRAM_BYTES_MAX: usize = 64 << 20;

/// One of them.
#[derive(Debug)]
pub(super) struct WaitingHistogram {
    series: u32,
    time: i64,
    histogram: Arc<Histogram>,
}

impl Gather {
    /// One histogram of a log.
    pub(super) fn histogram_record(&mut self, record: &HistogramRecord<'_>) {
        match self.table.of_ref(record.series_ref) {
            NONE => self.counts.unknown_series_samples += 1,
            series => match record.histogram() {
                Some(histogram) => self.histogram(series, record.time, Arc::new(histogram)),
                None => self.counts.invalid_histograms += 1,
            },
        }
    }

    /// One histogram of a log or an m-mapped chunk.
    pub(super) fn histogram(&mut self, series: u32, time: i64, histogram: Arc<Histogram>) {
        if time < self.min_time {
            self.counts.in_block_samples += 1;
        } else if !(TIME_MIN_MS..=TIME_MAX_MS).contains(&time) {
            self.counts.out_of_bounds_samples += 1;
        } else {
            self.histogram_bytes += histogram.memory_bytes() + size_of::<WaitingHistogram>();
            self.histograms.push(WaitingHistogram { series, time, histogram });
            if self.histogram_bytes >= HISTOGRAM_BYTES_MAX {
                let flushed = self.flush_histograms();
                self.fail(flushed);
            }
        }
    }

    /// Writes all histograms that wait.
    pub(super) fn flush_histograms(&mut self) -> Result<(), BlockError> {
        let mut waiting = std::mem::take(&mut self.histograms);
        self.histogram_bytes = 0;
        let all = waiting.len();
        waiting.retain(|one| !self.dropped.contains(&one.series));
        self.counts.dropped_series_samples += (all - waiting.len()) as u64;
        if waiting.is_empty() {
            return Ok(());
        }
        let positions = self.positions_of(waiting.iter().map(|one| one.series));
        let position = |one: &WaitingHistogram| positions[one.series as usize];
        // Stable: of equal times the one that came first stays in front.
        waiting.sort_by_cached_key(|one| (self.output.range_of(one.time).start, position(one), one.time));
        let counts = &mut self.counts;
        waiting.dedup_by(|next, kept| {
            let same = (next.series, next.time) == (kept.series, kept.time);
            if same {
                let repeated = next.histogram.says_same(&kept.histogram);
                counts.repeated_samples += u64::from(repeated);
                counts.conflicting_samples += u64::from(!repeated);
            }
            same
        });
        let mut rest = waiting.as_slice();
        while let Some(first) = rest.first() {
            let range = self.output.range_of(first.time);
            let count = rest.partition_point(|one| self.output.range_of(one.time).start <= range.start);
            let (of_range, behind) = rest.split_at(count);
            self.write_histograms(range, of_range, &positions)?;
            rest = behind;
        }
        Ok(())
    }

    fn write_histograms(
        &mut self,
        range: TimeRange,
        samples: &[WaitingHistogram],
        positions: &[u32],
    ) -> Result<(), BlockError> {
        if self.output.has_room(range) {
            self.output.begin(range)?;
        }
        let mut output = self.output.begin_beside();
        let mut columns = Columns::default();
        for of_series in samples.chunk_by(|a, b| a.series == b.series) {
            columns.clear();
            for one in of_series {
                columns.push_histogram(one.time, one.histogram.clone());
            }
            output.put_histograms(of_series[0].series, range, &columns)?;
        }
        self.output.end_beside(&output);
        let finished = self.finish_beside(output, positions)?;
        self.counts.histograms_written += finished;
        Ok(())
    }
}
