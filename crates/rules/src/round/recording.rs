//! Result of a recording rule: the samples that it writes.

use chronolith_model::{Labels, METRIC_NAME};
use chronolith_promql::{Value, VectorSample};

use super::{RuleSample, SampleValue, vector_of};
use crate::rule::Rule;

/// Prometheus's text for a result with equal label sets.
pub(crate) const DUPLICATE_SERIES: &str =
    "vector contains metrics with the same labelset after applying rule labels";

/// Prometheus's text for a result beyond the limit of its group.
pub(crate) fn limit_exceeded(limit: usize, count: usize) -> String {
    format!("exceeded limit of {limit} with {count} series")
}

/// Labels of a recorded series: the metric name and the labels of the rule are set.
pub(crate) fn recorded_labels(rule: &Rule, labels: &Labels) -> Labels {
    let mut labels = labels.to_builder();
    labels.set(METRIC_NAME, &rule.name);
    rule.labels.iter().for_each(|(name, value)| labels.set(name, value));
    labels.finish()
}

/// Samples of a result, in order of labels: the metric name and the labels of the rule are set.
///
/// # Errors
/// Prometheus's text for equal labels, and beyond the limit.
pub(super) fn samples(
    rule: &Rule,
    result: Vec<VectorSample>,
    limit: Option<usize>,
    time_ms: i64,
) -> Result<Vec<RuleSample>, String> {
    let mut samples: Vec<RuleSample> = result
        .into_iter()
        .map(|sample| {
            let labels = recorded_labels(rule, &sample.labels);
            let value = sample.histogram.map_or(SampleValue::Float(sample.value), SampleValue::Histogram);
            RuleSample { labels, time_ms, value }
        })
        .collect();
    samples.sort_by(|a, b| a.labels.cmp(&b.labels));
    if samples.windows(2).any(|pair| pair[0].labels == pair[1].labels) {
        return Err(DUPLICATE_SERIES.to_owned());
    }
    match limit.filter(|&limit| samples.len() > limit) {
        Some(limit) => Err(limit_exceeded(limit, samples.len())),
        None => Ok(samples),
    }
}

/// Samples of a recording rule for the value of its expression, as a round writes them.
///
/// # Errors
/// The reason for `health: err`.
pub fn recorded_samples(
    rule: &Rule,
    value: Value,
    limit: Option<usize>,
    time_ms: i64,
) -> Result<Vec<RuleSample>, String> {
    samples(rule, vector_of(value)?, limit, time_ms)
}
