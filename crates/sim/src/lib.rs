//! Deterministic simulation of the real store with fault injection, checked against a model (the ledger).
//!
//! A test environment is a disk in memory that injects failures, torn writes and power cuts, a clock that
//! jumps, and a store on both; with a bucket also objects that outlive the disk, requests to them that fail,
//! and readers of the bucket alone. Operations are drawn from a seed and executed; the ledger (a map of
//! sorted maps) records acknowledged samples, and every answer of the store is compared with it.
//!
//! Invariants: an acknowledged sample is returned with exactly its value until it is deleted or expired; a
//! sample that was never written is not returned; a sample whose write was interrupted is returned or not,
//! and keeps that state after a power cut. One operation is one written sample or one control operation.
//! Not here: HTTP and PromQL, bit rot (`tsdb::check` and the tests of `format`).

mod batch;
mod bucket;
mod bucket_crash_points;
mod bucket_env;
mod bucket_ledger;
mod cluster;
mod cluster_tally;
mod compare;
mod concurrent;
mod crash_points;
mod expected;
mod failure;
mod graphite;
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

pub use bucket_crash_points::{run_bucket_crash_points, run_bucket_maintenance_points};
pub use cluster::scenarios::run_cut_scenarios;
pub use cluster::{run_cluster_ends, run_cluster_seeds, run_seam};
pub use cluster_tally::{ClusterTally, OwnerTally};
pub use concurrent::run_concurrent;
pub use crash_points::{CrashPointTally, run_crash_points};
pub use failure::{Failure, Mode};
pub use op::{CrashKind, Mix, Op, Shape, draw_ops};
pub use runner::{Budget, run_bucket_seeds, run_graphite_seeds, run_seeds};
pub use setup::{BucketSetup, Setup};
pub use shrink::shrink;
pub use tally::{BucketTally, Tally};
pub use test_env::{TestEnv, run_ops};
