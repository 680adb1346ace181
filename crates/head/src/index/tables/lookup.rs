//! Read side of a tenant's inverted index: postings by matcher, label names and values, and the cardinality
//! statistics of `/api/v1/status/tsdb`.
//!
//! Invariant: series that have left the head are excluded from every result.
//! Not here: insertion and rebuilds (`tenant_index`), evaluation of selectors with several matchers
//! (`model::index`).

use std::collections::BTreeSet;
use std::sync::Arc;

use chronolith_base::hash::HashSet;
use chronolith_model::index::{CachedMatches, LabelIndex, RegexCache};
use chronolith_model::kind::is_reserved;
use chronolith_model::{GoRegex, METRIC_NAME, Matcher, QueryError, ReachedLimit, Reject, TenantLimits};

use super::tag_values::{FullTag, TagValues};
use super::tenant_index::{TenantIndex, hash_members};
use super::value_search::merged_by_value;

/// Cost of checking one series, in ids of postings read: a search, and a cache line or two.
const SERIES_COST: usize = 16;
/// Cost of matching one value against a regex, in the same unit.
const PATTERN_COST: usize = 16;

/// Counts that limits of series hold for, each of the metric or label that has most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LargestUses {
    /// Series of a metric.
    pub metric_series: u64,
    /// Values of a label other than the name.
    pub label_values: u64,
}

/// Largest series, pairs and values of one tenant, in descending order (`/api/v1/status/tsdb`).
#[derive(Debug, Clone, Default)]
pub struct Cardinality {
    /// Number of series.
    pub series_count: u64,
    /// Number of label pairs.
    pub label_pair_count: u64,
    /// Number of series by metric name.
    pub series_by_metric: Vec<(String, u64)>,
    /// Number of values by label name.
    pub values_by_label: Vec<(String, u64)>,
    /// Bytes of values by label name.
    pub bytes_by_label: Vec<(String, u64)>,
    /// Number of series by `name=value`.
    pub series_by_pair: Vec<(String, u64)>,
}

impl LabelIndex for TenantIndex {
    fn all(&self, out: &mut Vec<u32>) -> Result<(), QueryError> {
        out.append(&mut self.rows.live_ids());
        Ok(())
    }

    fn postings(&self, name: &str, value: &str, out: &mut Vec<u32>) -> Result<(), QueryError> {
        let pair = self.find_name(name).and_then(|n| self.find_pair(n, value));
        let Some(pair) = pair.map(|p| &self.pairs[p as usize]).filter(|p| p.live_count > 0) else {
            return Ok(());
        };
        let start = out.len();
        pair.postings.read(out);
        self.keep_live(out, start);
        Ok(())
    }

    fn postings_count_max(&self, name: &str, value: &str) -> Option<usize> {
        Some(self.live_count_of(name, value))
    }

    // PERF: a rule asks for 20 of 100 000 series by instance and name, and the postings of the name are a
    // third of all: see `http::dispatch::run_small_first` in the server.
    fn retain_few(&self, matcher: &Matcher, refs: &mut Vec<u32>) -> Result<bool, QueryError> {
        if refs.len().saturating_mul(SERIES_COST) >= self.cost_of(matcher) {
            return Ok(false);
        }
        let name = self.find_name(&matcher.name);
        let (mut idx, mut matched) = (0, None);
        refs.retain(|&id| {
            let Some(row) = self.rows.live_row_from(&mut idx, id) else { return false };
            let has_name = |pair: &u32| Some(self.pairs[*pair as usize].name) == name;
            let pair = self.members_of(row).iter().find(has_name);
            // Neighbours mostly have the same value.
            match matched {
                Some((known, fits)) if known == pair => fits,
                _ => {
                    let fits = matcher.matches(pair.map_or("", |pair| self.pair_text(pair).1));
                    matched = Some((pair, fits));
                    fits
                }
            }
        });
        Ok(true)
    }

    fn for_each_value(
        &self,
        name: &str,
        prefix: &str,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        let Some(name) = self.find_name(name) else { return Ok(()) };
        for &pair in &self.names[name as usize].pairs {
            if self.pairs[pair as usize].live_count == 0 {
                continue;
            }
            let value = self.pair_text(pair).1;
            if begins_with(value, prefix) && !visit(value) {
                break;
            }
        }
        Ok(())
    }

    /// Implements the contract, with a regex cache.
    fn search(
        &self,
        matcher: &Matcher,
        prefix: &str,
        fits: &dyn Fn(&str) -> bool,
        out: &mut Vec<u32>,
    ) -> Result<(), QueryError> {
        let Some(name) = self.find_name(&matcher.name) else { return Ok(()) };
        let name = &self.names[name as usize];
        let found = find_cached(&self.regex_cache, matcher, &name.pairs, |pair| {
            let value = self.pair_text(pair).1;
            !value.is_empty() && begins_with(value, prefix) && fits(value)
        });
        for pair in found.iter().map(|&pair| &self.pairs[pair as usize]).filter(|pair| pair.live_count > 0) {
            let start = out.len();
            pair.postings.read(out);
            self.keep_live(out, start);
        }
        Ok(())
    }
}

/// Returns the pairs for which `fits` returns true, among `pairs`, all pairs of the name of a regex matcher;
/// `fits` must depend on `matcher` alone. Cost: the pairs that were added since the last call.
pub(super) fn find_cached(
    cache: &RegexCache,
    matcher: &Matcher,
    pairs: &[u32],
    fits: impl Fn(u32) -> bool,
) -> Arc<[u32]> {
    let cached = cache.get(matcher, pairs.len());
    let (seen_count, known) = cached.map_or((0, Arc::default()), |one| (one.value_count, one.found));
    if seen_count == pairs.len() {
        return known;
    }
    let mut fresh = pairs.get(seen_count..).unwrap_or(&[]).iter().copied().filter(|&pair| fits(pair));
    let found: Arc<[u32]> = match fresh.next() {
        None => known,
        Some(first) => known.iter().copied().chain([first]).chain(fresh).collect(),
    };
    cache.insert(matcher, CachedMatches { value_count: pairs.len(), found: found.clone() });
    found
}

impl TenantIndex {
    /// Returns the number of live series with this pair.
    fn live_count_of(&self, name: &str, value: &str) -> usize {
        let pair = self.find_name(name).and_then(|name| self.find_pair(name, value));
        pair.map_or(0, |pair| self.pairs[pair as usize].live_count as usize)
    }

    /// Returns the cost of finding and reading the postings for `matcher`, in ids read.
    fn cost_of<'a>(&self, matcher: &'a Matcher) -> usize {
        let count_of = |value: &str| self.live_count_of(&matcher.name, value);
        let named = |regex: &'a GoRegex| regex.set_matches().filter(|_| !regex.is_match(""));
        match matcher.regex() {
            Some(regex) => match named(regex) {
                Some(values) => values.iter().map(|value| count_of(value)).sum(),
                None => {
                    let name = self.find_name(&matcher.name);
                    name.map_or(0, |name| self.names[name as usize].pairs.len() * PATTERN_COST)
                }
            },
            None if matcher.value.is_empty() => self.live_count(),
            None => count_of(&matcher.value),
        }
    }

    /// Removes dead series from the ids after `start`, and sorts the others.
    fn keep_live(&self, out: &mut Vec<u32>, start: usize) {
        if !self.rows.has_one_run() {
            out[start..].sort_unstable();
        }
        if self.rows.dead_count() == 0 {
            return;
        }
        let (mut kept, mut idx) = (start, 0);
        for at in start..out.len() {
            let id = out[at];
            if self.rows.live_row_from(&mut idx, id).is_some() {
                out[kept] = id;
                kept += 1;
            }
        }
        out.truncate(kept);
    }

    /// Returns the label names of live series, distinct, in any order. Cost: the names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let is_live = |pair: &u32| self.pairs[*pair as usize].live_count > 0;
        let used = move |name: &u32| self.names[*name as usize].pairs.iter().any(is_live);
        (0..self.names.len() as u32).filter(used).map(|name| self.name_text(name))
    }

    /// Returns the values of `name` of live series, sorted and distinct. Cost: the values; the first call
    /// sorts them.
    pub(crate) fn values(&self, name: &str, limit: usize) -> Vec<String> {
        let Some(name) = self.find_name(name) else { return Vec::new() };
        let is_live = |pair: &&u32| self.pairs[**pair as usize].live_count > 0;
        let text = |&pair: &u32| self.pair_text(pair).1.to_owned();
        self.pairs_by_value(name).iter().filter(is_live).take(limit).map(text).collect()
    }

    /// Returns the live series that has this label and no other.
    pub(super) fn sole_series(&self, pair: u32) -> Option<u32> {
        if self.pairs[pair as usize].live_count == 0 {
            return None;
        }
        let is_it = |row: u32| self.members_of(row as usize).iter().eq([pair]);
        let row = self.label_table.find(hash_members([pair].into_iter()), is_it)?;
        Some(self.rows.id(row as usize))
    }

    /// Adds the label names of the live series among ascending `ids` to `out`.
    pub(crate) fn collect_names(&self, ids: &[u32], out: &mut BTreeSet<String>) {
        let mut seen = HashSet::default();
        self.for_each_pair(ids, |pair| {
            let name = self.pairs[pair as usize].name;
            if seen.insert(name) && !out.contains(self.name_text(name)) {
                out.insert(self.name_text(name).to_owned());
            }
        });
    }

    /// Adds the values of `name` of the live series among ascending `ids` to `out`.
    pub(crate) fn collect_values(&self, name: &str, ids: &[u32], out: &mut BTreeSet<String>) {
        let Some(name) = self.find_name(name) else { return };
        let mut seen = HashSet::default();
        self.for_each_pair(ids, |pair| {
            if self.pairs[pair as usize].name == name && seen.insert(pair) {
                let value = self.pair_text(pair).1;
                if !out.contains(value) {
                    out.insert(value.to_owned());
                }
            }
        });
    }

    /// Returns all pairs of a label name by value, dead ones included; valid for this generation of the
    /// index.
    pub(crate) fn pairs_of_name(&self, name: &str) -> Arc<[u32]> {
        self.find_name(name).map_or_else(|| Arc::from([]), |name| self.pairs_by_value(name))
    }

    /// Appends the values of those `pairs` that a series of `ids` has or had.
    pub(crate) fn values_of_series(&self, pairs: &[u32], ids: &IdSet, out: &mut Vec<String>) {
        let has_one = |pair: &&u32| self.pairs[**pair as usize].postings.any(|id| ids.contains(id));
        out.extend(pairs.iter().filter(has_one).map(|&pair| self.pair_text(pair).1.to_owned()));
    }

    /// Returns all pairs of a name by value.
    fn pairs_by_value(&self, name: u32) -> Arc<[u32]> {
        let name = &self.names[name as usize];
        let mut sorted = name.by_value.lock();
        if sorted.len() < name.pairs.len() {
            *sorted = merged_by_value(self, &sorted, &name.pairs[sorted.len()..]);
        }
        sorted.clone()
    }

    fn for_each_pair(&self, ids: &[u32], mut visit: impl FnMut(u32)) {
        let mut last_row = 0;
        for idx in ids.iter().filter_map(|&id| self.rows.live_row_from(&mut last_row, id)) {
            self.members_of(idx).iter().for_each(&mut visit);
        }
    }

    /// Returns the largest entries, `limit` per list.
    pub(crate) fn cardinality(&self, limit: usize) -> Cardinality {
        let live = |p: &u32| self.pairs[*p as usize].live_count;
        let mut out = Cardinality { series_count: self.live_count() as u64, ..Cardinality::default() };
        for (name_id, name) in self.names.iter().enumerate() {
            let text = self.name_text(name_id as u32);
            let used: Vec<u32> = name.pairs.iter().copied().filter(|p| live(p) > 0).collect();
            if used.is_empty() {
                continue;
            }
            out.label_pair_count += used.len() as u64;
            out.values_by_label.push((text.to_owned(), used.len() as u64));
            let bytes = used.iter().map(|&p| u64::from(self.pairs[p as usize].len)).sum();
            out.bytes_by_label.push((text.to_owned(), bytes));
            let mut largest: Vec<(u32, u32)> = used.iter().map(|&p| (live(&p), p)).collect();
            largest.sort_unstable_by(|a, b| b.cmp(a));
            largest.truncate(limit);
            for (count, pair) in largest {
                let value = self.pair_text(pair).1;
                out.series_by_pair.push((format!("{text}={value}"), u64::from(count)));
                if text == chronolith_model::METRIC_NAME {
                    out.series_by_metric.push((value.to_owned(), u64::from(count)));
                }
            }
        }
        for list in [
            &mut out.values_by_label,
            &mut out.bytes_by_label,
            &mut out.series_by_pair,
            &mut out.series_by_metric,
        ] {
            list.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            list.truncate(limit);
        }
        out
    }
}

impl TenantIndex {
    /// Returns the number of live series of a metric.
    pub(crate) fn metric_series_count(&self, metric: &str) -> usize {
        self.live_count_of(METRIC_NAME, metric)
    }

    /// Returns the limit that a new series would exceed: series of its metric, or values of one of its
    /// labels. Cost: a lookup per label whose number of values is at the limit, and one of the metric.
    pub(crate) fn full_limit(&self, labels: &[(&str, &str)], limits: &TenantLimits) -> Option<ReachedLimit> {
        if limits.ingestion.metric_series_max > 0
            && let Some((_, metric)) = labels.iter().find(|(name, _)| *name == METRIC_NAME)
            && let Some(pair) = self.find_name(METRIC_NAME).and_then(|name| self.find_pair(name, metric))
            && self.pairs[pair as usize].live_count as usize >= limits.ingestion.metric_series_max
        {
            return Some(ReachedLimit {
                kind: Reject::MetricSeriesLimit,
                name: (*metric).to_owned(),
                used: u64::from(self.pairs[pair as usize].live_count),
                limit: limits.ingestion.metric_series_max as u64,
            });
        }
        if limits.ingestion.label_values_max == 0 {
            return None;
        }
        let full = |&&(name, value): &&(&str, &str)| {
            self.is_full_label(name, value, limits.ingestion.label_values_max)
        };
        let (name, _) = labels.iter().find(full)?;
        Some(ReachedLimit {
            kind: Reject::LabelValueLimit,
            name: (*name).to_owned(),
            used: self.find_name(name).map_or(0, |id| u64::from(self.names[id as usize].live_count)),
            limit: limits.ingestion.label_values_max as u64,
        })
    }

    /// Returns true if `value` would be a new value of a label that has at least `value_count_max`.
    fn is_full_label(&self, name: &str, value: &str, value_count_max: usize) -> bool {
        if name == METRIC_NAME || is_reserved(name) {
            return false;
        }
        let Some(name_id) = self.find_name(name) else { return false };
        let pair = || self.find_pair(name_id, value);
        self.names[name_id as usize].live_count as usize >= value_count_max
            && pair().is_none_or(|pair| self.pairs[pair as usize].live_count == 0)
    }

    /// Returns the series of the metric that has most, and the values of the label that has most, the name
    /// aside. Cost: visits each metric and label name.
    pub(crate) fn largest_uses(&self) -> LargestUses {
        let mut uses = LargestUses::default();
        for (id, name) in self.names.iter().enumerate() {
            let text = self.name_text(id as u32);
            if text == METRIC_NAME {
                let counts = name.pairs.iter().map(|&pair| self.pairs[pair as usize].live_count);
                uses.metric_series = u64::from(counts.max().unwrap_or(0));
            } else if !is_reserved(text) {
                uses.label_values = uses.label_values.max(u64::from(name.live_count));
            }
        }
        uses
    }

    /// Returns the first tag of a new series that would have more than `value_count_max` values in its
    /// measurement. Cost: a lookup per tag while it has fewer values in all measurements; beyond that, the
    /// rows since the last call, and all rows if series have left since.
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

/// Returns true if `value` begins with `prefix`. An empty prefix needs no comparison (see `model::regex`),
/// and there are many values.
fn begins_with(value: &str, prefix: &str) -> bool {
    prefix.is_empty() || value.starts_with(prefix)
}

/// Set of ids as a bitmap.
pub(crate) struct IdSet {
    first: u32,
    bits: Vec<u64>,
}

impl IdSet {
    /// Returns the set of ascending ids.
    pub(crate) fn new(ids: &[u32]) -> IdSet {
        let (first, last) = (ids.first().copied().unwrap_or(0), ids.last().copied().unwrap_or(0));
        let mut bits = vec![0; (last - first) as usize / 64 + 1];
        for &id in ids {
            bits[(id - first) as usize / 64] |= 1 << ((id - first) % 64);
        }
        if ids.is_empty() {
            bits.clear();
        }
        IdSet { first, bits }
    }

    fn contains(&self, id: u32) -> bool {
        let Some(at) = id.checked_sub(self.first) else { return false };
        self.bits.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}
