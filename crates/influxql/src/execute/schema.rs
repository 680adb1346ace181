//! Measurements, tags, fields and series of a database, over the stores of all its retention policies.
//!
//! Invariants: lists are sorted and unique. Where matchers decide, labels are listed from the index; else the
//! labels of the selected series are read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use chronolith_base::Reservation;
use chronolith_model::kind::is_reserved;
use chronolith_model::query::{Selector, TypedColumns};
use chronolith_model::{
    FIELD_LABEL, KIND_LABEL, Labels, METRIC_NAME, MatchOp, Matcher, QueryError, ReadContext, SeriesRead,
    TimeRange, WordKind,
};

use super::condition::{TagCondition, TagFilter, VALUE_COLUMN};
use super::session::{PolicySource, StatementError};
use crate::ast::{Measurement, MeasurementName, Source};
use crate::footprint::FIELDS_PER_CHECK;

/// Source of the lists of SHOW statements for one database.
pub(super) struct Schema<'a> {
    pub(super) stores: Vec<PolicySource>,
    pub(super) filter: TagFilter,
    pub(super) range: TimeRange,
    pub(super) ctx: &'a ReadContext,
    /// Memory of the lists.
    memory: RefCell<Reservation>,
}

/// Meaning of a comparison of [`VALUE_COLUMN`] with a number or a boolean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumbersOfValue {
    /// The comparison excludes nothing, as with any other name.
    Always,
    /// No series meets it: the column of a list of tags has texts.
    Never,
}

/// Bytes of an entry of a list besides its text: in the set, and while sets are merged and printed.
const ENTRY_BYTES: usize = 96;

/// Returns a matcher for the names of measurements; `None` for all of them.
pub(super) fn name_matchers(sources: &[Source]) -> Result<Vec<Matcher>, StatementError> {
    let pattern = |measurement: &Measurement| match &measurement.name {
        MeasurementName::Name(name) => GoQuote(name).to_string(),
        MeasurementName::Regex(regex) => regex.anchored_pattern(),
    };
    let measurements: Vec<&Measurement> = sources
        .iter()
        .filter_map(|source| match source {
            Source::Measurement(measurement) => Some(measurement),
            Source::Select(_) => None,
        })
        .collect();
    match measurements.as_slice() {
        [] => Ok(Vec::new()),
        [Measurement { name: MeasurementName::Name(name), .. }] => {
            Ok(vec![Matcher::equal(METRIC_NAME, name)])
        }
        several => {
            let patterns: Vec<String> = several.iter().map(|one| pattern(one)).collect();
            let matcher = Matcher::new(METRIC_NAME, chronolith_model::MatchOp::Regex, &patterns.join("|"));
            Ok(vec![matcher.map_err(StatementError::text)?])
        }
    }
}

/// A text as a pattern that matches it alone.
struct GoQuote<'a>(&'a str);

impl std::fmt::Display for GoQuote<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            if r"\.+*?()|[]{}^$".contains(c) {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        Ok(())
    }
}

impl<'a> Schema<'a> {
    pub(super) fn new(
        stores: Vec<PolicySource>,
        filter: TagFilter,
        range: TimeRange,
        ctx: &'a ReadContext,
    ) -> Result<Schema<'a>, StatementError> {
        let memory = RefCell::new(ctx.budget.reserve(0).map_err(QueryError::from)?);
        Ok(Schema { stores, filter, range, ctx, memory })
    }

    /// Reserves memory for entries of a list until the statement ends.
    fn reserve(&self, bytes: usize) -> Result<(), StatementError> {
        Ok(self.memory.borrow_mut().grow(bytes as u64).map_err(QueryError::from)?)
    }

    /// Adds the names of a store to a list.
    fn add_all(&self, all: &mut BTreeSet<String>, names: Vec<String>) -> Result<(), StatementError> {
        self.ctx.check()?;
        self.reserve(names.iter().map(|name| name.len() + ENTRY_BYTES).sum())?;
        all.extend(names);
        Ok(())
    }
}

impl Schema<'_> {
    /// Returns the values of a label of the series that also match `added`.
    pub(super) fn values(
        &self,
        label: &str,
        added: Vec<Matcher>,
    ) -> Result<BTreeSet<String>, StatementError> {
        if self.filter.rest.is_empty() {
            let matchers = self.filter.with(added);
            let selector = Selector { matchers: &matchers, range: self.range };
            let mut all = BTreeSet::new();
            for store in &self.stores {
                self.add_all(&mut all, store.source.label_values(label, &selector, 0, self.ctx)?)?;
            }
            return Ok(all);
        }
        let mut all = BTreeSet::new();
        self.visit_series(added, |series| {
            if let Some(value) = series.labels.get(label)
                && !all.contains(value)
            {
                self.reserve(value.len() + ENTRY_BYTES)?;
                all.insert(value.to_owned());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }

    /// Returns the names of measurements.
    pub(super) fn measurements(&self, sources: &[Source]) -> Result<BTreeSet<String>, StatementError> {
        self.values(METRIC_NAME, name_matchers(sources)?)
    }

    /// Returns the names of measurements, whatever the condition is.
    pub(super) fn measurements_without_filter(
        &self,
        sources: &[Source],
    ) -> Result<BTreeSet<String>, StatementError> {
        self.values_without_filter(METRIC_NAME, &name_matchers(sources)?)
    }

    fn values_without_filter(
        &self,
        label: &str,
        matchers: &[Matcher],
    ) -> Result<BTreeSet<String>, StatementError> {
        let selector = Selector { matchers, range: self.range };
        let mut all = BTreeSet::new();
        for store in &self.stores {
            self.add_all(&mut all, store.source.label_values(label, &selector, 0, self.ctx)?)?;
        }
        Ok(all)
    }

    /// Returns the tag keys of a measurement, whatever the condition is.
    pub(super) fn tag_keys_without_filter(
        &self,
        measurement: &str,
    ) -> Result<BTreeSet<String>, StatementError> {
        let matchers = [Matcher::equal(METRIC_NAME, measurement)];
        let selector = Selector { matchers: &matchers, range: self.range };
        let mut all = BTreeSet::new();
        for store in &self.stores {
            self.add_all(&mut all, store.source.label_names(&selector, 0, self.ctx)?)?;
        }
        all.retain(|name| name != METRIC_NAME && !is_reserved(name));
        Ok(all)
    }

    /// Returns true if a measurement meets a condition as a whole, as SHOW MEASUREMENTS has it: it has the
    /// tag, and the tag has a value that is equal or matches; for `!=` and `!~` it has none.
    pub(super) fn measurement_meets(
        &self,
        name: &str,
        condition: &TagCondition,
    ) -> Result<bool, StatementError> {
        let meets = |one: &TagCondition| self.measurement_meets(name, one);
        match condition {
            TagCondition::Always | TagCondition::Number { .. } => Ok(true),
            TagCondition::Never => Ok(false),
            TagCondition::All(all) => all.iter().map(meets).try_fold(true, |all, one| Ok(all && one?)),
            TagCondition::Any(any) => any.iter().map(meets).try_fold(false, |any, one| Ok(any || one?)),
            TagCondition::Compare { tag, op, value, regex, .. } => {
                let values = match tag == METRIC_NAME {
                    true => BTreeSet::from([name.to_owned()]),
                    false => self.values_without_filter(tag, &[Matcher::equal(METRIC_NAME, name)])?,
                };
                let is_regex = matches!(op, MatchOp::Regex | MatchOp::NotRegex);
                let fits = values.iter().any(|own| match regex {
                    Some(regex) if is_regex => regex.is_match(own),
                    _ => own == value,
                });
                let is_positive = matches!(op, MatchOp::Equal | MatchOp::Regex);
                Ok(!values.is_empty() && fits == is_positive)
            }
        }
    }

    /// Resolves the names of a condition on series: a name is a field where a measurement has a field of this
    /// name, and a tag elsewhere. `numbers_of_value` decides about numbers.
    pub(super) fn resolve(
        &mut self,
        mut condition: TagCondition,
        numbers_of_value: NumbersOfValue,
    ) -> Result<(), StatementError> {
        self.filter = TagFilter::default();
        condition.for_each_comparison(&mut |comparison| -> Result<(), StatementError> {
            match comparison {
                TagCondition::Compare { tag, fields_of, .. } if tag != METRIC_NAME => {
                    let of_field = [Matcher::equal(FIELD_LABEL, tag)];
                    *fields_of = self.values_without_filter(METRIC_NAME, &of_field)?;
                }
                TagCondition::Number { tag }
                    if tag == VALUE_COLUMN && numbers_of_value == NumbersOfValue::Never =>
                {
                    *comparison = TagCondition::Never;
                }
                _ => {}
            }
            Ok(())
        })?;
        self.filter = TagFilter::of_tags(condition);
        Ok(())
    }

    /// Returns the tag keys of a measurement.
    pub(super) fn tag_keys(&self, measurement: &str) -> Result<BTreeSet<String>, StatementError> {
        let added = vec![Matcher::equal(METRIC_NAME, measurement)];
        let is_tag = |name: &str| name != METRIC_NAME && !is_reserved(name);
        let mut all = BTreeSet::new();
        if self.filter.rest.is_empty() {
            let matchers = self.filter.with(added);
            let selector = Selector { matchers: &matchers, range: self.range };
            for store in &self.stores {
                let mut names = store.source.label_names(&selector, 0, self.ctx)?;
                names.retain(|name| is_tag(name));
                self.add_all(&mut all, names)?;
            }
            return Ok(all);
        }
        self.visit_series(added, |series| {
            let names = series.labels.iter().map(|(name, _)| name);
            let new = names.filter(|name| is_tag(name) && !all.contains(*name));
            let new: Vec<String> = new.map(str::to_owned).collect();
            self.add_all(&mut all, new)?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }

    /// Returns the fields of measurements with their kinds. A deletion leaves the names of its series until
    /// the next compaction: where a field has several kinds, those without a sample do not count, unless none
    /// has one.
    pub(super) fn fields(
        &self,
        measurements: &[&str],
    ) -> Result<BTreeMap<String, Vec<WordKind>>, StatementError> {
        let mut found: BTreeMap<String, Vec<(&str, WordKind)>> = BTreeMap::new();
        for &measurement in measurements {
            for kind in WordKind::ALL {
                let of_kind = vec![
                    Matcher::equal(METRIC_NAME, measurement),
                    Matcher::equal(KIND_LABEL, kind.label_value()),
                ];
                for (idx, field) in self.values(FIELD_LABEL, of_kind)?.into_iter().enumerate() {
                    if idx.is_multiple_of(FIELDS_PER_CHECK) {
                        self.ctx.check()?;
                    }
                    found.entry(field).or_default().push((measurement, kind));
                }
            }
        }
        let mut fields = BTreeMap::new();
        for (idx, (field, places)) in found.into_iter().enumerate() {
            if idx.is_multiple_of(FIELDS_PER_CHECK) {
                self.ctx.check()?;
            }
            let mut kinds: Vec<WordKind> = Vec::new();
            for &(_, kind) in &places {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            if kinds.len() > 1 {
                let stored = self.stored_kinds(&field, &places)?;
                kinds = if stored.is_empty() { kinds } else { stored };
            }
            fields.insert(field, kinds);
        }
        Ok(fields)
    }

    /// Returns the kinds of which a field has a sample. Cost: per kind, reads series until one has a sample.
    fn stored_kinds(
        &self,
        field: &str,
        places: &[(&str, WordKind)],
    ) -> Result<Vec<WordKind>, StatementError> {
        let mut stored = Vec::new();
        for &(measurement, kind) in places {
            if stored.contains(&kind) {
                continue;
            }
            let of_kind = vec![
                Matcher::equal(METRIC_NAME, measurement),
                Matcher::equal(FIELD_LABEL, field),
                Matcher::equal(KIND_LABEL, kind.label_value()),
            ];
            self.visit_series(of_kind, |series| {
                let mut columns = TypedColumns::new(series.samples.column_type());
                series.samples.read_typed(self.range, &mut columns)?;
                if columns.times.is_empty() {
                    return Ok(ControlFlow::Continue(()));
                }
                stored.push(kind);
                Ok(ControlFlow::Break(()))
            })?;
        }
        Ok(stored)
    }

    /// Calls `visit` with each selected series that also matches `added`, until it breaks.
    fn visit_series(
        &self,
        added: Vec<Matcher>,
        mut visit: impl FnMut(&SeriesRead) -> Result<ControlFlow<()>, StatementError>,
    ) -> Result<(), StatementError> {
        let matchers = self.filter.with(added);
        let selector = Selector { matchers: &matchers, range: self.range };
        let mut batch = Vec::new();
        for store in &self.stores {
            let mut batches = store.source.select(&selector, self.ctx)?;
            let mut has_more = true;
            while has_more {
                self.ctx.check()?;
                has_more = batches.next_batch(&mut batch)?;
                for series in batch.drain(..).filter(|series| self.filter.selects(&series.labels)) {
                    if visit(&series)?.is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the series keys, in the order of measurements and tags: measurement and tags, as line protocol
    /// writes them.
    pub(super) fn series_keys(&self, sources: &[Source]) -> Result<Vec<String>, StatementError> {
        let mut keys: BTreeSet<Vec<String>> = BTreeSet::new();
        let mut previous: Option<Vec<String>> = None;
        self.visit_series(name_matchers(sources)?, |series| {
            let key = series_parts(&series.labels);
            if previous.as_ref() != Some(&key) {
                // As parts, and as the text that is printed.
                self.reserve(key.iter().map(|part| 3 * part.len() + ENTRY_BYTES).sum())?;
                keys.insert(key.clone());
                previous = Some(key);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.ctx.check()?;
        Ok(keys.iter().map(|parts| series_key(parts)).collect())
    }
}

/// Measurement, and keys and values of the tags one after the other.
fn series_parts(labels: &Labels) -> Vec<String> {
    let mut parts = vec![labels.metric_name().unwrap_or("").to_owned()];
    for (name, value) in labels.iter().filter(|(name, _)| *name != METRIC_NAME && !is_reserved(name)) {
        parts.push(name.to_owned());
        parts.push(value.to_owned());
    }
    parts
}

/// Measurement and tags as line protocol writes them.
fn series_key(parts: &[String]) -> String {
    let escaped = |text: &str| text.replace(',', "\\,").replace('=', "\\=").replace(' ', "\\ ");
    let Some((name, tags)) = parts.split_first() else { return String::new() };
    let mut key = name.replace(',', "\\,").replace(' ', "\\ ");
    for tag in tags.chunks_exact(2) {
        key.push(',');
        key.push_str(&escaped(&tag[0]));
        key.push('=');
        key.push_str(&escaped(&tag[1]));
    }
    key
}
