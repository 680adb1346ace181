//! Report of an import from InfluxDB: points by field, and the number and reason of points left out.
//!
//! Invariant: points that are left out are counted or, where damage hides their number, named.
//! Not here: printing (`chronolith`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use chronolith_model::{FIELD_LABEL, Labels, WordKind};

use super::key::KeyReject;
use super::series_merge::LeftOutPoints;
use super::wal_points::kind_order;
use crate::write::report::{DAMAGES_NAMED_MAX, Damage};

/// Points of the fields of one retention policy: by measurement, then by field and kind.
pub type FieldCounts = BTreeMap<String, BTreeMap<String, [u64; 5]>>;

/// Names of the kinds in the order of their counts.
pub const KIND_NAMES: [&str; 5] = ["float", "integer", "unsigned", "boolean", "string"];

/// Series that were left out for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RejectedSeries {
    /// Keys of shards.
    pub series: u64,
    /// Points of the series in TSM files and WAL.
    pub points: u64,
    /// One of the keys.
    pub example: String,
}

/// Result of an import.
#[derive(Debug, Clone, Default)]
pub struct InfluxReport {
    /// Shards that became blocks.
    pub shards: u64,
    /// Shards that an earlier import has brought.
    pub shards_present: u64,
    /// Blocks that were written.
    pub blocks: u64,
    /// Points (values of fields) in them.
    pub points: u64,
    /// Points by database and policy.
    pub counts: BTreeMap<(String, String), FieldCounts>,
    /// Points left out one by one.
    pub left_out: LeftOutPoints,
    /// Series left out.
    pub rejected: BTreeMap<KeyReject, RejectedSeries>,
    /// Findings without loss.
    pub notes: Vec<String>,
    /// Losses.
    pub damages: Vec<Damage>,
    /// Damages beyond [`DAMAGES_NAMED_MAX`].
    pub damages_unnamed: u64,
}

impl InfluxReport {
    /// Adds damage, once per path and offset: a block may be read for several windows.
    pub(crate) fn damage(&mut self, path: impl Into<PathBuf>, offset: u64, what: impl ToString) {
        let path = path.into();
        if self.damages.iter().any(|known| known.path == path && known.offset == offset) {
            return;
        }
        if self.damages.len() < DAMAGES_NAMED_MAX {
            self.damages.push(Damage { path, offset, what: what.to_string() });
        } else {
            self.damages_unnamed += 1;
        }
    }

    pub(crate) fn reject(&mut self, key: &[u8], reject: KeyReject, points: u64) {
        let rejected = self.rejected.entry(reject).or_default();
        if rejected.series == 0 {
            rejected.example = String::from_utf8_lossy(key).into_owned();
        }
        rejected.series += 1;
        rejected.points += points;
    }

    pub(crate) fn leave_out(&mut self, points: LeftOutPoints) {
        self.left_out.overwritten += points.overwritten;
        self.left_out.deleted += points.deleted;
        self.left_out.out_of_bounds += points.out_of_bounds;
        self.left_out.long_texts += points.long_texts;
    }
}

/// Adds points of a series.
pub(crate) fn count(counts: &mut FieldCounts, labels: &Labels, kind: WordKind, points: u64) {
    let measurement = labels.metric_name().unwrap_or_default();
    let field = labels.get(FIELD_LABEL).unwrap_or_default();
    let of_measurement = match counts.get_mut(measurement) {
        Some(found) => found,
        None => counts.entry(measurement.to_owned()).or_default(),
    };
    let of_field = match of_measurement.get_mut(field) {
        Some(found) => found,
        None => of_measurement.entry(field.to_owned()).or_default(),
    };
    if let Some(of_kind) = of_field.get_mut(usize::from(kind_order(kind))) {
        *of_kind += points;
    }
}
