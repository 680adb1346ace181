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
    let setup = Setup::from_seed(seed);
    let ops = draw_ops(&setup, Mix::Usual, (seed_ops / SAMPLES_PER_OP_MIN + 100) as usize);
    let fail = |(op_idx, text)| Failure { seed, op_idx, text, mode: Mode::Single { seed_ops } };
    catch_panic(|| run_ops(&setup, &ops, seed_ops)).map_err(fail)
}

fn run_bucket_seed(seed: u64, seed_ops: u64) -> Result<Tally, Failure> {
    let setup = Setup::with_bucket(seed);
    let ops = draw_ops(&setup, Mix::Bucket, (seed_ops / SAMPLES_PER_OP_MIN + 100) as usize);
    let fail = |(op_idx, text)| Failure { seed, op_idx, text, mode: Mode::Bucket { seed_ops } };
    catch_panic(|| run_ops(&setup, &ops, seed_ops)).map_err(fail)
}
