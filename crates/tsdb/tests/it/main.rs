//! The store as a whole on a fake machine: full disks, retention, crashes, and a model of what it must answer.

mod compaction;
mod disk_full;
#[path = "../../../head/tests/harness/fault_disk.rs"]
#[expect(unreachable_pub, reason = "shared with the tests of the head, where it is a module of each file")]
mod fault_disk;
mod fixture;
mod model;
mod retention;
mod stress;
mod upkeep;
