//! Index of a block, as Prometheus writes it (`docs/block/index.md`): symbols, series, postings, table of
//! contents.
//!
//! Invariants: a decoder never panics, loops or allocates beyond the file's size on any bytes; checksums are
//! verified before content is returned; the writer emits version 2 without label indices, as Prometheus 3
//! does. Versions 1, 2 and 3 are read. [`IndexHeader`] is the part that an open block keeps in memory; series
//! entries and postings lists are decoded from slices that begin with them, wherever the bytes come from.
//! Not here: reading bytes (`block`), choosing series by matchers (`model::index`), chunk bytes (`chunks`).

mod frame;
mod header;
mod postings;
mod section;
mod series;
mod symbols;
mod table;
mod toc;
mod writer;

pub use header::IndexHeader;
pub use postings::{Postings, decode_postings, postings_len};
pub use section::SectionBytes;
pub use series::{ChunkMeta, SeriesEntry, series_len};
pub(crate) use table::{TableCursor, table_entries};
pub use toc::{HEADER_BYTES, MAGIC, SERIES_ALIGN_BYTES, TOC_BYTES, Toc, VERSION_WRITTEN, decode_version};
pub use writer::{IndexWriteError, IndexWriter, TableEntry};

#[cfg(test)]
mod tests;
