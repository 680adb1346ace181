//! Regex cache: the values of one label name that a regex matcher selects.
//!
//! Invariant: a cached result covers the first pairs of its name, whose order never changes; newer pairs are
//! matched at the next lookup. Dashboards and rules use the same few regexes every few seconds, so all values
//! are scanned only once.
//! Not here: postings (`lookup`), regex semantics (`model`).

use std::sync::Arc;

use chronolith_model::{MatchOp, Matcher};
use parking_lot::Mutex;

/// Cached regexes per name; the least recently used one is evicted.
const REGEX_COUNT_MAX: usize = 8;
/// Fewer values are scanned on each lookup.
const VALUE_COUNT_MIN: usize = 1024;
/// A result with more pairs is not cached: reading their postings costs more than finding them.
const FOUND_COUNT_MAX: usize = 1 << 16;

struct CachedRegex {
    op: MatchOp,
    pattern: Arc<str>,
    /// Number of pairs of the name that have been matched, from the first.
    seen_count: usize,
    found: Arc<[u32]>,
}

impl CachedRegex {
    fn is_of(&self, matcher: &Matcher) -> bool {
        self.op == matcher.op && *self.pattern == *matcher.value
    }
}

/// LRU list of regexes, the most recently used first.
#[derive(Default)]
pub(super) struct RegexCache(Mutex<Vec<CachedRegex>>);

impl RegexCache {
    /// Returns those of `pairs`, all pairs of the name, for which `fits` returns true; it must depend on
    /// `matcher` alone. Cost: the pairs since the last lookup.
    pub(super) fn find(&self, matcher: &Matcher, pairs: &[u32], fits: impl Fn(u32) -> bool) -> Arc<[u32]> {
        let known = {
            let list = self.0.lock();
            list.iter().find(|s| s.is_of(matcher)).map(|s| (s.seen_count, s.found.clone()))
        };
        let (seen_count, known) = known.unwrap_or_default();
        let mut fresh = pairs.get(seen_count..).unwrap_or(&[]).iter().copied().filter(|&pair| fits(pair));
        let found: Arc<[u32]> = match fresh.next() {
            None => known,
            Some(first) => known.iter().copied().chain([first]).chain(fresh).collect(),
        };
        if pairs.len() >= VALUE_COUNT_MIN && found.len() <= FOUND_COUNT_MAX {
            self.insert(matcher, pairs.len(), found.clone());
        }
        found
    }

    fn insert(&self, matcher: &Matcher, seen_count: usize, found: Arc<[u32]>) {
        let mut list = self.0.lock();
        list.retain(|one| !one.is_of(matcher));
        list.truncate(REGEX_COUNT_MAX - 1);
        let (op, pattern) = (matcher.op, matcher.value.clone());
        list.insert(0, CachedRegex { op, pattern, seen_count, found });
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let list = self.0.lock();
        let bytes = |one: &CachedRegex| one.pattern.len() + size_of_val(&*one.found);
        list.capacity() * size_of::<CachedRegex>() + list.iter().map(bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn pattern(text: &str) -> Matcher {
        Matcher::new("path", MatchOp::Regex, text).expect("compiles")
    }

    /// Selects the multiples of `of`; also returns the number of matched pairs.
    fn find(cache: &RegexCache, matcher: &Matcher, pairs: &[u32], of: u32) -> (Vec<u32>, usize) {
        let matched = Cell::new(0);
        let found = cache.find(matcher, pairs, |pair| {
            matched.set(matched.get() + 1);
            pair.is_multiple_of(of)
        });
        (found.to_vec(), matched.get())
    }

    #[test]
    fn only_newer_pairs_are_matched() {
        let (cache, pairs) = (RegexCache::default(), (0..6000).collect::<Vec<u32>>());
        let matcher = pattern(".*7");
        for (len, want) in [(10, 10), (2000, 2000), (2000, 0), (2001, 1), (6000, 3999)] {
            let (found, matched) = find(&cache, &matcher, &pairs[..len], 7);
            assert_eq!(found, (0..len as u32).step_by(7).collect::<Vec<_>>());
            assert_eq!(matched, want, "{len}");
        }
        let other = Matcher::new("path", MatchOp::NotRegex, ".*7").expect("compiles");
        assert_eq!(find(&cache, &other, &pairs, 2), ((0..6000).step_by(2).collect(), 6000));
    }

    #[test]
    fn the_regex_cache_is_bounded() {
        let (cache, pairs) = (RegexCache::default(), (0..FOUND_COUNT_MAX as u32 + 1).collect::<Vec<u32>>());
        assert_eq!(find(&cache, &pattern("all"), &pairs, 1).1, pairs.len());
        assert_eq!(cache.heap_bytes(), 0, "too many pairs");
        for idx in 0..2 * REGEX_COUNT_MAX {
            find(&cache, &pattern(&format!("{idx}")), &pairs, 1000);
        }
        assert_eq!(cache.0.lock().len(), REGEX_COUNT_MAX);
        assert_eq!(find(&cache, &pattern("15"), &pairs, 1000).1, 0);
        assert_eq!(find(&cache, &pattern("7"), &pairs, 1000).1, pairs.len(), "it was evicted");
    }
}
