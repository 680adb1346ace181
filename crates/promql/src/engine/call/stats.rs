//! Functions of native histograms that return one number each: `histogram_count` and similar.
//! Invariants: floats are dropped.

use chronolith_exec::column::{ABSENT, is_absent};
use chronolith_exec::execution::Execution;
use chronolith_exec::histogram::measure;
use chronolith_exec::operator::{BoxOperator, filter_map};
use chronolith_model::FloatHistogram;
use chronolith_model::histogram::Bucket;

/// Statistic of a native histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistogramStat {
    Count,
    Sum,
    Avg,
    Stddev,
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

    /// Returns true if buckets are not needed.
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

/// The statistic of the histograms of each series; floats are dropped.
pub(crate) fn histogram_stats<'q>(
    execution: &'q Execution<'q>,
    inner: BoxOperator<'q>,
    stat: HistogramStat,
) -> BoxOperator<'q> {
    let mut buckets = Vec::new();
    filter_map(inner, move |series| {
        if !series.has_histograms() {
            return false;
        }
        let mut any = false;
        for step in 0..series.values.len() {
            let value = series.histogram(step).map_or(ABSENT, |h| stat.of(h, &mut buckets));
            any |= !is_absent(value);
            series.values[step] = value;
        }
        series.histograms.clear();
        if any {
            execution.drop_name(series);
        }
        any
    })
}
