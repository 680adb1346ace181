//! Comparison of one file with what a server returns for its series: each point of the file is there with its
//! value. A server that carbon's relay writes to has more points.
//!
//! Not here: choice of the files (`whisper_server`).

use std::collections::HashMap;

use anyhow::{Context as _, ensure};
use chronolith_base::hash::FixedState;
use chronolith_import::whisper::{FilePoints, WhisperFile, WhisperReport};
use chronolith_model::Labels;
use chronolith_model::quote::write_quoted;
use serde_json::Value;

use crate::client;
use crate::import::server::TargetServer;

/// Newest points of a file that are compared.
const POINTS_MAX: usize = 10_000;
/// Age of points below which carbon may still change them.
const SETTLED_MS: i64 = 300_000;

/// Compares the newest points of a file with the server's points.
pub(super) fn compare(
    target: &TargetServer,
    file: &WhisperFile,
    points: &FilePoints,
    report: &mut WhisperReport,
) -> anyhow::Result<()> {
    let settled_ms = target.env.clock.now_ms().saturating_sub(SETTLED_MS);
    let end = points.times.partition_point(|time| *time <= settled_ms);
    let start = end.saturating_sub(POINTS_MAX);
    let times = points.times.get(start..end).unwrap_or_default();
    let values = points.values.get(start..end).unwrap_or_default();
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(()) };
    let found = read(target, &file.labels, *first, *last)?;
    report.files_compared += 1;
    let differs = |(time, value): &(&i64, &f64)| found.get(*time).is_none_or(|found| found != *value);
    let differing = times.iter().zip(values).filter(differs);
    let count = differing.clone().count();
    if let Some((time, value)) = differing.clone().next() {
        let other = found.get(time).map_or("none".to_owned(), f64::to_string);
        let all = times.len();
        report.differ(format!(
            "{}: {count} of {all} points, the first at {}: {value} in the file, {other} on the server",
            file.path,
            time / 1000
        ));
    }
    Ok(())
}

/// Returns the points of a series by their times in milliseconds.
fn read(
    target: &TargetServer,
    labels: &Labels,
    first_ms: i64,
    last_ms: i64,
) -> anyhow::Result<HashMap<i64, f64, FixedState>> {
    let mut query = String::from("{");
    for (name, value) in labels.iter() {
        let _ = write_quoted(&mut query, name);
        query.push('=');
        let _ = write_quoted(&mut query, value);
        query.push(',');
    }
    query.push_str(&format!("}}[{}s]", (last_ms - first_ms) / 1000 + 1));
    let time = (last_ms / 1000).to_string();
    let tenant = target.tenant.as_deref().map(|tenant| ("X-Scope-OrgID", tenant));
    let headers: Vec<(&str, &str)> = tenant.into_iter().collect();
    let form = [("query", query.as_str()), ("time", time.as_str())];
    let answer = client::post_form(&target.url, "/api/v1/query", &form, &headers)?;
    let text = || String::from_utf8_lossy(&answer.body).into_owned();
    ensure!(answer.status == 200, "query {query} at {}: status {}: {}", target.url, answer.status, text());
    points_of(&answer.body, labels).with_context(|| format!("query {query} at {}", target.url))
}

/// Reads the points of the series with exactly these labels from a response.
fn points_of(body: &[u8], labels: &Labels) -> anyhow::Result<HashMap<i64, f64, FixedState>> {
    let response: Value = serde_json::from_slice(body).context("the response is not JSON")?;
    let result = response.pointer("/data/result").and_then(Value::as_array).context("no result")?;
    let mut points = HashMap::default();
    for series in result {
        let pairs = series.get("metric").and_then(Value::as_object).context("a series without labels")?;
        let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
        // A selector finds series with further labels too.
        if Labels::from_pairs(pairs) != *labels {
            continue;
        }
        for pair in series.get("values").and_then(Value::as_array).into_iter().flatten() {
            let time_s = pair.get(0).and_then(Value::as_f64).context("a point without a time")?;
            let value = pair.get(1).and_then(Value::as_str).context("a point without a value")?;
            points.insert((time_s * 1000.0).round() as i64, value.parse()?);
        }
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use chronolith_model::METRIC_NAME;

    use super::*;

    #[test]
    fn points_of_the_very_series_are_read() {
        let labels = Labels::from_pairs([(METRIC_NAME, "a.b"), ("dc", "x")]);
        let body = br#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"__name__":"a.b","dc":"x","host":"h"},"values":[[10,"1"]]},
            {"metric":{"__name__":"a.b","dc":"x"},"values":[[10,"2.5"],[20.001,"+Inf"]]}]}}"#;
        let mut points: Vec<_> = points_of(body, &labels).unwrap().into_iter().collect();
        points.sort_by_key(|point| point.0);
        assert_eq!(points, [(10_000, 2.5), (20_001, f64::INFINITY)]);
        for bad in ["", "{}", r#"{"data":{"result":[{}]}}"#] {
            assert!(points_of(bad.as_bytes(), &labels).is_err(), "{bad}");
        }
    }
}
