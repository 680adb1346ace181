//! What is said about native histograms: the texts, which are upstream's.

use chronolith_model::quote::write_quoted;

use crate::ast::BinaryOp;

/// What two histograms were merged for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// `+`, and resets of counters.
    Addition,
    /// `-`, and growth of counters.
    Subtraction,
    /// Sums and means.
    Aggregation,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Addition => "addition",
            Operation::Subtraction => "subtraction",
            Operation::Aggregation => "aggregation",
        }
    }
}

/// Kind of an element in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElementKind {
    /// A number.
    Float,
    /// A native histogram.
    Histogram,
}

impl ElementKind {
    fn as_str(self) -> &'static str {
        match self {
            ElementKind::Float => "float",
            ElementKind::Histogram => "histogram",
        }
    }
}

/// A message. The text is a metric name; empty if the name is gone already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Note<'a> {
    /// A range holds both kinds.
    MixedRange(&'a str),
    /// A group holds both kinds.
    MixedGroup,
    /// A histogram comes as buckets and natively.
    MixedClassic(&'a str),
    /// Exponential buckets and custom bounds in one range or group.
    MixedSchemas(&'a str),
    /// A function of counters met a gauge.
    NotCounter(&'a str),
    /// A function of gauges met a counter.
    NotGauge(&'a str),
    /// One says reset, the other not.
    Collision(Operation),
    /// Exponential buckets and custom bounds in one operator.
    BucketLayout(BinaryOp),
    /// When a counter started contradicts the sample before; in so many windows.
    StartOverlap(&'a str, u64),
    /// Custom bounds differed.
    Reconciled(Operation),
    /// An operator that does not exist for these kinds.
    Kinds(ElementKind, BinaryOp, ElementKind),
    /// An aggregation that left histograms out.
    IgnoredInGroup(&'a str),
    /// A function of a range that left histograms out.
    IgnoredInRange(&'a str),
    /// So many observations are NaN that the quantile is.
    QuantileIsNan(&'a str),
    /// Some observations are NaN.
    QuantileIsSkewed(&'a str),
    /// Some observations are NaN, which no share counts.
    FractionLacksNan(&'a str),
}

impl Note<'_> {
    /// A warning, else an info.
    pub(crate) fn is_warning(&self) -> bool {
        !matches!(
            self,
            Note::Reconciled(_)
                | Note::Kinds(..)
                | Note::IgnoredInGroup(_)
                | Note::IgnoredInRange(_)
                | Note::QuantileIsNan(_)
                | Note::QuantileIsSkewed(_)
                | Note::FractionLacksNan(_)
        )
    }

    /// The message.
    pub(crate) fn text(&self) -> String {
        match *self {
            Note::MixedRange(name) => {
                format!("encountered a mix of histograms and floats for metric name {}", quoted(name))
            }
            Note::MixedGroup => "encountered a mix of histograms and floats for aggregation".to_owned(),
            Note::MixedClassic(name) => named("vector contains a mix of classic and native histograms", name),
            Note::MixedSchemas(name) => format!(
                "vector contains a mix of histograms with exponential and custom buckets schemas for metric name {}",
                quoted(name)
            ),
            Note::NotCounter(name) => {
                format!("this native histogram metric is not a counter: {}", quoted(name))
            }
            Note::NotGauge(name) => format!("this native histogram metric is not a gauge: {}", quoted(name)),
            Note::Collision(operation) => {
                format!("conflicting counter resets during histogram {}", operation.as_str())
            }
            Note::BucketLayout(op) => {
                format!("incompatible bucket layout encountered for binary operator {}", op.as_str())
            }
            Note::StartOverlap(name, count) => {
                let many = if count > 1 { format!(" ({count} occurrences)") } else { String::new() };
                let text = "sample has start time that overlaps with previous sample timestamp";
                format!("{text} for metric {}{many}", quoted(name))
            }
            Note::Reconciled(operation) => {
                format!("mismatched custom buckets were reconciled during {}", operation.as_str())
            }
            Note::Kinds(left, op, right) => {
                let (left, symbol, right) = (left.as_str(), op.as_str(), right.as_str());
                let text = "incompatible sample types encountered for binary operator";
                format!("{text} {symbol:?}: {left} {symbol} {right}")
            }
            Note::IgnoredInGroup(op) => format!("ignored histogram in {op} aggregation"),
            Note::IgnoredInRange(name) => format!(
                "ignored histograms in a range containing both floats and histograms for metric name {}",
                quoted(name)
            ),
            Note::QuantileIsNan(name) => {
                named("input to histogram_quantile has NaN observations, result is NaN", name)
            }
            Note::QuantileIsSkewed(name) => {
                named("input to histogram_quantile has NaN observations, result is skewed higher", name)
            }
            Note::FractionLacksNan(name) => named(
                "input to histogram_fraction has NaN observations, which are excluded from all fractions",
                name,
            ),
        }
    }
}

fn quoted(name: &str) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_quoted(&mut text, name);
    text
}

fn named(message: &str, name: &str) -> String {
    if name.is_empty() { message.to_owned() } else { format!("{message} for metric name {}", quoted(name)) }
}
