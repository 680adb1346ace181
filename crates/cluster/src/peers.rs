//! Owners of partitions as query nodes know them: where they are, what they report, which of them to ask.
//!
//! Invariants: nodes are found by names that others resolve, and report their partitions themselves: there is
//! no membership. The last good answers stay in use while a lookup fails, and their age is shown. A partition
//! without a ready owner fails its part of a query, which is never left out in silence.
//! Not here: lookups and requests (`server`), series of an answer (`tsdb`).

mod address;
mod directory;
mod latency;
mod list;
mod node;

pub use address::OwnersAddress;
pub use directory::{NodeLookup, NodeStatus, OwnerDirectory};
pub use list::{ConnectOwners, QueryPeers, UnknownOffsets};
pub use node::{
    NodeAddress, NodeReport, OwnersOfPartition, PartitionProgress, PartitionReport, TENANTS_REPORTED_MAX,
    TenantSeries,
};

#[cfg(test)]
mod tests;
