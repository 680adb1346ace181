//! Values per tag of a measurement, for the limit of them: counted for new series, and only where the limit is
//! near.
//!
//! Invariants: a set has the values of all live series of its measurement; it may have those of dead ones
//! until it is counted again, which happens before it refuses anything.
//! Not here: the limit (`write::resolve`).

use chronolith_base::hash::{HashMap, HashSet};
use chronolith_model::METRIC_NAME;
use chronolith_model::kind::is_reserved;

use super::tenant_index::TenantIndex;

/// Distinct values of one tag of one measurement.
#[derive(Default)]
struct TagValues {
    /// Pairs of the tag.
    pairs: HashSet<u32>,
    /// First row that has not been looked at.
    next_row: usize,
    /// Dead series when it was counted from the start.
    dead_count: usize,
}

/// Sets of values by the pair of the measurement and the name of the tag.
#[derive(Default)]
pub(super) struct TagValueSets(HashMap<(u32, u32), TagValues>);

/// A tag that has as many values as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FullTag<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
    /// Number of values.
    pub(crate) value_count: usize,
}

impl TagValueSets {
    pub(super) fn heap_bytes(&self) -> usize {
        let sets = self.0.values().map(|values| values.pairs.capacity() * (size_of::<u32>() + 1));
        sets.sum::<usize>() + self.0.capacity() * size_of::<((u32, u32), TagValues)>()
    }
}

impl TenantIndex {
    /// Returns the first tag of a new series that would have more than `value_count_max` values in its
    /// measurement. Cost: a lookup per tag while a tag has fewer values in all measurements; beyond that, rows
    /// added since the last call, and all rows if series have left since.
    pub(crate) fn full_tag<'a>(
        &mut self,
        labels: &[(&'a str, &'a str)],
        value_count_max: usize,
    ) -> Option<FullTag<'a>> {
        let measurement = labels.iter().find(|(name, _)| *name == METRIC_NAME)?.1;
        let measurement = self.find_name(METRIC_NAME).and_then(|name| self.find_pair(name, measurement))?;
        for &(name, value) in labels {
            if name == METRIC_NAME || is_reserved(name) {
                continue;
            }
            let Some(name_id) = self.find_name(name) else { continue };
            if self.names[name_id as usize].pairs.len() < value_count_max {
                continue;
            }
            let pair = self.find_pair(name_id, value);
            let value_count = self.value_count_with(measurement, name_id, pair, value_count_max);
            if let Some(value_count) = value_count {
                return Some(FullTag { name, value, value_count });
            }
        }
        None
    }

    /// Returns the number of values if `pair` is not among them and there are `value_count_max`.
    fn value_count_with(
        &mut self,
        measurement: u32,
        name: u32,
        pair: Option<u32>,
        value_count_max: usize,
    ) -> Option<usize> {
        let mut sets = std::mem::take(&mut self.tag_values);
        let values = sets.0.entry((measurement, name)).or_default();
        self.count_values(measurement, name, values);
        let is_full = |values: &TagValues| {
            let is_known = pair.is_some_and(|pair| values.pairs.contains(&pair));
            !is_known && values.pairs.len() >= value_count_max
        };
        if is_full(values) && values.dead_count != self.rows.dead_count() {
            *values = TagValues { dead_count: self.rows.dead_count(), ..TagValues::default() };
            self.count_values(measurement, name, values);
        }
        let full = is_full(values).then_some(values.pairs.len());
        self.tag_values = sets;
        full
    }

    /// Adds the values of the rows that have not been looked at.
    fn count_values(&self, measurement: u32, name: u32, values: &mut TagValues) {
        for row in self.rows.live_from(values.next_row) {
            let members = self.members_of(row);
            if members.iter().any(|pair| pair == measurement) {
                values.pairs.extend(members.iter().filter(|pair| self.pairs[*pair as usize].name == name));
            }
        }
        values.next_row = self.rows.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(index: &mut TenantIndex, id: u32, measurement: &str, host: &str) {
        let labels = [(METRIC_NAME, measurement), ("host", host)];
        index.insert(id, labels.into_iter(), &mut Vec::new());
    }

    #[track_caller]
    fn check(index: &mut TenantIndex, measurement: &str, host: &str, want: Option<usize>) {
        let labels = [("__field__", "v"), (METRIC_NAME, measurement), ("host", host)];
        let found = index.full_tag(&labels, 3).map(|full| full.value_count);
        assert_eq!(found, want, "{measurement} {host}");
    }

    #[test]
    fn values_are_counted_per_measurement_without_those_of_series_that_left() {
        let mut index = TenantIndex::new(1);
        (0..3).for_each(|id| insert(&mut index, id, "cpu", &format!("h{id}")));
        (3..5).for_each(|id| insert(&mut index, id, "mem", &format!("h{id}")));
        check(&mut index, "cpu", "new", Some(3));
        check(&mut index, "cpu", "h3", Some(3));
        check(&mut index, "cpu", "h1", None);
        check(&mut index, "mem", "new", None);
        check(&mut index, "disk", "new", None);
        insert(&mut index, 5, "mem", "h5");
        check(&mut index, "mem", "new", Some(3));
        index.remove(1);
        check(&mut index, "cpu", "new", None);
        check(&mut index, "mem", "new", Some(3));
    }
}
