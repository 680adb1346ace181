//! Result cache of range queries: steps that an earlier request computed are reused, only the missing ones
//! are evaluated.
//!
//! Invariants: a cached response equals a fresh evaluation: a step is reused only if no sample within its
//! lookback has been written, deleted or removed since the entry was computed (ADR 0025). All entries
//! together stay below the setting in bytes; the least recently used extent of the tenant that holds most is
//! evicted first, so that no tenant drives others below an equal share. A partial hit needs an expression
//! that joins (`Lookback::joins`). Annotations are returned for the steps that they are about; a result with
//! annotations about unknown steps is used for the very range that was computed, or not at all.
//! Not here: which expressions have a lookback (`promql::engine::lookback`), what changed (`model::change`).

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_model::change::{Changed, Generation};
use chronolith_model::{FloatHistogram, TenantId};
use chronolith_promql::engine::lookback::Lookback;
use chronolith_promql::engine::{MatrixSeries, StepSet};
use parking_lot::Mutex;

use crate::limits::RANGE_CACHE_ENTRIES_MAX;
use crate::metrics::query::CacheCounts;

/// The part of the cache that one entry may take is 1 divided by this.
const ENTRY_SHARE: u64 = 8;
/// Results of one query and step over different ranges.
const EXTENTS_PER_KEY_MAX: usize = 4;

/// Key of cached results: range queries with equal keys are ranges of one sequence of steps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// Tenant that asked.
    pub tenant: TenantId,
    /// Selector of the series that the principal may read; `None`: all.
    pub filter: Option<Arc<str>>,
    /// Key of the plan ([`chronolith_promql::engine::lookback::CachePlan`]).
    pub plan: String,
    /// Step.
    pub step_ms: i64,
    /// Offset of the steps from multiples of the step.
    pub phase_ms: i64,
    /// Lookback of instant selectors.
    pub lookback_ms: i64,
    /// True if functions use start timestamps.
    pub start_times: bool,
}

/// A cached result of consecutive steps.
struct Extent {
    generation: Generation,
    first_ms: i64,
    last_ms: i64,
    series: Arc<Vec<MatrixSeries>>,
    annotations: Arc<Annotations>,
    bytes: u64,
    used: u64,
}

/// Warnings and infos of a result. They quote positions, so they belong to the query as it was written.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Annotations {
    /// The query's text; empty without annotations.
    pub query: String,
    /// Warnings, whose steps are not known.
    pub warnings: Vec<String>,
    /// Infos, with the steps that they are about if those are known.
    pub infos: Vec<(String, Option<StepSet>)>,
}

/// The beginning of a result that needs not be computed.
pub struct Reused {
    series: Arc<Vec<MatrixSeries>>,
    first_ms: i64,
    /// The last step that may be used.
    pub last_ms: i64,
    /// The annotations about these steps.
    pub annotations: Annotations,
}

/// Range query that looks for cached steps.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// Range around a step's time that its evaluation reads.
    pub lookback: Lookback,
    /// First step.
    pub first_ms: i64,
    /// Last step.
    pub last_ms: i64,
    /// The query as it was written.
    pub text: &'a str,
}

#[derive(Default)]
struct Entries {
    /// Extents of one query and step: a panel over an hour and one over a day each keep their own.
    by_key: HashMap<CacheKey, Vec<Extent>>,
    extent_count: usize,
    bytes: u64,
    bytes_by_tenant: HashMap<TenantId, u64>,
    clock: u64,
}

/// The result cache of range queries, bounded in bytes.
pub struct RangeCache {
    bytes_max: u64,
    entries: Mutex<Entries>,
    hits: AtomicU64,
    partial_hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

impl RangeCache {
    /// Nothing is kept if `bytes_max` is 0.
    pub fn new(bytes_max: u64) -> RangeCache {
        RangeCache {
            bytes_max,
            entries: Mutex::default(),
            hits: AtomicU64::new(0),
            partial_hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// Returns true if results are kept.
    pub fn is_on(&self) -> bool {
        self.bytes_max > 0
    }

    /// The steps from the first one that are still right. `changed` answers for a generation.
    pub fn find(
        &self,
        key: &CacheKey,
        wanted: Wanted<'_>,
        changed: impl Fn(&Generation) -> Changed,
    ) -> Option<Reused> {
        let reused = self.usable(key, wanted, changed);
        let counter = match &reused {
            None => &self.misses,
            Some(reused) if reused.last_ms >= wanted.last_ms => &self.hits,
            Some(_) => &self.partial_hits,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        reused
    }

    /// Reusable steps of the extent that reaches furthest; marks that extent as used.
    fn usable(
        &self,
        key: &CacheKey,
        wanted: Wanted<'_>,
        changed: impl Fn(&Generation) -> Changed,
    ) -> Option<Reused> {
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let used = entries.clock;
        let extents = entries.by_key.get_mut(key)?;
        let found = extents.iter_mut().filter_map(|extent| {
            let changed = changed(&extent.generation);
            let reused = extent.usable(key.step_ms, wanted, changed)?;
            Some((reused, extent))
        });
        let (reused, extent) = found.max_by_key(|(reused, _)| reused.last_ms)?;
        extent.used = used;
        Some(reused)
    }

    /// Keeps a result whose evaluation began after `generation` was taken, unless it is too large. The
    /// result replaces extents that it covers, and extents of about the same length that it overlaps: the
    /// same panel, some steps earlier.
    pub fn keep(
        &self,
        key: CacheKey,
        generation: Generation,
        times_ms: RangeInclusive<i64>,
        series: &[MatrixSeries],
        annotations: Annotations,
    ) {
        let (first_ms, last_ms) = times_ms.into_inner();
        assert!(first_ms <= last_ms, "steps from {first_ms} to {last_ms} ms");
        let own_bytes =
            size_of::<CacheKey>() + size_of::<Extent>() + key.plan.len() + annotations.heap_bytes();
        let bytes = bytes_of(series) + own_bytes as u64;
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let used = entries.clock;
        entries.remove(&key, |extent| extent.is_replaced_by(first_ms, last_ms));
        if bytes > self.bytes_max / ENTRY_SHARE {
            return;
        }
        if entries.by_key.get(&key).is_some_and(|extents| extents.len() >= EXTENTS_PER_KEY_MAX) {
            let oldest =
                entries.by_key.get(&key).and_then(|list| list.iter().map(|extent| extent.used).min());
            entries.remove(&key, |extent| Some(extent.used) == oldest);
        }
        while entries.bytes + bytes > self.bytes_max || entries.extent_count >= RANGE_CACHE_ENTRIES_MAX {
            if !self.evict(&mut entries, &key.tenant, bytes) {
                break;
            }
        }
        let series = Arc::new(series.to_vec());
        let annotations = Arc::new(annotations);
        let extent = Extent { generation, first_ms, last_ms, series, annotations, bytes, used };
        entries.bytes += bytes;
        *entries.bytes_by_tenant.entry(key.tenant.clone()).or_default() += bytes;
        entries.extent_count += 1;
        entries.by_key.entry(key).or_default().push(extent);
    }

    /// Makes room for `bytes` of `tenant`: removes an extent of the tenant that has most with them.
    fn evict(&self, entries: &mut Entries, tenant: &TenantId, bytes: u64) -> bool {
        let with_new = |(other, held): &(&TenantId, &u64)| **held + if *other == tenant { bytes } else { 0 };
        let Some((largest, _)) = entries.bytes_by_tenant.iter().max_by_key(with_new) else { return false };
        let of_largest = entries.by_key.iter().filter(|(key, _)| key.tenant == *largest);
        let oldest = of_largest
            .flat_map(|(key, extents)| extents.iter().map(move |extent| (extent.used, key)))
            .min_by_key(|(used, _)| *used)
            .map(|(used, key)| (used, key.clone()));
        let Some((used, key)) = oldest else { return false };
        entries.remove(&key, |extent| extent.used == used);
        self.evictions.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Counts since the start, and number and memory of the cached results.
    pub fn counts(&self) -> CacheCounts {
        let entries = self.entries.lock();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheCounts {
            hits: load(&self.hits),
            partial_hits: load(&self.partial_hits),
            misses: load(&self.misses),
            evictions: load(&self.evictions),
            entries: entries.extent_count,
            bytes: entries.bytes,
        }
    }
}

impl Entries {
    /// Removes the extents of `key` that `is_gone` names.
    fn remove(&mut self, key: &CacheKey, is_gone: impl Fn(&Extent) -> bool) {
        let Some(extents) = self.by_key.get_mut(key) else { return };
        let mut gone_bytes = 0;
        for gone in extents.extract_if(.., |extent| is_gone(extent)) {
            gone_bytes += gone.bytes;
            self.extent_count -= 1;
        }
        self.bytes -= gone_bytes;
        if let Some(held) = self.bytes_by_tenant.get_mut(&key.tenant) {
            *held -= gone_bytes;
            if *held == 0 {
                self.bytes_by_tenant.remove(&key.tenant);
            }
        }
        if extents.is_empty() {
            self.by_key.remove(key);
        }
    }
}

impl Extent {
    /// The part that is wanted and still right.
    fn usable(&self, step_ms: i64, wanted: Wanted<'_>, changed: Changed) -> Option<Reused> {
        let Wanted { lookback, first_ms, last_ms, text } = wanted;
        let oldest = changed.removed_before_ms.saturating_add(lookback.past_ms);
        if first_ms < self.first_ms || first_ms < oldest {
            return None;
        }
        // Changes before the first step's lookback concern none of the steps.
        let written_ms =
            changed.written.next_from(first_ms.saturating_sub(lookback.past_ms)).unwrap_or(i64::MAX);
        let newest = written_ms.saturating_sub(lookback.future_ms).saturating_sub(1);
        let end = self.last_ms.min(last_ms).min(newest);
        if end < first_ms {
            return None;
        }
        // The last step that is not after the end.
        let end = first_ms + (end - first_ms) / step_ms * step_ms;
        if end < last_ms && !lookback.joins {
            return None;
        }
        let is_all = first_ms == self.first_ms && end == self.last_ms && end == last_ms;
        let annotations =
            if is_all { self.annotations.of(text)? } else { self.annotations.within(first_ms, end, text)? };
        Some(Reused { series: self.series.clone(), first_ms, last_ms: end, annotations })
    }

    fn is_replaced_by(&self, first_ms: i64, last_ms: i64) -> bool {
        let covered = first_ms <= self.first_ms && self.last_ms <= last_ms;
        let length = last_ms - first_ms;
        let own_length = self.last_ms - self.first_ms;
        let similar = length.abs_diff(own_length) <= length.unsigned_abs() / 4;
        let overlaps = first_ms <= self.last_ms && self.first_ms <= last_ms;
        covered || (similar && overlaps)
    }
}

impl Annotations {
    fn is_empty(&self) -> bool {
        self.warnings.is_empty() && self.infos.is_empty()
    }

    fn heap_bytes(&self) -> usize {
        let warning_bytes: usize = self.warnings.iter().map(|text| size_of_val(text) + text.len()).sum();
        let info_bytes = |info @ (text, steps): &(String, Option<StepSet>)| {
            let run_bytes = steps.as_ref().map_or(0, |steps| size_of_val(steps.runs()));
            size_of_val(info) + text.len() + run_bytes
        };
        self.query.len() + warning_bytes + self.infos.iter().map(info_bytes).sum::<usize>()
    }

    /// All annotations; `None` if they quote a query with another text.
    fn of(&self, text: &str) -> Option<Annotations> {
        (self.is_empty() || self.query == text).then(|| self.clone())
    }

    /// Annotations that a fresh evaluation of these steps would give; `None` if that is not known, or if they
    /// quote a query with another text.
    fn within(&self, first_ms: i64, last_ms: i64, text: &str) -> Option<Annotations> {
        if !self.warnings.is_empty() {
            return None;
        }
        let Annotations { query, mut infos, .. } = self.of(text)?;
        for (_, steps) in &mut infos {
            *steps = Some(steps.as_ref()?.within(first_ms, last_ms));
        }
        infos.retain(|(_, steps)| steps.as_ref().is_some_and(|steps| !steps.is_empty()));
        Some(Annotations { query, warnings: Vec::new(), infos })
    }
}

impl Reused {
    /// Memory of what [`Reused::followed_by`] copies, at most.
    pub fn bytes(&self) -> u64 {
        bytes_of(&self.series)
    }

    /// Appends the steps of `tail` to these; both sorted by labels.
    pub fn followed_by(&self, tail: Vec<MatrixSeries>) -> Vec<MatrixSeries> {
        let mut all = Vec::with_capacity(self.series.len().max(tail.len()));
        let mut tail = tail.into_iter().peekable();
        for one in self.series.iter() {
            while let Some(fresh) = tail.next_if(|fresh| fresh.labels < one.labels) {
                all.push(fresh);
            }
            let mut joined = self.cut(one);
            if let Some(fresh) = tail.next_if(|fresh| fresh.labels == one.labels) {
                joined.times.extend_from_slice(&fresh.times);
                joined.values.extend_from_slice(&fresh.values);
                joined.histograms.extend(fresh.histograms);
            }
            if !joined.times.is_empty() || !joined.histograms.is_empty() {
                all.push(joined);
            }
        }
        all.extend(tail);
        all
    }

    fn cut(&self, series: &MatrixSeries) -> MatrixSeries {
        let from = series.times.partition_point(|&time| time < self.first_ms);
        let to = series.times.partition_point(|&time| time <= self.last_ms);
        MatrixSeries {
            labels: series.labels.clone(),
            times: series.times[from..to].to_vec(),
            values: series.values[from..to].to_vec(),
            histograms: {
                let inside = |(time, _): &&(i64, _)| (self.first_ms..=self.last_ms).contains(time);
                series.histograms.iter().filter(inside).cloned().collect()
            },
        }
    }
}

/// Memory of a matrix, labels included.
pub fn bytes_of(series: &[MatrixSeries]) -> u64 {
    let samples = |times: usize, values: usize| 8 * (times + values);
    let one_bytes = |one: &MatrixSeries| {
        let samples = samples(one.times.capacity(), one.values.capacity());
        let histogram_bytes = |(time, histogram): &(i64, Arc<FloatHistogram>)| {
            size_of_val(time) + size_of::<FloatHistogram>() + histogram.heap_bytes()
        };
        let histograms: usize = one.histograms.iter().map(histogram_bytes).sum();
        (size_of_val(one) + one.labels.heap_bytes() + samples + histograms) as u64
    };
    series.iter().map(one_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronolith_model::LabelsBuilder;
    use chronolith_promql::engine::StepRun;

    const LOOKBACK: Lookback = Lookback { past_ms: 300, future_ms: 0, joins: true };

    fn wanted((first_ms, last_ms): (i64, i64)) -> Wanted<'static> {
        Wanted { lookback: LOOKBACK, first_ms, last_ms, text: "m" }
    }

    fn key(text: &str) -> CacheKey {
        let text = text.to_owned();
        CacheKey {
            tenant: TenantId::anonymous(),
            filter: None,
            plan: text,
            step_ms: 10,
            phase_ms: 0,
            lookback_ms: 300,
            start_times: false,
        }
    }

    fn series(id: &str, times: impl IntoIterator<Item = i64>) -> MatrixSeries {
        let mut labels = LabelsBuilder::new();
        labels.push("id", id);
        let times: Vec<i64> = times.into_iter().collect();
        let values = times.iter().map(|&time| time as f64).collect();
        MatrixSeries { labels: labels.finish(), times, values, histograms: Vec::new() }
    }

    fn filled() -> RangeCache {
        let cache = RangeCache::new(1 << 20);
        cache.keep(
            key("m"),
            Generation::Number(1),
            1000..=1100,
            &[series("a", (100..=110).map(|k| k * 10))],
            Annotations::default(),
        );
        cache
    }

    /// Samples from `first_ms` to `last_ms` were written.
    fn changed_in(first_ms: i64, last_ms: i64) -> Changed {
        let mut changed = Changed::NOTHING;
        changed.written.add(first_ms, last_ms);
        changed
    }

    #[track_caller]
    fn check(range: (i64, i64), changed: Changed, want_last: Option<i64>) {
        let found = filled().find(&key("m"), wanted(range), |_| changed);
        assert_eq!(found.map(|reused| reused.last_ms), want_last, "{range:?} {changed:?}");
    }

    #[test]
    fn only_steps_that_nothing_touched_are_used() {
        let none = Changed::NOTHING;
        check((1000, 1100), none, Some(1100));
        check((1050, 1150), none, Some(1100));
        check((990, 1100), none, None);
        check((1110, 1200), none, None);
        let written = |from| changed_in(from, i64::MAX);
        check((1000, 1100), written(1101), Some(1100));
        check((1000, 1100), written(1100), Some(1090));
        check((1000, 1100), written(1001), Some(1000));
        check((1000, 1100), written(1000), None);
        // The lookback of the steps is 300 ms before them.
        check((1000, 1100), changed_in(0, 699), Some(1100));
        check((1000, 1100), changed_in(0, 700), None);
        check((1010, 1100), changed_in(0, 700), Some(1100));
        check((1000, 1100), changed_in(1101, 1102), Some(1100));
        check((1000, 1100), changed_in(1050, 1055), Some(1040));
        let removed = |before| Changed { removed_before_ms: before, ..none };
        check((1000, 1100), removed(700), Some(1100));
        check((1000, 1100), removed(701), None);
        check((1010, 1100), removed(701), Some(1100));
    }

    #[test]
    fn parts_are_joined_by_labels() {
        let cache = RangeCache::new(1 << 20);
        let kept = [series("b", [1000, 1010]), series("c", [1000]), series("e", [1020])];
        cache.keep(key("m"), Generation::Number(1), 1000..=1020, &kept, Annotations::default());
        let changed = changed_in(1020, i64::MAX);
        let reused = cache.find(&key("m"), wanted((1010, 1030)), |_| changed).expect("there");
        let tail = vec![series("a", [1020]), series("b", [1020, 1030]), series("d", [1030])];
        let want = vec![series("a", [1020]), series("b", [1010, 1020, 1030]), series("d", [1030])];
        assert_eq!(reused.followed_by(tail), want);
    }

    #[test]
    fn memory_is_bounded_and_the_least_used_goes() {
        let cache = RangeCache::new(20_000);
        for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"] {
            cache.keep(
                key(name),
                Generation::Number(1),
                0..=100,
                &[series("a", (0..100).map(|k| k * 10))],
                Annotations::default(),
            );
            assert!(cache.find(&key("a"), wanted((0, 100)), |_| Changed::NOTHING).is_some(), "{name}");
            assert!(cache.counts().bytes <= 20_000);
        }
        assert!(cache.find(&key("b"), wanted((0, 100)), |_| Changed::NOTHING).is_none());
        assert!(cache.counts().evictions > 0);
        cache.keep(
            key("a"),
            Generation::Number(2),
            0..=100,
            &[series("a", (0..1000).map(|k| k * 10))],
            Annotations::default(),
        );
        assert!(cache.find(&key("a"), wanted((0, 100)), |_| Changed::NOTHING).is_none(), "too large to keep");
    }

    #[test]
    fn no_tenant_drives_others_out() {
        let cache = RangeCache::new(20_000);
        let of = |tenant: &str, name: &str| CacheKey {
            tenant: TenantId::new(tenant).expect("valid"),
            ..key(name)
        };
        let keep = |key| {
            cache.keep(
                key,
                Generation::Number(1),
                0..=100,
                &[series("a", (0..100).map(|k| k * 10))],
                Annotations::default(),
            );
        };
        let is_there = |key| cache.find(&key, wanted((0, 100)), |_| Changed::NOTHING).is_some();
        keep(of("small", "m"));
        keep(of("small", "n"));
        for idx in 0..100 {
            keep(of("large", &idx.to_string()));
        }
        assert!(is_there(of("small", "m")) && is_there(of("small", "n")), "used longest ago");
        assert!(!is_there(of("large", "0")) && is_there(of("large", "99")));
        assert!(cache.counts().bytes > 15_000, "a tenant may have what others do not use");
    }

    #[test]
    fn panels_over_a_day_and_an_hour_do_not_evict_each_other() {
        let cache = RangeCache::new(1 << 20);
        let keep = |first, last| {
            cache.keep(
                key("m"),
                Generation::Number(1),
                first..=last,
                &[series("a", [last])],
                Annotations::default(),
            )
        };
        let whole = |first, last| {
            cache
                .find(&key("m"), wanted((first, last)), |_| Changed::NOTHING)
                .is_some_and(|r| r.last_ms == last)
        };
        for step in 0..20 {
            let now = 100_000 + step * 10;
            keep(now - 24_000, now);
            keep(now - 1_000, now);
            keep(now - 7_000, now);
            assert!(
                whole(now - 24_000, now) && whole(now - 1_000, now) && whole(now - 500, now),
                "step {step}"
            );
            assert!(cache.counts().entries <= 3, "the panel of before is replaced");
        }
        for far in 0..10 {
            keep(far * 1_000_000, far * 1_000_000 + 100);
        }
        assert!(cache.counts().entries <= EXTENTS_PER_KEY_MAX);
    }

    #[test]
    fn an_expression_that_may_collide_is_used_whole_or_not_at_all() {
        let lookback = Lookback { joins: false, ..LOOKBACK };
        let find = |range| {
            let wanted = Wanted { lookback, ..wanted(range) };
            filled().find(&key("m"), wanted, |_| Changed::NOTHING).map(|reused| reused.last_ms)
        };
        assert_eq!(find((1010, 1100)), Some(1100));
        assert_eq!(find((1010, 1110)), None);
    }

    #[test]
    fn infos_are_those_of_the_steps_that_are_used() {
        let steps = |first_ms, last_ms| StepSet::new(10, [StepRun { first_ms, last_ms }]).expect("one run");
        let infos =
            vec![("a".to_owned(), Some(steps(1000, 1100))), ("b".to_owned(), Some(steps(1050, 1050)))];
        let annotations = Annotations { query: "m".to_owned(), warnings: Vec::new(), infos };
        let names = |first, last, text: &str| {
            let found = annotations.within(first, last, text)?;
            Some(found.infos.into_iter().map(|(name, _)| name).collect::<String>())
        };
        assert_eq!(names(1000, 1100, "m").as_deref(), Some("ab"));
        assert_eq!(names(1060, 1090, "m").as_deref(), Some("a"));
        assert_eq!(names(1110, 1190, "m").as_deref(), Some(""));
        assert_eq!(names(1000, 1100, "m "), None, "positions are those of another text");
    }

    #[test]
    fn annotations_about_unknown_steps_are_those_of_the_very_range() {
        let warnings = Annotations {
            query: "m".to_owned(),
            warnings: vec!["a".to_owned()],
            infos: vec![("b".to_owned(), None)],
        };
        let cache = RangeCache::new(1 << 20);
        let kept = [series("a", (100..=110).map(|k| k * 10))];
        cache.keep(key("m"), Generation::Number(1), 1000..=1100, &kept, warnings.clone());
        let find = |range, changed, text| {
            let found = cache.find(&key("m"), Wanted { text, ..wanted(range) }, |_| changed);
            found.map(|reused| reused.annotations)
        };
        let none = Changed::NOTHING;
        assert_eq!(find((1000, 1100), none, "m"), Some(warnings));
        assert_eq!(find((1000, 1100), none, " m"), None, "positions are those of another text");
        assert_eq!(find((1010, 1100), none, "m"), None, "later");
        assert_eq!(find((1000, 1090), none, "m"), None, "shorter");
        assert_eq!(find((1000, 1110), none, "m"), None, "longer");
        assert_eq!(find((1000, 1100), changed_in(1100, i64::MAX), "m"), None, "written to");
    }
}
