//! Asking the store, and comparing its answers with the ledger.
//!
//! Holds: series come sorted and once, times ascend and lie in the range, every value is one that the ledger allows,
//! and everything that the ledger is sure of is there. Not here: what is asked (`series`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_base::Clock;
use chronolith_model::{Columns, Labels, Matcher, ReadContext, Selector, TimeRange};
use chronolith_tsdb::Tsdb;

use crate::ledger::{SeriesLedger, TenantLedger};
use crate::value::{Value, false_hint};

/// A store to ask.
pub(crate) struct Reader<'a> {
    pub(crate) tsdb: &'a Tsdb,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Reader<'_> {
    fn select(
        &self,
        ledger: &TenantLedger,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<(Labels, Columns)>, String> {
        let ctx = ReadContext::unlimited(self.clock.clone());
        let selector = Selector { matchers, range };
        let text = |error| format!("a query failed: {error}");
        let mut batches = self.tsdb.queryable(&ledger.id).select(&selector, &ctx).map_err(text)?;
        let (mut found, mut series, mut more) = (Vec::new(), Vec::new(), true);
        while more {
            more = batches.next_batch(&mut series).map_err(text)?;
            for one in series.drain(..) {
                let mut columns = Columns::default();
                one.samples.read(range, &mut columns).map_err(text)?;
                if columns.len() > one.samples.sample_count_hint() {
                    return Err(format!("{}: more samples than announced", one.labels));
                }
                found.push((one.labels, columns));
            }
        }
        if !found.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("series are not sorted, or one came twice".to_owned());
        }
        Ok(found)
    }

    /// Compares the answer to `matchers` over `range`; gives how many samples were compared.
    pub(crate) fn compare(
        &self,
        ledger: &TenantLedger,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<u64, String> {
        let mut seen = BTreeSet::new();
        let mut sample_count = 0;
        let context = |what: String| format!("tenant {}, {matchers:?} in {range:?}: {what}", ledger.id);
        for (labels, columns) in self.select(ledger, matchers, range).map_err(context)? {
            if !matchers.iter().all(|m| m.matches_labels(&labels)) {
                return Err(context(format!("{labels} does not fit")));
            }
            let series = ledger.number_of(&labels).inspect(|number| {
                seen.insert(*number);
            });
            let series = series.and_then(|number| ledger.series.get(&number));
            sample_count += columns.len() as u64;
            compare_series(series, &columns, ledger.floor_ms, range)
                .map_err(|what| context(format!("{labels}: {what}")))?;
        }
        let clipped = TimeRange::new(range.start.max(ledger.floor_ms), range.end);
        for (number, series) in ledger.matching(matchers).filter(|(number, _)| !seen.contains(number)) {
            if let Some((time, cell)) = series.cells_in(clipped).find(|(_, cell)| cell.is_present()) {
                let labels = &series.labels;
                return Err(context(format!("series {number} {labels} is missing: {cell:?} @{time}")));
            }
        }
        Ok(sample_count)
    }

    /// Compares label names and values of what `matchers` fit over `range`: those of series that must have samples
    /// there are in the answer, and nothing that no such series ever had.
    pub(crate) fn compare_labels(
        &self,
        ledger: &TenantLedger,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<(), String> {
        let ctx = ReadContext::unlimited(self.clock.clone());
        let selector = Selector { matchers, range };
        let queryable = self.tsdb.queryable(&ledger.id);
        let clipped = TimeRange::new(range.start.max(ledger.floor_ms), range.end);
        let context = |what: &str, found: &[String]| {
            format!("tenant {}, {matchers:?} in {range:?}: {what}, found {found:?}", ledger.id)
        };
        let names = queryable.label_names(&selector, 0, &ctx).map_err(|e| context(&e.to_string(), &[]))?;
        let mut wanted = vec![(None, names)];
        for name in ["id", "zone", "__name__"] {
            let values = queryable.label_values(name, &selector, 0, &ctx);
            wanted.push((Some(name), values.map_err(|e| context(&e.to_string(), &[]))?));
        }
        for (name, found) in wanted {
            if !found.is_sorted_by(|a, b| a < b) {
                return Err(context("not sorted, or something twice", &found));
            }
            let (mut least, mut most) = (BTreeSet::new(), BTreeSet::new());
            for (_, series) in ledger.matching(matchers) {
                let is_sure = series.cells_in(clipped).any(|(_, cell)| cell.is_present());
                for text in label_texts(&series.labels, name) {
                    most.insert(text.to_owned());
                    if is_sure {
                        least.insert(text.to_owned());
                    }
                }
            }
            let found_set: BTreeSet<String> = found.iter().cloned().collect();
            if let Some(text) = least.difference(&found_set).next() {
                return Err(context(&format!("{text:?} of label {name:?} is missing"), &found));
            }
            // What is below the floor is forgotten, also which series had it.
            if let (Some(text), true) = (found_set.difference(&most).next(), ledger.floor_ms == i64::MIN) {
                return Err(context(&format!("{text:?} of label {name:?} is of no series"), &found));
            }
        }
        Ok(())
    }

    /// Everything that is stored of one series.
    pub(crate) fn read_series(
        &self,
        ledger: &TenantLedger,
        number: u32,
    ) -> Result<BTreeMap<i64, Value>, String> {
        let labels = ledger.labels(number);
        let matchers: Vec<Matcher> = labels.iter().map(|(name, value)| Matcher::equal(name, value)).collect();
        let mut found = BTreeMap::new();
        for (one, columns) in self.select(ledger, &matchers, TimeRange::ALL)? {
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
    floor_ms: i64,
    range: TimeRange,
) -> Result<(), String> {
    if !columns.times.is_sorted_by(|a, b| a < b) {
        return Err("times do not ascend".to_owned());
    }
    if columns.times.iter().any(|&time| !range.contains(time)) {
        return Err("a time is outside the range".to_owned());
    }
    if let Some(what) = false_hint(columns) {
        return Err(what);
    }
    let clipped = TimeRange::new(range.start.max(floor_ms), range.end);
    let mut cells = series.into_iter().flat_map(|series| series.cells_in(clipped)).peekable();
    for (at, &time) in columns.times.iter().enumerate().filter(|(_, time)| **time >= floor_ms) {
        while let Some((missing, cell)) = cells.next_if(|(other, _)| *other < time) {
            if cell.is_present() {
                return Err(format!("no sample @{missing}, {cell:x?} wanted; the next one is @{time}"));
            }
        }
        let found = Some(Value::found(columns, at));
        match cells.next_if(|(other, _)| *other == time) {
            Some((_, cell)) if cell.allows(found) => {}
            Some((_, cell)) => return Err(format!("{found:x?} @{time}, {cell:x?} wanted")),
            None => return Err(format!("{found:x?} @{time}, which should not be there")),
        }
    }
    match cells.find(|(_, cell)| cell.is_present()) {
        Some((time, cell)) => Err(format!("no sample @{time}, {cell:x?} wanted; it is behind all others")),
        None => Ok(()),
    }
}
