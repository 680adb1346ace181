//! Roll-ups of a block: files in a directory of its own next to index and chunks, made of its samples.
//!
//! Invariants: the directory is there with all its files or not at all; a file that cannot be read or used
//! leaves the samples, of which windows are computed then. Only windows that lie in the block as a whole are
//! kept.
//! Not here: their writing (`rollup_writer`), bytes (`format::block::rollup`), which blocks get roll-ups and
//! when (`tsdb`).

mod fetched;
mod files;
mod series;
mod verify;

pub use fetched::FetchedRollups;
pub(crate) use files::Rollups;
pub(crate) use series::SeriesRollups;
pub use verify::RollupVerification;

#[cfg(test)]
mod tests;
