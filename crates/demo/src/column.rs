//! Samples of one series that wait for the next request, and where they come from.
//!
//! Invariant: times ascend within a column.

use std::sync::Arc;

use chronolith_ingest::remote_write::v2::encode::SampleOut;
use chronolith_model::{Exemplar, Histogram, Labels, METRIC_NAME};

use crate::draws::Draws;
use crate::metric::Metric;
use crate::tenant::Tenant;
use crate::timeline::Step;

/// A series and its samples since the last request.
#[derive(Debug)]
pub(crate) struct Column {
    pub(super) metric: &'static Metric,
    /// Sorted by name, as senders send them.
    pub(super) labels: Vec<(String, String)>,
    pub(super) samples: Vec<SampleOut>,
    /// Time, start time (0), histogram.
    pub(super) histograms: Vec<(i64, i64, Arc<Histogram>)>,
    pub(super) exemplars: Vec<Exemplar>,
    /// Returns true once samples of the series were put into a request.
    pub(super) is_known: bool,
}

impl Column {
    /// The series of `metric` with these labels.
    pub(crate) fn new(metric: &'static Metric, labels: &[(&str, &str)]) -> Column {
        Column::with_suffix(metric, "", labels)
    }

    /// The same with a suffix of the name, as classic histograms have them.
    pub(crate) fn with_suffix(metric: &'static Metric, suffix: &str, labels: &[(&str, &str)]) -> Column {
        let owned = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut labels: Vec<_> = labels.iter().map(|&(name, value)| owned(name, value)).collect();
        labels.push((METRIC_NAME.to_owned(), format!("{}{suffix}", metric.name)));
        labels.sort();
        Column {
            metric,
            labels,
            samples: Vec::new(),
            histograms: Vec::new(),
            exemplars: Vec::new(),
            is_known: false,
        }
    }

    pub(crate) fn push(&mut self, time_ms: i64, value: f64) {
        self.samples.push(SampleOut { time_ms, value, start_ms: 0 });
    }

    pub(crate) fn push_histogram(&mut self, time_ms: i64, histogram: Histogram) {
        self.histograms.push((time_ms, 0, Arc::new(histogram)));
    }

    /// Adds an exemplar with a trace id.
    pub(crate) fn push_exemplar(&mut self, time_ms: i64, value: f64, draws: &mut Draws) {
        let trace_id = format!("{:016x}{:016x}", draws.bits(), draws.bits());
        let labels = Labels::from_pairs([("trace_id", trace_id.as_str())]);
        self.exemplars.push(Exemplar { labels, value, time_ms });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.histograms.is_empty()
    }

    /// Forgets the samples that were put into a request.
    pub(crate) fn clear(&mut self) {
        self.samples.clear();
        self.histograms.clear();
        self.exemplars.clear();
    }
}

/// A part of the world with series of one tenant.
pub(crate) trait Source: Send {
    fn tenant(&self) -> Tenant;

    /// Appends the samples of `step`, which is after all earlier ones.
    fn advance(&mut self, step: &Step);

    /// The series, with samples since the last request.
    fn columns(&mut self) -> &mut [Column];

    /// Series with samples that come after the history only.
    fn backlog(&mut self) -> &mut [Column] {
        &mut []
    }
}
