//! `write-path --against BINARY`: this binary and another one do the same work in alternation; what differs
//! is printed with a confidence interval.
//!
//! Invariants: the halves of a pair take turns in running first, so that a machine that becomes slower or
//! faster favours neither; the interval is a confidence interval of the median of the pairs' ratios by order
//! statistics, which assumes nothing of how they are distributed.
//! Not here: the work (`write_path`).

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Options;
use crate::report::{Report, Table, median};

/// Fewer pairs support no statement.
const PAIRS_MIN: usize = 6;
/// Batches per case unless `--batches` says otherwise: a second or two.
const BATCHES_DEFAULT: usize = 3000;
/// The interval is the narrowest with at least this confidence.
const CONFIDENCE_MIN: f64 = 0.95;
const FIGURES: [&str; 5] = ["commit p50, ms", "ack p50, ms", "ack p99, ms", "samples/s", "CPU seconds"];

pub(super) fn run(options: &Options, binary: &Path) -> Result<()> {
    ensure!(options.pairs >= PAIRS_MIN, "--pairs must be at least {PAIRS_MIN}");
    let own = std::env::current_exe()?;
    let mut before = Vec::new();
    let mut after = Vec::new();
    for pair in 0..options.pairs {
        for half in 0..2 {
            let is_own = (pair + half) % 2 == 1;
            let program = if is_own { &own } else { binary };
            let figures = run_once(options, program)?;
            if is_own { after.push(figures) } else { before.push(figures) }
        }
        println!("pair {} of {}", pair + 1, options.pairs);
    }
    let tables = tables(&before, &after)?;
    let notes = vec![
        format!("before: {}; after: this binary", binary.display()),
        format!("{} pairs of runs in alternation, {} batches per case", options.pairs, batches(options)),
        "medians of the runs, lowest and highest run; ratio: the median of after/before in each pair"
            .to_owned(),
        format!(
            "the ratio lies between low and high with a confidence of {:.1} %; it is resolved where 1 lies outside",
            100.0 * interval(options.pairs).1
        ),
    ];
    Report { name: "write-path-against".to_owned(), kinds: Vec::new(), notes, tables, targets: Vec::new() }
        .write(&options.out)
}

fn batches(options: &Options) -> usize {
    options.batches.unwrap_or(BATCHES_DEFAULT)
}

fn run_once(options: &Options, program: &Path) -> Result<Value> {
    let list = |counts: &[usize]| counts.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new(program);
    command.args(["write-path", "--figures", "--batches", &batches(options).to_string()]);
    command.args(["--writers", &list(&options.writers), "--batch", &list(&options.batch)]);
    command.arg("--data").arg(&*options.data);
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

fn tables(before: &[Value], after: &[Value]) -> Result<Vec<Table>> {
    let cases = before.first().and_then(Value::as_array).context("no cases")?;
    let mut tables = Vec::new();
    for (idx, case) in cases.iter().enumerate() {
        let title = case["case"].as_str().context("a case has a name")?;
        let columns = ["before", "low", "high", "after", "low", "high", "ratio", "ratio low", "ratio high"];
        let mut table = Table::new(title, columns);
        for figure in FIGURES {
            let of = |runs: &[Value]| -> Vec<f64> {
                runs.iter().map(|run| run[idx]["figures"][figure].as_f64().unwrap_or(f64::NAN)).collect()
            };
            table.row(figure, 3, compare(&of(before), &of(after)));
        }
        tables.push(table);
    }
    Ok(tables)
}

/// Median, lowest and highest of both; the median of the ratios of pairs and its interval.
pub(crate) fn compare(before: &[f64], after: &[f64]) -> [f64; 9] {
    let spread = |values: &[f64]| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        [median(values.to_vec()), low, high]
    };
    let mut ratios: Vec<f64> = before.iter().zip(after).map(|(before, after)| after / before).collect();
    ratios.sort_by(f64::total_cmp);
    let outer = interval(ratios.len()).0;
    let at = |idx: usize| ratios.get(idx).copied().unwrap_or(f64::NAN);
    let [b, b_low, b_high] = spread(before);
    let [a, a_low, a_high] = spread(after);
    let last = ratios.len().saturating_sub(1);
    [b, b_low, b_high, a, a_low, a_high, median(ratios.clone()), at(outer), at(last.saturating_sub(outer))]
}

/// Number of ratios to leave out at each end for a confidence interval of the median, and its confidence, by
/// the binomial distribution.
fn interval(count: usize) -> (usize, f64) {
    let mut best = (0, 1.0 - 2.0 * 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX)));
    let mut term = 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut tail = 0.0;
    for outer in 0..count / 2 {
        tail += term;
        let confidence = 1.0 - 2.0 * tail;
        if confidence < CONFIDENCE_MIN {
            break;
        }
        best = (outer, confidence);
        term = term * (count - outer) as f64 / (outer + 1) as f64;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::{compare, interval};

    #[test]
    fn the_interval_of_a_median_is_that_of_the_binomial_distribution() {
        let near = |found: (usize, f64), outer, confidence: f64| {
            assert!(found.0 == outer && (found.1 - confidence).abs() < 1e-4, "{found:?}");
        };
        near(interval(6), 0, 0.96875);
        near(interval(10), 1, 0.97852);
        near(interval(20), 5, 0.95861);
    }

    #[test]
    fn one_slow_run_moves_neither_ratio_nor_interval() {
        let before = [10.0; 10];
        let mut after = [5.0; 10];
        after[3] = 50.0;
        assert_eq!(compare(&before, &after)[6..], [0.5, 0.5, 0.5]);
    }
}
