//! Writes of all protocols.

pub mod batches;
pub mod reject_log;
