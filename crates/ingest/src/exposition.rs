//! Exposition formats: Prometheus's text format 0.0.4, OpenMetrics 1.0 and delimited protobuf become
//! [`WriteBatch`]es, chunk by chunk.
//!
//! Invariants: the verdict about a body is Prometheus's, but for differences that
//! `docs/exposition-formats.md` names; the result does not depend on where the body is cut into chunks; a
//! known series is found by its bytes and costs no allocation; bytes never panic; no sender can write a
//! staleness marker.
//! Not here: HTTP, compressed bodies and scrape targets (`server`); order and limits of series (`head`).

mod bounds;
mod content_type;
mod created;
mod decoder;
mod fault;
mod grammar;
mod labels;
mod metadata;
mod options;
mod protobuf;
mod refused;
mod room;
mod rule;
mod specification;
mod text;
mod value;

#[cfg(test)]
mod tests;

pub use content_type::{ContentTypeError, Format, FormatChoice, choose_format};
pub use decoder::Decoder;
pub use fault::{ExpositionError, Position, Reason};
pub use labels::{PROTOCOL, parse_labels, text_keys};
pub use options::{BodyRules, CreatedLines, DecodeOptions, HistogramKinds, Limits, Timestamps};
pub use refused::{Mode, Refused};
