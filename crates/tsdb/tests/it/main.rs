//! The store as a whole on a fake machine: full disks, retention, crashes, and a model of what it must
//! answer.

mod answer_damage;
mod blocks;
mod booleans;
mod bucket;
mod bucket_damage;
mod bucket_maintenance;
mod bucket_repair;
mod clock_guard;
mod cluster_databases;
mod compaction;
mod damage;
mod delete;
mod disk_full;
mod duplicates_in_bucket;
#[path = "../../../head/tests/harness/fault_disk.rs"]
#[expect(unreachable_pub, reason = "shared with the tests of the head, where it is a module of each file")]
mod fault_disk;
mod fixture;
mod golden_files;
mod head_memory;
mod histograms;
mod idle;
#[path = "../../../head/tests/harness/kinds.rs"]
#[expect(
    unreachable_pub,
    dead_code,
    reason = "shared with the tests of the head, where it is a module of each file, and more of it is used"
)]
mod kinds;
mod label_search;
mod log_end;
mod maintenance;
mod many_tenants;
mod metadata;
mod metric_disk;
mod model;
mod nanoseconds;
mod open_files;
mod own_policy;
mod peer;
mod policy;
mod records;
mod retention;
mod rollups;
mod snapshot;
mod starts;
mod stress;
mod tenant_deletion;
mod thanos;
mod typed;
mod upload;
mod upload_databases;
mod upload_graphite;
