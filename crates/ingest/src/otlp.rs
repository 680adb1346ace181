//! OTLP metrics: an `ExportMetricsServiceRequest` (protobuf or JSON) becomes [`WriteBatch`]es of translated
//! series.
//!
//! Invariants: names, labels and values equal Prometheus 3.16's translation, except for differences that
//! `docs/otlp.md` names; a series is named by the bytes that remote write 1.0 has for its labels, so
//! that both protocols meet the same series; known series cost no allocation; bytes never panic.
//! Points of delta temporality are in a batch of their own, and nothing else is.
//! Not here: HTTP and gRPC (`server`), running sums of deltas, rules of relabelling.

mod attributes;
pub mod encode;
mod exemplars;
mod explicit;
mod exponential;
mod json;
mod key_memory;
mod labels;
mod limits;
mod metric;
mod names;
mod number;
mod points;
mod refused;
mod schema;
mod series_names;
mod settings;
mod sparse;
mod target_info;
mod walk;
mod writer;

#[cfg(test)]
mod tests;

use chronolith_base::Reservation;
use chronolith_model::WriteBatch;

use crate::remote_write::charge::Charge;
use crate::remote_write::v2::SeriesNaming;
use crate::remote_write::{self, DECOMPRESSED_BYTES_MAX, DecodeError};
pub use key_memory::{KeyMemory, RULE_NUMBER_MIN, Verdict};
pub use limits::{ATTRIBUTE_COUNT_MAX, ATTRIBUTE_DEPTH_MAX, QUOTED_COUNT_MAX, TARGET_INFO_COUNT_MAX};
pub use refused::{PointReject, Refused};
use series_names::SeriesNames;
pub use settings::{OtlpSettings, SettingsError, TranslationStrategy};
use walk::{Scratch, Walk};
use writer::{Room, Writer};

/// Settings of a request.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Settings of the tenant.
    pub settings: &'a OtlpSettings,
    /// Number that changes with the settings, the naming and the rules of the tenant; it empties the key
    /// memory.
    pub version: u64,
    /// Labels for type and unit.
    pub naming: SeriesNaming,
    /// Bytes that keys, metadata and exemplars of a request may have.
    pub unfolded_bytes_max: usize,
    /// Lookback of queries; samples of `target_info` are half of it apart.
    pub lookback_ms: i64,
}

/// Series of a request, by the temporality of their points. Keeps its memory between requests.
pub struct Translated {
    /// Gauges, cumulative points, summaries and `target_info`, and the metadata of all.
    pub cumulative: WriteBatch,
    /// Points of delta temporality, with the start of their interval as start time.
    pub deltas: WriteBatch,
    scratch: Scratch,
}

impl Default for Translated {
    fn default() -> Translated {
        Translated::new()
    }
}

impl Translated {
    /// No series.
    #[must_use]
    pub fn new() -> Translated {
        Translated {
            cumulative: remote_write::new_batch(),
            deltas: remote_write::new_batch(),
            scratch: Scratch::default(),
        }
    }

    /// Removes all series.
    pub fn clear(&mut self) {
        self.cumulative.clear();
        self.deltas.clear();
    }
}

/// Fills `out` (cleared first) from a protobuf message that is not compressed.
///
/// `held` grows with keys, metadata and exemplars, `held_histograms` with native histograms.
/// Cost: one pass over the bytes, one lookup and one copy of the key per series; allocations for series that
/// `memory` lacks, for metadata, exemplars and native histograms.
///
/// # Errors
/// [`DecodeError`] for a body that is no message and for limits of a request; `out` is empty then. Faults
/// within it are counted in [`Refused`].
pub fn decode(
    body: &[u8],
    options: &Options<'_>,
    memory: &mut KeyMemory,
    held: &mut Reservation,
    held_histograms: &mut Reservation,
    out: &mut Translated,
) -> Result<Refused, DecodeError> {
    out.clear();
    memory.set_version(options.version);
    let Translated { cumulative, deltas, scratch } = out;
    let room = Room::new(options.unfolded_bytes_max.min(DECOMPRESSED_BYTES_MAX), Charge::new(held));
    let names = SeriesNames::new(options.settings, options.naming);
    let writer = Writer::new(names, memory, room, Charge::new(held_histograms), cumulative, deltas);
    let mut walk = Walk { writer, scratch, target_interval_ms: options.lookback_ms / 2 };
    let result = walk.request(body);
    let refused = walk.writer.refused;
    match result {
        Ok(()) => {
            out.cumulative.pad_start_times();
            out.deltas.pad_start_times();
            Ok(refused)
        }
        Err(error) => {
            out.clear();
            Err(error)
        }
    }
}

/// Reason for refusing a JSON body as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON, or not the message; text of the parser with line and column.
    #[error("json: {0}")]
    Json(String),
    /// As for protobuf.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// As [`decode`], from OTLP/JSON.
///
/// `message` is memory for the protobuf message that the body becomes first; `held` grows by up to four times
/// the body for it.
///
/// # Errors
/// [`JsonError`]; `out` is empty then.
pub fn decode_json(
    body: &[u8],
    message: &mut Vec<u8>,
    options: &Options<'_>,
    memory: &mut KeyMemory,
    held: &mut Reservation,
    held_histograms: &mut Reservation,
    out: &mut Translated,
) -> Result<Refused, JsonError> {
    out.clear();
    message.clear();
    // A number of one digit and a comma becomes eight bytes.
    let bytes_max = body.len().saturating_mul(4).min(DECOMPRESSED_BYTES_MAX);
    held.grow(bytes_max as u64).map_err(DecodeError::from)?;
    json::to_protobuf(body, bytes_max, message).map_err(|error| JsonError::Json(error.to_string()))?;
    Ok(decode(message, options, memory, held, held_histograms, out)?)
}
