//! Select between nodes as bytes: the call of a node that evaluates a query, and the frames of the answer of
//! a node that has a store.
//!
//! Invariants: a checksum covers the call and each frame; an answer that is cut has no end frame; readers
//! take untrusted bytes, never panic, and allocate in proportion to the bytes that are there.
//! Not here: the transport; samples of a store (`tsdb`). Layout: `docs/select.md`.

mod call;
mod content;
mod decode;
mod dictionary;
mod encode;
mod failure;
mod frame;
mod parts;
mod records;
mod samples;

pub use call::{decode_call, encode_call};
pub use content::{
    AnswerCounts, AnswerForm, AnswerHeader, AnswerWarnings, CALL_BYTES_MAX, SELECT_VERSION, SelectCall,
    SelectEncodeError, SelectError, SelectFailure, SelectLimits, SelectQuestion, SelectView,
};
pub use decode::{AnswerDecoder, AnswerItem, SeriesEntry, SeriesStart};
pub use encode::AnswerEncoder;
pub use frame::FRAME_BYTES_MAX;
pub use parts::{Part, PartKind, Parts};
pub use records::RecordFrames;
pub use samples::is_sent_as_stored;

#[cfg(test)]
mod tests;
