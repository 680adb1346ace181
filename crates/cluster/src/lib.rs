//! Roles of a server that share a replicated log and a bucket with others (ADRs 0137, 0138).
//!
//! Invariants: nothing here runs without a log; processes share the log, the bucket and names, nothing else:
//! there is no membership, election or replication of our own.
//! Not here: the log (`replicated_log`), the store (`tsdb`), HTTP and sockets (`server`).

pub mod deletions;
mod folder;
pub mod gateway;
mod log;
pub mod options;
pub mod owner;
pub mod partition_changes;
pub mod partition_maps;
pub mod partition_states;
pub mod peers;
pub mod rule_lease;
pub mod verify;

pub use chronolith_model::log_position::{PartitionId, TopicId};
pub use chronolith_replicated_log::{LogError, ReplicatedLog};
pub use log::{log_partition_count, open_log};
