//! Sources of a block's bytes: memory maps of its files, or ranges that are read when they are needed.
//!
//! A query reads a block in waves ([`Wave`]): postings lists, series entries, chunks. The ranges of a wave
//! are known before anything of it is read, so that a source which pays per request reads them in few
//! requests, all at once. A map has all bytes at hand: it neither copies them nor looks at the ranges.
//! Not here: the ranges of each wave (`waves`), decoding (`format`).

mod bytes;
mod fetched;
mod mapped;
mod range;
mod ranged;

pub use bytes::{ByteSource, ROUND_COUNT_MAX, RangeBytes, Wave};
pub use fetched::{FetchedBatch, FetchedPart, FetchedRanges, Reread};
pub use mapped::MappedFiles;
pub use range::{BlockFile, BlockFiles, ByteRange, TombstonesFile, coalesce};
pub(crate) use ranged::segment_paths;
pub use ranged::{RangedFiles, RangedMeter, RangedStats, WAVE_BYTES_MAX};
