//! Files of a Prometheus head, read only: WAL, checkpoint, WBL, m-mapped chunks (`docs/prometheus.md`).
//!
//! Invariants: readers of untrusted bytes never panic; data is returned only after its checksum was verified;
//! reading continues after damage at the next page of a log, and at the next file of m-mapped chunks.
//! Not here: reading files and assigning records to series (`import`), the block format (`block`).

pub mod head_chunks;
pub mod histograms;
pub mod record;
pub mod segment;

#[cfg(test)]
mod tests;
