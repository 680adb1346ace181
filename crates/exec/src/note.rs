//! Kinds of annotations that operators emit. The text of each is the language's.
//! Invariants: two notes are equal exactly if their texts are.

use crate::arith::BinaryOp;

/// Operation that merged two native histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `+`, and counter resets.
    Addition,
    /// `-`, and growth of counters.
    Subtraction,
    /// Sums and means.
    Aggregation,
}

/// Kind of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementKind {
    /// A float.
    Float,
    /// A native histogram.
    Histogram,
}

/// Severity of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The query is likely to be wrong.
    Warning,
    /// The query may be wrong.
    Info,
}

/// A float that equals itself whatever it is, and whose zeros differ by sign.
#[derive(Debug, Clone, Copy)]
pub struct NotedValue(pub f64);

impl PartialEq for NotedValue {
    fn eq(&self, other: &NotedValue) -> bool {
        self.0.to_bits() == other.0.to_bits() || self.0.is_nan() && other.0.is_nan()
    }
}

/// An annotation without its position. Names are metric names, empty if the name has been removed.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// A range has floats and histograms.
    MixedRange(Box<str>),
    /// A group has floats and histograms.
    MixedGroup,
    /// A range or group has histograms with exponential buckets and with custom bounds.
    MixedSchemas(Box<str>),
    /// A function of counters was applied to a gauge histogram.
    NotCounter(Box<str>),
    /// A function of gauges was applied to a counter histogram.
    NotGauge(Box<str>),
    /// The counter reset hints of two histograms contradict each other.
    Collision(Operation),
    /// The operands of a binary operator have exponential buckets and custom bounds.
    BucketLayout(BinaryOp),
    /// A start timestamp is before the previous sample.
    StartOverlap(Box<str>),
    /// Custom bounds differed and were reconciled.
    Reconciled(Operation),
    /// The operator is not defined for these kinds.
    Kinds(ElementKind, BinaryOp, ElementKind),
    /// The aggregation of this name ignored histograms.
    IgnoredInGroup(&'static str),
    /// A function of a range ignored histograms.
    IgnoredInRange(Box<str>),
    /// A quantile is not between 0 and 1.
    BadQuantile(NotedValue),
    /// The strategy of an integral is unknown.
    BadStrategy(NotedValue),
    /// A note that only the language knows.
    Language(Severity, Box<str>),
}

impl Note {
    /// Severity of the note.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Note::Language(severity, _) => *severity,
            Note::Reconciled(_) | Note::Kinds(..) | Note::IgnoredInGroup(_) | Note::IgnoredInRange(_) => {
                Severity::Info
            }
            _ => Severity::Warning,
        }
    }
}
