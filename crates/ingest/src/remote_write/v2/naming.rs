//! Labels that a series gets from its metadata: `__type__` and `__unit__`, where they are asked for.
//!
//! Invariants: they are part of the bytes that name the series, so that the same labels always have the same
//! series, and a series whose type changes becomes another one. Which naming a request has is decided once: a
//! server that does not ask for these labels has no instruction for them in its loop over series.
//! Not here: use of the labels by queries (`promql`).

use chronolith_model::MetricKind;

use super::family::SeriesMetadata;
use super::walk::{Naming, Walk};
use crate::remote_write::DecodeError;
use crate::remote_write::wire::{Cursor, LEN};

/// Name of the label with the type of a metric, as `/api/v1/metadata` spells it.
const TYPE_LABEL: &[u8] = b"__type__";
/// Name of the label with its unit.
const UNIT_LABEL: &[u8] = b"__unit__";

/// By the labels that they came with.
pub(super) struct AsSent;

impl Naming for AsSent {
    fn series(walk: &mut Walk<'_, '_>, message: Cursor<'_>) -> Result<(), DecodeError> {
        walk.series(message)
    }
}

/// By type and unit as well.
pub(super) struct TypeAndUnit;

impl Naming for TypeAndUnit {
    fn series(walk: &mut Walk<'_, '_>, message: Cursor<'_>) -> Result<(), DecodeError> {
        let count = walk.series_count();
        walk.series(message)?;
        if walk.series_count() == count {
            return Ok(());
        }
        let metadata = metadata_of(message)?;
        let kind = match metadata.kind {
            MetricKind::Unknown => "",
            kind => kind.as_str(),
        };
        walk.put_over((TYPE_LABEL, kind.as_bytes()), (UNIT_LABEL, metadata.unit))
    }
}

/// The metadata of a series; of several the last counts.
fn metadata_of(mut message: Cursor<'_>) -> Result<SeriesMetadata, DecodeError> {
    let mut metadata = SeriesMetadata::default();
    while !message.is_empty() {
        match message.tag()? {
            (5, LEN) => metadata = SeriesMetadata::read(message.message()?)?,
            (_, other) => message.skip(other)?,
        }
    }
    Ok(metadata)
}
