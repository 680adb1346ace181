//! Schema of the stores that a SELECT reads, for expansion and plan.
//!
//! Invariants: a field has the type of the highest rank among its kinds. Not here: SHOW (`schema`).

use std::cell::{Cell, RefCell};

use chronolith_base::Reservation;
use chronolith_model::{QueryError, TimeRange, TimeUnit, WordKind};

use super::condition::TagFilter;
use super::metadata::data_type;
use super::schema::Schema as Lists;
use super::session::{PolicySource, Session, StatementError};
use crate::ast::{DataType, Measurement, Select, Source};
use crate::footprint::{name_bytes, select_bytes};
use crate::semantics::Schema;

/// Fields and tags of the measurements of a SELECT.
pub(super) struct StoreSchema<'a> {
    session: &'a Session<'a>,
    range: TimeRange,
    /// Memory of the statement and its plan.
    memory: RefCell<Reservation>,
    /// Bytes of the largest tables of a level so far.
    level_bytes: Cell<usize>,
}

/// Reserves the memory of a SELECT, its subqueries and their plans, before they are copied.
pub(super) fn reserve_select(session: &Session<'_>, select: &Select) -> Result<Reservation, StatementError> {
    session.ctx.check()?;
    Ok(session.ctx.budget.reserve(select_bytes(select) as u64).map_err(QueryError::from)?)
}

impl<'a> StoreSchema<'a> {
    /// `range` bounds the series that are listed, up to whole shard groups; `memory` is the reservation of
    /// the statement, which grows with its plan.
    pub(super) fn new(session: &'a Session<'a>, range: TimeRange, memory: Reservation) -> StoreSchema<'a> {
        StoreSchema { session, range, memory: RefCell::new(memory), level_bytes: Cell::new(0) }
    }

    /// Returns the memory of the statement and its plan.
    pub(super) fn into_memory(self) -> Reservation {
        self.memory.into_inner()
    }

    fn lists(&self, measurement: &Measurement) -> Result<Lists<'_>, StatementError> {
        let source = self.session.policy_source(&measurement.database, &measurement.policy)?;
        let stores = vec![PolicySource { source }];
        let range = self.whole_shard_groups(measurement);
        Lists::new(stores, TagFilter::default(), range, self.session.ctx)
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

impl Schema for StoreSchema<'_> {
    type Error = StatementError;

    fn measurements(&self, pattern: &Measurement) -> Result<Vec<String>, StatementError> {
        let source = Source::Measurement(pattern.clone());
        Ok(self.lists(pattern)?.measurements(&[source])?.into_iter().collect())
    }

    fn fields(&self, pattern: &Measurement) -> Result<Vec<(String, DataType)>, StatementError> {
        let lists = self.lists(pattern)?;
        let measurements = self.measurements(pattern)?;
        let names: Vec<&str> = measurements.iter().map(String::as_str).collect();
        let typed = lists.fields(&names)?.into_iter().map(|(field, kinds)| {
            let best = kinds.into_iter().map(data_type).min_by_key(|one| one.rank());
            (field, best.unwrap_or(data_type(WordKind::Float)))
        });
        let typed: Vec<(String, DataType)> = typed.collect();
        // Memory of the fields, and of the types by name that are made of them.
        self.reserve(typed.iter().map(|(field, _)| 3 * name_bytes(field)).sum())?;
        Ok(typed)
    }

    fn has_values_of(
        &self,
        pattern: &Measurement,
        field: &str,
        kind: DataType,
    ) -> Result<bool, StatementError> {
        let measurements = self.measurements(pattern)?;
        let names: Vec<&str> = measurements.iter().map(String::as_str).collect();
        let fields = self.lists(pattern)?.fields(&names)?;
        Ok(fields.get(field).is_some_and(|kinds| kinds.iter().any(|own| data_type(*own) == kind)))
    }

    fn tag_keys(&self, pattern: &Measurement) -> Result<Vec<String>, StatementError> {
        let lists = self.lists(pattern)?;
        let mut keys = std::collections::BTreeSet::new();
        for measurement in self.measurements(pattern)? {
            keys.extend(lists.tag_keys(&measurement)?);
        }
        self.reserve(keys.iter().map(|key| 3 * name_bytes(key)).sum())?;
        Ok(keys.into_iter().collect())
    }

    fn reserve(&self, bytes: usize) -> Result<(), StatementError> {
        self.session.ctx.check()?;
        Ok(self.memory.borrow_mut().grow(bytes as u64).map_err(QueryError::from)?)
    }

    fn reserve_level(&self, bytes: usize) -> Result<(), StatementError> {
        let missing = bytes.saturating_sub(self.level_bytes.get());
        self.reserve(missing)?;
        self.level_bytes.set(self.level_bytes.get() + missing);
        Ok(())
    }
}
