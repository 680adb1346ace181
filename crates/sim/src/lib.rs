//! The real store in a fake world, against a ledger of what it must answer.
//!
//! A world is a disk in memory that loses, tears and refuses, a clock that jumps, and a store over both. A list of
//! operations is drawn from a seed and carried out; the ledger (a map of sorted maps) is told what was acknowledged,
//! and everything that the store answers is compared with it.
//!
//! Holds: what is acknowledged is there with exactly its value until it is deleted or expired; what nobody wrote is
//! not there; what was under way when the machine or the process ended is there or not, and after a power cut stays
//! as it is found. One operation is one sample that is written, or one control operation.
//! Not here: HTTP and PromQL, bytes that rot where they lie (`tsdb::check` and the tests of `format`).

mod crowd;
mod ledger;
mod op;
mod points;
mod read;
mod runner;
mod series;
mod setup;
mod shrink;
mod value;
mod world;
mod write;

pub use crowd::run_crowd;
pub use op::{Ending, Mix, Op, Shape, draw_ops};
pub use points::{PointsTally, run_points};
pub use runner::{Budget, Failure, Mode, run_worlds};
pub use setup::Setup;
pub use shrink::shrink;
pub use world::{Tally, World, run_ops};
