//! Records of the replicated log: samples of a request, deletions, ticks of the clock, cuts.
//!
//! Invariants: a record needs no other one to be read, and is at most [`RECORD_BYTES_MAX`] long; everything
//! that decides about a sample is in it (arrival time, duplicate policy, store), so that two readers decide
//! alike; readers take untrusted bytes and never panic; a checksum covers every byte.
//! Not here: the log, choice of the partition of a series (`model::partition`), parsers of wire keys
//! (`ingest`). Layout: `docs/record.md`.

mod columns;
mod content;
mod decode;
mod encode;
mod events;
mod extras;
mod frame;
mod keys;
mod packed;
mod split;

pub use content::{
    Cut, CutScope, RECORD_VERSION, REQUEST_ID_BYTES_MAX, Record, RecordError, RecordOrigin, RecordStore,
    RecordTooLarge,
};
pub use decode::{RecordDecoder, decode_record};
pub use encode::{RecordEncoder, SampleOrigin};
pub use events::encode_event;
pub(crate) use extras::{put_metadata, read_metadata};
pub use frame::RECORD_BYTES_MAX;
pub(crate) use frame::{expect_end, invalid, put_store, read_store};
pub use keys::KEY_BYTES_MAX;
pub use split::{BatchPart, BatchSplit};

#[cfg(test)]
mod tests;
