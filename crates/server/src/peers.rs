//! Other nodes of the cluster: the token that proves a node, calls, and lookups of owners.
//!
//! Invariant: no error, log line or metric has the token.
//! Not here: answers to other nodes (`http::internal`), addresses and partitions of nodes (`cluster`).

mod ask_owners;
mod client;
mod counters;
mod gateway_owners;
mod lookup;
mod query_node;
mod token;
mod transport;

pub use ask_owners::ask_owners;
pub(crate) use client::NodeClient;
pub(crate) use counters::PEER_CALLS;
pub(crate) use gateway_owners::GatewayOwners;
pub(crate) use lookup::ReportJson;
pub(crate) use query_node::{OWNERS, QueryNode};
pub(crate) use token::NodeToken;
