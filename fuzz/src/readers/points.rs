//! Points of a batch as the store would name them, for comparisons of readers.
//!
//! Not here: the readers.

use chronolith_ingest::carbon::{PointWriter, Refused, RefusedReason, new_batch, parse_key, path_of_labels};
use chronolith_model::LabelsBuilder;

/// Clock of the readers.
pub(super) const NOW_MS: i64 = 1_700_000_000_123;

/// A point: canonical path, time in milliseconds, bits of the value.
pub(super) type Point = (String, i64, u64);

/// Outcome of an input.
#[derive(Debug, PartialEq)]
pub(super) struct Decoded {
    pub(super) points: Vec<Point>,
    /// Count of each reason.
    pub(super) refused: Vec<u64>,
}

/// Decodes into an empty batch.
///
/// # Errors
/// A text about a path that is not stored, or a value that is NaN.
pub(super) fn decode(read: impl FnOnce(&mut PointWriter<'_>)) -> Result<Decoded, String> {
    let mut batch = new_batch();
    let mut refused = Refused::default();
    read(&mut PointWriter::new(&mut batch, &mut refused, NOW_MS));
    let mut points = Vec::new();
    let mut labels = LabelsBuilder::new();
    for idx in 0..batch.series.len() {
        labels.clear();
        let key = batch.key_of(idx);
        parse_key(key, &mut labels).map_err(|reject| format!("the path is refused later: {reject:?}"))?;
        labels.sort();
        if let Some(name) = labels.repeated_name() {
            return Err(format!("label {name} occurs twice"));
        }
        let (Some(time), Some(value)) = (batch.times.get(idx), batch.values.get(idx)) else {
            return Err("a series without a point".to_owned());
        };
        if value.is_nan() {
            return Err("a value is NaN".to_owned());
        }
        points.push((path_of_labels(&labels.finish()), *time, value.to_bits()));
    }
    let refused = RefusedReason::ALL.iter().map(|reason| refused.count(*reason)).collect();
    Ok(Decoded { points, refused })
}

impl Decoded {
    /// Reasons that occurred, and if there are points with and without tags.
    pub(super) fn describe(&self) -> String {
        let reasons: Vec<&str> = RefusedReason::ALL
            .iter()
            .zip(&self.refused)
            .filter(|(_, count)| **count > 0)
            .map(|(reason, _)| reason.label())
            .collect();
        let has_tags = self.points.iter().any(|point| point.0.contains(';'));
        let has_none = self.points.iter().any(|point| !point.0.contains(';'));
        format!("{} tagged {has_tags} untagged {has_none}", reasons.join(" "))
    }

    /// Number of refused points.
    pub(super) fn refused_count(&self) -> u64 {
        self.refused.iter().sum()
    }
}

/// Returns the number that stands for a time in an input: seconds, or milliseconds of 13 digits.
pub(super) fn sent_time(time_ms: i64) -> i64 {
    if time_ms % 1000 == 0 { time_ms / 1000 } else { time_ms }
}
