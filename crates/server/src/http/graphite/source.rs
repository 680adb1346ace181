//! Series of a tenant for Graphite's language: paths are metric names of series without other labels, tags
//! are labels.
//!
//! Invariants: a point lies in the step that holds its time, and the last one of a step counts; the step of a
//! series is the most frequent gap among its last points before the end of the range. Memory of the points
//! is reserved before they are read.
//! Not here: the language (`graphite`), HTTP (`render`, `find`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_graphite::storage::meta_tags::MetaTags;
use chronolith_graphite::storage::{FetchRequest, FetchedSeries, Node, Selector as Selected, Source, glob};
use chronolith_graphite::{Consolidation, EvalError, TaggedName};
use chronolith_ingest::carbon::path_of_labels;
use chronolith_model::query::SelectHints;
use chronolith_model::{
    Columns, METRIC_NAME, MatchOp, Matcher, QueryError, Queryable, ReadContext, Selector, SeriesRead,
    TimeRange,
};

use super::annotations::Annotations;
use super::tag_matchers::{escaped, label_of, matchers_of_labels, tags_of};
use crate::http::error::ApiError;

/// Points whose gaps determine the step.
const STEP_POINTS: usize = 100;
/// Step of a series whose points do not determine one, in seconds.
const STEP_DEFAULT_S: i64 = 60;
/// Time before the range that is read for the step of a series with few points.
const STEP_LOOKBACK_S: i64 = 3600;
/// Nodes and series of one answer.
const FOUND_MAX: usize = 250_000;
/// Bytes of a sample while a series is read: time and value.
const SAMPLE_BYTES: u64 = 16;

/// Source of one request.
pub(super) struct TenantSource<'a> {
    source: Arc<dyn Queryable>,
    ctx: &'a ReadContext,
    /// Memory of the fetched points and of the names.
    held: RefCell<Reservation>,
    annotations: Annotations,
    /// Why the store failed, if it did: the language has it as text only.
    failure: RefCell<Option<QueryError>>,
}

impl<'a> TenantSource<'a> {
    pub(super) fn new(
        source: Arc<dyn Queryable>,
        ctx: &'a ReadContext,
    ) -> Result<TenantSource<'a>, ApiError> {
        let held = RefCell::new(ctx.budget.reserve(0).map_err(QueryError::from)?);
        let annotations = Annotations::default();
        Ok(TenantSource { source, ctx, held, annotations, failure: RefCell::default() })
    }

    /// The same source with events and meta tags.
    pub(super) fn with_annotations(self, annotations: Annotations) -> TenantSource<'a> {
        TenantSource { annotations, ..self }
    }

    /// Returns the failure of the store that ended the evaluation.
    pub(super) fn take_failure(&self) -> Option<QueryError> {
        self.failure.take()
    }

    fn failed(&self, error: QueryError) -> EvalError {
        let text = error.to_string();
        *self.failure.borrow_mut() = Some(error);
        EvalError::Storage(text)
    }

    /// Calls `visit` for each series that `matchers` select.
    fn for_each_series(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        hints: &SelectHints<'_>,
        visit: &mut dyn FnMut(SeriesRead) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        let selector = Selector { matchers, range };
        let mut batches =
            self.source.select_with(&selector, hints, self.ctx).map_err(|error| self.failed(error))?;
        let mut batch = Vec::new();
        loop {
            let has_more = batches.next_batch(&mut batch).map_err(|error| self.failed(error))?;
            for series in batch.drain(..) {
                visit(series)?;
            }
            if !has_more {
                return Ok(());
            }
        }
    }

    fn fetch_one(&self, request: &FetchRequest) -> Result<Vec<FetchedSeries>, EvalError> {
        let meta = &*self.annotations.meta_tags;
        let matchers = matchers_of(&request.selector, meta)?;
        let first_s = request.from.min(request.until.saturating_sub(STEP_LOOKBACK_S));
        let range = TimeRange::new(to_ms(first_s), to_ms(request.until.saturating_add(1)));
        let mut found = Vec::new();
        let mut columns = Columns::default();
        let mut columns_held = self.ctx.budget.reserve(0).map_err(|full| self.failed(full.into()))?;
        self.for_each_series(&matchers, range, &SelectHints::default(), &mut |series| {
            let name = path_of_labels(&series.labels);
            let tags = tags_of(&series.labels, meta)?;
            if !is_selected(&request.selector, &series, &name, &tags)? {
                return Ok(());
            }
            count_found(found.len())?;
            let needed = series.samples.sample_count_hint() as u64 * SAMPLE_BYTES;
            let grown = columns_held.grow(needed.saturating_sub(columns_held.bytes()));
            grown.map_err(|full| self.failed(full.into()))?;
            columns.clear();
            series.samples.read(range, &mut columns).map_err(|error| self.failed(error))?;
            let step = step_of(&columns, to_ms(request.until.saturating_add(1)));
            let grid = Grid::new(request, step);
            let bytes = grid.count * size_of::<f64>() + 2 * name.len() + size_of::<FetchedSeries>();
            self.reserve(bytes as u64)?;
            found.push(fetched(name, tags, &grid, &columns));
            Ok(())
        })?;
        Ok(found)
    }
}

impl Source for TenantSource<'_> {
    fn fetch(&self, requests: &[FetchRequest]) -> Result<Vec<Vec<FetchedSeries>>, EvalError> {
        requests.iter().map(|request| self.fetch_one(request)).collect()
    }

    fn reserve(&self, bytes: u64) -> Result<(), EvalError> {
        let grown = self.held.borrow_mut().grow(bytes);
        grown.map_err(|full| self.failed(QueryError::from(full)))
    }

    fn event_times(&self, tags: &[String], from: i64, until: i64) -> Result<Vec<i64>, EvalError> {
        Ok(self.annotations.event_times(tags, from, until))
    }

    fn find(&self, pattern: &str, from: Option<i64>, until: Option<i64>) -> Result<Vec<Node>, EvalError> {
        let start = from.map_or(i64::MIN / 2, to_ms);
        let end = until.map_or(i64::MAX / 2, |until| to_ms(until.saturating_add(1)));
        let patterns = glob::elements(pattern);
        let matchers = [prefix_matcher(pattern)?];
        // True for a series, false for a branch; a path may be both.
        let mut nodes: BTreeSet<(String, bool)> = BTreeSet::new();
        // All labels decide whether a series has tags; `presence_only` would leave them out.
        let hints = SelectHints::newest();
        self.for_each_series(&matchers, TimeRange::new(start, end), &hints, &mut |series| {
            let Some(path) = series.labels.metric_name().filter(|_| series.labels.len() == 1) else {
                return Ok(());
            };
            let elements: Vec<&str> = path.split('.').collect();
            let is_match = elements.len() >= patterns.len()
                && patterns.iter().zip(&elements).all(|(pattern, element)| glob::matches(pattern, element));
            if !is_match {
                return Ok(());
            }
            let is_leaf = elements.len() == patterns.len();
            let node = elements[..patterns.len()].join(".");
            count_found(nodes.len())?;
            let bytes = node.len() + size_of::<Node>();
            if nodes.insert((node, is_leaf)) {
                self.reserve(bytes as u64)?;
            }
            Ok(())
        })?;
        let node = |(path, is_leaf)| Node { path, is_leaf, intervals: Vec::new() };
        Ok(nodes.into_iter().map(node).collect())
    }
}

fn count_found(found: usize) -> Result<(), EvalError> {
    if found < FOUND_MAX {
        return Ok(());
    }
    Err(EvalError::Limit { what: "series", found: found as u64 + 1, limit: FOUND_MAX as u64 })
}

fn to_ms(seconds: i64) -> i64 {
    seconds.saturating_mul(1000)
}

/// Matchers that every selected series fulfils; others may fulfil them too.
fn matchers_of(selector: &Selected, meta: &MetaTags) -> Result<Vec<Matcher>, EvalError> {
    match selector {
        Selected::Path(path) if path.contains(';') => {
            let named = TaggedName::parse(path)
                .map_err(|_| EvalError::Parameter(format!("invalid path {path:?}")))?;
            let tags = named.tags.iter();
            Ok(tags.map(|(tag, value)| Matcher::equal(label_of(tag), value)).collect())
        }
        Selected::Path(path) => Ok(vec![prefix_matcher(path)?]),
        Selected::Tags(expressions) => {
            // Look-around and the like are left to the expression itself.
            Ok(matchers_of_labels(expressions, meta))
        }
    }
}

/// Matcher for the bytes of a path before its first glob, and for all of it if it has none.
fn prefix_matcher(pattern: &str) -> Result<Matcher, EvalError> {
    let Some(glob_start) = pattern.find(['*', '?', '[', '{']) else {
        return Ok(Matcher::equal(METRIC_NAME, pattern));
    };
    let prefix: String = pattern.get(..glob_start).unwrap_or("").chars().flat_map(escaped).collect();
    let regex = Matcher::new(METRIC_NAME, MatchOp::Regex, &format!("(?s:{prefix}.*)"));
    regex.map_err(|error| EvalError::Parameter(format!("invalid path {pattern:?}: {error}")))
}

fn is_selected(
    selector: &Selected,
    series: &SeriesRead,
    name: &str,
    tags: &BTreeMap<String, String>,
) -> Result<bool, EvalError> {
    match selector {
        Selected::Path(path) if path.contains(';') => {
            Ok(TaggedName::parse(path).is_ok_and(|p| p.canonical() == name))
        }
        Selected::Path(pattern) => Ok(series.labels.len() == 1 && path_matches(pattern, name)),
        Selected::Tags(expressions) => {
            if series.labels.len() == 1 {
                return Ok(false);
            }
            for expression in expressions {
                if !expression.matches(tags)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    let patterns = glob::elements(pattern);
    let mut elements = path.split('.');
    pattern == "**"
        || patterns
            .iter()
            .all(|pattern| elements.next().is_some_and(|element| glob::matches(pattern, element)))
            && elements.next().is_none()
}

/// Most frequent gap among the last points before `end_ms`, in seconds; the shorter one of equally frequent
/// gaps.
fn step_of(columns: &Columns, end_ms: i64) -> i64 {
    let end = columns.times.partition_point(|time| *time < end_ms);
    let start = end.saturating_sub(STEP_POINTS);
    let last = columns.times.get(start..end).unwrap_or(&[]);
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    for pair in last.windows(2) {
        let [before, after] = pair else { continue };
        *counts.entry(((after - before + 500) / 1000).max(1)).or_default() += 1;
    }
    let most = counts.values().copied().max();
    counts.into_iter().find(|(_, count)| Some(*count) == most).map_or(STEP_DEFAULT_S, |(gap, _)| gap)
}

/// Steps of an answer: the one after that of `from` up to that of `until`, as whisper has them.
struct Grid {
    start: i64,
    step: i64,
    count: usize,
}

impl Grid {
    fn new(request: &FetchRequest, step: i64) -> Grid {
        let start = request.from - request.from.rem_euclid(step) + step;
        let end = request.until - request.until.rem_euclid(step) + step;
        let count = usize::try_from((end - start) / step).unwrap_or(0).max(1);
        Grid { start, step, count }
    }

    fn end(&self) -> i64 {
        self.start + self.step * self.count as i64
    }
}

fn fetched(name: String, tags: BTreeMap<String, String>, grid: &Grid, columns: &Columns) -> FetchedSeries {
    let mut values = vec![f64::NAN; grid.count];
    let first = columns.times.partition_point(|time| *time < to_ms(grid.start));
    for (time, value) in columns.times.iter().zip(&columns.values).skip(first) {
        let idx = (time.div_euclid(1000) - grid.start).div_euclid(grid.step);
        let Some(slot) = usize::try_from(idx).ok().and_then(|idx| values.get_mut(idx)) else { break };
        // Staleness markers of other protocols are no values.
        if !value.is_nan() {
            *slot = *value;
        }
    }
    FetchedSeries {
        name,
        tags,
        start: grid.start,
        end: grid.end(),
        step: grid.step,
        values: Arc::new(values),
        consolidation: Consolidation::Average,
        x_files_factor: None,
    }
}

#[cfg(test)]
mod tests;
