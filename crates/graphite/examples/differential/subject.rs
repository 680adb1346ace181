//! Answers of the crate to the same requests.
//!
//! Invariant: the form equals the oracle's: a status, and JSON or text.

use chronolith_graphite::output::{self, RenderOptions};
use chronolith_graphite::storage::memory::MemorySource;
use chronolith_graphite::storage::{FetchRequest, FetchedSeries, Node, Source};
use chronolith_graphite::{EvalError, Limits, Request as EvalRequest, evaluate, time};
use serde_json::{Value, json};

use crate::dataset::LENGTH;
use crate::generate::Request;
use crate::oracle;

/// The answer, with status 400 for every error.
pub(crate) fn answer(source: &MemorySource, request: &Request) -> Value {
    let answered = if request.path == "/render" { render(source, request) } else { find(source, request) };
    match answered {
        Ok(value) => value,
        Err(error) => json!({"status": 400, "text": error.to_string()}),
    }
}

fn json_answer(text: &str) -> Value {
    let text = text.replace("-Infinity", "-1e9999").replace("Infinity", "1e9999");
    let text = text.replace("-1e9999", "\"-inf\"").replace("1e9999", "\"inf\"");
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => json!({"status": 200, "json": value}),
        Err(error) => json!({"status": 200, "text": format!("invalid JSON: {error}: {text}")}),
    }
}

fn render(source: &MemorySource, request: &Request) -> Result<Value, EvalError> {
    let utc = jiff::tz::TimeZone::UTC;
    let zone = time::zone_or(request.param("tz"), &utc);
    let now = time::parse_time(request.param("now").unwrap_or("now"), &zone, 0)?;
    let eval_request = EvalRequest {
        targets: request.targets.clone(),
        range: time::request_range(request.param("from"), request.param("until"), &zone, now)?,
        now,
        // Generated times of functions are absolute.
        clock: now,
        zone: zone.clone(),
        server_zone: utc,
        max_data_points: request.param("maxDataPoints").and_then(|text| text.parse().ok()),
        x_files_factor: request.param("xFilesFactor").and_then(|text| text.parse().ok()).unwrap_or(0.0),
        template: request.template(),
    };
    let over_files = FileSource { source, now };
    let source: &dyn Source = if oracle::is_whisper() { &over_files } else { source };
    let mut list = evaluate(&eval_request, source, Limits::default(), &|| false)?;
    let options = RenderOptions { no_null_points: request.param("noNullPoints").is_some(), jsonp: None };
    let mut out = String::new();
    match request.param("format").unwrap_or("json") {
        "raw" => output::text::render_raw(&list, &mut out)?,
        "csv" => output::text::render_csv(&list, &zone, &mut out)?,
        "dygraph" => {
            output::json::render_dygraph(&list, &options, &mut out)?;
            return Ok(json_answer(&out));
        }
        "rickshaw" => {
            output::json::render_rickshaw(&list, &options, &mut out)?;
            return Ok(json_answer(&out));
        }
        _ => {
            if let Some(limit) = eval_request.max_data_points {
                output::consolidate_to(&mut list, limit)?;
            }
            output::json::render(&list, &options, &mut out)?;
            return Ok(json_answer(&out));
        }
    }
    Ok(json!({"status": 200, "text": out}))
}

/// The series as whisper files have them: nothing after now, nothing before the retention.
struct FileSource<'a> {
    source: &'a MemorySource,
    now: i64,
}

/// Retention of the files of `oracle.py`: twice the points of a series.
const RETENTION: i64 = 2 * LENGTH;

impl Source for FileSource<'_> {
    fn fetch(&self, requests: &[FetchRequest]) -> Result<Vec<Vec<FetchedSeries>>, EvalError> {
        let oldest = self.now - RETENTION;
        let mut answers = Vec::new();
        for request in requests {
            if request.from > self.now || request.until < oldest {
                answers.push(Vec::new());
                continue;
            }
            let (from, until) = (request.from.max(oldest), request.until.min(self.now));
            answers.extend(self.source.fetch(&[FetchRequest { from, until, ..request.clone() }])?);
        }
        Ok(answers)
    }

    fn find(&self, pattern: &str, from: Option<i64>, until: Option<i64>) -> Result<Vec<Node>, EvalError> {
        self.source.find(pattern, from, until)
    }
}

fn find(source: &MemorySource, request: &Request) -> Result<Value, EvalError> {
    let query = request.param("query").unwrap_or("");
    let format = request.param("format").unwrap_or("treejson");
    let pattern =
        if format == "completer" { output::find::completer_pattern(query) } else { query.to_owned() };
    let mut nodes = source.find(&pattern, None, None)?;
    nodes.retain(|node| node.is_leaf || request.param("leavesOnly") != Some("1"));
    output::find::sort_by_name(&mut nodes);
    let wildcard = if request.param("wildcards") == Some("1") {
        output::find::WildcardNode::Shown
    } else {
        output::find::WildcardNode::Hidden
    };
    let mut out = String::new();
    match format {
        "treejson" => output::find::render_tree(query, &nodes, wildcard, &mut out),
        "completer" => output::find::render_completer(&nodes, wildcard, &mut out),
        "json" => output::find::render_json(&nodes, &mut out),
        _ => output::find::render_node_list(
            &nodes,
            request.param("position").and_then(|text| text.parse().ok()).unwrap_or(-1),
            &mut out,
        ),
    }
    Ok(json_answer(&out))
}
