//! Benchmark `influx-scale`: large numbers of databases, series, rows and windows, by InfluxDB's HTTP API.
//!
//! Invariants: a fresh process over an empty directory for every case; a case checks its answers before it
//! reports a time.
//! Not here: throughput of writes (`line_protocol`).

mod churn;
mod databases;
mod drop_database;
mod lines;
mod mean;
mod rows;

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::report::{Failures, Report, Table, Target};
use crate::server::Kind;

/// Cases by name.
const CASES: [&str; 5] = ["databases", "drop", "rows", "mean", "churn"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Cases (default: all): databases, drop, rows, mean, churn.
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// A hundredth of each size: shows that the benchmark works.
    #[arg(long)]
    quick: bool,
    /// Minutes over which the case `churn` spreads its series.
    #[arg(long, default_value_t = 10)]
    churn_minutes: u64,
    /// Where the report goes.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
    /// Where data directories go; its disk is part of what is measured.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    data: PathBuf,
}

impl Options {
    /// Returns `count`, or a hundredth of it.
    fn sized(&self, count: u64) -> u64 {
        if self.quick { (count / 100).max(1) } else { count }
    }
}

/// Figures of one case.
struct Case {
    table: Table,
    targets: Vec<Target>,
}

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
