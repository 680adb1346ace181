//! Tags of the series of a tenant: keys, values, counts, and the series that expressions select.
//!
//! Invariants: a series without tags has none, its name neither; lists are sorted and unique. Label APIs of
//! the source answer where the expressions are exact matchers; otherwise the labels of the series are read,
//! never their samples.
//! Not here: parameters and answers (`tags`), expressions (`graphite::storage::tag_query`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_graphite::storage::meta_tags::MetaTags;
use chronolith_graphite::storage::tag_query::TagExpression;
use chronolith_ingest::carbon::path_of_labels;
use chronolith_model::query::{Projection, SelectRequest};
use chronolith_model::{
    GraphiteLimits, Labels, METRIC_NAME, Matcher, QueryError, Queryable, ReadContext, Selector, SeriesRead,
    TimeRange,
};

use super::error::GraphiteError;
use super::tag_matchers::{NAME_TAG, has_label, label_of, matchers_of_labels, tag_matchers, tags_of};

/// Receives a series, with its tags if it has some and is selected.
type VisitTagged<'a> = dyn FnMut(&SeriesRead, Option<Tags>) -> Result<ControlFlow<()>, GraphiteError> + 'a;

/// Bytes of a text in a list, apart from its characters.
const TEXT_BYTES: u64 = 64;

/// Tags of the series that have samples in a range.
pub struct TagIndex<'a> {
    source: Arc<dyn Queryable>,
    ctx: &'a ReadContext,
    range: TimeRange,
    meta: Arc<MetaTags>,
    /// Limit of series, keys or values of one answer.
    results_max: u64,
    /// Memory of the found series.
    held: RefCell<Reservation>,
}

/// Values of the tags of a series, by key.
type Tags = BTreeMap<String, String>;

/// Counts of the values of some tags.
#[derive(Debug, Default)]
pub struct Terms {
    pub series_count: u64,
    /// By key and value.
    pub counts: BTreeMap<String, BTreeMap<String, u64>>,
}

impl<'a> TagIndex<'a> {
    /// Tags of the series of `source` with samples in `range`, and the tags of rules.
    ///
    /// # Errors
    /// If no memory is left.
    pub fn new(
        source: Arc<dyn Queryable>,
        meta: Arc<MetaTags>,
        range: TimeRange,
        limits: &GraphiteLimits,
        ctx: &'a ReadContext,
    ) -> Result<TagIndex<'a>, GraphiteError> {
        let held = RefCell::new(ctx.budget.reserve(0).map_err(QueryError::from)?);
        Ok(TagIndex { source, ctx, range, meta, results_max: limits.tag_results_max, held })
    }

    /// Keys of the tags of the selected series, of all series without expressions.
    pub fn keys(&self, expressions: &[TagExpression]) -> Result<BTreeSet<String>, GraphiteError> {
        let mut keys = BTreeSet::new();
        if self.is_indexed(expressions) {
            let matchers = tag_matchers(expressions).matchers;
            keys.extend(self.tag_labels(&matchers)?);
            if !keys.is_empty() {
                keys.insert(NAME_TAG.to_owned());
            }
            self.reserve(keys.iter())?;
            // Without expressions, keys of rules are listed whether or not they select a series.
            keys.extend(self.meta.keys().iter().cloned());
            return Ok(keys);
        }
        self.for_each_tagged(expressions, &mut |_, tags| {
            for key in tags.into_keys() {
                if !keys.contains(&key) {
                    self.reserve([&key].into_iter())?;
                    keys.insert(key);
                }
            }
            self.check_count(keys.len())
        })?;
        Ok(keys)
    }

    /// Values of `key` of the selected series, of all series without expressions.
    pub fn values(
        &self,
        key: &str,
        expressions: &[TagExpression],
    ) -> Result<BTreeSet<String>, GraphiteError> {
        let mut values = BTreeSet::new();
        if self.is_indexed(expressions) && !self.meta.keys().contains(key) {
            let mut matchers = tag_matchers(expressions).matchers;
            if key != NAME_TAG {
                matchers.extend(has_label(key));
                values.extend(self.label_values(key, &matchers)?);
                return Ok(values);
            }
            // A series without tags has no name either: the names come from the series of each label.
            for label in self.tag_labels(&matchers)? {
                let tagged: Vec<Matcher> = matchers.iter().cloned().chain(has_label(&label)).collect();
                values.extend(self.label_values(METRIC_NAME, &tagged)?);
                self.check_count(values.len())?;
            }
            return Ok(values);
        }
        self.for_each_tagged(expressions, &mut |_, mut tags| {
            if let Some(value) = tags.remove(key).filter(|value| !values.contains(value)) {
                self.reserve([&value].into_iter())?;
                values.insert(value);
            }
            self.check_count(values.len())
        })?;
        Ok(values)
    }

    /// Number of series per value of `key`.
    pub fn value_counts(&self, key: &str) -> Result<BTreeMap<String, u64>, GraphiteError> {
        let label = label_of(key);
        let is_plain = key != NAME_TAG && !self.meta.keys().contains(key);
        // The label of a plain tag is enough: the source may leave out the others.
        let grouping = is_plain.then(|| Projection::new(&[label], true));
        let matchers: Vec<Matcher> =
            if is_plain { has_label(label).into_iter().collect() } else { Vec::new() };
        let mut counts = BTreeMap::new();
        let request = SelectRequest { presence_only: is_plain, grouping, ..self.newest(&matchers) };
        self.for_each_series(request, &mut |series| {
            let counted = if is_plain {
                series.labels.get(label).map(str::to_owned)
            } else {
                self.tags(&series.labels)?.remove(key)
            };
            match counted {
                Some(value) => self.count(&mut counts, value),
                None => Ok(()),
            }
        })?;
        Ok(counts)
    }

    /// Canonical paths of the selected series.
    pub fn paths(&self, expressions: &[TagExpression]) -> Result<BTreeSet<String>, GraphiteError> {
        let mut paths = BTreeSet::new();
        self.for_each_tagged(expressions, &mut |series, _| {
            let path = path_of_labels(&series.labels);
            self.reserve([&path].into_iter())?;
            paths.insert(path);
            self.check_count(paths.len())
        })?;
        Ok(paths)
    }

    /// Number of selected series, and per value of each of `keys`.
    pub fn terms(&self, expressions: &[TagExpression], keys: &[&str]) -> Result<Terms, GraphiteError> {
        let mut terms = Terms::default();
        for key in keys {
            terms.counts.insert((*key).to_owned(), BTreeMap::new());
        }
        self.for_each_tagged(expressions, &mut |_, tags| {
            terms.series_count += 1;
            for (key, value) in tags {
                if let Some(counts) = terms.counts.get_mut(&key) {
                    self.count(counts, value)?;
                }
            }
            Ok(())
        })?;
        Ok(terms)
    }

    /// Calls `visit` with each series with tags that satisfies the expressions, and its tags.
    pub fn for_each_tagged(
        &self,
        expressions: &[TagExpression],
        visit: &mut dyn FnMut(&SeriesRead, Tags) -> Result<(), GraphiteError>,
    ) -> Result<(), GraphiteError> {
        self.for_tagged_while(expressions, &mut |series, tags| {
            tags.map_or(Ok(()), |tags| visit(series, tags)).map(ControlFlow::Continue)
        })
    }

    /// Calls `visit` with each series, in order of labels, that the matchers of the expressions select, until
    /// it breaks; with its tags if it has some and satisfies the expressions.
    pub fn for_tagged_while(
        &self,
        expressions: &[TagExpression],
        visit: &mut VisitTagged<'_>,
    ) -> Result<(), GraphiteError> {
        let matchers = matchers_of_labels(expressions, &self.meta);
        self.for_series_while(self.newest(&matchers), &mut |series| {
            let tags = self.tags(&series.labels)?;
            let mut is_selected = !tags.is_empty();
            for expression in expressions {
                is_selected = is_selected && expression.matches(&tags).map_err(GraphiteError::Invalid)?;
            }
            visit(series, Some(tags).filter(|_| is_selected))
        })
    }

    /// Tags of a series with the tags of rules; none if it has its name only.
    fn tags(&self, labels: &Labels) -> Result<Tags, GraphiteError> {
        if labels.len() == 1 {
            return Ok(BTreeMap::new());
        }
        tags_of(labels, &self.meta).map_err(GraphiteError::Invalid)
    }

    /// Returns true if label APIs answer for the series that the expressions select.
    fn is_indexed(&self, expressions: &[TagExpression]) -> bool {
        expressions.is_empty() || self.meta.is_empty() && tag_matchers(expressions).is_exact
    }

    /// Labels of the selected series, but for the metric name.
    pub fn tag_labels(&self, matchers: &[Matcher]) -> Result<Vec<String>, GraphiteError> {
        let selector = Selector { matchers, range: self.range };
        let mut labels = self.source.label_names(&selector, 0, self.ctx)?;
        labels.retain(|label| label != METRIC_NAME);
        self.check_count(labels.len())?;
        Ok(labels)
    }

    fn label_values(&self, label: &str, matchers: &[Matcher]) -> Result<Vec<String>, GraphiteError> {
        let selector = Selector { matchers, range: self.range };
        let values = self.source.label_values(label, &selector, 0, self.ctx)?;
        self.check_count(values.len())?;
        self.reserve(values.iter())?;
        Ok(values)
    }

    /// Labels and newest samples of the series of the range.
    fn newest(&self, matchers: &[Matcher]) -> SelectRequest {
        SelectRequest::newest(&Selector { matchers, range: self.range })
    }

    fn for_each_series(
        &self,
        request: SelectRequest,
        visit: &mut dyn FnMut(&SeriesRead) -> Result<(), GraphiteError>,
    ) -> Result<(), GraphiteError> {
        self.for_series_while(request, &mut |series| visit(series).map(ControlFlow::Continue))
    }

    fn for_series_while(
        &self,
        request: SelectRequest,
        visit: &mut dyn FnMut(&SeriesRead) -> Result<ControlFlow<()>, GraphiteError>,
    ) -> Result<(), GraphiteError> {
        let mut batches = self.source.open_series(request, self.ctx)?;
        let mut batch = Vec::new();
        loop {
            let has_more = batches.next_batch(&mut batch)?;
            self.ctx.check()?;
            for series in batch.drain(..) {
                if visit(&series)?.is_break() {
                    return Ok(());
                }
            }
            if !has_more {
                return Ok(());
            }
        }
    }

    fn count(&self, counts: &mut BTreeMap<String, u64>, value: String) -> Result<(), GraphiteError> {
        if let Some(count) = counts.get_mut(&value) {
            *count += 1;
            return Ok(());
        }
        self.reserve([&value].into_iter())?;
        counts.insert(value, 1);
        self.check_count(counts.len())
    }

    fn check_count(&self, found: usize) -> Result<(), GraphiteError> {
        let limit = self.results_max;
        if found as u64 <= limit {
            return Ok(());
        }
        let message = format!(
            "found {found} series, tags or values, more than the limit of {limit} (graphite.max-tag-results)"
        );
        Err(GraphiteError::TooMany(message))
    }

    fn reserve<'t>(&self, texts: impl Iterator<Item = &'t String>) -> Result<(), GraphiteError> {
        let bytes = texts.map(|text| text.len() as u64 + TEXT_BYTES).sum();
        self.held.borrow_mut().grow(bytes).map_err(QueryError::from)?;
        Ok(())
    }
}
