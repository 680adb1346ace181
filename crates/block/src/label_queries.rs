//! Label names and values of the series that fit matchers.

use std::collections::BTreeSet;
use std::ops::Range;

use chronolith_base::{DecodeError, MemoryBudget};
use chronolith_format::block::index::{Postings, SeriesEntry};
use chronolith_model::query::LabelValueScan;
use chronolith_model::{Labels, QueryError, ReadContext, Selector};

use crate::contents::BlockContents;
use crate::postings::{all_refs, postings_at, select_refs};
use crate::series_reader::SeriesReader;
use crate::waves::PostingsWave;

/// Postings lists that are read at once.
const LISTS_PER_WAVE: usize = 1024;
/// Values of a scan between two checks of deadline and cancellation.
const VALUES_PER_CHECK: usize = 1024;

/// Returns the number of entries that a limit allows; 0 = all.
pub(crate) fn limit_of(limit: usize) -> usize {
    if limit == 0 { usize::MAX } else { limit }
}

/// Inserts `text`, with a copy only if the set does not have it.
pub(crate) fn insert_new(set: &mut BTreeSet<String>, text: &str) {
    if !set.contains(text) {
        set.insert(text.to_owned());
    }
}

/// Label names, ascending, at most `limit` (0 = all).
pub(crate) fn label_names(
    contents: &BlockContents,
    selector: &Selector<'_>,
    limit: usize,
    ctx: &ReadContext,
) -> Result<Vec<String>, QueryError> {
    if !selector.range.overlaps(contents.range()) {
        return Ok(Vec::new());
    }
    if selector.matchers.is_empty() {
        return Ok(contents.header().label_names().take(limit_of(limit)).map(str::to_owned).collect());
    }
    let mut names = BTreeSet::new();
    let refs = select_refs(contents, selector.matchers, &ctx.budget)?;
    for_each_series(contents, refs, ctx, &mut |entry| {
        entry.pairs().for_each(|(name, _)| insert_new(&mut names, name));
    })?;
    Ok(names.into_iter().take(limit_of(limit)).collect())
}

/// Values of label `name`, ascending, at most `limit` (0 = all).
pub(crate) fn label_values(
    contents: &BlockContents,
    name: &str,
    selector: &Selector<'_>,
    limit: usize,
    ctx: &ReadContext,
) -> Result<Vec<String>, QueryError> {
    let limit = limit_of(limit);
    if name.is_empty() || !selector.range.overlaps(contents.range()) {
        return Ok(Vec::new());
    }
    let header = contents.header();
    if selector.matchers.is_empty() {
        let mut values = Vec::new();
        let visited = header.for_each_value(name, "", &mut |value, _| {
            values.push(value.to_owned());
            values.len() < limit
        });
        visited.map_err(|e| contents.index_error(&e))?;
        return Ok(values);
    }
    let refs = select_refs(contents, selector.matchers, &ctx.budget)?;
    if refs.len() < header.label_value_count(name) {
        return values_by_series(contents, name, refs, limit, ctx);
    }
    values_by_postings(contents, name, &refs, limit, ctx)
}

/// Visits the values of a label that begin with the prefix, ascending, until `visit` returns false.
pub(crate) fn scan_label_values(
    contents: &BlockContents,
    scan: &LabelValueScan<'_>,
    ctx: &ReadContext,
    visit: &mut dyn FnMut(&str) -> bool,
) -> Result<(), QueryError> {
    if scan.name.is_empty() || !scan.range.overlaps(contents.range()) {
        return Ok(());
    }
    let mut checked = ctx.check();
    let mut value_count = 0_usize;
    let visited = contents.header().for_each_value(scan.name, scan.prefix, &mut |value, _| {
        value_count += 1;
        if value_count.is_multiple_of(VALUES_PER_CHECK) {
            checked = ctx.check();
        }
        checked.is_ok() && visit(value)
    });
    checked?;
    visited.map_err(|e| contents.index_error(&e))
}

fn values_by_series(
    contents: &BlockContents,
    name: &str,
    refs: Vec<u32>,
    limit: usize,
    ctx: &ReadContext,
) -> Result<Vec<String>, QueryError> {
    let mut values = BTreeSet::new();
    for_each_series(contents, refs, ctx, &mut |entry| {
        if let Some((_, value)) = entry.pairs().find(|(n, _)| *n == name) {
            insert_new(&mut values, value);
        }
    })?;
    Ok(values.into_iter().take(limit).collect())
}

/// Calls `visit` with the entry of each of the series.
pub(crate) fn for_each_series(
    contents: &BlockContents,
    refs: Vec<u32>,
    ctx: &ReadContext,
    visit: &mut dyn FnMut(&SeriesEntry),
) -> Result<(), QueryError> {
    let mut series = SeriesReader::new(refs);
    while let Some(series_ref) = series.next_ref(contents, &ctx.budget)? {
        ctx.check()?;
        let entry = series.decode(contents, series_ref).map_err(|e| contents.index_error(&e))?;
        visit(entry);
    }
    Ok(())
}

/// Calls `visit` with the labels of each series until it returns false.
pub(crate) fn for_each_labels(
    contents: &BlockContents,
    visit: &mut dyn FnMut(&Labels) -> bool,
) -> Result<(), QueryError> {
    let budget = MemoryBudget::new("labels of a block", u64::MAX);
    let mut series = SeriesReader::new(all_refs(contents, &budget)?);
    while let Some(series_ref) = series.next_ref(contents, &budget)? {
        series.decode(contents, series_ref).map_err(|e| contents.index_error(&e))?;
        if !visit(&series.ascending_labels(contents, series_ref)?) {
            break;
        }
    }
    Ok(())
}

fn values_by_postings(
    contents: &BlockContents,
    name: &str,
    refs: &[u32],
    limit: usize,
    ctx: &ReadContext,
) -> Result<Vec<String>, QueryError> {
    let mut values = Vec::new();
    for_each_list(contents, name, &ctx.budget, &mut |value, list| {
        ctx.check()?;
        let list = list.map_err(|e| contents.index_error(&e))?;
        if list.iter().any(|series_ref| refs.binary_search(&series_ref).is_ok()) {
            values.push(value.to_owned());
        }
        Ok(values.len() < limit)
    })?;
    Ok(values)
}

/// Called with a value and its postings list, which may be damaged; returns false to stop.
pub(crate) type VisitList<'a> =
    dyn FnMut(&str, Result<Postings<'_>, DecodeError>) -> Result<bool, QueryError> + 'a;

/// Values that wait for the wave of their lists.
#[derive(Default)]
struct ListBatch {
    text: String,
    /// Ends of the values in `text`.
    ends: Vec<usize>,
    lists: Vec<Range<u64>>,
}

impl ListBatch {
    fn push(&mut self, value: &str, list: Range<u64>) {
        self.text.push_str(value);
        self.ends.push(self.text.len());
        self.lists.push(list);
    }

    /// Reads the lists and visits them; returns false if the visitor stopped.
    fn visit(
        &mut self,
        contents: &BlockContents,
        budget: &MemoryBudget,
        visit: &mut VisitList<'_>,
    ) -> Result<bool, QueryError> {
        let bytes = contents.read(&PostingsWave(&self.lists), budget)?;
        let mut start = 0;
        let mut goes_on = true;
        for (&end, list) in self.ends.iter().zip(&self.lists) {
            goes_on = visit(self.text.get(start..end).unwrap_or_default(), postings_at(&bytes, list))?;
            start = end;
            if !goes_on {
                break;
            }
        }
        self.text.clear();
        self.ends.clear();
        self.lists.clear();
        Ok(goes_on)
    }
}

/// Calls `visit` with each value of label `name` and its postings list, ascending by value, until it returns
/// false.
///
/// # Errors
/// Errors of `visit` and of the source; [`QueryError::Corrupt`] if the postings offset table is damaged.
pub(crate) fn for_each_list(
    contents: &BlockContents,
    name: &str,
    budget: &MemoryBudget,
    visit: &mut VisitList<'_>,
) -> Result<(), QueryError> {
    let mut batch = ListBatch::default();
    let mut goes_on = Ok(true);
    let visited = contents.header().for_each_value(name, "", &mut |value, list| {
        batch.push(value, list);
        if batch.lists.len() >= LISTS_PER_WAVE {
            goes_on = batch.visit(contents, budget, visit);
        }
        matches!(goes_on, Ok(true))
    });
    if goes_on? && !batch.lists.is_empty() {
        batch.visit(contents, budget, visit)?;
    }
    visited.map_err(|e| contents.index_error(&e))
}
