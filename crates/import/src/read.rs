//! Reads the files of a Prometheus data directory: block metas, m-mapped head chunks, WAL and WBL segments.
//!
//! Invariants: damage is returned with file and offset; reading continues after it.
//! Not here: the samples of a series (`collect`), byte layouts (`format`).

pub(crate) mod block_metas;
pub(crate) mod data_dir;
pub(crate) mod head_chunks;
pub(crate) mod log_reader;
mod segment_file;
pub(crate) mod walk;
