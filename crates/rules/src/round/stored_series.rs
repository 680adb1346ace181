//! Series of recording rules as a state has them: values by the names of all labels of a rule's series.
//!
//! Invariants: the series of a group are stored within the bounds of a state, or not at all; restored series
//! are those that were stored, in order.
//! Not here: the bytes (`format::rules`), rules that are gone (`state`).

use std::collections::BTreeSet;

use chronolith_format::rules::StoredRecording;
use chronolith_model::{Labels, LabelsBuilder, METRIC_NAME};

use crate::rule::Rule;

/// Series of all recording rules of a group whose labels a state has.
const SERIES_MAX: usize = 10_000;
/// Bytes of their labels: names once per rule, values with a byte for each name.
const SERIES_BYTES_MAX: usize = 1 << 20;

/// Bounds that are left of a state.
pub(super) struct Room {
    series_count: usize,
    bytes: usize,
}

impl Default for Room {
    fn default() -> Room {
        Room { series_count: SERIES_MAX, bytes: SERIES_BYTES_MAX }
    }
}

impl Room {
    /// The series of a rule; `None` if there is not enough room for all of them.
    pub(super) fn stored(&mut self, rule: &Rule, ordinal: u64, series: &[Labels]) -> Option<StoredRecording> {
        self.series_count = self.series_count.checked_sub(series.len())?;
        let own = |name: &str| name != METRIC_NAME && !rule.labels.contains_key(name);
        let names: BTreeSet<&str> =
            series.iter().flat_map(Labels::iter).map(|(name, _)| name).filter(|name| own(name)).collect();
        let values = series.iter().flat_map(Labels::iter).filter(|(name, _)| own(name));
        let value_bytes: usize = values.map(|(_, value)| value.len()).sum();
        let name_bytes: usize = names.iter().map(|name| name.len()).sum();
        // Series with names of their own each would make a table of mostly empty values.
        let bytes = names.len().saturating_mul(series.len()).saturating_add(value_bytes + name_bytes);
        self.bytes = self.bytes.checked_sub(bytes)?;
        let values = |labels: &Labels| -> Vec<String> {
            names.iter().map(|name| labels.get(name).unwrap_or_default().to_owned()).collect()
        };
        Some(StoredRecording {
            name: rule.name.clone(),
            labels: rule.labels.clone().into_iter().collect(),
            ordinal,
            series: series.iter().map(values).collect(),
            label_names: names.into_iter().map(str::to_owned).collect(),
        })
    }
}

/// Labels of the series of a rule, in order. An empty value is no label.
pub(super) fn restored(stored: &StoredRecording) -> Vec<Labels> {
    let mut builder = LabelsBuilder::new();
    let labels = |values: &Vec<String>| {
        builder.clear();
        stored.label_names.iter().zip(values).for_each(|(name, value)| builder.push(name, value));
        builder.set(METRIC_NAME, &stored.name);
        stored.labels.iter().for_each(|(name, value)| builder.set(name, value));
        builder.finish()
    };
    let mut series: Vec<Labels> = stored.series.iter().map(labels).collect();
    series.sort();
    series
}
