//! `chronolith tenants ls`: the tenants of a running server with their series, memory, counts and the limits
//! that they are nearest to.
//!
//! Not here: HTTP (`client`), the list itself (`server::http::activity::tenants`), deletions (`delete`).

mod delete;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;

use crate::args::value;
use crate::query::print;
use crate::{client, credentials};

/// Heads of the columns.
const COLUMNS: [&str; 6] = ["TENANT", "SERIES", "MEMORY", "ACCEPTED", "REJECTED", "NEAREST LIMIT"];

pub(crate) fn command() -> Command {
    let ls = Command::new("ls")
        .about("List the tenants of a running server")
        .arg(Arg::new("url").required(true).value_name("URL").help("Such as http://127.0.0.1:9595"))
        .arg(
            Arg::new("limit")
                .long("limit")
                .value_name("COUNT")
                .default_value("100")
                .help("Tenants that are listed, those with most series first"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the response of the server unchanged"),
        );
    Command::new("tenants")
        .about("Tenants of a running server")
        .subcommand_required(true)
        .subcommand(credentials::add_arguments(ls))
        .subcommand(delete::command())
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    match matches.subcommand() {
        Some(("ls", matches)) => list(matches),
        Some(("delete", matches)) => delete::run(matches),
        _ => Ok(ExitCode::from(2)),
    }
}

fn list(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let authorization = credentials::authorization(matches)?;
    let headers: Vec<(&str, &str)> =
        authorization.iter().map(|value| ("Authorization", value.as_str())).collect();
    let limit: u32 = value(matches, "limit").unwrap_or_default().parse().context("--limit")?;
    let path = format!("/api/v1/status/tenants?limit={limit}");
    let answer = client::get(value(matches, "url").unwrap_or_default(), &path, &headers)?;
    if matches.get_flag("json") {
        print(&format!("{}\n", String::from_utf8_lossy(&answer.body)));
        return Ok(if answer.status == 200 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    print(&table(&answer.data()?));
    Ok(ExitCode::SUCCESS)
}

/// Rows for people, and a last line if tenants are missing.
fn table(data: &Value) -> String {
    let tenants = data["tenants"].as_array().map_or(&[][..], Vec::as_slice);
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(tenants.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(width);
    let mut out = String::new();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Numbers are aligned to the right.
            match column {
                0 => out.push_str(&format!("{cell:<width$}")),
                5 => out.push_str(&format!("  {cell}")),
                _ => out.push_str(&format!("  {cell:>width$}")),
            }
        }
        out.push('\n');
    }
    let total = data["total"].as_u64().unwrap_or(0);
    let shown = tenants.len() as u64;
    if total > shown {
        out.push_str(&format!("({} more: --limit)\n", total - shown));
    }
    out
}

fn row(tenant: &Value) -> [String; COLUMNS.len()] {
    let count = |name: &str| tenant[name].as_u64().unwrap_or(0).to_string();
    [
        tenant["tenant"].as_str().unwrap_or("").to_owned(),
        count("series"),
        count("memoryBytes"),
        count("samplesAccepted"),
        count("samplesRejected"),
        nearest_limit(&tenant["limits"]),
    ]
}

/// The limit with the largest part in use.
fn nearest_limit(limits: &Value) -> String {
    let uses = limits.as_array().into_iter().flatten().filter_map(|one| {
        let used = one["used"].as_u64()?;
        let limit = one["limit"].as_u64().filter(|limit| *limit > 0)?;
        Some((used as f64 / limit as f64, used, limit, one))
    });
    let nearest = uses.max_by(|a, b| a.0.total_cmp(&b.0));
    nearest.map_or_else(String::new, |(part, used, limit, one)| {
        let name = one["setting"].as_str().or_else(|| one["name"].as_str()).unwrap_or("");
        format!("{name} {:.0}% ({used} of {limit})", part * 100.0)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tenants_are_listed_with_the_limit_that_they_are_nearest_to() {
        let limit = |setting: Option<&str>, used: u64, limit: Option<u64>| json!({ "name": "n", "setting": setting, "used": used, "limit": limit });
        let data = json!({
            "tenants": [
                {
                    "tenant": "team-a", "series": 900, "memoryBytes": 123_456, "samplesAccepted": 10,
                    "samplesRejected": 2,
                    "limits": [limit(Some("series-limit"), 900, Some(1000)), limit(None, 5, Some(10)), limit(None, 9, None)],
                },
                { "tenant": "b", "series": 1, "memoryBytes": 0, "samplesAccepted": 0, "samplesRejected": 0, "limits": [] },
            ],
            "total": 3,
        });
        let want = "\
TENANT  SERIES  MEMORY  ACCEPTED  REJECTED  NEAREST LIMIT
team-a     900  123456        10         2  series-limit 90% (900 of 1000)
b            1       0         0         0  \n\
(1 more: --limit)
";
        assert_eq!(table(&data), want);
    }
}
