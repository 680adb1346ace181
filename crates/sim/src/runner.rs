//! Simulations of consecutive seeds until a number of operations is reached.
//!
//! Not here: several threads (`concurrent`), scripts that crash at each disk operation (`crash_points`).

use crate::failure::{Failure, Mode, catch_panic};
use crate::op::{Mix, draw_ops};
use crate::setup::Setup;
use crate::tally::Tally;
use crate::test_env::run_ops;

/// Lower bound of the average samples per operation, from which the number of operations to draw follows.
const SAMPLES_PER_OP_MIN: u64 = 8;

/// Number of operations to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Operations of all seeds together.
    pub ops: u64,
    /// Operations per seed.
    pub seed_ops: u64,
}

/// Simulates the seeds from `seed` on until `budget` is used up. `progress` is called after each seed.
///
/// # Errors
/// The first failure.
pub fn run_seeds(seed: u64, budget: Budget, progress: impl FnMut(u64, &Tally)) -> Result<Tally, Failure> {
    run_all(seed, budget, run_seed, progress)
}

/// As [`run_seeds`], with a Graphite store.
///
/// # Errors
/// The first failure.
pub fn run_graphite_seeds(
    seed: u64,
    budget: Budget,
    progress: impl FnMut(u64, &Tally),
) -> Result<Tally, Failure> {
    run_all(seed, budget, run_graphite_seed, progress)
}

/// As [`run_seeds`], with a bucket.
///
/// # Errors
/// The first failure.
pub fn run_bucket_seeds(
    seed: u64,
    budget: Budget,
    progress: impl FnMut(u64, &Tally),
) -> Result<Tally, Failure> {
    run_all(seed, budget, run_bucket_seed, progress)
}

fn run_all(
    seed: u64,
    budget: Budget,
    run: impl Fn(u64, u64) -> Result<Tally, Failure>,
    mut progress: impl FnMut(u64, &Tally),
) -> Result<Tally, Failure> {
    let mut all = Tally::default();
    let mut seed = seed;
    while all.ops() < budget.ops {
        let seed_ops = budget.seed_ops.min(budget.ops - all.ops());
        let tally = run(seed, seed_ops)?;
        progress(seed, &tally);
        all.add(&tally);
        seed += 1;
    }
    Ok(all)
}

fn run_seed(seed: u64, seed_ops: u64) -> Result<Tally, Failure> {
    run_setup(&Setup::from_seed(seed), Mix::Usual, seed_ops, Mode::Single { seed_ops })
}

fn run_graphite_seed(seed: u64, seed_ops: u64) -> Result<Tally, Failure> {
    run_setup(&Setup::with_graphite(seed), Mix::Graphite, seed_ops, Mode::Graphite { seed_ops })
}

fn run_bucket_seed(seed: u64, seed_ops: u64) -> Result<Tally, Failure> {
    run_setup(&Setup::with_bucket(seed), Mix::Bucket, seed_ops, Mode::Bucket { seed_ops })
}

fn run_setup(setup: &Setup, mix: Mix, seed_ops: u64, mode: Mode) -> Result<Tally, Failure> {
    let ops = draw_ops(setup, mix, (seed_ops / SAMPLES_PER_OP_MIN + 100) as usize);
    let fail = |(op_idx, text)| Failure { seed: setup.seed, op_idx, text, mode };
    catch_panic(|| run_ops(setup, &ops, seed_ops)).map_err(fail)
}
