//! Native histograms of the source's head: kept up to a limit, then written to blocks of their own.
//!
//! Not here: the order in which they are written, and of which two the first counts (`waiting`).

use std::sync::Arc;

use chronolith_block::BlockError;
use chronolith_format::prometheus::histograms::HistogramRecord;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use chronolith_model::{Columns, Histogram, TimeRange};

use super::Gather;
use super::waiting::Waiting;
use crate::output::Output;
use crate::refs::NONE;

/// Bytes of histograms in memory.
const HISTOGRAM_BYTES_MAX: usize = 64 << 20;

/// One of them.
#[derive(Debug)]
pub(super) struct WaitingHistogram {
    series: u32,
    time: i64,
    /// 0 if nobody knows.
    start_ms: i64,
    histogram: Arc<Histogram>,
}

impl Waiting for WaitingHistogram {
    fn series(&self) -> u32 {
        self.series
    }

    fn time(&self) -> i64 {
        self.time
    }

    fn says_same(&self, other: &WaitingHistogram) -> bool {
        self.histogram.says_same(&other.histogram)
    }

    fn push(&self, out: &mut Columns) {
        out.push_histogram(self.time, self.histogram.clone());
        if self.start_ms != 0 {
            out.set_start_time(self.start_ms);
        }
    }

    fn put(output: &mut Output, series: u32, range: TimeRange, samples: &Columns) -> Result<(), BlockError> {
        output.put_histograms(series, range, samples)
    }
}

impl Gather {
    /// One histogram of a log.
    pub(super) fn histogram_record(&mut self, record: &HistogramRecord<'_>) {
        match self.table.of_ref(record.series_ref) {
            NONE => self.counts.unknown_series_samples += 1,
            series => match record.histogram() {
                Some(histogram) => {
                    self.histogram(series, record.time, Arc::new(histogram), record.start_ms);
                }
                None => self.counts.invalid_histograms += 1,
            },
        }
    }

    /// One histogram of a log or an m-mapped chunk.
    pub(super) fn histogram(&mut self, series: u32, time: i64, histogram: Arc<Histogram>, start_ms: i64) {
        if time < self.min_time {
            self.counts.in_block_samples += 1;
        } else if !(TIME_MIN_MS..=TIME_MAX_MS).contains(&time) {
            self.counts.out_of_bounds_samples += 1;
        } else {
            self.histogram_bytes += histogram.memory_bytes() + size_of::<WaitingHistogram>();
            self.histograms.push(WaitingHistogram { series, time, start_ms, histogram });
            if self.histogram_bytes >= HISTOGRAM_BYTES_MAX {
                let flushed = self.flush_histograms();
                self.fail(flushed);
            }
        }
    }

    /// Writes all histograms that wait.
    pub(super) fn flush_histograms(&mut self) -> Result<(), BlockError> {
        let waiting = std::mem::take(&mut self.histograms);
        self.histogram_bytes = 0;
        self.counts.histograms_written += self.write_waiting(waiting)?;
        Ok(())
    }
}
