//! Many worlds one after the other, until so many operations are done, and what is said when one fails.
//! Holds: a failure names the seed and the command that repeats it. Not here: several threads in one world (`crowd`).

use std::fmt;

use crate::op::{Ending, Mix, draw_ops};
use crate::setup::Setup;
use crate::world::{Tally, run_ops};

/// Samples of an operation on average, at least: so many operations are drawn for a number of samples.
const SAMPLES_PER_OP_MIN: u64 = 8;

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Operations of all worlds together.
    pub ops: u64,
    /// Operations of one world.
    pub world_ops: u64,
}

/// How a failure came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One thread, operations from the usual mix.
    Single {
        /// Operations of the world.
        world_ops: u64,
    },
    /// Several threads.
    Crowd {
        /// Rounds.
        rounds: u64,
    },
    /// A script that is cut at every disk operation.
    Points {
        /// Length of the script.
        op_count: usize,
        /// Where and how, if it was cut at all.
        at: Option<(u64, Ending)>,
    },
}

/// Something is wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Of the world.
    pub seed: u64,
    /// Index of the operation that showed it.
    pub op_idx: usize,
    /// What.
    pub text: String,
    /// In which way.
    pub mode: Mode,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, text, .. } = self;
        writeln!(f, "seed {seed}: {text}")?;
        write!(f, "to repeat: cargo run --release -p chronolith-sim -- --seed {seed} ")?;
        match self.mode {
            Mode::Single { world_ops } => write!(f, "--world-ops {world_ops} --worlds 1"),
            Mode::Crowd { rounds } => write!(f, "--crowd {rounds} (threads: it may take several runs)"),
            Mode::Points { op_count, at: None } => write!(f, "--points {op_count} (without a cut)"),
            Mode::Points { op_count, at: Some((at, ending)) } => {
                write!(f, "--points {op_count} (cut at disk operation {at}, {ending:?})")
            }
        }
    }
}

/// Runs worlds of the seeds from `seed` on until `budget` is used up; `progress` is told of each.
///
/// # Errors
/// The first failure.
pub fn run_worlds(
    seed: u64,
    budget: Budget,
    mut progress: impl FnMut(u64, &Tally),
) -> Result<Tally, Failure> {
    let mut all = Tally::default();
    let mut seed = seed;
    while all.ops() < budget.ops {
        let world_ops = budget.world_ops.min(budget.ops - all.ops());
        let tally = run_world(seed, world_ops)?;
        progress(seed, &tally);
        all.add(&tally);
        seed += 1;
    }
    Ok(all)
}

fn run_world(seed: u64, world_ops: u64) -> Result<Tally, Failure> {
    let setup = Setup::from_seed(seed);
    let ops = draw_ops(&setup, Mix::Usual, (world_ops / SAMPLES_PER_OP_MIN + 100) as usize);
    let fail = |(op_idx, text)| Failure { seed, op_idx, text, mode: Mode::Single { world_ops } };
    catch(|| run_ops(&setup, &ops, world_ops)).map_err(fail)
}

/// A panic of the store is a failure like others; the panic's own message stands above it.
pub(crate) fn catch<T>(run: impl FnOnce() -> Result<T, (usize, String)>) -> Result<T, (usize, String)> {
    let run = std::panic::AssertUnwindSafe(run);
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err((usize::MAX, "the store has panicked".to_owned())))
}
