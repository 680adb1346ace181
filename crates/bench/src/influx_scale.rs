//! Benchmark `influx-scale`: large numbers of databases, series, rows and windows, by InfluxDB's HTTP API.
//!
//! Invariants: a fresh process over an empty directory for every case; a case checks its answers before it
//! reports a time.
//! Not here: throughput of writes (`line_protocol`).

mod case;
mod churn;
mod databases;
mod drop_database;
mod lines;
mod mean;
mod rows;

use anyhow::{Result, ensure};

pub(crate) use case::Options;

use crate::report::{Failures, Report};
use crate::server::Kind;

/// Cases by name.
const CASES: [&str; 5] = ["databases", "drop", "rows", "mean", "churn"];

pub(crate) fn run(options: &Options) -> Result<()> {
    for name in &options.cases {
        ensure!(CASES.contains(&name.as_str()), "no case {name}; there are: {}", CASES.join(", "));
    }
    let is_chosen = |name: &str| options.cases.is_empty() || options.cases.iter().any(|one| one == name);
    let mut report = Report {
        name: "influx-scale".to_owned(),
        kinds: vec![Kind::Chronolith],
        notes: vec!["client on the same machine; one case is one fresh server".into()],
        tables: Vec::new(),
        targets: Vec::new(),
    };
    if is_chosen("mean") {
        report.kinds.push(mean::PEER);
    }
    let mut failures = Failures::default();
    for name in CASES.into_iter().filter(|name| is_chosen(name)) {
        let done = match name {
            "databases" => databases::run(options),
            "drop" => drop_database::run(options),
            "rows" => rows::run(options),
            "mean" => mean::run(options),
            _ => churn::run(options),
        };
        if let Some(case) = failures.keep(name.to_owned(), done) {
            report.tables.push(case.table);
            report.targets.extend(case.targets);
        }
    }
    report.write(&options.out)?;
    failures.end()
}
