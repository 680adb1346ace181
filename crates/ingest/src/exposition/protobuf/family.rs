//! Fields of a `MetricFamily` but its metrics.
//!
//! Invariants: of a repeated field the last counts; name and help are UTF-8; a family without metrics is
//! none, whatever its other fields.

use std::borrow::Cow;

use chronolith_model::{MetadataEntry, MetricKind};

use crate::exposition::fault::Reason;
use crate::remote_write::wire::{Cursor, LEN, VARINT};

use super::fault::Fault;

/// Number of the field of metrics.
pub(super) const METRIC: u64 = 4;

/// Type of a family, by which its metrics are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FamilyType {
    Counter,
    Gauge,
    Summary,
    Untyped,
    Histogram,
    GaugeHistogram,
}

/// Metric family without its metrics.
#[derive(Debug)]
pub(super) struct Family<'a> {
    pub(super) name: &'a str,
    help: &'a str,
    unit: Cow<'a, str>,
    pub(super) family_type: FamilyType,
}

impl<'a> Family<'a> {
    /// Reads a family; `None` if it has no metrics.
    pub(super) fn read(message: &'a [u8]) -> Result<Option<Family<'a>>, Fault> {
        let mut at = Cursor::new(message);
        let mut name = Cursor::new(b"");
        let mut help = Cursor::new(b"");
        let mut unit = Cursor::new(b"");
        let mut number = 0;
        let mut has_metrics = false;
        while !at.is_empty() {
            match at.tag()? {
                (1, LEN) => name = at.message()?,
                (2, LEN) => help = at.message()?,
                (3, VARINT) => number = at.varint()?,
                (METRIC, LEN) => {
                    at.message()?;
                    has_metrics = true;
                }
                (5, LEN) => unit = at.message()?,
                (1..=5, _) => return Err(at.wrong_type().into()),
                (_, other) => at.skip(other)?,
            }
        }
        if !has_metrics {
            return Ok(None);
        }
        let invalid = |what, text: Cursor<'_>| Fault::new(Reason::Utf8, text.offset(), what, text.rest());
        let family_name = name.text().map_err(|_| invalid("invalid metric name", name))?;
        if family_name.is_empty() {
            return Err(Fault::new(Reason::Labels, 0, "invalid metric name", b""));
        }
        Ok(Some(Family {
            name: family_name,
            help: help.text().map_err(|_| invalid("invalid help", help))?,
            unit: String::from_utf8_lossy(unit.rest()),
            family_type: family_type(number).ok_or_else(|| {
                let text = format!("unknown metric type for metric {family_name:?}: {number}");
                Fault { reason: Reason::Metadata, offset: 0, text }
            })?,
        }))
    }

    /// Returns the metadata.
    pub(super) fn metadata(&self) -> MetadataEntry {
        let kind = match self.family_type {
            FamilyType::Counter => MetricKind::Counter,
            FamilyType::Gauge => MetricKind::Gauge,
            FamilyType::Summary => MetricKind::Summary,
            FamilyType::Untyped => MetricKind::Unknown,
            FamilyType::Histogram => MetricKind::Histogram,
            FamilyType::GaugeHistogram => MetricKind::GaugeHistogram,
        };
        let metric = self.name.to_owned();
        let help = self.help.to_owned();
        MetadataEntry { metric, kind, help, unit: self.unit.clone().into_owned() }
    }
}

fn family_type(number: u64) -> Option<FamilyType> {
    match number {
        0 => Some(FamilyType::Counter),
        1 => Some(FamilyType::Gauge),
        2 => Some(FamilyType::Summary),
        3 => Some(FamilyType::Untyped),
        4 => Some(FamilyType::Histogram),
        5 => Some(FamilyType::GaugeHistogram),
        _ => None,
    }
}
