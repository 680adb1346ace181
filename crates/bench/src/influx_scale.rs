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

use anyhow::Result;

pub(crate) use case::Options;

use crate::driver::{Benchmark, Run};
use crate::options::chosen;
use crate::server::Kind;

type Case = (&'static str, fn(&Options, &mut Run) -> Result<()>);

/// Cases by name.
const CASES: [Case; 5] = [
    ("databases", databases::measure),
    ("drop", drop_database::measure),
    ("rows", rows::measure),
    ("mean", mean::measure),
    ("churn", churn::measure),
];

impl Options {
    fn chosen(&self) -> Result<Vec<Case>> {
        chosen(&self.cases, CASES.to_vec(), |case| case.0)
    }
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        let needs_peer = self.chosen()?.iter().any(|(name, _)| *name == "mean");
        Ok(if needs_peer { vec![Kind::Chronolith, mean::PEER] } else { vec![Kind::Chronolith] })
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        run.note("client on the same machine; one case is one fresh server");
        for (name, measure) in self.chosen()? {
            let done = measure(self, run);
            run.keep(name, done);
        }
        Ok(())
    }
}
