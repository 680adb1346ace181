//! `chronolith query`: asks a server and prints a table, or its JSON as it is.
//! Invariants: exit code 1 when the server refuses. Not here: HTTP (`client`).

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::{Clock, SystemClock};
use clap::ArgMatches;
use serde_json::Value;

use crate::args::value;
use crate::{client, credentials};

/// Step of a range query that names none.
const STEP_DEFAULT: &str = "1m";

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let text = |name: &str| value(matches, name);
    let url = text("url").unwrap_or_default();
    let expr = text("expr").unwrap_or_default();
    let now = (SystemClock::new().now_ms() / 1000).to_string();
    let authorization = credentials::authorization(matches)?;
    let mut headers: Vec<(&str, &str)> =
        text("tenant").map(|tenant| ("X-Scope-OrgID", tenant)).into_iter().collect();
    headers.extend(authorization.iter().map(|value| ("Authorization", value.as_str())));
    let answer = match text("start") {
        Some(start) => {
            let end = text("end").unwrap_or(&now);
            let step = text("step").unwrap_or(STEP_DEFAULT);
            let form = [("query", expr), ("start", start), ("end", end), ("step", step)];
            client::post_form(url, "/api/v1/query_range", &form, &headers)?
        }
        None => {
            let form = [("query", expr), ("time", text("time").unwrap_or(&now))];
            client::post_form(url, "/api/v1/query", &form, &headers)?
        }
    };
    if matches.get_flag("json") {
        print(&String::from_utf8_lossy(&answer.body));
        print("\n");
        return Ok(if answer.status == 200 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let parsed: Result<Value, _> = serde_json::from_slice(&answer.body);
    let json = parsed.with_context(|| {
        let start: String = String::from_utf8_lossy(&answer.body).chars().take(200).collect();
        format!("the server answered {} without JSON: {}", answer.status, start.trim())
    })?;
    if json["status"] != "success" {
        let kind = json["errorType"].as_str().unwrap_or("error");
        let why = json["error"].as_str().unwrap_or("");
        anyhow::bail!("{kind}: {why}{}", advice(answer.status, text("tenant")));
    }
    for kind in ["warnings", "infos"] {
        for note in json[kind].as_array().into_iter().flatten() {
            let note = note.as_str().unwrap_or("");
            crate::log::print(&format!("{}: {note}", kind.trim_end_matches('s')));
        }
    }
    print(&table(&json["data"]));
    Ok(ExitCode::SUCCESS)
}

/// Returns what to do about a refusal: a server with several tenants answers 401 to a request without one.
fn advice(status: u16, tenant: Option<&str>) -> &'static str {
    if status == 401 && tenant.is_none() { "\n  name the tenant with --tenant" } else { "" }
}

/// Writes to standard output; a reader that has gone away is no error.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// The data of an answer for people.
fn table(data: &Value) -> String {
    let result = &data["result"];
    let items = result.as_array().map_or(&[][..], Vec::as_slice);
    match data["resultType"].as_str() {
        Some("vector") => {
            let row = |item: &Value| (series_text(&item["metric"]), text_of(&item["value"][1]));
            aligned(&items.iter().map(row).collect::<Vec<_>>())
        }
        Some("matrix") => {
            let mut out = String::new();
            for item in items {
                out.push_str(&series_text(&item["metric"]));
                out.push('\n');
                let row = |sample: &Value| (format!("  {}", text_of(&sample[0])), text_of(&sample[1]));
                let rows: Vec<_> = item["values"].as_array().into_iter().flatten().map(row).collect();
                out.push_str(&aligned(&rows));
            }
            if items.is_empty() { aligned(&[]) } else { out }
        }
        _ => format!("{}\n", text_of(&result[1])),
    }
}

fn aligned(rows: &[(String, String)]) -> String {
    if rows.is_empty() {
        return "(no series)\n".to_owned();
    }
    let left = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let right = rows.iter().map(|(_, value)| value.chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:<left$}  {value:>right$}\n")).collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn series_text(metric: &Value) -> String {
    let pairs = metric.as_object().into_iter().flatten();
    let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or("")));
    chronolith_model::Labels::from_pairs(pairs).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let data = serde_json::json!({ "resultType": "vector", "result": [
            { "metric": { "__name__": "up", "job": "a" }, "value": [1, "1"] },
            { "metric": { "__name__": "up", "job": "longer" }, "value": [1, "12.5"] },
        ]});
        assert_eq!(table(&data), "up{job=\"a\"}          1\nup{job=\"longer\"}  12.5\n");
        assert_eq!(table(&serde_json::json!({ "resultType": "vector", "result": [] })), "(no series)\n");
        assert_eq!(table(&serde_json::json!({ "resultType": "scalar", "result": [1, "2"] })), "2\n");
    }
}
