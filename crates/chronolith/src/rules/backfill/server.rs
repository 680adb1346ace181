//! Backfill on a running server: `POST /api/v1/admin/rules/backfill`.
//!
//! Invariant: an answer without its last line is an error.

use std::io::{BufRead as _, BufReader, Read as _};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::progress_file::Counts;
use super::report::{Chunk, Outcome, Reporter};
use super::wanted::Wanted;
use crate::client::{self, HttpClient};

/// Longest run of a backfill, as the server has it.
const BODY_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Largest refusal that is read.
const REFUSAL_BYTES_MAX: u64 = 1 << 20;
/// Longest line of an answer.
const LINE_BYTES_MAX: u64 = 1 << 20;

pub(super) fn run(
    url: &str,
    authorization: Option<&str>,
    wanted: &Wanted<'_>,
    reporter: &mut Reporter,
) -> anyhow::Result<Outcome> {
    let url = client::join(url, "/api/v1/admin/rules/backfill");
    let client = HttpClient::new(BODY_TIMEOUT)?;
    let seconds = |time_ms: i64| format!("{}", time_ms as f64 / 1000.0);
    let mut query = vec![("start", seconds(wanted.range_ms.0)), ("end", seconds(wanted.range_ms.1))];
    query.extend(wanted.group_names.iter().map(|name| ("group[]", (*name).to_owned())));
    query.extend(wanted.is_dry_run.then(|| ("dry_run", "true".to_owned())));
    query.extend(reporter.resume().map(|resume| ("resume", resume.to_owned())));
    let mut request = client.post(&url).query(&query).header("Content-Type", "application/json");
    let headers = [("X-Scope-OrgID", wanted.tenant), ("Authorization", authorization)];
    for (name, value) in headers.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        request = request.header(name, value);
    }
    let file = |(name, bytes): &(String, Vec<u8>)| {
        let content = std::str::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8"))?;
        Ok(json!({ "name": name, "content": content }))
    };
    let files = wanted.files.iter().map(file).collect::<anyhow::Result<Vec<Value>>>()?;
    let sent = client.send(request.body(json!({ "files": files }).to_string()));
    let shown = client::without_login(&url);
    let mut response = sent.with_context(|| format!("posting to {shown}: is the server running there?"))?;
    if response.status() != 200 {
        let status = response.status();
        let body = response.read_all(REFUSAL_BYTES_MAX)?;
        let refusal: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = refusal["error"].as_str().map_or_else(|| String::from_utf8_lossy(&body), Into::into);
        anyhow::bail!("the server answered {status}: {}", text.trim());
    }
    let mut lines = BufReader::new(response);
    loop {
        let mut line = Vec::new();
        let read = lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let len = read.with_context(|| format!("reading the progress from {shown}"))?;
        anyhow::ensure!(len > 0, "the answer of {shown} ends before its last line");
        let line: Value = serde_json::from_slice(&line).context("a line of the progress is no JSON")?;
        if let Some(outcome) = take_line(&line, reporter)? {
            return Ok(outcome);
        }
    }
}

/// Reports a line; returns the outcome of the last one.
fn take_line(line: &Value, reporter: &mut Reporter) -> anyhow::Result<Option<Outcome>> {
    let number = |name: &str| line[name].as_u64().unwrap_or(0);
    let text = |name: &str| line[name].as_str().map(str::to_owned);
    match line["event"].as_str() {
        Some("begin") => {
            let names = line["skippedAlertingRules"].as_array().into_iter().flatten();
            let names: Vec<String> = names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
            let skipped = number("skippedAlertingRuleCount") as usize;
            reporter.begin(number("rules"), number("rounds"), &names, skipped);
            Ok(None)
        }
        Some("progress") => {
            reporter.chunk(&Chunk {
                group: line["group"].as_str().unwrap_or_default(),
                done: number("done"),
                rounds: number("rounds"),
                until_ms: (line["until"].as_f64().unwrap_or(0.0) * 1000.0).round() as i64,
                counts: counts_of(line)?,
                resume: line["resume"].as_str().context("a line of the progress has no position")?,
            })?;
            Ok(None)
        }
        Some("end") => Ok(Some(Outcome {
            counts: counts_of(line)?,
            first_failure: text("firstFailure"),
            first_reject: text("firstReject"),
            error: text("error").map(|error| (error, text("resume"))),
        })),
        other => anyhow::bail!("the server answered with an unknown event {other:?}"),
    }
}

fn counts_of(line: &Value) -> anyhow::Result<Counts> {
    serde_json::from_value(line["totals"].clone()).context("a line of the progress has no totals")
}
