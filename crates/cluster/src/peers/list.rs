//! Partitions that a query asks, each with its owners.
//!
//! Invariants: the partitions are all that accept writes, that did so less than
//! [`DRAINED_TIME`](crate::partition_states::DRAINED_TIME) ago, and that a node reports, without those that
//! were removed: a query asks all of them, whatever number of partitions its tenant has at the moment.
//! Their order is the map's: of samples with one timestamp the first partition's is read.
//! Not here: connections, which the server makes.

use std::sync::Arc;

use chronolith_base::Clock;
use chronolith_model::QueryError;
use chronolith_model::log_position::PartitionId;
use chronolith_model::min_offsets::{MinOffsets, OtherTopic};
use chronolith_tsdb::{PeerList, PeerTransport};

use super::directory::OwnerDirectory;
use super::node::OwnersOfPartition;
use crate::partition_maps::PartitionMaps;
use crate::partition_states::recent_partitions;

/// Offsets that no owner can reach.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownOffsets {
    /// Offsets of another log.
    #[error(transparent)]
    OtherTopic(#[from] OtherTopic),
    /// No node owns the partition.
    #[error("the request waits for offset {offset} of partition {partition}, and no owner of it is known")]
    NoOwner {
        /// Number of the partition.
        partition: u32,
        /// Offset that the request names.
        offset: u64,
    },
}

/// Maker of connections to the owners of a partition.
pub trait ConnectOwners: Send + Sync {
    /// Returns a transport to `owners`; calls of one without ready owners fail.
    fn connect(&self, owners: OwnersOfPartition) -> Arc<dyn PeerTransport>;
}

/// Owners of all partitions, for queries.
pub struct QueryPeers {
    directory: Arc<OwnerDirectory>,
    maps: Arc<PartitionMaps>,
    connect: Arc<dyn ConnectOwners>,
    clock: Arc<dyn Clock>,
}

impl QueryPeers {
    /// Owners of `directory` for the partitions of `maps`.
    #[must_use]
    pub fn new(
        directory: Arc<OwnerDirectory>,
        maps: Arc<PartitionMaps>,
        connect: Arc<dyn ConnectOwners>,
        clock: Arc<dyn Clock>,
    ) -> QueryPeers {
        QueryPeers { directory, maps, connect, clock }
    }

    /// Returns the reason why no query can be answered, if there is one: a load balancer sends nothing here.
    /// A partition without a ready owner is none, since queries may do without it.
    #[must_use]
    pub fn unready_reason(&self) -> Option<String> {
        if self.maps.current().is_none() {
            return Some(self.maps.missing_text());
        }
        if self.directory.lookup_age_ms().is_none() {
            let why = self.directory.lookup_fault();
            return Some(format!("owners were not looked up: {}", why.as_deref().unwrap_or("not begun")));
        }
        self.check_topics().err().map(|error| error.to_string())
    }

    /// Returns the partitions that queries ask; none without a partition map.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionId> {
        let Some(snapshot) = self.maps.current() else { return Vec::new() };
        let mut partitions = recent_partitions(&snapshot.map, self.clock.now_ms());
        let mut others = self.directory.partitions();
        others.retain(|own| !partitions.contains(own) && !self.maps.is_removed(*own));
        partitions.extend(others);
        partitions
    }

    /// Returns the partitions of [`QueryPeers::partitions`] without a ready owner.
    #[must_use]
    pub fn unavailable(&self) -> Vec<PartitionId> {
        let mut partitions = self.partitions();
        partitions.retain(|partition| self.directory.owners_of(*partition).asked().is_empty());
        partitions
    }

    /// Refuses offsets of another log, and of partitions that queries do not ask: without an answer of their
    /// owner, a result would look as if it had them. A partition without a ready owner fails when it is
    /// asked.
    ///
    /// # Errors
    /// [`UnknownOffsets`].
    pub fn check_offsets(&self, offsets: &MinOffsets) -> Result<(), UnknownOffsets> {
        if let [topic] = self.directory.topics().as_slice() {
            offsets.check_topic(*topic)?;
        }
        let asked = self.partitions();
        let missing = offsets.newest().iter().find(|(number, _)| !asked.contains(&PartitionId(**number)));
        missing.map_or(Ok(()), |(partition, offset)| {
            Err(UnknownOffsets::NoOwner { partition: *partition, offset: *offset })
        })
    }

    /// Refuses owners of several logs: one of them would be missing in each answer, or foreign to it.
    fn check_topics(&self) -> Result<(), QueryError> {
        let topics = self.directory.topics();
        if topics.len() <= 1 {
            return Ok(());
        }
        let topics: Vec<String> = topics.iter().map(ToString::to_string).collect();
        let what = format!("owners report topics {}, expected one", topics.join(" and "));
        Err(QueryError::Unavailable { what })
    }
}

impl PeerList for QueryPeers {
    fn peers(&self) -> Result<Vec<Arc<dyn PeerTransport>>, QueryError> {
        if self.maps.current().is_none() {
            return Err(QueryError::Unavailable { what: self.maps.missing_text() });
        }
        self.check_topics()?;
        let connect = |partition| self.connect.connect(self.directory.owners_of(partition));
        Ok(self.partitions().into_iter().map(connect).collect())
    }
}
