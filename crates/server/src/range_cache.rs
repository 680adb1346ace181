//! Results of range queries, kept to compute only what is new of the next one.
//!
//! Holds: what is handed out equals what a fresh evaluation would give: a step is used again only if no sample within
//! its reach has been written, deleted or removed since the entry was computed (ADR 0025). Memory of all entries stays
//! below the setting; the entry that was used longest ago goes first.
//! Not here: which expressions have a reach (`promql::engine::reach`), what changed (`model::change`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_model::change::Changed;
use chronolith_model::{FloatHistogram, TenantId};
use chronolith_promql::engine::MatrixSeries;
use chronolith_promql::engine::reach::Reach;
use parking_lot::Mutex;

use crate::limits::RANGE_CACHE_ENTRIES_MAX;

/// The part of the cache that one entry may take is 1 divided by this.
const ENTRY_SHARE: u64 = 8;

/// What makes two range queries parts of the same series of steps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    pub(crate) tenant: TenantId,
    /// The expression as it prints, so that spaces and comments do not matter.
    pub(crate) text: String,
    pub(crate) step_ms: i64,
    /// Steps lie at this distance behind multiples of the step.
    pub(crate) phase_ms: i64,
    pub(crate) lookback_ms: i64,
}

struct Entry {
    generation: u64,
    first_ms: i64,
    last_ms: i64,
    series: Arc<Vec<MatrixSeries>>,
    bytes: u64,
    used: u64,
}

/// The beginning of a result that needs not be computed.
pub(crate) struct Reused {
    series: Arc<Vec<MatrixSeries>>,
    first_ms: i64,
    /// The last step that may be used.
    pub(crate) last_ms: i64,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<CacheKey, Entry>,
    bytes: u64,
    clock: u64,
}

/// See the module.
pub(crate) struct RangeCache {
    bytes_max: u64,
    entries: Mutex<Entries>,
    hits: AtomicU64,
    partial_hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

/// Counts for metrics.
pub(crate) struct CacheCounts {
    pub(crate) hits: u64,
    pub(crate) partial_hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
    pub(crate) entries: usize,
    pub(crate) bytes: u64,
}

impl RangeCache {
    /// Nothing is kept if `bytes_max` is 0.
    pub(crate) fn new(bytes_max: u64) -> RangeCache {
        RangeCache {
            bytes_max,
            entries: Mutex::default(),
            hits: AtomicU64::new(0),
            partial_hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.bytes_max > 0
    }

    /// The steps from `first_ms` to at most `last_ms` that are still right. `changed` answers for a generation.
    pub(crate) fn find(
        &self,
        key: &CacheKey,
        reach: Reach,
        (first_ms, last_ms): (i64, i64),
        changed: impl FnOnce(u64) -> Changed,
    ) -> Option<Reused> {
        let reused = self.usable(key, reach, (first_ms, last_ms), changed);
        let counter = match &reused {
            None => &self.misses,
            Some(reused) if reused.last_ms >= last_ms => &self.hits,
            Some(_) => &self.partial_hits,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        reused
    }

    fn usable(
        &self,
        key: &CacheKey,
        reach: Reach,
        (first_ms, last_ms): (i64, i64),
        changed: impl FnOnce(u64) -> Changed,
    ) -> Option<Reused> {
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let used = entries.clock;
        let entry = entries.by_key.get_mut(key)?;
        entry.used = used;
        let changed = changed(entry.generation);
        let oldest = changed.removed_before_ms.saturating_add(reach.behind_ms);
        if first_ms < entry.first_ms || first_ms < oldest {
            return None;
        }
        let newest = changed.written_from_ms.saturating_sub(reach.ahead_ms).saturating_sub(1);
        let end = entry.last_ms.min(last_ms).min(newest);
        if end < first_ms {
            return None;
        }
        // The last step that is not after the end.
        let last_ms = first_ms + (end - first_ms) / key.step_ms * key.step_ms;
        Some(Reused { series: entry.series.clone(), first_ms, last_ms })
    }

    /// Keeps a result whose evaluation began after `generation` was taken, unless it is too large.
    pub(crate) fn keep(
        &self,
        key: CacheKey,
        generation: u64,
        (first_ms, last_ms): (i64, i64),
        series: &[MatrixSeries],
    ) {
        let bytes = bytes_of(series) + (size_of::<CacheKey>() + size_of::<Entry>() + key.text.len()) as u64;
        let mut entries = self.entries.lock();
        if let Some(before) = entries.by_key.remove(&key) {
            entries.bytes -= before.bytes;
        }
        if bytes > self.bytes_max / ENTRY_SHARE {
            return;
        }
        while entries.bytes + bytes > self.bytes_max || entries.by_key.len() >= RANGE_CACHE_ENTRIES_MAX {
            if !self.evict(&mut entries) {
                break;
            }
        }
        entries.clock += 1;
        let series = Arc::new(series.to_vec());
        let entry = Entry { generation, first_ms, last_ms, series, bytes, used: entries.clock };
        entries.bytes += bytes;
        entries.by_key.insert(key, entry);
    }

    fn evict(&self, entries: &mut Entries) -> bool {
        let oldest = entries.by_key.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
        let Some(gone) = oldest.and_then(|key| entries.by_key.remove(&key)) else { return false };
        entries.bytes -= gone.bytes;
        self.evictions.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(crate) fn counts(&self) -> CacheCounts {
        let entries = self.entries.lock();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheCounts {
            hits: load(&self.hits),
            partial_hits: load(&self.partial_hits),
            misses: load(&self.misses),
            evictions: load(&self.evictions),
            entries: entries.by_key.len(),
            bytes: entries.bytes,
        }
    }
}

impl Reused {
    /// Memory of what [`Reused::followed_by`] copies, at most.
    pub(crate) fn bytes(&self) -> u64 {
        bytes_of(&self.series)
    }

    /// The steps of this, and behind them those of `tail`; both sorted by labels.
    pub(crate) fn followed_by(&self, tail: Vec<MatrixSeries>) -> Vec<MatrixSeries> {
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
pub(crate) fn bytes_of(series: &[MatrixSeries]) -> u64 {
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

    const REACH: Reach = Reach { behind_ms: 300, ahead_ms: 0 };

    fn key(text: &str) -> CacheKey {
        let text = text.to_owned();
        CacheKey { tenant: TenantId::anonymous(), text, step_ms: 10, phase_ms: 0, lookback_ms: 300 }
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
        cache.keep(key("m"), 1, (1000, 1100), &[series("a", (100..=110).map(|k| k * 10))]);
        cache
    }

    #[track_caller]
    fn check(range: (i64, i64), changed: Changed, want_last: Option<i64>) {
        let found = filled().find(&key("m"), REACH, range, |_| changed);
        assert_eq!(found.map(|reused| reused.last_ms), want_last, "{range:?} {changed:?}");
    }

    #[test]
    fn only_steps_that_nothing_touched_are_used() {
        let none = Changed::NOTHING;
        check((1000, 1100), none, Some(1100));
        check((1050, 1150), none, Some(1100));
        check((990, 1100), none, None);
        check((1110, 1200), none, None);
        let written = |from| Changed { written_from_ms: from, ..none };
        check((1000, 1100), written(1101), Some(1100));
        check((1000, 1100), written(1100), Some(1090));
        check((1000, 1100), written(1001), Some(1000));
        check((1000, 1100), written(1000), None);
        let removed = |before| Changed { removed_before_ms: before, ..none };
        check((1000, 1100), removed(700), Some(1100));
        check((1000, 1100), removed(701), None);
        check((1010, 1100), removed(701), Some(1100));
    }

    #[test]
    fn parts_are_joined_by_labels() {
        let cache = RangeCache::new(1 << 20);
        let kept = [series("b", [1000, 1010]), series("c", [1000]), series("e", [1020])];
        cache.keep(key("m"), 1, (1000, 1020), &kept);
        let changed = Changed { written_from_ms: 1020, ..Changed::NOTHING };
        let reused = cache.find(&key("m"), REACH, (1010, 1030), |_| changed).expect("there");
        let tail = vec![series("a", [1020]), series("b", [1020, 1030]), series("d", [1030])];
        let want = vec![series("a", [1020]), series("b", [1010, 1020, 1030]), series("d", [1030])];
        assert_eq!(reused.followed_by(tail), want);
    }

    #[test]
    fn memory_is_bounded_and_the_least_used_goes() {
        let cache = RangeCache::new(20_000);
        for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"] {
            cache.keep(key(name), 1, (0, 100), &[series("a", (0..100).map(|k| k * 10))]);
            assert!(cache.find(&key("a"), REACH, (0, 100), |_| Changed::NOTHING).is_some(), "{name}");
            assert!(cache.counts().bytes <= 20_000);
        }
        assert!(cache.find(&key("b"), REACH, (0, 100), |_| Changed::NOTHING).is_none());
        assert!(cache.counts().evictions > 0);
        cache.keep(key("a"), 2, (0, 100), &[series("a", (0..1000).map(|k| k * 10))]);
        assert!(cache.find(&key("a"), REACH, (0, 100), |_| Changed::NOTHING).is_none(), "too large to keep");
    }
}
