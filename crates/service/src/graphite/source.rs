//! Series of a tenant for Graphite's language: paths are metric names of series without other labels, tags
//! are labels.
//!
//! Invariants: a point lies in the step that holds its time, and the last one of a step counts; the step of a
//! series comes from the archive that its schema selects (`archive`), and without a schema from the most
//! frequent gap among its last points before the end of the range. Memory of the points is reserved before
//! they are read.
//! Not here: the language (`graphite`), HTTP (`render`, `find`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_graphite::storage::glob::PathPattern;
use chronolith_graphite::storage::meta_tags::MetaTags;
use chronolith_graphite::storage::path_walk::{SortedPaths, walk};
use chronolith_graphite::storage::tag_query::TagExpression;
use chronolith_graphite::storage::{FetchRequest, FetchedSeries, Node, Selector as Selected, Source};
use chronolith_graphite::{Consolidation, EvalError, TaggedName};
use chronolith_ingest::carbon::path_of_labels;
use chronolith_model::query::{LabelValueCursor, SelectRequest, SoleLabelValues, SortedValues};
use chronolith_model::{
    GraphiteLimits, Labels, METRIC_NAME, MatchOp, Matcher, QueryError, Queryable, ReadContext, Selector,
    SeriesRead, TimeRange,
};

use super::annotations::Annotations;
use super::archive::{self, Choice, PointCounts, PointReader};
use super::error::GraphiteError;
use super::fetch_log::{FetchLog, LoggedArchive, LoggedSeries};
use super::points::{Grid, Points, PointsRead, STEP_DEFAULT_S, WaitingSeries, step_of};
use super::tag_matchers::{escaped, label_of, matchers_of_labels, tags_of};
use crate::carbon::rules::PathRules;

/// Time before the range that is read for the step of a series with few points.
const STEP_LOOKBACK_S: i64 = 3600;
/// Selected series whose points are read together.
const WAITING_SERIES_MAX: usize = 4096;
/// Series of a path with globs that are selected by their names; more are selected by their prefix.
const NAMED_SERIES_MAX: usize = 8192;
/// Copies of a name in matchers and in answers, at most.
const NAME_COPIES: u64 = 6;
/// Bytes of a node and of its answer apart from its name.
const NODE_BYTES: u64 = 512;
/// Bytes of the tags of a series apart from their texts.
const TAGS_BYTES: usize = 640;
/// Bytes of a tag apart from its texts.
const TAG_BYTES: usize = 160;
/// Names in one selection: a regex of at most as many literals is a set of names.
const NAMES_PER_SELECT: usize = 512;

/// Rules, limits and clock of a request.
pub struct SourceSettings {
    pub rules: Arc<PathRules>,
    pub limits: GraphiteLimits,
    /// Clock of the request, in seconds.
    pub now_s: i64,
}

/// Reads of the fetches of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Points, without a log of the fetches.
    Points,
    /// Points, with a log of the fetches.
    PointsWithLog,
    /// The log alone: series have no values, and without a schema the default step.
    Plan,
}

/// Source of one request.
pub struct TenantSource<'a> {
    source: Arc<dyn Queryable>,
    ctx: &'a ReadContext,
    settings: SourceSettings,
    /// Memory of the names, and of empty points.
    held: RefCell<Reservation>,
    /// Memory of the fetched points.
    held_by_points: RefCell<Vec<Reservation>>,
    annotations: Annotations,
    /// Reason why the store failed, if it did: the language has it as text only.
    failure: RefCell<Option<QueryError>>,
    reading: Reading,
    log: RefCell<FetchLog>,
    /// Samples and windows of roll-ups that were read.
    sample_count: Cell<u64>,
    /// Values of the last series of a plan.
    no_values: RefCell<Arc<Vec<f64>>>,
}

impl<'a> TenantSource<'a> {
    /// A source without events and meta tags that reads points.
    ///
    /// # Errors
    /// If no memory is left.
    pub fn new(
        source: Arc<dyn Queryable>,
        ctx: &'a ReadContext,
        settings: SourceSettings,
    ) -> Result<TenantSource<'a>, GraphiteError> {
        let held = RefCell::new(ctx.budget.reserve(0).map_err(QueryError::from)?);
        Ok(TenantSource {
            source,
            ctx,
            settings,
            held,
            held_by_points: RefCell::default(),
            annotations: Annotations::default(),
            failure: RefCell::default(),
            reading: Reading::Points,
            log: RefCell::default(),
            sample_count: Cell::default(),
            no_values: RefCell::default(),
        })
    }

    /// The same source with other reads.
    pub fn with_reading(self, reading: Reading) -> TenantSource<'a> {
        TenantSource { reading, ..self }
    }

    /// The same source with events and meta tags.
    pub fn with_annotations(self, annotations: Annotations) -> TenantSource<'a> {
        TenantSource { annotations, ..self }
    }

    /// Returns the failure of the store that ended the evaluation.
    pub fn take_failure(&self) -> Option<QueryError> {
        self.failure.take()
    }

    /// Returns the log of the fetches; it is empty for [`Reading::Points`].
    pub fn take_log(&self) -> FetchLog {
        self.log.take()
    }

    /// Returns the number of samples and windows of roll-ups that were read.
    pub fn sample_count(&self) -> u64 {
        self.sample_count.get()
    }

    fn failed(&self, error: QueryError) -> EvalError {
        let text = error.to_string();
        *self.failure.borrow_mut() = Some(error);
        EvalError::Storage(text)
    }

    /// Calls `visit` for each series of `request`.
    fn for_each_series(
        &self,
        request: SelectRequest,
        visit: &mut dyn FnMut(SeriesRead) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        let mut batches = self.source.open_series(request, self.ctx).map_err(|error| self.failed(error))?;
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

    /// Fetches the series of a request; a series has at most `points_max` points if it has an archive for
    /// that.
    fn fetch_one(
        &self,
        request: &FetchRequest,
        selection: &Selection,
        points_max: u64,
    ) -> Result<Vec<FetchedSeries>, EvalError> {
        let meta = &*self.annotations.meta_tags;
        let range = self.range_of(request);
        if self.reading != Reading::Points {
            self.log.borrow_mut().begin(request, points_max);
        }
        let filter = SeriesFilter::new(&request.selector);
        let mut found = Vec::new();
        let mut waiting: Vec<WaitingSeries<'_>> = Vec::new();
        let mut visit = |series: SeriesRead| {
            self.reserve_labels(&series.labels)?;
            let name = path_of_labels(&series.labels);
            let tags = tags_of(&series.labels, meta)?;
            if !filter.selects(&series, &name, &tags)? {
                return Ok(());
            }
            let limit = self.settings.limits.series_max;
            if (found.len() + waiting.len()) as u64 >= limit {
                return Err(EvalError::Limit { what: "series", found: limit + 1, limit });
            }
            let choice =
                archive::choose(&self.settings.rules, &name, request, self.settings.now_s, points_max);
            if choice.as_ref().is_some_and(|choice| choice.archive.is_before_retention()) {
                return Ok(());
            }
            self.reserve((2 * name.len() + size_of::<FetchedSeries>()) as u64)?;
            waiting.push(WaitingSeries { name, tags, choice, samples: series.samples });
            if waiting.len() >= WAITING_SERIES_MAX {
                self.read_waiting(request, &mut waiting, &mut found)?;
            }
            Ok(())
        };
        let rollups = archive::candidates(&self.settings.rules, request, self.settings.now_s, points_max);
        for matchers in &selection.matchers {
            let selector = Selector { matchers, range };
            let wanted = match self.reading {
                Reading::Plan => SelectRequest::newest(&selector),
                Reading::Points | Reading::PointsWithLog => {
                    SelectRequest { rollups: rollups.clone(), ..SelectRequest::new(&selector) }
                }
            };
            self.for_each_series(wanted, &mut visit)?;
        }
        self.read_waiting(request, &mut waiting, &mut found)?;
        if selection.count_known != Some(found.len() as u64) {
            self.fetch_empty(request, selection, points_max, &mut found)?;
        }
        Ok(found)
    }

    /// Appends selected series without points in the range that have some after it, without values: as in
    /// graphite-web, a path counts until its last point, also for ranges before its first one.
    fn fetch_empty(
        &self,
        request: &FetchRequest,
        selection: &Selection,
        points_max: u64,
        found: &mut Vec<FetchedSeries>,
    ) -> Result<(), EvalError> {
        let after = TimeRange::new(to_ms(request.until.saturating_add(1)), self.end_of_now());
        if after.start >= after.end {
            return Ok(());
        }
        let meta = &*self.annotations.meta_tags;
        let filter = SeriesFilter::new(&request.selector);
        let known: BTreeSet<String> = found.iter().map(|series| series.name.clone()).collect();
        let mut missing = Vec::new();
        let mut visit = |series: SeriesRead| {
            self.ctx.check().map_err(|error| self.failed(error))?;
            let name = path_of_labels(&series.labels);
            if known.contains(&name) {
                return Ok(());
            }
            self.reserve_labels(&series.labels)?;
            let tags = tags_of(&series.labels, meta)?;
            if !filter.selects(&series, &name, &tags)? {
                return Ok(());
            }
            let limit = self.settings.limits.series_max;
            if (found.len() + missing.len()) as u64 >= limit {
                return Err(EvalError::Limit { what: "series", found: limit + 1, limit });
            }
            self.reserve((2 * name.len() + size_of::<FetchedSeries>()) as u64)?;
            let choice =
                archive::choose(&self.settings.rules, &name, request, self.settings.now_s, points_max);
            missing.push((name, tags, choice));
            Ok(())
        };
        // Only labels are needed: a bucket is not asked for the samples of all the time since the range.
        for matchers in &selection.matchers {
            let labels = SelectRequest::newest(&Selector { matchers, range: after });
            self.for_each_series(labels, &mut visit)?;
        }
        let without_schema = missing.iter().filter(|(.., choice)| choice.is_none());
        let without_schema: BTreeSet<&str> = without_schema.map(|(name, ..)| name.as_str()).collect();
        let steps = self.newest_steps(selection, after, &without_schema)?;
        for (name, tags, choice) in missing {
            let grid = match &choice {
                Some(Choice { archive, .. }) if archive.is_before_retention() => continue,
                Some(Choice { archive, .. }) => Grid::new(archive.from_s, archive.until_s, archive.step_s),
                None => {
                    let step_s = steps.get(&name).copied().unwrap_or(STEP_DEFAULT_S);
                    Grid::new(request.from, request.until, step_s)
                }
            };
            let points = self.empty_points(grid)?;
            self.log_series(&name, choice.as_ref(), &points)?;
            found.push(fetched(name, tags, points));
        }
        Ok(())
    }

    /// Steps of the series `names` by their points of the last hour in `after`.
    fn newest_steps(
        &self,
        selection: &Selection,
        after: TimeRange,
        names: &BTreeSet<&str>,
    ) -> Result<BTreeMap<String, i64>, EvalError> {
        let mut steps = BTreeMap::new();
        if names.is_empty() || self.reading == Reading::Plan {
            return Ok(steps);
        }
        let start = after.start.max(after.end.saturating_sub(to_ms(STEP_LOOKBACK_S)));
        let newest = TimeRange::new(start, after.end);
        let reserved = self.ctx.budget.reserve(0).map_err(|full| self.failed(full.into()))?;
        let mut reader = PointReader::new(reserved);
        let mut visit = |series: SeriesRead| {
            let name = path_of_labels(&series.labels);
            if names.contains(name.as_str()) {
                reader.read_samples(&*series.samples, newest).map_err(|error| self.failed(error))?;
                self.reserve((name.len() + TAG_BYTES) as u64)?;
                steps.insert(name, step_of(&reader.samples, newest.end));
            }
            Ok(())
        };
        for matchers in &selection.matchers {
            let points = SelectRequest::new(&Selector { matchers, range: newest });
            self.for_each_series(points, &mut visit)?;
        }
        Ok(steps)
    }

    /// Reserves the memory of the tags of a series.
    fn reserve_labels(&self, labels: &Labels) -> Result<(), EvalError> {
        let texts: usize = labels.iter().map(|(name, value)| name.len() + value.len() + TAG_BYTES).sum();
        self.reserve((texts + TAGS_BYTES) as u64)
    }

    /// The request without the time after now; `None` if nothing of it is left. No point is after now, as in
    /// graphite-web over whisper.
    fn until_now(&self, request: &FetchRequest) -> Option<FetchRequest> {
        let now_s = self.settings.now_s;
        let until = request.until.min(now_s);
        (request.from <= now_s).then(|| FetchRequest { until, ..request.clone() })
    }

    /// End of the last millisecond of the second that is now.
    fn end_of_now(&self) -> i64 {
        to_ms(self.settings.now_s.saturating_add(1))
    }

    /// Reads the points of selected series, and appends these to `found`.
    fn read_waiting<'r>(
        &'r self,
        request: &FetchRequest,
        waiting: &mut Vec<WaitingSeries<'r>>,
        found: &mut Vec<FetchedSeries>,
    ) -> Result<(), EvalError> {
        let points = match self.reading {
            Reading::Plan => {
                let of_plan = |series: &WaitingSeries<'_>| self.plan_points(request, series.choice.as_ref());
                waiting.iter().map(of_plan).collect::<Result<Vec<_>, _>>()?
            }
            Reading::Points | Reading::PointsWithLog => {
                let read = PointsRead { request, range: self.range_of(request), ctx: self.ctx };
                let (points, held) = read.run(waiting).map_err(|error| self.failed(error))?;
                self.held_by_points.borrow_mut().extend(held);
                points
            }
        };
        let counts = points.iter().map(|points| points.counts);
        let read_count: usize = counts.map(|counts| counts.samples + counts.rolled_up).sum();
        self.sample_count.set(self.sample_count.get() + read_count as u64);
        for (series, points) in waiting.drain(..).zip(points) {
            self.log_series(&series.name, series.choice.as_ref(), &points)?;
            found.push(fetched(series.name, series.tags, points));
        }
        Ok(())
    }

    /// Points of a series of a plan: none.
    fn plan_points(&self, request: &FetchRequest, choice: Option<&Choice<'_>>) -> Result<Points, EvalError> {
        let grid = match choice {
            Some(Choice { archive, .. }) => Grid::new(archive.from_s, archive.until_s, archive.step_s),
            None => Grid::new(request.from, request.until, STEP_DEFAULT_S),
        };
        self.empty_points(grid)
    }

    /// Points without values. Neighbours share the memory.
    fn empty_points(&self, grid: Grid) -> Result<Points, EvalError> {
        let mut values = self.no_values.borrow_mut();
        if values.len() != grid.count {
            self.reserve((grid.count * size_of::<f64>()) as u64)?;
            *values = Arc::new(vec![f64::NAN; grid.count]);
        }
        Ok(Points { grid, values: values.clone(), counts: PointCounts::default() })
    }

    /// Adds a series to the log, if there is one.
    fn log_series(&self, name: &str, choice: Option<&Choice<'_>>, points: &Points) -> Result<(), EvalError> {
        let step_s = match self.reading {
            Reading::Points => return Ok(()),
            Reading::PointsWithLog => Some(points.grid.step),
            Reading::Plan => None,
        };
        self.reserve((name.len() + size_of::<LoggedSeries>()) as u64)?;
        let archive = LoggedArchive::new(choice, step_s);
        self.log.borrow_mut().push(archive, name, points.grid.count, points.counts);
        Ok(())
    }

    /// Returns the range of points that a request needs.
    fn range_of(&self, request: &FetchRequest) -> TimeRange {
        let first_s = request.from.min(request.until.saturating_sub(STEP_LOOKBACK_S));
        // The last step of a coarse archive may end after the range.
        let last_s = request.until.saturating_add(1).saturating_add(self.settings.rules.step_max_s());
        TimeRange::new(to_ms(first_s), to_ms(last_s))
    }

    /// Looks up what a request selects.
    fn selection_of(&self, request: &FetchRequest) -> Result<Selection, EvalError> {
        let range = self.range_of(request);
        // Paths count until their last point, whether or not they have points in the range.
        let range = TimeRange::new(range.start, range.end.max(self.end_of_now()));
        let selector = &request.selector;
        let meta = &*self.annotations.meta_tags;
        let of_one = |matchers: Vec<Matcher>, series_count, count_known| Selection {
            matchers: vec![matchers],
            series_count,
            count_known,
        };
        let pattern = match selector {
            Selected::Path(pattern) if pattern.contains(';') || !has_globs(pattern) => {
                return Ok(of_one(matchers_of(selector, meta)?, 1, Some(1)));
            }
            Selected::Path(pattern) => pattern,
            Selected::Tags(_) => {
                let matchers = matchers_of(selector, meta)?;
                let read = Selector { matchers: &matchers, range };
                let estimate = self.source.estimate(&read, self.ctx).map_err(|error| self.failed(error))?;
                let series_count = estimate.map_or(1, |estimate| estimate.series);
                return Ok(of_one(matchers, series_count, None));
            }
        };
        let mut names: Vec<String> = Vec::new();
        let mut paths = SeriesPaths::new(self, pattern, range)?;
        walk(&mut paths, pattern, &mut |path, is_leaf| {
            self.count_found(names.len())?;
            if is_leaf {
                self.reserve(NAME_COPIES * path.len() as u64)?;
                names.push(path.to_owned());
            }
            Ok(())
        })?;
        let series_count = names.len() as u64;
        if names.len() > NAMED_SERIES_MAX {
            return Ok(of_one(matchers_of(selector, meta)?, series_count, Some(series_count)));
        }
        let matchers = names.chunks(NAMES_PER_SELECT).map(|names| Ok(vec![names_matcher(names)?]));
        let matchers = matchers.collect::<Result<_, EvalError>>()?;
        Ok(Selection { matchers, series_count, count_known: Some(series_count) })
    }

    fn count_found(&self, found: usize) -> Result<(), EvalError> {
        let limit = self.settings.limits.nodes_max;
        if (found as u64) < limit {
            return Ok(());
        }
        Err(EvalError::Limit { what: "nodes", found: found as u64 + 1, limit })
    }
}

impl Source for TenantSource<'_> {
    fn fetch(&self, requests: &[FetchRequest]) -> Result<Vec<Vec<FetchedSeries>>, EvalError> {
        let asked: Vec<Option<FetchRequest>> =
            requests.iter().map(|request| self.until_now(request)).collect();
        let selections = asked.iter().map(|asked| asked.as_ref().map(|request| self.selection_of(request)));
        let selections = selections.map(Option::transpose).collect::<Result<Vec<_>, _>>()?;
        let series_count: u64 = selections.iter().flatten().map(|selection| selection.series_count).sum();
        let points_max = self.settings.limits.points_soft / series_count.max(1);
        let fetch = |(request, selection): (&Option<FetchRequest>, &Option<Selection>)| match request
            .as_ref()
            .zip(selection.as_ref())
        {
            Some((request, selection)) => self.fetch_one(request, selection, points_max),
            None => Ok(Vec::new()),
        };
        asked.iter().zip(&selections).map(fetch).collect()
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
        let end = until.map_or(i64::MAX / 2, |until| to_ms(until.saturating_add(1)).max(self.end_of_now()));
        let mut nodes = Vec::new();
        let mut paths = SeriesPaths::new(self, pattern, TimeRange::new(start, end))?;
        walk(&mut paths, pattern, &mut |path, is_leaf| {
            self.count_found(nodes.len())?;
            self.reserve(NAME_COPIES * path.len() as u64 + NODE_BYTES)?;
            nodes.push(Node { path: path.to_owned(), is_leaf, intervals: Vec::new() });
            Ok(())
        })?;
        nodes.sort_unstable_by(|a, b| (&a.path, a.is_leaf).cmp(&(&b.path, b.is_leaf)));
        Ok(nodes)
    }
}

/// Matchers of a request, and an estimate of the number of series.
struct Selection {
    /// Every selected series fulfils one of these lists, and others may as well.
    matchers: Vec<Vec<Matcher>>,
    series_count: u64,
    /// Number of series until now, if it is no estimate.
    count_known: Option<u64>,
}

/// Position in the paths of series without tags.
struct SeriesPaths<'a, 's> {
    source: &'a TenantSource<'s>,
    values: Box<dyn LabelValueCursor>,
}

impl<'a, 's> SeriesPaths<'a, 's> {
    /// Reads the paths that match the start of a pattern if the source cannot search.
    fn new(
        source: &'a TenantSource<'s>,
        pattern: &str,
        range: TimeRange,
    ) -> Result<SeriesPaths<'a, 's>, EvalError> {
        let search = SoleLabelValues { name: METRIC_NAME, range };
        let values = source.source.sole_label_values(&search, source.ctx);
        let values = match values.map_err(|error| source.failed(error))? {
            Some(values) => values,
            None => Box::new(SortedValues::new(list_paths(source, pattern, range)?)),
        };
        Ok(SeriesPaths { source, values })
    }
}

impl SortedPaths for SeriesPaths<'_, '_> {
    fn seek(&mut self, start: &str) -> Result<Option<&str>, EvalError> {
        self.source.ctx.check().map_err(|error| self.source.failed(error))?;
        self.values.seek(start).map_err(|error| self.source.failed(error))
    }
}

/// Lists the paths that match the start of a pattern, in ascending order.
fn list_paths(source: &TenantSource<'_>, pattern: &str, range: TimeRange) -> Result<Vec<String>, EvalError> {
    let mut paths = Vec::new();
    let matchers = [subtree_matcher(pattern)?];
    // All labels decide whether a series has tags, which a request of presence alone leaves out.
    let request = SelectRequest::newest(&Selector { matchers: &matchers, range });
    source.for_each_series(request, &mut |series| {
        if let Some(path) = series.labels.metric_name().filter(|_| series.labels.len() == 1) {
            source.reserve((path.len() + size_of::<String>()) as u64)?;
            paths.push(path.to_owned());
        }
        Ok(())
    })?;
    paths.sort_unstable();
    paths.dedup();
    Ok(paths)
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

fn has_globs(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[', '{'])
}

/// Matcher for any of these names.
fn names_matcher(names: &[String]) -> Result<Matcher, EvalError> {
    if let [name] = names {
        return Ok(Matcher::equal(METRIC_NAME, name));
    }
    let escaped = |name: &String| name.chars().flat_map(escaped).collect::<String>();
    let regex = names.iter().map(escaped).collect::<Vec<_>>().join("|");
    Matcher::new(METRIC_NAME, MatchOp::Regex, &regex)
        .map_err(|error| EvalError::Parameter(format!("names of series: {error}")))
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

/// Matcher for a path and all paths below it.
fn subtree_matcher(pattern: &str) -> Result<Matcher, EvalError> {
    if has_globs(pattern) {
        return prefix_matcher(pattern);
    }
    let path: String = pattern.chars().flat_map(escaped).collect();
    Matcher::new(METRIC_NAME, MatchOp::Regex, &format!("(?s:{path}(\\..*)?)"))
        .map_err(|error| EvalError::Parameter(format!("invalid path {pattern:?}: {error}")))
}

/// Series that a selector selects: its path or expressions are parsed once for all series.
enum SeriesFilter<'a> {
    /// The series with this canonical path; none if the path is malformed.
    Tagged(Option<String>),
    Path(PathPattern),
    Tags(&'a [TagExpression]),
}

impl SeriesFilter<'_> {
    fn new(selector: &Selected) -> SeriesFilter<'_> {
        match selector {
            Selected::Path(path) if path.contains(';') => {
                SeriesFilter::Tagged(TaggedName::parse(path).ok().map(|path| path.canonical()))
            }
            Selected::Path(pattern) => SeriesFilter::Path(PathPattern::new(pattern)),
            Selected::Tags(expressions) => SeriesFilter::Tags(expressions),
        }
    }

    fn selects(
        &self,
        series: &SeriesRead,
        name: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<bool, EvalError> {
        match self {
            SeriesFilter::Tagged(path) => Ok(path.as_deref() == Some(name)),
            SeriesFilter::Path(pattern) => Ok(series.labels.len() == 1 && pattern.matches(name)),
            SeriesFilter::Tags(expressions) => {
                let mut is_selected = series.labels.len() > 1;
                for expression in *expressions {
                    is_selected = is_selected && expression.matches(tags)?;
                }
                Ok(is_selected)
            }
        }
    }
}

fn fetched(name: String, tags: BTreeMap<String, String>, points: Points) -> FetchedSeries {
    let Points { grid, values, .. } = points;
    FetchedSeries {
        name,
        tags,
        start: grid.start,
        end: grid.end(),
        step: grid.step,
        values,
        consolidation: Consolidation::Average,
        x_files_factor: None,
    }
}
