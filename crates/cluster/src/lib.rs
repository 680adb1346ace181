//! Roles of a server that share a replicated log and a bucket with others.
//!
//! Invariants: nothing here runs without a log; processes share the log, the bucket and names, nothing else:
//! there is no membership, election or replication of our own.
//! Not here: the log (`replicated_log`), the store (`tsdb`), HTTP and sockets (`server`).

pub mod owner;
