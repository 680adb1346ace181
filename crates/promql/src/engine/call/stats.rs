//! Functions of native histograms that give one number each: `histogram_count` and its like.
//! Holds: floats are dropped.

use chronolith_exec::column::{ABSENT, StepSeries, is_absent};
use chronolith_exec::error::Error;
use chronolith_exec::execution::Execution;
use chronolith_exec::histogram::measure;
use chronolith_exec::operator::{BoxOperator, SeriesOperator};
use chronolith_model::FloatHistogram;
use chronolith_model::histogram::Bucket;

/// Which number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistogramStat {
    /// `histogram_count`
    Count,
    /// `histogram_sum`
    Sum,
    /// `histogram_avg`
    Avg,
    /// `histogram_stddev`
    Stddev,
    /// `histogram_stdvar`
    Stdvar,
}

impl HistogramStat {
    /// The number that a function of the language yields.
    pub(crate) fn named(name: &str) -> Option<HistogramStat> {
        Some(match name {
            "histogram_count" => HistogramStat::Count,
            "histogram_sum" => HistogramStat::Sum,
            "histogram_avg" => HistogramStat::Avg,
            "histogram_stddev" => HistogramStat::Stddev,
            "histogram_stdvar" => HistogramStat::Stdvar,
            _ => return None,
        })
    }

    /// Whether buckets do not matter.
    pub(crate) fn is_stats_only(self) -> bool {
        matches!(self, HistogramStat::Count | HistogramStat::Sum | HistogramStat::Avg)
    }

    fn of(self, histogram: &FloatHistogram, buckets: &mut Vec<Bucket>) -> f64 {
        match self {
            HistogramStat::Count => histogram.count,
            HistogramStat::Sum => histogram.sum,
            HistogramStat::Avg => histogram.sum / histogram.count,
            HistogramStat::Stddev => measure::variance(histogram, buckets).sqrt(),
            HistogramStat::Stdvar => measure::variance(histogram, buckets),
        }
    }
}

/// Yields the numbers of the histograms of its argument.
pub(crate) struct Stats<'q> {
    pub(crate) execution: &'q Execution<'q>,
    pub(crate) inner: BoxOperator<'q>,
    pub(crate) stat: HistogramStat,
    pub(crate) buckets: Vec<Bucket>,
}

impl SeriesOperator for Stats<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        while self.inner.next(out)? {
            if !out.has_histograms() {
                continue;
            }
            let mut any = false;
            for step in 0..out.values.len() {
                let value = out.histogram(step).map_or(ABSENT, |h| self.stat.of(h, &mut self.buckets));
                any |= !is_absent(value);
                out.values[step] = value;
            }
            out.histograms.clear();
            if any {
                // As upstream: what else says what the histogram was stays, as long as names go at once.
                self.execution.drop_name(out);
                return Ok(true);
            }
        }
        Ok(false)
    }
}
