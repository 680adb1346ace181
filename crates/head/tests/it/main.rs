//! The head on a fake machine: crashes, damage, limits, and a model of what it must answer.

mod crash;
mod departed;
mod durability;
mod fields;
#[path = "../harness/mod.rs"]
mod harness;
mod histograms;
mod limits;
mod log_cache;
mod memory;
mod merged_snapshot;
mod model;
mod out_of_order;
mod overflow;
mod overflow_histograms;
mod overwrite;
mod presence;
mod recycle;
mod refusals;
mod restart_order;
mod reused_ids;
mod rolling;
mod starts;
mod versions;
