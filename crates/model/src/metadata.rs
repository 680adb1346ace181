//! Metric metadata: type, help, unit.

/// Type of a metric as senders declare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum MetricKind {
    /// Not declared.
    #[default]
    Unknown,
    /// Monotonic except for resets.
    Counter,
    /// Any change.
    Gauge,
    /// Cumulative buckets.
    Histogram,
    /// Buckets that may decrease.
    GaugeHistogram,
    /// Quantiles computed by the client.
    Summary,
    /// Constant labels.
    Info,
    /// One of several states.
    StateSet,
}

impl MetricKind {
    /// Returns the name in the query API (`/api/v1/metadata`).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Unknown => "unknown",
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::GaugeHistogram => "gaugehistogram",
            MetricKind::Summary => "summary",
            MetricKind::Info => "info",
            MetricKind::StateSet => "stateset",
        }
    }

    /// From the number of remote write's `MetricMetadata.MetricType`; unknown numbers are `Unknown`.
    #[must_use]
    pub fn from_remote_write(number: u64) -> MetricKind {
        match number {
            1 => MetricKind::Counter,
            2 => MetricKind::Gauge,
            3 => MetricKind::Histogram,
            4 => MetricKind::GaugeHistogram,
            5 => MetricKind::Summary,
            6 => MetricKind::Info,
            7 => MetricKind::StateSet,
            _ => MetricKind::Unknown,
        }
    }
}

/// Metadata of one metric family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataEntry {
    /// Metric family name.
    pub metric: String,
    /// Type.
    pub kind: MetricKind,
    /// Help text.
    pub help: String,
    /// Unit.
    pub unit: String,
}
