//! Files of a Prometheus head, read only: write-ahead log, checkpoint, out-of-order log, m-mapped chunks
//! (`docs/prometheus.md`).
//!
//! Holds: readers take untrusted bytes and never panic; nothing is handed out before its checksum fits; damage
//! ends at the next page of a log, and at the next file of m-mapped chunks.
//! Not here: files, what the records mean to a series (`import`), the block format (`chunks`, `index`, `meta`).

pub mod head_chunks;
pub mod histograms;
pub mod record;
pub mod segment;

#[cfg(test)]
mod tests;
