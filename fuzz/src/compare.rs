//! Comparison of two answers.

use std::fmt;

use chronolith_model::FloatHistogram;
use chronolith_model::sample::is_stale;

use crate::case::{Answer, AnswerSeries};

/// The first thing that is not the same.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Difference {
    /// One fails, the other does not, or the texts differ.
    Error(Option<String>, Option<String>),
    /// Another type of value, or another text.
    Type(String, String),
    /// Series that only one has.
    Labels(String),
    /// The same series in another order.
    Order,
    /// Times of a series.
    Times(String),
    /// A value: ours and Prometheus's.
    Value(String, f64, f64),
    /// A histogram: ours and Prometheus's.
    Histogram(String, String, String),
    /// Warnings or infos that only one has.
    Annotations(Vec<String>, Vec<String>),
}

impl Difference {
    /// For counting.
    pub(crate) fn kind(&self) -> String {
        // Names and numbers in a text do not make another kind.
        let words = |text: Option<&String>| match text {
            Some(text) => text.split_whitespace().take(6).collect::<Vec<_>>().join(" "),
            None => "none".to_owned(),
        };
        match self {
            Difference::Error(ours, theirs) => {
                format!("error: {} / {}", words(ours.as_ref()), words(theirs.as_ref()))
            }
            Difference::Type(..) => "type".to_owned(),
            Difference::Labels(_) => "labels".to_owned(),
            Difference::Order => "order".to_owned(),
            Difference::Times(_) => "times".to_owned(),
            Difference::Value(..) => "value".to_owned(),
            Difference::Histogram(..) => "histogram".to_owned(),
            Difference::Annotations(ours, theirs) => {
                format!("annotations: {} / {}", words(ours.first()), words(theirs.first()))
            }
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Error(ours, theirs) => write!(f, "error {ours:?}, Prometheus {theirs:?}"),
            Difference::Annotations(ours, theirs) => {
                write!(f, "only ours {ours:?}, only Prometheus {theirs:?}")
            }
            other => write!(f, "{other:?}"),
        }
    }
}

/// Returns true if the elements of an instant query have an order: its outermost function gives them one.
fn is_ordered(query: &str) -> bool {
    let query = query.trim_start_matches('(');
    ["sort", "topk", "bottomk"].iter().any(|name| query.starts_with(name))
}

/// Returns the first difference; numbers are compared bit for bit.
pub(crate) fn difference(query: &str, ours: &Answer, theirs: &Answer) -> Option<Difference> {
    if !same_error(ours.error.as_deref(), theirs.error.as_deref()) {
        return Some(Difference::Error(ours.error.clone(), theirs.error.clone()));
    }
    if ours.error.is_some() {
        return None;
    }
    if ours.kind != theirs.kind || ours.text != theirs.text {
        return Some(Difference::Type(ours.kind.clone(), theirs.kind.clone()));
    }
    let sorted = |answer: &Answer| {
        let mut series = answer.series.clone();
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        series
    };
    series_difference(&sorted(ours), &sorted(theirs))
        .or_else(|| if is_ordered(query) { order_difference(ours, theirs) } else { None })
        .or_else(|| annotation_difference(ours, theirs))
}

/// Prometheus names the duplicates in the order of its series, which is random.
pub(crate) fn same_error(ours: Option<&str>, theirs: Option<&str>) -> bool {
    let duplicate =
        |text: Option<&str>| text.is_some_and(|t| t.starts_with("found duplicate series for the match"));
    ours == theirs || (duplicate(ours) && duplicate(theirs))
}

fn series_difference(ours: &[AnswerSeries], theirs: &[AnswerSeries]) -> Option<Difference> {
    let labels = |series: &[AnswerSeries]| {
        series.iter().map(|s| format!("{:?}", s.labels)).collect::<Vec<_>>().join("; ")
    };
    if labels(ours) != labels(theirs) {
        return Some(Difference::Labels(format!("{} / Prometheus {}", labels(ours), labels(theirs))));
    }
    for (ours, theirs) in ours.iter().zip(theirs) {
        let name = format!("{:?}", ours.labels);
        if ours.times != theirs.times {
            let times = format!("{name} {:?} / Prometheus {:?}", ours.times, theirs.times);
            return Some(Difference::Times(times));
        }
        for (at, (&a, &b)) in ours.values.iter().zip(&theirs.values).enumerate() {
            if !same(a, b) {
                return Some(Difference::Value(format!("{name} @{}", ours.times[at]), a, b));
            }
        }
        let times = |series: &AnswerSeries| series.histograms.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        if times(ours) != times(theirs) {
            let text = format!("{name} histograms {:?} / Prometheus {:?}", times(ours), times(theirs));
            return Some(Difference::Times(text));
        }
        for ((at, a), (_, b)) in ours.histograms.iter().zip(&theirs.histograms) {
            if !same_histogram(a, b) {
                let (a, b) = (a.test_expression(), b.test_expression());
                return Some(Difference::Histogram(format!("{name} @{at}"), a, b));
            }
        }
    }
    None
}

fn order_difference(ours: &Answer, theirs: &Answer) -> Option<Difference> {
    // The order of equal values is undefined.
    let agree = ours.series.iter().zip(&theirs.series).all(|(a, b)| {
        a.labels == b.labels || a.values.iter().zip(&b.values).all(|(&a, &b)| a == b || same(a, b))
    });
    (!agree).then_some(Difference::Order)
}

fn annotation_difference(ours: &Answer, theirs: &Answer) -> Option<Difference> {
    let all = |answer: &Answer| {
        let texts = [&answer.warnings[..], &answer.infos[..]].concat();
        texts.iter().map(|text| without_count(text)).collect::<Vec<_>>()
    };
    let (ours, theirs) = (all(ours), all(theirs));
    let missing = |from: &[String], among: &[String]| {
        from.iter().filter(|text| !among.contains(text)).cloned().collect::<Vec<_>>()
    };
    let (only_ours, only_theirs) = (missing(&ours, &theirs), missing(&theirs, &ours));
    let agree = only_ours.is_empty() && only_theirs.is_empty();
    (!agree).then_some(Difference::Annotations(only_ours, only_theirs))
}

/// Removes the sample count of a message: Prometheus counts some samples again in every step.
fn without_count(text: &str) -> String {
    match (text.split_once(", over "), text.split_once(" samples from ")) {
        (Some((before, _)), Some((_, after))) => format!("{before} from {after}"),
        _ => text.to_owned(),
    }
}

/// Hints count; empty buckets and signs of zeros do not.
fn same_histogram(a: &FloatHistogram, b: &FloatHistogram) -> bool {
    let (mut a, mut b) = (a.clone(), b.clone());
    a.compact(0);
    b.compact(0);
    let equal = |a: f64, b: f64| a == b || same(a, b);
    let all_equal = |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| equal(a, b));
    a.reset_hint == b.reset_hint
        && a.schema == b.schema
        && a.zero_threshold == b.zero_threshold
        && a.custom_values == b.custom_values
        && equal(a.zero_count, b.zero_count)
        && equal(a.count, b.count)
        && equal(a.sum, b.sum)
        && a.positive.spans == b.positive.spans
        && a.negative.spans == b.negative.spans
        && all_equal(&a.positive.counts, &b.positive.counts)
        && all_equal(&a.negative.counts, &b.negative.counts)
}

/// Returns true if both have the same bits. NaNs are equal except for staleness markers, which no result may
/// hold.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan() && is_stale(a) == is_stale(b))
}
