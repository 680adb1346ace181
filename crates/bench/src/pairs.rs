//! `pairs --against BINARY -- BENCHMARK FLAGS`: runs a benchmark of this binary and of another one in
//! alternation and compares every figure of their reports.
//!
//! Invariants: a figure that one of the runs lacks is left out.
//! Not here: the benchmarks, the alternation and the confidence interval (`alternation`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::alternation::{self, COLUMNS, compare};
use crate::driver::{Benchmark, Run};
use crate::report::Table;

/// Parts of a report that hold no figures.
const NO_FIGURES: [&str; 6] = ["date", "load_average", "machine", "notes", "servers", "targets"];
/// Keys whose text names an element of a list.
const NAMES: [&str; 7] = ["name", "title", "corpus", "shape", "label", "server", "case"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The other `chronolith-bench`; servers that it starts are those in its directory.
    #[arg(long)]
    against: PathBuf,
    /// Pairs of runs.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Prints only figures whose name has this text.
    #[arg(long, default_value = "")]
    only_figures: String,
    /// The benchmark and its flags, without `--out`.
    #[arg(last = true, required = true)]
    benchmark: Vec<String>,
}

/// Figures of one run by name.
type Figures = BTreeMap<String, f64>;

impl Benchmark for Options {
    fn variant(&self) -> Option<&str> {
        self.benchmark.first().map(String::as_str)
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        let run_once = |program: &Path| run_once(program, &self.benchmark);
        let pairs = alternation::run(&self.against, self.pairs, run_once)?;
        let mut table = Table::new(self.benchmark.join(" "), COLUMNS);
        let first = pairs.before.first().context("no run")?;
        for name in first.keys().filter(|name| name.contains(&self.only_figures)) {
            let of = |runs: &[Figures]| {
                runs.iter().map(|run| run.get(name).copied()).collect::<Option<Vec<f64>>>()
            };
            if let (Some(before), Some(after)) = (of(&pairs.before), of(&pairs.after)) {
                table.row(name, 3, compare(&before, &after));
            }
        }
        run.table(table);
        run.note(format!("before: {}; after: this binary", self.against.display()));
        run.note(format!("{} pairs of runs in alternation", self.pairs));
        run.note(
            "medians, lowest and highest run; ratio: the median of after/before in each pair, with the interval \
             of write-path --against",
        );
        Ok(())
    }
}

fn run_once(program: &Path, benchmark: &[String]) -> Result<Figures> {
    let out = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.args(benchmark).arg("--out").arg(out.path()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let status = command.status().with_context(|| program.display().to_string())?;
    let mut figures = Figures::new();
    for entry in std::fs::read_dir(out.path())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let report: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
            collect(&report, "", &mut figures);
        }
    }
    // A missed target is no failure here: what counts is the comparison.
    ensure!(!figures.is_empty(), "{}: {status}, and no report", program.display());
    Ok(figures)
}

/// Adds the figures below `value`, whose name is `path`.
fn collect(value: &Value, path: &str, out: &mut Figures) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}, {name}") };
    match value {
        Value::Number(number) => {
            out.extend(number.as_f64().map(|number| (path.to_owned(), number)));
        }
        Value::Object(fields) => {
            let columns = fields.get("columns").and_then(Value::as_array);
            for (key, value) in fields.iter().filter(|(key, _)| !NO_FIGURES.contains(&key.as_str())) {
                match (columns, key.as_str(), value) {
                    (Some(columns), "rows", Value::Array(rows)) => rows.iter().for_each(|row| {
                        let label = row["label"].as_str().unwrap_or_default();
                        let cells = row["values"].as_array().into_iter().flatten();
                        for (column, cell) in columns.iter().zip(cells) {
                            let column = column.as_str().unwrap_or_default();
                            collect(cell, &join(&format!("{label}, {column}")), out);
                        }
                    }),
                    _ => collect(value, &join(key), out),
                }
            }
        }
        Value::Array(items) => {
            for (idx, item) in items.iter().enumerate() {
                let names = NAMES.iter().filter_map(|name| item.get(name)?.as_str());
                let name = names.collect::<Vec<_>>().join(" ");
                collect(item, &join(&if name.is_empty() { idx.to_string() } else { name }), out);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Figures, collect};

    #[test]
    fn every_figure_of_a_report_has_a_name() {
        let report = json!({
            "bench": "late", "date": 20, "machine": {"core_count": 2},
            "tables": [{"title": "rate", "columns": ["a", "b"], "rows": [{"label": "0 %", "values": [1, null]}]}],
            "lines": [{"shape": "topk", "outcomes": [{"server": "chronolith", "wall_ms": 2.5}]}, {"x": 3}],
        });
        let mut found = Figures::new();
        collect(&report, "", &mut found);
        let want = [
            ("lines, 1, x", 3.0),
            ("lines, topk, outcomes, chronolith, wall_ms", 2.5),
            ("tables, rate, 0 %, a", 1.0),
        ];
        assert_eq!(found, want.map(|(name, value)| (name.to_owned(), value)).into());
    }
}
