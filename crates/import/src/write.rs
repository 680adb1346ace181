//! Writes what an import stores: chunks, blocks, copied blocks, the state file and the report.
//!
//! Invariants: a block appears complete or not at all, and is announced in the state file before it appears.
//! Not here: choice of the samples (`collect`).

pub(crate) mod block_set;
mod chunk_encoder;
pub(crate) mod copy;
pub(crate) mod head_blocks;
pub(crate) mod report;
pub(crate) mod state;
pub(crate) mod window_blocks;
