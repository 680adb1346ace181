//! A node as it reports itself, and the owners of one partition in the order in which they are asked.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronolith_model::TenantId;
use chronolith_model::log_position::{PartitionId, TopicId};

use super::latency::FirstByteTimes;

/// A partition that a node owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReport {
    /// The partition.
    pub partition: PartitionId,
    /// Offset of the next record that the node applies; `None` before the first.
    pub next_offset: Option<u64>,
    /// Reason why queries have to ask another owner; `None` = ready.
    pub not_ready: Option<String>,
    /// Set if the owner is not ready because it cannot read the log, and was ready until then: it answers
    /// with a warning, and is asked if no other owner is ready.
    pub is_log_away: bool,
    /// Position in the log, for operators; `None` from a node of an earlier version.
    pub progress: Option<PartitionProgress>,
    /// Series of tenants, at most [`TENANTS_REPORTED_MAX`]: those that are nearest to their limit.
    pub series: Vec<TenantSeries>,
}

/// Position of an owner in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartitionProgress {
    /// Age of the last applied record while there are later ones, else 0.
    pub lag_ms: i64,
    /// First offset of the log.
    pub log_start: u64,
    /// Offset that the next record of the log gets.
    pub log_end: u64,
    /// Oldest record with a sample in no live block; `None` before the first look.
    pub resume: Option<u64>,
    /// Records since the start that could not be applied.
    pub refused_count: u64,
}

impl PartitionProgress {
    /// Returns the number of offsets that the log may lose before it loses a sample that is in no block; 0
    /// if it has lost one.
    #[must_use]
    pub fn log_start_distance(&self) -> Option<u64> {
        Some(self.resume?.saturating_sub(self.log_start))
    }
}

/// Tenants that the report of a partition has at most.
pub const TENANTS_REPORTED_MAX: usize = 1000;

/// Series of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSeries {
    /// The tenant.
    pub tenant: TenantId,
    /// Series of its default store that an owner has in its head.
    pub count: u64,
}

/// Report of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    /// Identity of the topic.
    pub topic: TopicId,
    /// Partitions of the node.
    pub partitions: Vec<PartitionReport>,
}

/// Address of a node, `HOST:PORT`, and whether the last call to it failed.
pub struct NodeAddress {
    address: String,
    is_failing: AtomicBool,
}

impl NodeAddress {
    pub(super) fn new(address: &str) -> NodeAddress {
        NodeAddress { address: address.to_owned(), is_failing: AtomicBool::new(false) }
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Notes a failed call: other owners of the partition are asked first until the node reports again.
    pub fn note_failure(&self) {
        self.is_failing.store(true, Ordering::Relaxed);
    }

    pub(super) fn note_report(&self) {
        self.is_failing.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

/// Owners of a partition.
#[derive(Clone)]
pub struct OwnersOfPartition {
    pub(super) partition: PartitionId,
    pub(super) asked: Vec<Arc<NodeAddress>>,
    /// Reasons why other nodes, or all of them, are not asked.
    pub(super) others: Vec<String>,
    pub(super) times: Arc<FirstByteTimes>,
}

impl OwnersOfPartition {
    /// The partition.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Owners in the order in which they are asked: the ready ones; if there is none, those that were ready
    /// until they could not read the log any more.
    #[must_use]
    pub fn asked(&self) -> &[Arc<NodeAddress>] {
        &self.asked
    }

    /// Returns the name for errors: the addresses of the owners that are asked, and the partition.
    #[must_use]
    pub fn name(&self) -> String {
        let addresses: Vec<&str> = self.asked.iter().map(|node| node.address()).collect();
        match addresses.is_empty() {
            true => format!("of partition {}", self.partition),
            false => format!("{} (partition {})", addresses.join(" or "), self.partition),
        }
    }

    /// Returns the reason why no owner can be asked.
    #[must_use]
    pub fn why_none(&self) -> String {
        match self.others.is_empty() {
            true => "no owner of the partition is known".to_owned(),
            false => format!("no owner is ready: {}", self.others.join("; ")),
        }
    }

    /// Time without an answer after which another owner is asked too: the p99 of recent answers.
    #[must_use]
    pub fn hedge_after(&self) -> Duration {
        self.times.hedge_after()
    }

    /// Counts the time until the first byte of an answer.
    pub fn note_first_byte(&self, time_ns: u64) {
        self.times.record(time_ns);
    }
}
