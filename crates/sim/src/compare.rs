//! Queries the store and compares its answers with the ledger.
//!
//! Invariants: series are sorted and unique, times ascend within the range, every value is one that the
//! ledger allows, and every sample that must exist is returned. Not here: drawing the queries (`batch`).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_base::Clock;
use chronolith_model::kind::{word_of_integer, word_of_unsigned};
use chronolith_model::query::{ColumnType, TenantSources, TypedColumns, TypedValues};
use chronolith_model::{
    Columns, KIND_LABEL, Labels, Matcher, QueryError, Queryable, ReadContext, SampleSource, Selector,
    StoreId, TimeRange, WordKind,
};
use chronolith_tsdb::{BucketSources, Tsdb, store_name};

use crate::batch::match_all;
use crate::labels::kind_of;
use crate::ledger::{SeriesLedger, TenantLedger};
use crate::value::{Value, number_of_text, wrong_reset_hint};

/// View of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    /// Languages with types: values keep the type of their series.
    Typed,
    /// PromQL, which rounds integers and sees no texts.
    Promql,
}

impl View {
    /// Returns the view of a query; all of a store is compared exactly.
    fn of(range: TimeRange) -> View {
        if range != TimeRange::ALL && range.start % 2 != 0 { View::Promql } else { View::Typed }
    }

    /// Returns true if the values of series `number` are returned as they were written.
    fn is_exact(self, number: u32) -> bool {
        self == View::Typed || matches!(kind_of(number), WordKind::Float | WordKind::Boolean)
    }
}

/// Reads samples of any type as words; texts as their numbers.
fn read_words(samples: &dyn SampleSource, range: TimeRange) -> Result<Columns, QueryError> {
    let mut columns = Columns::default();
    let column_type = samples.column_type();
    if !matches!(column_type, ColumnType::Integer | ColumnType::Unsigned | ColumnType::Text) {
        samples.read(range, &mut columns)?;
        return Ok(columns);
    }
    let mut typed = TypedColumns::new(column_type);
    samples.read_typed(range, &mut typed)?;
    columns.times = typed.times;
    let words: Vec<u64> = match typed.values {
        TypedValues::Integers(values) => values.into_iter().map(word_of_integer).collect(),
        TypedValues::Unsigned(values) => values.into_iter().map(word_of_unsigned).collect(),
        // A text that was never written has a number that was never written.
        TypedValues::Texts(values) => {
            values.iter().map(|text| number_of_text(text).unwrap_or(u64::MAX - 7)).collect()
        }
        _ => Vec::new(),
    };
    columns.values = words.into_iter().map(f64::from_bits).collect();
    Ok(columns)
}

/// Source of answers.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// A store, with its bucket if it has one.
    Store(&'a Tsdb),
    /// A bucket alone, as PromQL sees it.
    Bucket(&'a BucketSources),
}

/// Queries against one store or bucket.
pub(crate) struct Reader<'a> {
    source: Source<'a>,
    clock: Arc<dyn Clock>,
    /// Set if a source failed instead of answering.
    has_failed: Cell<bool>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: Source<'a>, clock: Arc<dyn Clock>) -> Reader<'a> {
        Reader { source, clock, has_failed: Cell::new(false) }
    }

    /// Returns true if a source failed instead of answering.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    fn view_of(&self, range: TimeRange) -> View {
        match self.source {
            Source::Store(_) => View::of(range),
            Source::Bucket(_) => View::Promql,
        }
    }

    fn queryable(&self, store: &StoreId, view: View) -> Arc<dyn Queryable> {
        match (self.source, view) {
            (Source::Store(tsdb), View::Typed) => tsdb.reader().typed_queryable(store),
            (Source::Store(tsdb), View::Promql) => match store.tenant() {
                Some(tenant) => tsdb.reader().queryable(tenant),
                None => tsdb.reader().store_queryable(store),
            },
            // Stores outside the catalogue of databases are not in a bucket.
            (Source::Bucket(bucket), _) => bucket.queryable(store.tenant().expect("a default store")),
        }
    }

    /// Text of a query that failed.
    fn failed(&self, error: &QueryError) -> String {
        self.has_failed.set(true);
        format!("a query failed: {error}")
    }

    /// Returns the series numbers of all stored samples from the floor of the ledger on, with their times.
    pub(crate) fn read_times(&self, ledger: &TenantLedger) -> Result<Vec<(u32, Vec<i64>)>, String> {
        let found = self.select(ledger, &match_all(None), TimeRange::ALL, self.view_of(TimeRange::ALL))?;
        let times = found.into_iter().filter_map(|(labels, columns)| {
            let times = columns.times.into_iter().filter(|time| *time >= ledger.floor);
            Some((ledger.number_of(&labels)?, times.collect()))
        });
        Ok(times.collect())
    }

    /// Returns the selected series, without the label of the kind, with words as values.
    fn select(
        &self,
        ledger: &TenantLedger,
        matchers: &[Matcher],
        range: TimeRange,
        view: View,
    ) -> Result<Vec<(Labels, Columns)>, String> {
        let ctx = ReadContext::unlimited(self.clock.clone());
        let selector = Selector { matchers, range };
        let text = |error: QueryError| self.failed(&error);
        let queryable = self.queryable(&ledger.id, view);
        let mut batches = queryable.select(&selector, &ctx).map_err(text)?;
        let (mut found, mut series, mut more) = (Vec::new(), Vec::new(), true);
        while more {
            more = batches.next_batch(&mut series).map_err(text)?;
            for one in series.drain(..) {
                let columns = read_words(&*one.samples, range).map_err(text)?;
                if columns.len() > one.samples.sample_count_hint() {
                    return Err(format!("{}: more samples than `sample_count_hint`", one.labels));
                }
                found.push((one.labels, columns));
            }
        }
        if !found.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("series are not sorted or not unique".to_owned());
        }
        for (labels, _) in &mut found {
            *labels = labels.filtered(|name| name != KIND_LABEL);
        }
        // PromQL rounds integers.
        found.retain(|(labels, _)| ledger.number_of(labels).is_none_or(|number| view.is_exact(number)));
        Ok(found)
    }

    /// Compares the samples that `matchers` select in `range`; returns their number.
    pub(crate) fn compare(
        &self,
        ledger: &TenantLedger,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<u64, String> {
        let mut seen = BTreeSet::new();
        let mut sample_count = 0;
        let context =
            |what: String| format!("tenant {}, {matchers:?} in {range:?}: {what}", store_name(&ledger.id));
        let view = self.view_of(range);
        for (labels, columns) in self.select(ledger, matchers, range, view).map_err(context)? {
            if !matchers.iter().all(|m| m.matches_labels(&labels)) {
                return Err(context(format!("{labels} does not match")));
            }
            let series = ledger.number_of(&labels).inspect(|number| {
                seen.insert(*number);
            });
            let series = series.and_then(|number| ledger.series.get(&number));
            sample_count += columns.len() as u64;
            compare_series(series, &columns, ledger.floor, range)
                .map_err(|what| context(format!("{labels}: {what}")))?;
        }
        let clipped = TimeRange::new(range.start.max(ledger.floor), range.end);
        for (number, series) in
            ledger.matching(matchers).filter(|(number, _)| view.is_exact(*number) && !seen.contains(number))
        {
            if let Some((time, expected)) =
                series.samples_in(clipped).find(|(_, expected)| expected.is_present())
            {
                let labels = &series.labels;
                return Err(context(format!(
                    "series {number} {labels} is missing: expected {expected:?} @{time}"
                )));
            }
        }
        Ok(sample_count)
    }

    /// Compares label names and values of the series that `matchers` select in `range`: labels of series that
    /// must have samples are returned, and no label that no series ever had.
    pub(crate) fn compare_labels(
        &self,
        ledger: &TenantLedger,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<(), String> {
        let ctx = ReadContext::unlimited(self.clock.clone());
        let selector = Selector { matchers, range };
        let queryable = self.queryable(&ledger.id, View::Promql);
        let clipped = TimeRange::new(range.start.max(ledger.floor), range.end);
        let context = |what: &str, found: &[String]| {
            format!("tenant {}, {matchers:?} in {range:?}: {what}, found {found:?}", store_name(&ledger.id))
        };
        let failed = |error: QueryError| context(&self.failed(&error), &[]);
        let names = queryable.label_names(&selector, 0, &ctx).map_err(failed)?;
        let mut lists = vec![(None, names)];
        for name in ["id", "zone", "__name__"] {
            let values = queryable.label_values(name, &selector, 0, &ctx);
            lists.push((Some(name), values.map_err(failed)?));
        }
        for (name, found) in lists {
            if !found.is_sorted_by(|a, b| a < b) {
                return Err(context("not sorted or not unique", &found));
            }
            let (mut least, mut most) = (BTreeSet::new(), BTreeSet::new());
            for (number, series) in ledger.matching(matchers) {
                // PromQL sees no texts.
                let is_visible = kind_of(number) != WordKind::Text;
                let is_present =
                    is_visible && series.samples_in(clipped).any(|(_, expected)| expected.is_present());
                for text in label_texts(&series.labels, name) {
                    most.insert(text.to_owned());
                    if is_present {
                        least.insert(text.to_owned());
                    }
                }
            }
            let found_set: BTreeSet<String> = found.iter().cloned().collect();
            if let Some(text) = least.difference(&found_set).next() {
                return Err(context(&format!("{text:?} of label {name:?} is missing"), &found));
            }
            // The ledger does not know the series of samples below the floor.
            if let (Some(text), true) = (found_set.difference(&most).next(), ledger.floor == i64::MIN) {
                return Err(context(&format!("{text:?} of label {name:?} is of no series"), &found));
            }
        }
        Ok(())
    }

    /// Returns all stored samples of one series.
    pub(crate) fn read_series(
        &self,
        ledger: &TenantLedger,
        number: u32,
    ) -> Result<BTreeMap<i64, Value>, String> {
        let labels = ledger.labels(number);
        let matchers: Vec<Matcher> = labels.iter().map(|(name, value)| Matcher::equal(name, value)).collect();
        let mut found = BTreeMap::new();
        for (one, columns) in self.select(ledger, &matchers, TimeRange::ALL, View::Typed)? {
            if one == labels {
                found.extend(
                    columns.times.iter().enumerate().map(|(at, time)| (*time, Value::found(&columns, at))),
                );
            }
        }
        Ok(found)
    }
}

fn label_texts<'a>(labels: &'a Labels, name: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    let value = name.and_then(|name| labels.get(name));
    let names = name.is_none().then(|| labels.iter().map(|(name, _)| name));
    value.into_iter().chain(names.into_iter().flatten())
}

fn compare_series(
    series: Option<&SeriesLedger>,
    columns: &Columns,
    floor: i64,
    range: TimeRange,
) -> Result<(), String> {
    if !columns.times.is_sorted_by(|a, b| a < b) {
        return Err("times do not ascend".to_owned());
    }
    if columns.times.iter().any(|&time| !range.contains(time)) {
        return Err("a time is outside the range".to_owned());
    }
    if let Some(what) = wrong_reset_hint(columns) {
        return Err(what);
    }
    let clipped = TimeRange::new(range.start.max(floor), range.end);
    let mut samples = series.into_iter().flat_map(|series| series.samples_in(clipped)).peekable();
    for (at, &time) in columns.times.iter().enumerate().filter(|(_, time)| **time >= floor) {
        while let Some((missing, expected)) = samples.next_if(|(other, _)| *other < time) {
            if expected.is_present() {
                return Err(format!("no sample @{missing}, expected {expected:x?}; the next one is @{time}"));
            }
        }
        let found = Some(Value::found(columns, at));
        match samples.next_if(|(other, _)| *other == time) {
            Some((_, expected)) if expected.allows(found) => {}
            Some((_, expected)) => return Err(format!("{found:x?} @{time}, expected {expected:x?}")),
            None => return Err(format!("{found:x?} @{time}, which was never written")),
        }
    }
    match samples.find(|(_, expected)| expected.is_present()) {
        Some((time, expected)) => {
            Err(format!("no sample @{time}, expected {expected:x?}; it is after all others"))
        }
        None => Ok(()),
    }
}
