//! Results of expressions and alerts against the expected ones.

use chronolith_model::Labels;
use chronolith_model::duration::show_duration_ms;
use chronolith_promql::VectorSample;
use chronolith_promql::parser::{ParserOptions, SequenceValue, parse_metric, parse_series_description};

use super::test_file::{AlertTest, ExpectedAlert, ExpectedSample, ExprTest, Test};
use super::text;
use crate::alert::ALERT_NAME;
use crate::faults::quoted;

/// A sample of a result, or an expected one.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    /// Sorted by name; a name occurs twice if an expectation has it twice.
    labels: Vec<(String, String)>,
    /// 0 for a histogram that was found.
    value: f64,
    /// Notation of a native histogram; empty for a float.
    histogram: String,
}

impl Sample {
    fn of_result(sample: &VectorSample) -> Sample {
        let is_float = sample.histogram.is_none();
        Sample {
            labels: pairs(&sample.labels),
            value: if is_float { sample.value } else { 0.0 },
            histogram: sample.histogram.as_ref().map(|h| h.test_expression()).unwrap_or_default(),
        }
    }

    fn expected(sample: &ExpectedSample, parser: ParserOptions) -> Result<Sample, String> {
        let labels = parse_metric(&sample.labels, parser).map_err(|error| error.to_string())?;
        let histogram = histogram_of(&sample.histogram, parser)?;
        Ok(Sample { labels, value: sample.value, histogram })
    }

    fn text(&self) -> String {
        let labels = text::labels(self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        if self.histogram.is_empty() {
            format!("{labels} {}", text::float(self.value))
        } else {
            format!("{labels} {}", self.histogram)
        }
    }

    fn equals(&self, other: &Sample, is_fuzzy: bool) -> bool {
        let a = self.value;
        let b = other.value;
        let is_near = is_fuzzy && (a.next_down() == b || a.next_up() == b);
        self.labels == other.labels && self.histogram == other.histogram && (a == b || is_near)
    }
}

fn pairs(labels: &Labels) -> Vec<(String, String)> {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Brings the notation of a histogram into the form of results.
fn histogram_of(notation: &str, parser: ParserOptions) -> Result<String, String> {
    if notation.is_empty() {
        return Ok(String::new());
    }
    let description = parse_series_description(&format!("{{}} {notation}"), parser);
    match &description.map_err(|error| error.to_string())?.values[..] {
        [SequenceValue::Histogram(histogram)] => Ok(histogram.test_expression()),
        [_] => Err(format!("expected histogram, got {notation}")),
        values => Err(format!("expected 1 value, got {}", values.len())),
    }
}

/// Compares the result of an expression; returns the failure.
pub(super) fn expr_failure(
    test: &ExprTest,
    result: Result<Vec<VectorSample>, String>,
    is_fuzzy: bool,
    parser: ParserOptions,
) -> Option<String> {
    let head = format!("    expr: {}, time: {}", quoted(&test.expr), show_duration_ms(test.eval_time_ms));
    let found = match result {
        Ok(found) => found,
        Err(error) => return Some(format!("{head}, err: {error}")),
    };
    let mut found: Vec<Sample> = found.iter().map(Sample::of_result).collect();
    let mut expected = Vec::with_capacity(test.samples.len());
    for sample in &test.samples {
        match Sample::expected(sample, parser) {
            Ok(sample) => expected.push(sample),
            Err(error) => return Some(format!("{head}, err: labels {}: {error}", quoted(&sample.labels))),
        }
    }
    expected.sort_by(|a, b| a.labels.cmp(&b.labels));
    found.sort_by(|a, b| a.labels.cmp(&b.labels));
    let is_equal = expected.len() == found.len()
        && expected.iter().zip(&found).all(|(expected, found)| expected.equals(found, is_fuzzy));
    let shown = |samples: &[Sample]| {
        let texts: Vec<String> = samples.iter().map(Sample::text).collect();
        if texts.is_empty() { "nil".to_owned() } else { texts.join(", ") }
    };
    (!is_equal).then(|| format!("{head},\n        exp: {}\n        got: {}", shown(&expected), shown(&found)))
}

/// Compares the firing alerts of one name; returns the failure.
pub(super) fn alert_failure(
    test: &Test,
    expectation: &AlertTest,
    mut found: Vec<ExpectedAlert>,
    has_diff: bool,
) -> Option<String> {
    let mut expected = expectation.alerts.clone();
    for alert in &mut expected {
        alert.labels.insert(ALERT_NAME.to_owned(), expectation.alert_name.clone());
    }
    expected.sort();
    found.sort();
    if expected == found {
        return None;
    }
    let name = if test.name.is_empty() { String::new() } else { format!("    name: {},\n", test.name) };
    let time = show_duration_ms(expectation.eval_time_ms);
    let head = format!("{name}    alertname: {}, time: {time}, ", expectation.alert_name);
    let expected = text::alert_lines(&expected);
    let found = text::alert_lines(&found);
    let indented = |lines: &[String]| lines.join("\n            ");
    Some(if has_diff {
        format!("{head}\n        diff:\n            {}", indented(&text::difference(&expected, &found)))
    } else {
        format!("{head}\n        exp:{}, \n        got:{}", indented(&expected), indented(&found))
    })
}
