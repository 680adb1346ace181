//! Failures of a simulation, with the command that repeats them.

use std::fmt;

use crate::op::CrashKind;

/// Kind of simulation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One thread, operations of [`Mix::Usual`](crate::Mix::Usual).
    Single {
        /// Operations per seed.
        seed_ops: u64,
    },
    /// Several threads.
    Concurrent {
        /// Rounds; each ends with a crash.
        rounds: u64,
    },
    /// A script that crashes at each disk operation.
    CrashPoints {
        /// Operations of the script.
        op_count: usize,
        /// Disk operation and crash, unless the script failed without a crash.
        at: Option<(u64, CrashKind)>,
    },
    /// One thread and a Graphite store, operations of [`Mix::Graphite`](crate::Mix::Graphite).
    Graphite {
        /// Operations per seed.
        seed_ops: u64,
    },
    /// One thread and a bucket, operations of [`Mix::Bucket`](crate::Mix::Bucket).
    Bucket {
        /// Operations per seed.
        seed_ops: u64,
    },
    /// A cluster.
    Cluster {
        /// Operations per seed.
        seed_ops: u64,
    },
    /// A query node during cuts of a cluster.
    Seam {
        /// Cuts of the log.
        cut_count: u64,
    },
    /// Scenarios around the publication of cuts.
    CutScenarios,
    /// A script of a cluster that ends an owner at records, disk operations and requests.
    ClusterEnds,
    /// A script that ends at each request to the bucket.
    BucketCrashPoints {
        /// Operations of the script; `None` = the script of maintenance.
        op_count: Option<usize>,
        /// Request, and whether it was carried out, unless the script failed without an end.
        at: Option<(u64, bool)>,
    },
}

/// A failed simulation.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Seed of the simulation.
    pub seed: u64,
    /// Index of the operation at which it failed.
    pub op_idx: usize,
    /// Expected and found.
    pub text: String,
    /// Kind of simulation.
    pub mode: Mode,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, text, .. } = self;
        writeln!(f, "seed {seed}: {text}")?;
        write!(f, "to repeat: cargo run --release -p chronolith-sim -- --seed {seed} ")?;
        match self.mode {
            Mode::Single { seed_ops } => write!(f, "--seed-ops {seed_ops} --seeds 1"),
            Mode::Concurrent { rounds } => {
                write!(f, "--concurrent {rounds} (thread schedules vary: several runs may be needed)")
            }
            Mode::CrashPoints { op_count, at: None } => {
                write!(f, "--crash-points {op_count} (without a crash)")
            }
            Mode::CrashPoints { op_count, at: Some((at, kind)) } => {
                write!(f, "--crash-points {op_count} ({kind:?} at disk operation {at})")
            }
            Mode::Graphite { seed_ops } => write!(f, "--graphite --seed-ops {seed_ops} --seeds 1"),
            Mode::Bucket { seed_ops } => write!(f, "--bucket --seed-ops {seed_ops} --seeds 1"),
            Mode::Seam { cut_count } => write!(f, "--cluster-seam {cut_count}"),
            Mode::CutScenarios | Mode::ClusterEnds => write!(f, "--cluster-ends"),
            Mode::Cluster { seed_ops } => write!(f, "--cluster --seed-ops {seed_ops} --seeds 1"),
            Mode::BucketCrashPoints { op_count, at } => {
                match op_count {
                    Some(op_count) => write!(f, "--bucket-crash-points {op_count} ")?,
                    None => write!(f, "--bucket-maintenance-points ")?,
                }
                match at {
                    None => write!(f, "(without an end)"),
                    Some((at, true)) => write!(f, "(end after request {at})"),
                    Some((at, false)) => write!(f, "(end before request {at})"),
                }
            }
        }
    }
}

/// Returns a panic of the store as a failure. The panic's message was printed before.
pub(crate) fn catch_panic<T>(run: impl FnOnce() -> Result<T, (usize, String)>) -> Result<T, (usize, String)> {
    let run = std::panic::AssertUnwindSafe(run);
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err((usize::MAX, "the store panicked".to_owned())))
}
