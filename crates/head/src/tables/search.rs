//! Patterns over the values of one label name, and the pairs that fit them.
//!
//! Holds: what is remembered of a pattern is true of the first pairs of its name, whose order never changes; those that
//! came since are judged when the pattern is asked for again. Dashboards and rules ask for the same few patterns every
//! some seconds, so that looking through all values is paid once.
//! Not here: postings (`lookup`), what a pattern means (`model`).

use std::sync::Arc;

use chronolith_model::{MatchOp, Matcher};
use parking_lot::Mutex;

/// Patterns that are remembered of a name; the one that was not asked for longest goes.
const SEARCH_COUNT_MAX: usize = 8;
/// Fewer values are looked through each time.
const VALUE_COUNT_MIN: usize = 1024;
/// A pattern that more pairs fit is not remembered: reading their postings costs more than finding them.
const FOUND_COUNT_MAX: usize = 1 << 16;

struct Search {
    op: MatchOp,
    pattern: Arc<str>,
    /// Pairs of the name that have been judged, from the first.
    seen_count: usize,
    found: Arc<[u32]>,
}

impl Search {
    fn is_of(&self, matcher: &Matcher) -> bool {
        self.op == matcher.op && *self.pattern == *matcher.value
    }
}

/// The patterns that were asked for last, the youngest first.
#[derive(Default)]
pub(super) struct Searches(Mutex<Vec<Search>>);

impl Searches {
    /// Those of `pairs`, all pairs of the name, that `fits`, which must depend on `matcher` alone. Cost: the pairs since the
    /// last time.
    pub(super) fn find(&self, matcher: &Matcher, pairs: &[u32], fits: impl Fn(u32) -> bool) -> Arc<[u32]> {
        let known = {
            let searches = self.0.lock();
            searches.iter().find(|s| s.is_of(matcher)).map(|s| (s.seen_count, s.found.clone()))
        };
        let (seen_count, known) = known.unwrap_or_default();
        let mut fresh = pairs.get(seen_count..).unwrap_or(&[]).iter().copied().filter(|&pair| fits(pair));
        let found: Arc<[u32]> = match fresh.next() {
            None => known,
            Some(first) => known.iter().copied().chain([first]).chain(fresh).collect(),
        };
        if pairs.len() >= VALUE_COUNT_MIN && found.len() <= FOUND_COUNT_MAX {
            self.remember(matcher, pairs.len(), found.clone());
        }
        found
    }

    fn remember(&self, matcher: &Matcher, seen_count: usize, found: Arc<[u32]>) {
        let mut searches = self.0.lock();
        searches.retain(|search| !search.is_of(matcher));
        searches.truncate(SEARCH_COUNT_MAX - 1);
        let (op, pattern) = (matcher.op, matcher.value.clone());
        searches.insert(0, Search { op, pattern, seen_count, found });
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let searches = self.0.lock();
        let bytes = |search: &Search| search.pattern.len() + size_of_val(&*search.found);
        searches.capacity() * size_of::<Search>() + searches.iter().map(bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn pattern(text: &str) -> Matcher {
        Matcher::new("path", MatchOp::Regex, text).expect("compiles")
    }

    /// Finds the multiples of `of` and counts how many pairs were judged.
    fn find(searches: &Searches, matcher: &Matcher, pairs: &[u32], of: u32) -> (Vec<u32>, usize) {
        let judged = Cell::new(0);
        let found = searches.find(matcher, pairs, |pair| {
            judged.set(judged.get() + 1);
            pair.is_multiple_of(of)
        });
        (found.to_vec(), judged.get())
    }

    #[test]
    fn only_what_came_since_is_judged() {
        let (searches, pairs) = (Searches::default(), (0..6000).collect::<Vec<u32>>());
        let matcher = pattern(".*7");
        for (len, want) in [(10, 10), (2000, 2000), (2000, 0), (2001, 1), (6000, 3999)] {
            let (found, judged) = find(&searches, &matcher, &pairs[..len], 7);
            assert_eq!(found, (0..len as u32).step_by(7).collect::<Vec<_>>());
            assert_eq!(judged, want, "{len}");
        }
        let other = Matcher::new("path", MatchOp::NotRegex, ".*7").expect("compiles");
        assert_eq!(find(&searches, &other, &pairs, 2), ((0..6000).step_by(2).collect(), 6000));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (searches, pairs) = (Searches::default(), (0..FOUND_COUNT_MAX as u32 + 1).collect::<Vec<u32>>());
        assert_eq!(find(&searches, &pattern("all"), &pairs, 1).1, pairs.len());
        assert_eq!(searches.heap_bytes(), 0, "too many");
        for idx in 0..2 * SEARCH_COUNT_MAX {
            find(&searches, &pattern(&format!("{idx}")), &pairs, 1000);
        }
        assert_eq!(searches.0.lock().len(), SEARCH_COUNT_MAX);
        assert_eq!(find(&searches, &pattern("15"), &pairs, 1000).1, 0);
        assert_eq!(find(&searches, &pattern("7"), &pairs, 1000).1, pairs.len(), "it has gone");
    }
}
