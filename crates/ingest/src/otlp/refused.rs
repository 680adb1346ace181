//! Points of a request that are not stored, and what else the sender or operator has to know of it.
//!
//! Invariants: each point of a request is stored, dropped by a rule or counted by its reason here; a message
//! that cannot be read counts as one point. Texts are bounded.
//! Not here: samples that the head refuses, answers to clients (`server`).

use chronolith_model::{ExemplarReject, ExemplarRejects};

use super::limits::{QUOTED_BYTES_MAX, QUOTED_COUNT_MAX};
use crate::remote_write::WireError;

/// Reason why a point is not stored. One byte, no heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PointReject {
    /// A message that is not OTLP.
    Malformed,
    /// A sum or histogram that is neither cumulative nor delta.
    NoTemporality,
    /// A metric without a name, or without a character of it that can be kept.
    InvalidMetricName,
    /// An attribute whose name has no translation.
    InvalidLabelName,
    /// A name or value that is not UTF-8.
    InvalidUtf8,
    /// More attributes than allowed.
    TooManyAttributes,
    /// Arrays and maps in an attribute that are nested deeper than allowed.
    AttributeTooDeep,
    /// Labels of a series that are longer than allowed.
    LabelsTooLong,
    /// A number point without a number.
    NoValue,
    /// A point without a time.
    NoTime,
    /// An exponential histogram that is coarser than storage has it.
    ScaleTooLow,
    /// A histogram that is not valid.
    HistogramInvalid,
}

impl PointReject {
    /// Number of kinds.
    pub const COUNT: usize = 12;

    /// All kinds, in order of their numbers.
    pub const ALL: [PointReject; PointReject::COUNT] = [
        PointReject::Malformed,
        PointReject::NoTemporality,
        PointReject::InvalidMetricName,
        PointReject::InvalidLabelName,
        PointReject::InvalidUtf8,
        PointReject::TooManyAttributes,
        PointReject::AttributeTooDeep,
        PointReject::LabelsTooLong,
        PointReject::NoValue,
        PointReject::NoTime,
        PointReject::ScaleTooLow,
        PointReject::HistogramInvalid,
    ];

    /// Returns the value of the `reason` label of metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            PointReject::Malformed => "malformed",
            PointReject::NoTemporality => "no_temporality",
            PointReject::InvalidMetricName => "invalid_metric_name",
            PointReject::InvalidLabelName => "invalid_label_name",
            PointReject::InvalidUtf8 => "invalid_utf8",
            PointReject::TooManyAttributes => "too_many_attributes",
            PointReject::AttributeTooDeep => "attribute_too_deep",
            PointReject::LabelsTooLong => "labels_too_long",
            PointReject::NoValue => "no_value",
            PointReject::NoTime => "no_time",
            PointReject::ScaleTooLow => "scale_too_low",
            PointReject::HistogramInvalid => "histogram_invalid",
        }
    }

    /// Returns the message for clients.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            PointReject::Malformed => "message is not valid OTLP",
            PointReject::NoTemporality => "aggregation temporality is neither cumulative nor delta",
            PointReject::InvalidMetricName => "metric name has no character that can be kept",
            PointReject::InvalidLabelName => "attribute name has no character that can be kept",
            PointReject::InvalidUtf8 => "name or value is not valid UTF-8",
            PointReject::TooManyAttributes => "more than 1024 attributes",
            PointReject::AttributeTooDeep => "attribute is nested deeper than 16 levels",
            PointReject::LabelsTooLong => "labels are longer than 1 MiB",
            PointReject::NoValue => "point has neither a value nor the flag for no recorded value",
            PointReject::NoTime => "point has no time",
            PointReject::ScaleTooLow => "scale of the exponential histogram is below -4",
            PointReject::HistogramInvalid => "histogram is not valid",
        }
    }

    /// Returns the kind by its number.
    pub(super) fn from_number(number: u32) -> Option<PointReject> {
        PointReject::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

impl From<WireError> for PointReject {
    fn from(_: WireError) -> PointReject {
        PointReject::Malformed
    }
}

/// Outcome of a request, except for its points that are in the batches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// Rejected points, by [`PointReject`].
    points: [u64; PointReject::COUNT],
    /// The first reasons, each with the name of its metric.
    pub first: Vec<String>,
    /// Points that rules dropped: series for which the key memory has [`Verdict::Dropped`].
    ///
    /// [`Verdict::Dropped`]: super::Verdict::Dropped
    pub dropped_count: u64,
    /// Points in the batch of deltas, which callers without an accumulator reject. A histogram is one point,
    /// whatever the number of its series.
    pub delta_point_count: u64,
    /// Exemplars that are not stored.
    pub exemplars: ExemplarRejects,
    /// Metadata that are not UTF-8, or beyond the limit of a request.
    pub metadata_count: u64,
    /// Resources from which neither job nor instance can be made.
    pub resource_without_target_count: u64,
    /// Stored points of these resources.
    pub point_without_target_count: u64,
    /// Stored integers that are rounded: a float has 53 bits.
    pub rounded_count: u64,
    /// Samples of `target_info` that are left out, because the points of a resource are far apart.
    pub target_info_count: u64,
}

impl Refused {
    /// Returns the number of points rejected for a reason.
    #[must_use]
    pub fn of(&self, reason: PointReject) -> u64 {
        self.points[reason as usize]
    }

    /// Returns the number of rejected points: `rejected_data_points` of the answer.
    #[must_use]
    pub fn point_count(&self) -> u64 {
        self.points.iter().sum()
    }

    /// Counts points of one metric; `detail` adds to the message of the reason.
    #[cold]
    pub(super) fn note(&mut self, reason: PointReject, count: u64, metric: &[u8], detail: Option<String>) {
        if count == 0 {
            return;
        }
        self.points[reason as usize] += count;
        if self.first.len() < QUOTED_COUNT_MAX {
            let start = metric.get(..QUOTED_BYTES_MAX).unwrap_or(metric);
            let name = String::from_utf8_lossy(start);
            let detail = detail.map_or(String::new(), |detail| format!(" ({detail})"));
            let text = format!("metric {name:?}: {}{detail}", reason.message());
            if !self.first.contains(&text) {
                self.first.push(text);
            }
        }
    }

    /// Counts an exemplar.
    #[cold]
    pub(super) fn note_exemplar(&mut self, reason: ExemplarReject) {
        self.exemplars.add(reason, 1);
    }
}
