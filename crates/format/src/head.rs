//! Files of the head: WAL, checkpoint, sealed chunks, series, metadata.
//!
//! Not here: encodings of chunks (`chunk`), Prometheus's own WAL (`prometheus`).

pub mod frame_log;
pub mod metadata;
pub mod overflow_file;
pub mod sealed;
pub mod series_file;
pub mod slice;
pub mod text_file;
pub mod wal;
