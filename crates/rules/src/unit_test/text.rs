//! Texts of failures, as promtool prints them.

use std::collections::BTreeMap;

use chronolith_model::decimal::scientific;
use chronolith_model::labels::is_legacy_label_name;
use chronolith_promql::{MatrixSeries, Value};

use super::test_file::ExpectedAlert;
use crate::faults::quoted;

/// Labels in braces, the metric name among them.
pub(super) fn labels<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pair = |(name, value): (&str, &str)| {
        let name = if is_legacy_label_name(name) { name.to_owned() } else { quoted(name) };
        format!("{name}={}", quoted(value))
    };
    format!("{{{}}}", pairs.into_iter().map(pair).collect::<Vec<_>>().join(", "))
}

fn map(pairs: &BTreeMap<String, String>) -> String {
    labels(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

/// Lines of a list of alerts.
pub(super) fn alert_lines(alerts: &[ExpectedAlert]) -> Vec<String> {
    if alerts.is_empty() {
        return vec!["[]".to_owned()];
    }
    let mut lines = vec!["[".to_owned()];
    for (idx, alert) in alerts.iter().enumerate() {
        let comma = if idx + 1 < alerts.len() { "," } else { "" };
        lines.push(format!("    {idx}:"));
        lines.push(format!("      Labels:{}", map(&alert.labels)));
        lines.push(format!("      Annotations:{}{comma}", map(&alert.annotations)));
    }
    lines.push("]".to_owned());
    lines
}

/// A float as Go's `%E` with the shortest digits.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = scientific(value);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}E{sign}{:02}", exponent.unsigned_abs())
}

/// A duration as Go prints it: `1h0m0s`, `1m30.5s`.
pub(super) fn duration(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    let ms = ms.unsigned_abs();
    if ms > 0 && ms < 1000 {
        return format!("{sign}{ms}ms");
    }
    let hours = ms / 3_600_000;
    let minutes = ms / 60_000 % 60;
    let mut seconds = (ms / 1000 % 60).to_string();
    if !ms.is_multiple_of(1000) {
        seconds.push_str(format!(".{:03}", ms % 1000).trim_end_matches('0'));
    }
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Lines that are in one text alone, with `-` for `before` and `+` for `after`; lines of both with a blank.
pub(super) fn difference(before: &[String], after: &[String]) -> Vec<String> {
    let start = before.iter().zip(after).take_while(|(before, after)| before == after).count();
    let rest = before.len().min(after.len()) - start;
    let end = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let marked = |sign: &str, lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| format!("{sign} {line}")).collect()
    };
    let mut lines = marked(" ", before.get(..start).unwrap_or_default());
    lines.extend(marked("-", before.get(start..before.len() - end).unwrap_or_default()));
    lines.extend(marked("+", after.get(start..after.len() - end).unwrap_or_default()));
    lines.extend(marked(" ", before.get(before.len() - end..).unwrap_or_default()));
    lines
}

/// All samples of a matrix, series by series.
pub(super) fn matrix(value: &Value) -> String {
    let Value::Matrix(series) = value else { return String::new() };
    let line = |series: &MatrixSeries| {
        let floats = series.times.iter().zip(&series.values).map(|(&time, &value)| (time, float(value)));
        let histograms = series.histograms.iter().map(|(time, h)| (*time, h.test_expression()));
        let mut samples: Vec<(i64, String)> = floats.chain(histograms).collect();
        samples.sort();
        let samples: String = samples.iter().map(|(time, value)| format!("\n{value} @[{time}]")).collect();
        format!("{} =>{samples}", labels(series.labels.iter()))
    };
    series.iter().map(line).collect::<Vec<_>>().join("\n")
}
