//! Runs of this binary and of another one in alternation, and the comparison of their figures with a
//! confidence interval.
//!
//! Invariants: the halves of a pair take turns in running first, so that a machine that becomes slower or
//! faster favours neither; the interval is a confidence interval of the median of the pairs' ratios by order
//! statistics, which assumes nothing of how they are distributed.
//! Not here: the work, and reading its figures (`pairs`, `write_path::against`).

use std::path::Path;

use anyhow::{Result, ensure};

use crate::latency::median;

/// The interval is the narrowest with at least this confidence.
const CONFIDENCE_MIN: f64 = 0.95;

/// Columns of a table of [`compare`]d figures.
pub(crate) const COLUMNS: [&str; 9] =
    ["before", "low", "high", "after", "low", "high", "ratio", "ratio low", "ratio high"];

/// Figures of both binaries, one entry per pair.
pub(crate) struct Pairs<F> {
    pub(super) before: Vec<F>,
    pub(super) after: Vec<F>,
}

/// Runs `binary` and this one `pair_count` times each.
pub(crate) fn run<F>(
    binary: &Path,
    pair_count: usize,
    run_once: impl Fn(&Path) -> Result<F>,
) -> Result<Pairs<F>> {
    ensure!(pair_count > 0, "--pairs must be above 0");
    let own = std::env::current_exe()?;
    let mut pairs = Pairs { before: Vec::new(), after: Vec::new() };
    for pair in 0..pair_count {
        for half in 0..2 {
            match (pair + half) % 2 == 1 {
                true => pairs.after.push(run_once(&own)?),
                false => pairs.before.push(run_once(binary)?),
            }
        }
        println!("pair {} of {pair_count}", pair + 1);
    }
    Ok(pairs)
}

/// Median, lowest and highest of both; the median of the ratios of pairs and its interval.
pub(crate) fn compare(before: &[f64], after: &[f64]) -> [f64; 9] {
    let spread = |values: &[f64]| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        [median(values), low, high]
    };
    let mut ratios: Vec<f64> = before.iter().zip(after).map(|(before, after)| after / before).collect();
    ratios.sort_by(f64::total_cmp);
    let outer = interval(ratios.len()).0;
    let at = |idx: usize| ratios.get(idx).copied().unwrap_or(f64::NAN);
    let [b, b_low, b_high] = spread(before);
    let [a, a_low, a_high] = spread(after);
    let last = ratios.len().saturating_sub(1);
    [b, b_low, b_high, a, a_low, a_high, median(&ratios), at(outer), at(last.saturating_sub(outer))]
}

/// Number of ratios to leave out at each end for a confidence interval of the median, and its confidence, by
/// the binomial distribution.
pub(crate) fn interval(count: usize) -> (usize, f64) {
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
