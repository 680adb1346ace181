//! Exemplars, and the reasons for which they are not stored.

use crate::Labels;

/// Exemplar: an observed value with a trace id.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Labels of the exemplar itself (trace id and the like).
    pub labels: Labels,
    /// Observed value.
    pub value: f64,
    /// Milliseconds since 1970.
    pub time_ms: i64,
}

/// A series and its exemplars.
pub type SeriesExemplars = (Labels, Vec<Exemplar>);

/// Reason why one exemplar is not stored while the samples of its request are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExemplarReject {
    /// Older than the out-of-order window, or a smaller one at the time of the newest.
    OutOfOrder,
    /// Further in the future than samples may be.
    OutOfBounds,
    /// A label name occurs twice.
    DuplicateLabel,
    /// A label name is empty.
    EmptyLabelName,
    /// Names and values together are longer than OpenMetrics allows.
    LabelsTooLong,
    /// A name or value is not UTF-8.
    InvalidUtf8,
    /// The labels refer to missing symbols of the request, or the series is refused.
    BadReference,
    /// No exemplars are stored at all.
    Disabled,
}

impl ExemplarReject {
    /// All reasons, in order of their numbers.
    pub const ALL: [ExemplarReject; 8] = [
        ExemplarReject::OutOfOrder,
        ExemplarReject::OutOfBounds,
        ExemplarReject::DuplicateLabel,
        ExemplarReject::EmptyLabelName,
        ExemplarReject::LabelsTooLong,
        ExemplarReject::InvalidUtf8,
        ExemplarReject::BadReference,
        ExemplarReject::Disabled,
    ];

    /// Returns the value of the `reason` label of metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            ExemplarReject::OutOfOrder => "out_of_order",
            ExemplarReject::OutOfBounds => "out_of_bounds",
            ExemplarReject::DuplicateLabel => "duplicate_label",
            ExemplarReject::EmptyLabelName => "empty_label_name",
            ExemplarReject::LabelsTooLong => "labels_too_long",
            ExemplarReject::InvalidUtf8 => "invalid_utf8",
            ExemplarReject::BadReference => "bad_reference",
            ExemplarReject::Disabled => "disabled",
        }
    }
}

/// Exemplars that are not stored, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExemplarRejects([u64; ExemplarReject::ALL.len()]);

impl ExemplarRejects {
    /// Counts `count` exemplars.
    pub fn add(&mut self, reason: ExemplarReject, count: u64) {
        self.0[reason as usize] += count;
    }

    /// Adds the counts of `other`.
    pub fn add_all(&mut self, other: &ExemplarRejects) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// Returns the count of one reason.
    #[must_use]
    pub fn of(&self, reason: ExemplarReject) -> u64 {
        self.0[reason as usize]
    }

    /// Returns the count of all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
