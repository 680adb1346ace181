//! Schema of the stores that a SELECT reads, for expansion and plan.
//!
//! Invariants: a field has the type of the highest rank among its kinds. Not here: SHOW (`schema`).

use std::collections::BTreeMap;

use chronolith_model::{TimeRange, TimeUnit, WordKind};

use super::condition::TagFilter;
use super::metadata::data_type;
use super::schema::Schema as Lists;
use super::session::{PolicySource, Session, StatementError};
use crate::ast::{DataType, Measurement, Source};
use crate::semantics::Schema;

/// Fields and tags of the measurements of a SELECT.
pub(super) struct StoreSchema<'a> {
    session: &'a Session<'a>,
    range: TimeRange,
}

impl<'a> StoreSchema<'a> {
    /// `range` bounds the series that are listed, up to whole shard groups.
    pub(super) fn new(session: &'a Session<'a>, range: TimeRange) -> StoreSchema<'a> {
        StoreSchema { session, range }
    }

    fn lists(&self, measurement: &Measurement) -> Result<Lists<'_>, StatementError> {
        let source = self.session.policy_source(&measurement.database, &measurement.policy)?;
        let stores = vec![PolicySource { source }];
        let range = self.whole_shard_groups(measurement);
        Ok(Lists { stores, filter: TagFilter::default(), range, ctx: self.session.ctx })
    }

    /// The range up to the borders of shard groups: a field has one type per shard group, and that type holds
    /// for a query even if the points of the field are outside of its range.
    fn whole_shard_groups(&self, measurement: &Measurement) -> TimeRange {
        let catalog = self.session.storage.catalog();
        let database = catalog.database(&measurement.database);
        let policy = database.and_then(|database| database.policy(&measurement.policy));
        let Some(width) = policy.map(|policy| policy.shard_group_ns).filter(|width| *width > 0) else {
            return self.range;
        };
        if self.range.is_empty() {
            return self.range;
        }
        let group_of = |time| TimeUnit::Nano.shard_group_of(time, width);
        TimeRange::new(group_of(self.range.start).start, group_of(self.range.end - 1).end)
    }
}

/// Kind that a field has in a measurement.
struct KindOfMeasurement {
    measurement: String,
    kind: WordKind,
}

/// Returns the type of a field. Where measurements differ in it, those whose points are all deleted do not
/// count: their names are listed until the next compaction.
fn best_type(
    lists: &Lists<'_>,
    field: &str,
    mut kinds: Vec<KindOfMeasurement>,
) -> Result<DataType, StatementError> {
    if kinds.iter().any(|one| kinds.first().is_some_and(|first| first.kind != one.kind)) {
        let mut found = Vec::with_capacity(kinds.len());
        for one in &kinds {
            found.push(lists.has_values(&one.measurement, field, one.kind)?);
        }
        if found.contains(&true) {
            let mut found = found.into_iter();
            kinds.retain(|_| found.next().unwrap_or(true));
        }
    }
    let best = kinds.into_iter().map(|one| data_type(one.kind)).min_by_key(|one| one.rank());
    Ok(best.unwrap_or(data_type(WordKind::Float)))
}

impl Schema for StoreSchema<'_> {
    type Error = StatementError;

    fn measurements(&self, pattern: &Measurement) -> Result<Vec<String>, StatementError> {
        let source = Source::Measurement(pattern.clone());
        Ok(self.lists(pattern)?.measurements(&[source])?.into_iter().collect())
    }

    fn fields(&self, pattern: &Measurement) -> Result<Vec<(String, DataType)>, StatementError> {
        let lists = self.lists(pattern)?;
        let mut fields: BTreeMap<String, Vec<KindOfMeasurement>> = BTreeMap::new();
        for measurement in self.measurements(pattern)? {
            for (field, kinds) in lists.fields(&measurement)? {
                let of_measurement = |kind| KindOfMeasurement { kind, measurement: measurement.clone() };
                fields.entry(field).or_default().extend(kinds.into_iter().map(of_measurement));
            }
        }
        let typed = fields.into_iter().map(|(field, kinds)| {
            let best = best_type(&lists, &field, kinds)?;
            Ok((field, best))
        });
        typed.collect()
    }

    fn tag_keys(&self, pattern: &Measurement) -> Result<Vec<String>, StatementError> {
        let lists = self.lists(pattern)?;
        let mut keys = std::collections::BTreeSet::new();
        for measurement in self.measurements(pattern)? {
            keys.extend(lists.tag_keys(&measurement)?);
        }
        Ok(keys.into_iter().collect())
    }
}
