//! Options of decoding a body, and limits.
//!
//! Not here: choice of a format by Content-Type (`content_type`).

use crate::key_tail::AddedLabels;

use super::refused::Mode;

/// Options of one body.
#[derive(Debug, Clone)]
pub struct DecodeOptions {
    /// Consequence of an error.
    pub mode: Mode,
    /// Time of samples without a timestamp, in milliseconds since 1970.
    pub now_ms: i64,
    /// Use of timestamps in the body.
    pub timestamps: Timestamps,
    /// Use of `_created` lines of OpenMetrics.
    pub created: CreatedLines,
    /// Use of histograms that are sent in both representations.
    pub histograms: HistogramKinds,
    /// Labels that the receiver adds to each series: job, instance, grouping key, `extra_label`.
    pub added: AddedLabels,
    /// Rules of OpenMetrics.
    pub rules: BodyRules,
    /// Limits.
    pub limits: Limits,
}

impl DecodeOptions {
    /// Options of a push at `now_ms`: lenient, with start times, without added labels.
    #[must_use]
    pub fn new(now_ms: i64) -> DecodeOptions {
        DecodeOptions {
            mode: Mode::default(),
            now_ms,
            timestamps: Timestamps::default(),
            created: CreatedLines::default(),
            histograms: HistogramKinds::default(),
            added: AddedLabels::default(),
            rules: BodyRules::default(),
            limits: Limits::default(),
        }
    }
}

/// Use of timestamps in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timestamps {
    /// Samples have the timestamps of the body.
    #[default]
    Honored,
    /// All samples have [`DecodeOptions::now_ms`] (`honor_timestamps: false`).
    Replaced,
}

/// Use of `_created` lines of counters, histograms and summaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CreatedLines {
    /// Start times of the samples before them, with the same labels; they are no series.
    #[default]
    StartTimes,
    /// Series as others.
    Series,
}

/// Use of histograms of protobuf that may be sent in both representations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HistogramKinds {
    /// Native where it is sent, otherwise classic.
    #[default]
    Native,
    /// Both that are sent (`always_scrape_classic_histograms`).
    NativeAndClassic,
    /// Classic alone (`scrape_native_histograms: false`).
    Classic,
}

/// Rules that a body of OpenMetrics has to obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyRules {
    /// Rules of Prometheus's parser: the grammar of lines.
    #[default]
    Prometheus,
    /// Rules of the specification on families, types and groups as well: for checks of exporters. Memory
    /// grows with the names of the body.
    Specification,
}

/// Limits of one body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a line.
    pub line_bytes_max: usize,
    /// Lines of a body; of protobuf, messages.
    pub line_count_max: u64,
    /// Labels of a series, the name not counted.
    pub label_count_max: usize,
    /// Bytes of a protobuf message, which has one metric family.
    pub message_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            line_bytes_max: 1 << 20,
            line_count_max: 100_000_000,
            label_count_max: 1_000,
            message_bytes_max: 64 << 20,
        }
    }
}

/// Bytes of the names and values of one exemplar's labels at most.
pub(super) const EXEMPLAR_LABEL_BYTES_MAX: usize = 1 << 12;
