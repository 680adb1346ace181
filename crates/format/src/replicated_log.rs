//! Files of a replicated log that is a directory. Records of other logs are laid out by their brokers.
//!
//! Not here: content of records, Kafka's protocol.

pub mod directory;
