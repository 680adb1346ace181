//! Texts of warnings and infos as in Prometheus, with line and column in the query.
//!
//! Not here: their collection while a query runs (`exec::annotation`).

use chronolith_base::utc::rfc3339_seconds;
use chronolith_exec::annotation::{ANNOTATIONS_MAX, Annotation, AnnotationSet, Tally};
use chronolith_exec::note::{ElementKind, Note, Operation};
use chronolith_exec::step_set::StepSet;
use chronolith_model::histogram::go_float;
use chronolith_model::quote::write_quoted;

use crate::ast::Span;

/// Annotations as texts.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Texts {
    pub(crate) warnings: Vec<String>,
    pub(crate) infos: Vec<String>,
    /// The steps of each info; `None` if the steps of some annotation are unknown.
    pub(crate) info_steps: Option<Vec<StepSet>>,
}

/// Renders the annotations of the query `text`; without a text all are in line 1.
pub(crate) fn render(AnnotationSet { warnings, infos, .. }: AnnotationSet, text: &str) -> Texts {
    let render_list = |kind: &str, list: &[Annotation]| {
        let render = |a: &Annotation| {
            format!("PromQL {kind}: {} ({})", text_of(a), line_and_column(text, Span::of(a.origin.position)))
        };
        list.iter().map(render).collect()
    };
    let is_cut = infos.len() >= ANNOTATIONS_MAX;
    let steps = || infos.iter().map(|info| info.steps.clone()).collect();
    let info_steps = if warnings.is_empty() && !is_cut { steps() } else { None };
    Texts { warnings: render_list("warning", &warnings), infos: render_list("info", &infos), info_steps }
}

fn line_and_column(text: &str, span: Span) -> String {
    let start = span.start as usize;
    let before = text.as_bytes().get(..start).unwrap_or(&[]);
    let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
    let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    format!("{line}:{}", start - line_start + 1)
}

fn text_of(annotation: &Annotation) -> String {
    let count = annotation.tally.map_or(1, |tally| tally.count);
    match &annotation.note {
        Note::MixedRange(name) => {
            format!("encountered a mix of histograms and floats for metric name {}", quoted(name))
        }
        Note::MixedGroup => "encountered a mix of histograms and floats for aggregation".to_owned(),
        Note::MixedSchemas(name) => format!(
            "vector contains a mix of histograms with exponential and custom buckets schemas for metric name {}",
            quoted(name)
        ),
        Note::NotCounter(name) => format!("this native histogram metric is not a counter: {}", quoted(name)),
        Note::NotGauge(name) => format!("this native histogram metric is not a gauge: {}", quoted(name)),
        Note::Collision(operation) => {
            format!("conflicting counter resets during histogram {}", operation_name(*operation))
        }
        Note::BucketLayout(op) => {
            format!("incompatible bucket layout encountered for binary operator {}", op.as_str())
        }
        Note::StartOverlap(name) => {
            let many = if count > 1 { format!(" ({count} occurrences)") } else { String::new() };
            let text = "sample has start time that overlaps with previous sample timestamp";
            format!("{text} for metric {}{many}", quoted(name))
        }
        Note::Reconciled(operation) => {
            format!("mismatched custom buckets were reconciled during {}", operation_name(*operation))
        }
        Note::Kinds(left, op, right) => {
            let left = kind_name(*left);
            let symbol = op.as_str();
            let right = kind_name(*right);
            let text = "incompatible sample types encountered for binary operator";
            format!("{text} {symbol:?}: {left} {symbol} {right}")
        }
        Note::IgnoredInGroup(op) => format!("ignored histogram in {op} aggregation"),
        Note::IgnoredInRange(name) => format!(
            "ignored histograms in a range containing both floats and histograms for metric name {}",
            quoted(name)
        ),
        Note::BadQuantile(value) => {
            format!("quantile value should be between 0 and 1, got {}", go_float(value.0))
        }
        Note::BadStrategy(value) => {
            format!("strategy should be 0, 1, or 2 (default), using 2, got {}", go_float(value.0))
        }
        Note::Language(_, text) => match &annotation.tally {
            Some(tally) => format!("{text}, {}", describe_repair(tally)),
            None => text.to_string(),
        },
    }
}

fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Addition => "addition",
        Operation::Subtraction => "subtraction",
        Operation::Aggregation => "aggregation",
    }
}

fn kind_name(kind: ElementKind) -> &'static str {
    match kind {
        ElementKind::Float => "float",
        ElementKind::Histogram => "histogram",
    }
}

/// Counts of classic buckets that were raised before a quantile could be computed.
fn describe_repair(tally: &Tally) -> String {
    format!(
        "from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
        go_float(tally.value_min),
        go_float(tally.value_max),
        two_digits(tally.change_max),
        tally.count,
        whole_seconds(tally.first_ms),
        whole_seconds(tally.last_ms)
    )
}

/// A time without its fraction of a second, which Go cuts off towards 1970.
fn whole_seconds(time_ms: i64) -> String {
    rfc3339_seconds(time_ms / 1000 * 1000)
}

/// A message about a metric; its name may have been removed.
pub(crate) fn named(message: &str, name: &str) -> String {
    if name.is_empty() { message.to_owned() } else { format!("{message} for metric name {}", quoted(name)) }
}

fn quoted(name: &str) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_quoted(&mut text, name);
    text
}

/// As [`go_float`], but rounded to two digits.
fn two_digits(value: f64) -> String {
    if !value.is_finite() {
        return go_float(value);
    }
    let text = format!("{value:.1e}").replace(".0e", "e");
    let rounded = text.parse().unwrap_or(value);
    general(rounded, &text, 2)
}

/// `text` is the value with an exponent, with exponents from `exponent_min` on it is printed so.
fn general(value: f64, text: &str, exponent_min: i32) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    if (-4..exponent_min).contains(&exponent.parse::<i32>().unwrap_or(0)) {
        return format!("{value}");
    }
    let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |d| ("-", d));
    format!("{mantissa}e{sign}{digits:0>2}")
}
