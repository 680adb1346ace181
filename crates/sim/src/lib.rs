//! Deterministic simulation of the real store with fault injection, checked against a model (the ledger).
//!
//! A test environment is a disk in memory that injects failures, torn writes and power cuts, a clock that
//! jumps, and a store on both. Operations are drawn from a seed and executed; the ledger (a map of sorted
//! maps) records acknowledged samples, and every answer of the store is compared with it.
//!
//! Invariants: an acknowledged sample is returned with exactly its value until it is deleted or expired; a
//! sample that was never written is not returned; a sample whose write was interrupted is returned or not,
//! and keeps that state after a power cut. One operation is one written sample or one control operation.
//! Not here: HTTP and PromQL, bit rot (`tsdb::check` and the tests of `format`).

mod batch;
mod compare;
mod concurrent;
mod crash_points;
mod failure;
mod labels;
mod ledger;
mod op;
mod runner;
mod setup;
mod shrink;
mod tally;
mod test_env;
mod value;
mod write;

pub use concurrent::run_concurrent;
pub use crash_points::{CrashPointTally, run_crash_points};
pub use failure::{Failure, Mode};
pub use op::{CrashKind, Mix, Op, Shape, draw_ops};
pub use runner::{Budget, run_seeds};
pub use setup::Setup;
pub use shrink::shrink;
pub use tally::Tally;
pub use test_env::{TestEnv, run_ops};
