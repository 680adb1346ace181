//! Reduces a case that differs to a small one that differs in the same way.

use std::io::Result;

use crate::runner::{Finding, Runner};
use crate::steps::Step;

/// Attempts before the smallest case so far is taken.
const ATTEMPTS_MAX: usize = 300;

/// The smallest case that was found, and its difference.
pub(crate) fn shrink(runner: &mut Runner, steps: Vec<Step>, found: Finding) -> Result<(Vec<Step>, Finding)> {
    let mut best = (steps, found);
    best.0.truncate(best.1.step + 1);
    let mut attempts = 0;
    'restart: loop {
        for smaller in reductions(&best.0) {
            attempts += 1;
            if attempts > ATTEMPTS_MAX {
                return Ok(best);
            }
            let Some(found) = runner.find(&smaller)? else { continue };
            if found.difference.kind == best.1.difference.kind {
                best = (smaller, found);
                best.0.truncate(best.1.step + 1);
                continue 'restart;
            }
        }
        return Ok(best);
    }
}

fn reductions(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut out = Vec::new();
    if steps.len() > 1 {
        for removed in 0..steps.len() - 1 {
            let mut fewer = steps.to_vec();
            fewer.remove(removed);
            out.push(fewer);
        }
    }
    for (idx, step) in steps.iter().enumerate() {
        for smaller in step.reductions() {
            let mut steps = steps.to_vec();
            steps[idx] = smaller;
            out.push(steps);
        }
    }
    out
}
