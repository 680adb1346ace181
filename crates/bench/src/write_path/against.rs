//! `write-path --against BINARY`: this binary and another one do the same work in alternation; what differs
//! is printed with a confidence interval.
//!
//! Not here: the work (`write_path`), the alternation and the interval (`alternation`).

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Options;
use crate::alternation::{self, COLUMNS, Pairs, compare, interval};
use crate::driver::Run;
use crate::report::Table;

/// Fewer pairs support no statement.
const PAIRS_MIN: usize = 6;
/// Batches per case unless `--batches` says otherwise: a second or two.
const BATCHES_DEFAULT: usize = 3000;
const FIGURES: [&str; 5] = ["commit p50, ms", "ack p50, ms", "ack p99, ms", "samples/s", "CPU seconds"];

pub(super) fn measure(options: &Options, binary: &Path, run: &mut Run) -> Result<()> {
    ensure!(options.pairs >= PAIRS_MIN, "--pairs must be at least {PAIRS_MIN}");
    let data = run.data().to_owned();
    let pairs = alternation::run(binary, options.pairs, |program| run_once(options, program, &data))?;
    add_tables(&pairs, run)?;
    run.note(format!("before: {}; after: this binary", binary.display()));
    run.note(format!(
        "{} pairs of runs in alternation, {} batches per case",
        options.pairs,
        batches(options)
    ));
    run.note("medians of the runs, lowest and highest run; ratio: the median of after/before in each pair");
    run.note(format!(
        "the ratio lies between low and high with a confidence of {:.1} %; it is resolved where 1 lies outside",
        100.0 * interval(options.pairs).1
    ));
    Ok(())
}

fn batches(options: &Options) -> usize {
    options.batches.unwrap_or(BATCHES_DEFAULT)
}

fn run_once(options: &Options, program: &Path, data: &Path) -> Result<Value> {
    let list = |counts: &[usize]| counts.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new(program);
    command.args(["write-path", "--figures", "--batches", &batches(options).to_string()]);
    command.args(["--writers", &list(&options.writers), "--batch", &list(&options.batch)]);
    command.arg("--data").arg(data);
    if let Some(sync) = &options.sync {
        command.args(["--sync", sync]);
    }
    if options.quick {
        command.arg("--quick");
    }
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| program.display().to_string())?;
    let name = program.display();
    ensure!(output.status.success(), "{name}: {} (a binary without --figures is too old)", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("{name} has printed no figures"))
}

fn add_tables(pairs: &Pairs<Value>, run: &mut Run) -> Result<()> {
    let cases = pairs.before.first().and_then(Value::as_array).context("no cases")?;
    for (idx, case) in cases.iter().enumerate() {
        let mut table = Table::new(case["case"].as_str().context("a case has a name")?, COLUMNS);
        for figure in FIGURES {
            let of = |runs: &[Value]| -> Vec<f64> {
                runs.iter().map(|run| run[idx]["figures"][figure].as_f64().unwrap_or(f64::NAN)).collect()
            };
            table.row(figure, 3, compare(&of(&pairs.before), &of(&pairs.after)));
        }
        run.table(table);
    }
    Ok(())
}
