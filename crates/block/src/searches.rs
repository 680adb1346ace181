//! What fits a pattern, remembered until it is asked for again.
//!
//! Holds: a block's index never changes, so what was found once stays true; tombstones are looked at when samples are
//! read. Dashboards and rules ask for the same few patterns every some seconds, so that looking through all values of a
//! label is paid once. Memory is bounded by block and for all blocks of the process together.
//! Not here: the head's (its values grow), labels with few values (reading them is as cheap).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronolith_model::{MatchOp, Matcher, QueryError};

/// Labels with fewer values are looked through each time.
const VALUE_COUNT_MIN: usize = 256;
/// Patterns that a block remembers; the one that was not asked for longest goes.
const SEARCH_COUNT_MAX: usize = 16;
/// Bytes of what one pattern found; where more fits, reading it costs more than finding it.
const FOUND_BYTES_MAX: usize = 256 << 10;
/// Bytes that all blocks of the process remember together: blocks are many, and opened in many places.
const ALL_BYTES_MAX: u64 = 64 << 20;

/// What all blocks remember.
static ALL_BYTES: AtomicU64 = AtomicU64::new(0);

struct Search {
    name: Arc<str>,
    op: MatchOp,
    pattern: Arc<str>,
    found: Arc<[u32]>,
}

impl Search {
    fn is_of(&self, matcher: &Matcher) -> bool {
        self.op == matcher.op && *self.pattern == *matcher.value && *self.name == *matcher.name
    }

    fn bytes(&self) -> u64 {
        (size_of::<Search>() + self.name.len() + self.pattern.len() + size_of_val(&*self.found)) as u64
    }
}

/// The patterns that were asked for last, the youngest first.
#[derive(Default)]
pub(crate) struct Searches(Mutex<Vec<Search>>);

impl Searches {
    /// Appends the refs that fit `matcher`, which `search` finds among `value_count` values if they are not known. `search`
    /// must depend on the matcher alone.
    ///
    /// # Errors
    /// As `search`.
    pub(crate) fn find(
        &self,
        matcher: &Matcher,
        value_count: usize,
        out: &mut Vec<u32>,
        search: impl FnOnce(&mut Vec<u32>) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        if value_count < VALUE_COUNT_MIN {
            return search(out);
        }
        if let Some(known) = self.known(matcher) {
            out.extend_from_slice(&known);
            return Ok(());
        }
        let first = out.len();
        search(out)?;
        let found = out.get(first..).unwrap_or_default();
        if size_of_val(found) <= FOUND_BYTES_MAX {
            let (name, pattern) = (matcher.name.clone(), matcher.value.clone());
            self.remember(Search { name, op: matcher.op, pattern, found: Arc::from(found) });
        }
        Ok(())
    }

    fn known(&self, matcher: &Matcher) -> Option<Arc<[u32]>> {
        let mut kept = self.lock();
        let at = kept.iter().position(|search| search.is_of(matcher))?;
        kept.get_mut(..=at)?.rotate_right(1);
        kept.first().map(|search| search.found.clone())
    }

    fn remember(&self, search: Search) {
        let mut kept = self.lock();
        // Another query may have found the same meanwhile.
        if kept.iter().any(|other| {
            other.op == search.op && other.pattern == search.pattern && other.name == search.name
        }) {
            return;
        }
        while kept.len() >= SEARCH_COUNT_MAX {
            forget_last(&mut kept);
        }
        let bytes = search.bytes();
        while !take(bytes) {
            // What other blocks remember stays: it is as likely to be asked for.
            if !forget_last(&mut kept) {
                return;
            }
        }
        kept.insert(0, search);
    }

    /// Bytes that are remembered.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.lock().iter().map(Search::bytes).sum::<u64>() as usize
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Search>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Searches {
    fn drop(&mut self) {
        let mut kept = self.lock();
        while forget_last(&mut kept) {}
    }
}

/// Takes bytes of what all blocks may remember; false if there is no room.
fn take(bytes: u64) -> bool {
    let room = |all: u64| all.checked_add(bytes).filter(|&all| all <= ALL_BYTES_MAX);
    ALL_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
}

/// Forgets what was not asked for longest; false if there is nothing.
fn forget_last(kept: &mut Vec<Search>) -> bool {
    let Some(last) = kept.pop() else { return false };
    ALL_BYTES.fetch_sub(last.bytes(), Ordering::Relaxed);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Matcher {
        Matcher::new("path", MatchOp::Regex, text).expect("compiles")
    }

    /// Finds `refs`, and whether they had to be searched for.
    fn find(searches: &Searches, matcher: &Matcher, value_count: usize, refs: &[u32]) -> (Vec<u32>, bool) {
        let (mut out, mut searched) = (vec![u32::MAX], false);
        let search = |out: &mut Vec<u32>| {
            searched = true;
            out.extend_from_slice(refs);
            Ok(())
        };
        searches.find(matcher, value_count, &mut out, search).expect("finds");
        assert_eq!(out.remove(0), u32::MAX, "what was there before stays");
        (out, searched)
    }

    #[test]
    fn a_pattern_is_searched_for_once_and_told_apart_by_name_kind_and_text() {
        let searches = Searches::default();
        assert_eq!(find(&searches, &pattern(".*a"), 1000, &[3, 1]), (vec![3, 1], true));
        assert_eq!(find(&searches, &pattern(".*a"), 1000, &[]), (vec![3, 1], false));
        let others = [
            pattern(".*b"),
            Matcher::new("path", MatchOp::NotRegex, ".*a").expect("compiles"),
            Matcher::new("pod", MatchOp::Regex, ".*a").expect("compiles"),
        ];
        for matcher in others {
            assert_eq!(find(&searches, &matcher, 1000, &[7]), (vec![7], true));
        }
        assert!(find(&searches, &pattern("few"), VALUE_COUNT_MIN - 1, &[1]).1);
        assert!(
            find(&searches, &pattern("few"), VALUE_COUNT_MIN - 1, &[1]).1,
            "few values are not remembered"
        );
    }

    #[test]
    fn what_is_remembered_is_bounded_and_given_back() {
        let searches = Searches::default();
        let many = vec![1; FOUND_BYTES_MAX / 4 + 1];
        find(&searches, &pattern("many"), 100_000, &many);
        assert_eq!(searches.heap_bytes(), 0, "too many");
        for idx in 0..SEARCH_COUNT_MAX {
            find(&searches, &pattern(&format!("{idx}")), 1000, &[1]);
        }
        assert!(!find(&searches, &pattern("0"), 1000, &[1]).1, "it is young again");
        find(&searches, &pattern("new"), 1000, &[1]);
        assert!(!find(&searches, &pattern("0"), 1000, &[1]).1);
        assert!(find(&searches, &pattern("1"), 1000, &[1]).1, "it was not asked for longest");
        assert_eq!(searches.lock().len(), SEARCH_COUNT_MAX);
    }

    #[test]
    fn an_error_is_not_remembered() {
        let searches = Searches::default();
        let error = searches.find(&pattern("x"), 1000, &mut Vec::new(), |_| Err(QueryError::Canceled));
        assert!(error.is_err());
        assert_eq!(find(&searches, &pattern("x"), 1000, &[5]), (vec![5], true));
    }
}
