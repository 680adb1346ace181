//! Input series of a test: samples by time, loaded round by round.
//!
//! Invariant: as in promtool, series are lines of a load command. A line break in a field begins another
//! series, an empty line or a comment ends the list, and of two equal series the last one counts.

use std::collections::{BTreeMap, VecDeque};

use chronolith_model::Labels;
use chronolith_promql::parser::{ParserOptions, SequenceValue, parse_series_description};

use super::test_file::Test;
use crate::round::{RuleSample, SampleValue};

/// As promtool parses input series, whatever features are enabled.
const PARSER: ParserOptions =
    ParserOptions { experimental_functions: true, binop_fill_modifiers: true, unquoted_utf8_names: true };

/// Values with their times in milliseconds, ascending.
type Samples = VecDeque<(i64, SampleValue)>;

/// A series whose samples are not loaded yet.
struct Pending {
    /// Labels, or the reason that no storage takes them.
    labels: Result<Labels, String>,
    samples: Samples,
}

/// Samples that are not loaded yet.
pub(super) struct Input {
    series: Vec<Pending>,
}

impl Input {
    /// Parses the series of a test.
    ///
    /// # Errors
    /// The series that cannot be parsed, with the reason.
    pub(super) fn parse(test: &Test) -> Result<Input, String> {
        let mut by_labels: BTreeMap<Vec<(String, String)>, Samples> = BTreeMap::new();
        for line in lines(test) {
            if line.split([' ', '\t']).next().is_some_and(|word| word.ends_with("@st")) {
                return Err(format!("{line}: start timestamps of input series are not supported"));
            }
            let description =
                parse_series_description(&line, PARSER).map_err(|error| format!("{line}: {error}"))?;
            let start_ms = test.start_ns.div_euclid(1_000_000);
            let time_of = |idx: usize| {
                let offset_ms = i64::try_from(idx).unwrap_or(i64::MAX).saturating_mul(test.interval_ms);
                start_ms.saturating_add(offset_ms)
            };
            let samples = description
                .values
                .into_iter()
                .enumerate()
                .filter_map(|(idx, value)| Some((time_of(idx), sample_value(value)?)));
            by_labels.insert(description.labels, samples.collect());
        }
        let pending = |(labels, samples): (Vec<_>, _)| Pending { labels: stored_labels(&labels), samples };
        Ok(Input { series: by_labels.into_iter().map(pending).collect() })
    }

    /// Takes all samples up to `time_ms`.
    ///
    /// # Errors
    /// Prometheus's text for labels that no storage takes.
    pub(super) fn take_until(&mut self, time_ms: i64) -> Result<Vec<RuleSample>, String> {
        let mut taken = Vec::new();
        for Pending { labels, samples } in &mut self.series {
            while let Some((sample_ms, value)) = samples.pop_front_if(|sample| sample.0 <= time_ms) {
                let labels = labels.clone()?;
                taken.push(RuleSample { labels, time_ms: sample_ms, value });
            }
        }
        Ok(taken)
    }
}

/// Lines of the load command, up to the first one that is empty or a comment.
fn lines(test: &Test) -> Vec<String> {
    let mut lines = Vec::new();
    for series in &test.input_series {
        let text = format!("{} {}", series.series, series.values);
        for line in text.split('\n').map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                return lines;
            }
            lines.push(line.to_owned());
        }
    }
    lines
}

fn sample_value(value: SequenceValue) -> Option<SampleValue> {
    match value {
        SequenceValue::Gap => None,
        SequenceValue::Float(value) if chronolith_model::sample::is_stale(value) => Some(SampleValue::Stale),
        SequenceValue::Float(value) => Some(SampleValue::Float(value)),
        SequenceValue::Histogram(histogram) => Some(SampleValue::Histogram(histogram)),
    }
}

fn stored_labels(labels: &[(String, String)]) -> Result<Labels, String> {
    let filled: Vec<(&str, &str)> = labels
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    if filled.is_empty() {
        return Err("empty labelset: invalid sample".to_owned());
    }
    match filled.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(format!("label name \"{}\" is not unique: invalid sample", pair[0].0)),
        None => Ok(Labels::from_pairs(filled)),
    }
}
