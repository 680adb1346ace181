//! Histogram literals `{{schema:1 count:3 buckets:[1 2]}}`, and native histograms made of classic ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::histogram::{Buckets, SCHEMA_CUSTOM};
use chronolith_model::{FloatHistogram, Labels, METRIC_NAME, ResetHint, Span};

/// A histogram as written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HistogramLiteral {
    /// The parsed histogram.
    pub(crate) histogram: FloatHistogram,
    /// True if the literal has a counter reset hint; otherwise any hint is accepted.
    pub(crate) hint_set: bool,
}

/// A literal at the start, and what follows it.
pub(crate) fn literal(text: &str) -> Option<(HistogramLiteral, &str)> {
    let inside = text.strip_prefix("{{")?;
    let end = inside.find("}}")?;
    let (mut inside, rest) = (inside[..end].trim(), &inside[end + 2..]);
    let mut found = HistogramLiteral { histogram: FloatHistogram::default(), hint_set: false };
    let (mut offset, mut negative_offset) = (0, 0);
    while !inside.is_empty() {
        let (key, after) = inside.split_once(':')?;
        let value_end = match after.strip_prefix('[') {
            Some(list) => list.find(']')? + 2,
            None => after.find(char::is_whitespace).unwrap_or(after.len()),
        };
        let (value, after) = after.split_at(value_end);
        let histogram = &mut found.histogram;
        match key {
            "schema" => histogram.schema = value.parse().ok()?,
            "sum" => histogram.sum = number(value)?,
            "count" => histogram.count = number(value)?,
            "z_bucket" => histogram.zero_count = number(value)?,
            "z_bucket_w" => histogram.zero_threshold = number(value)?,
            "custom_values" => histogram.custom_values = list(value)?.into(),
            "buckets" => histogram.positive.counts = list(value)?,
            "n_buckets" => histogram.negative.counts = list(value)?,
            "offset" => offset = value.parse().ok()?,
            "n_offset" => negative_offset = value.parse().ok()?,
            "counter_reset_hint" => {
                found.hint_set = true;
                histogram.reset_hint = match value {
                    "unknown" => ResetHint::Unknown,
                    "reset" => ResetHint::Reset,
                    "not_reset" => ResetHint::NotReset,
                    "gauge" => ResetHint::Gauge,
                    _ => return None,
                };
            }
            _ => return None,
        }
        inside = after.trim_start();
    }
    let sides = [(&mut found.histogram.positive, offset), (&mut found.histogram.negative, negative_offset)];
    for (side, offset) in sides.into_iter().filter(|(side, _)| !side.counts.is_empty()) {
        side.spans = vec![Span { offset, length: side.counts.len() as u32 }];
    }
    Some((found, rest))
}

fn list(text: &str) -> Option<Vec<f64>> {
    text.strip_prefix('[')?.strip_suffix(']')?.split_whitespace().map(number).collect()
}

fn number(text: &str) -> Option<f64> {
    text.strip_prefix('+').unwrap_or(text).parse().ok()
}

/// A classic histogram at one time.
#[derive(Default)]
struct Classic {
    /// Upper bounds and cumulative counts.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
}

/// Classic histograms by labels (without `le`) and time.
#[derive(Default)]
pub(crate) struct Conversion(BTreeMap<Labels, BTreeMap<i64, Classic>>);

impl Conversion {
    /// Takes note of a sample, if it is part of a classic histogram.
    pub(crate) fn add(&mut self, labels: &Labels, time: i64, value: f64) {
        let name = labels.metric_name().unwrap_or("");
        let suffix = ["_bucket", "_count", "_sum"].into_iter().find(|suffix| name.ends_with(suffix));
        let Some(suffix) = suffix else { return };
        let bound = labels.get("le").and_then(number).filter(|bound| !bound.is_nan());
        if suffix == "_bucket" && bound.is_none() {
            return;
        }
        let mut builder = labels.to_builder();
        builder.remove("le");
        builder.set(METRIC_NAME, name.strip_suffix(suffix).unwrap());
        let classic = self.0.entry(builder.finish()).or_default().entry(time).or_default();
        match (suffix, bound) {
            ("_bucket", Some(bound)) => classic.buckets.push((bound, value)),
            ("_count", _) => classic.count = Some(value),
            _ => classic.sum = value,
        }
    }

    /// The native histograms.
    pub(crate) fn finish(self) -> impl Iterator<Item = (Labels, Vec<(i64, FloatHistogram)>)> {
        self.0.into_iter().map(|(labels, times)| {
            (labels, times.into_iter().map(|(time, classic)| (time, classic.convert())).collect())
        })
    }
}

impl Classic {
    fn convert(mut self) -> FloatHistogram {
        self.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.buckets.dedup_by_key(|bucket| bucket.0);
        let count = self.count.or(self.buckets.last().map(|bucket| bucket.1)).unwrap_or(0.0);
        if self.buckets.last().is_none_or(|bucket| bucket.0 != f64::INFINITY) {
            self.buckets.push((f64::INFINITY, count));
        }
        let mut before = 0.0;
        let counts = self.buckets.iter().map(|(_, count)| count - std::mem::replace(&mut before, *count));
        let counts: Vec<f64> = counts.collect();
        let bounds = self.buckets.iter().map(|bucket| bucket.0).filter(|bound| bound.is_finite());
        let mut histogram = FloatHistogram {
            schema: SCHEMA_CUSTOM,
            count,
            sum: self.sum,
            positive: Buckets { spans: vec![Span { offset: 0, length: counts.len() as u32 }], counts },
            custom_values: Arc::from(bounds.collect::<Vec<_>>()),
            ..FloatHistogram::default()
        };
        histogram.compact(0);
        histogram
    }
}

#[test]
fn literals_are_those_of_prometheus() {
    let text =
        "{{schema:1 count:3.5 sum:-2 z_bucket_w:0.1 offset:2 buckets:[1 2.5] counter_reset_hint:gauge}}x3";
    let (found, rest) = literal(text).unwrap();
    assert_eq!(rest, "x3");
    assert!(found.hint_set && found.histogram.positive.spans == [Span { offset: 2, length: 2 }]);
    assert_eq!(
        found.histogram.test_expression(),
        "{{schema:1 count:3.5 sum:-2 z_bucket_w:0.1 counter_reset_hint:gauge offset:2 buckets:[1 2.5]}}"
    );
    assert!(literal("{{weight:1}}").is_none());
}
