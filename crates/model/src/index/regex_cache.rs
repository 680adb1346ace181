//! Regex cache: numbers that a regex matcher selected in an index, for the regexes that were used last.
//!
//! Invariant: a result is found only by the label name, operator and text of its matcher. Dashboards and
//! rules use the same few regexes every few seconds, so that all values of a label are matched only once.
//! Memory: at most [`RegexCacheLimits::regex_count_max`] results of limited size, reserved from a budget that
//! several caches may share; without room a result is not cached and results of other caches stay.
//! Not here: the numbers (series refs, positions in a list), regex semantics (`regex`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronolith_base::{MemoryBudget, Reservation};

use crate::{MatchOp, Matcher};

/// Bounds of a [`RegexCache`].
#[derive(Debug, Clone, Copy)]
pub struct RegexCacheLimits {
    /// Cached regexes; the least recently used one is evicted.
    pub regex_count_max: usize,
    /// Regexes over fewer values are not cached: matching these again is as cheap.
    pub value_count_min: usize,
    /// Results with more numbers are not cached: reading their postings costs more than finding them.
    pub found_count_max: usize,
}

/// A result of the cache.
#[derive(Debug, Clone)]
pub struct CachedMatches {
    /// Number of values that were matched, from the first. In an index that only appends values, later ones
    /// are still to be matched.
    pub value_count: usize,
    /// Numbers that were selected.
    pub found: Arc<[u32]>,
}

struct CachedRegex {
    name: Arc<str>,
    op: MatchOp,
    pattern: Arc<str>,
    matches: CachedMatches,
    memory: Reservation,
}

impl CachedRegex {
    fn is_of(&self, matcher: &Matcher) -> bool {
        self.op == matcher.op && *self.pattern == *matcher.value && *self.name == *matcher.name
    }
}

/// LRU list of regexes, the most recently used first.
pub struct RegexCache {
    limits: RegexCacheLimits,
    budget: MemoryBudget,
    entries: Mutex<Vec<CachedRegex>>,
}

impl RegexCache {
    /// An empty cache; results reserve their memory from `budget`.
    #[must_use]
    pub fn new(limits: RegexCacheLimits, budget: MemoryBudget) -> RegexCache {
        RegexCache { limits, budget, entries: Mutex::default() }
    }

    /// Returns the cached result of `matcher`, whose label has `value_count` values.
    #[must_use]
    pub fn get(&self, matcher: &Matcher, value_count: usize) -> Option<CachedMatches> {
        if value_count < self.limits.value_count_min {
            return None;
        }
        let mut entries = self.lock();
        let idx = entries.iter().position(|entry| entry.is_of(matcher))?;
        entries.get_mut(..=idx)?.rotate_right(1);
        entries.first().map(|entry| entry.matches.clone())
    }

    /// Caches a result in place of the one before. A result beyond the limits is not cached.
    pub fn insert(&self, matcher: &Matcher, matches: CachedMatches) {
        let limits = &self.limits;
        if matches.value_count < limits.value_count_min || matches.found.len() > limits.found_count_max {
            return;
        }
        let (name, op, pattern) = (matcher.name.clone(), matcher.op, matcher.value.clone());
        let bytes = size_of::<CachedRegex>() + name.len() + pattern.len() + size_of_val(&*matches.found);
        let mut entries = self.lock();
        entries.retain(|entry| !entry.is_of(matcher));
        entries.truncate(limits.regex_count_max.saturating_sub(1));
        let memory = loop {
            match self.budget.reserve(bytes as u64) {
                Ok(memory) => break memory,
                // Results of other caches are as likely to be used again, so only own ones are evicted.
                Err(_) if entries.pop().is_none() => return,
                Err(_) => {}
            }
        };
        entries.insert(0, CachedRegex { name, op, pattern, matches, memory });
    }

    /// Memory of the cached results.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.lock().iter().map(|entry| entry.memory.bytes()).sum::<u64>() as usize
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CachedRegex>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RegexCacheLimits =
        RegexCacheLimits { regex_count_max: 16, value_count_min: 256, found_count_max: 1000 };

    fn cache(limit_bytes: u64) -> RegexCache {
        RegexCache::new(LIMITS, MemoryBudget::new("regex cache", limit_bytes))
    }

    fn regex(text: &str) -> Matcher {
        Matcher::new("path", MatchOp::Regex, text).expect("compiles")
    }

    fn insert(cache: &RegexCache, matcher: &Matcher, value_count: usize, found: &[u32]) {
        cache.insert(matcher, CachedMatches { value_count, found: Arc::from(found) });
    }

    fn get(cache: &RegexCache, matcher: &Matcher) -> Option<Vec<u32>> {
        cache.get(matcher, 1000).map(|matches| matches.found.to_vec())
    }

    #[test]
    fn results_are_found_by_name_operator_and_text() {
        let cache = cache(u64::MAX);
        insert(&cache, &regex(".*a"), 1000, &[3, 1]);
        assert_eq!(get(&cache, &regex(".*a")), Some(vec![3, 1]));
        let others = [
            regex(".*b"),
            Matcher::new("path", MatchOp::NotRegex, ".*a").expect("compiles"),
            Matcher::new("pod", MatchOp::Regex, ".*a").expect("compiles"),
        ];
        assert!(others.iter().all(|matcher| get(&cache, matcher).is_none()));
    }

    #[test]
    fn labels_with_few_values_and_large_results_are_not_cached() {
        let cache = cache(u64::MAX);
        insert(&cache, &regex("few"), LIMITS.value_count_min - 1, &[1]);
        insert(&cache, &regex("many"), 100_000, &vec![1; LIMITS.found_count_max + 1]);
        assert_eq!(cache.heap_bytes(), 0);
        insert(&cache, &regex("few"), LIMITS.value_count_min, &[1]);
        assert!(cache.get(&regex("few"), LIMITS.value_count_min - 1).is_none());
        assert_eq!(get(&cache, &regex("few")), Some(vec![1]));
    }

    #[test]
    fn the_least_recently_used_regex_is_evicted() {
        let cache = cache(u64::MAX);
        (0..LIMITS.regex_count_max).for_each(|idx| insert(&cache, &regex(&format!("{idx}")), 1000, &[1]));
        assert!(get(&cache, &regex("0")).is_some(), "used again");
        insert(&cache, &regex("more"), 1000, &[1]);
        assert!(get(&cache, &regex("0")).is_some());
        assert!(get(&cache, &regex("1")).is_none());
        assert_eq!(cache.lock().len(), LIMITS.regex_count_max);
    }

    /// As the head uses it: values are appended, and only later ones are matched.
    #[test]
    fn a_result_over_more_values_replaces_the_one_before() {
        let cache = cache(u64::MAX);
        insert(&cache, &regex(".*7"), 1000, &[7, 17]);
        insert(&cache, &regex(".*7"), 2000, &[7, 17, 1007]);
        let matches = cache.get(&regex(".*7"), 2500).expect("cached");
        assert_eq!((matches.value_count, &*matches.found), (2000, &[7, 17, 1007][..]));
        assert_eq!(cache.lock().len(), 1);
    }

    #[test]
    fn a_full_budget_evicts_own_results_and_is_given_back() {
        let budget = MemoryBudget::new("regex cache", 2000);
        let caches = [(); 2].map(|()| RegexCache::new(LIMITS, budget.clone()));
        insert(&caches[0], &regex("a"), 1000, &[1; 300]);
        insert(&caches[1], &regex("b"), 1000, &[1; 300]);
        assert!(get(&caches[0], &regex("a")).is_some() && get(&caches[1], &regex("b")).is_none());
        insert(&caches[0], &regex("c"), 1000, &[1; 300]);
        assert!(get(&caches[0], &regex("a")).is_none() && get(&caches[0], &regex("c")).is_some());
        assert_eq!(caches[0].heap_bytes() as u64, budget.used_bytes());
        drop(caches);
        assert_eq!(budget.used_bytes(), 0);
    }
}
