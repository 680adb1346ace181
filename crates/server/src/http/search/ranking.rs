//! The best names of a search: a sorted set of at most `capacity` names, whatever the number of matches.
//!
//! Invariants: each name once; the memory of the names is reserved. A name that replaces another takes its
//! buffer, so that a scan of many matches does not allocate for each.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use chronolith_base::Reservation;
use chronolith_model::{QueryError, ReadContext};

/// Memory of a name in the set, its text excepted.
const ENTRY_BYTES: u64 = 64;

/// Order of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    NameAscending,
    NameDescending,
    /// Best score first, equal scores by name.
    ScoreDescending,
}

/// Result of offering a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Kept,
    /// There are enough names before it.
    Refused,
}

/// A name and its score. The score depends on the name alone.
#[derive(Debug)]
pub(super) struct Ranked {
    pub(super) name: String,
    pub(super) score: f64,
    order: Order,
}

impl Ranked {
    /// Compares with another name by the order of both.
    fn compare(&self, name: &str, score: f64) -> Ordering {
        match self.order {
            Order::NameAscending => self.name.as_str().cmp(name),
            Order::NameDescending => name.cmp(&self.name),
            Order::ScoreDescending => score.total_cmp(&self.score).then_with(|| self.name.as_str().cmp(name)),
        }
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> Ordering {
        self.compare(&other.name, other.score)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

pub(super) struct Ranking {
    order: Order,
    capacity: usize,
    names: BTreeSet<Ranked>,
    /// The last offer, as a key to look it up.
    probe: Ranked,
    held: Reservation,
}

impl Ranking {
    pub(super) fn new(order: Order, capacity: usize, ctx: &ReadContext) -> Result<Ranking, QueryError> {
        let probe = Ranked { name: String::new(), score: 0.0, order };
        Ok(Ranking { order, capacity, names: BTreeSet::new(), probe, held: ctx.budget.reserve(0)? })
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    pub(super) fn is_full(&self) -> bool {
        self.names.len() >= self.capacity
    }

    /// Returns true if names from `name` on would be refused: the order is ascending and the set full.
    pub(super) fn refuses_from(&self, name: &str) -> bool {
        let is_not_after = |last: &Ranked| last.name.as_str() <= name;
        self.order == Order::NameAscending && self.is_full() && self.names.last().is_some_and(is_not_after)
    }

    /// Keeps a name if it is among the best so far.
    ///
    /// # Errors
    /// [`QueryError::Memory`].
    pub(super) fn offer(&mut self, name: &str, score: f64) -> Result<Offer, QueryError> {
        let is_after = |last: &Ranked| last.compare(name, score) == Ordering::Greater;
        if self.is_full() && !self.names.last().is_some_and(is_after) {
            return Ok(Offer::Refused);
        }
        self.probe.score = score;
        name.clone_into(&mut self.probe.name);
        if self.names.contains(&self.probe) {
            return Ok(Offer::Kept);
        }
        let mut buffer = String::new();
        if self.is_full()
            && let Some(last) = self.names.pop_last()
        {
            self.held.shrink(last.name.len() as u64 + ENTRY_BYTES);
            buffer = last.name;
        }
        self.held.grow(name.len() as u64 + ENTRY_BYTES)?;
        name.clone_into(&mut buffer);
        self.names.insert(Ranked { name: buffer, score, order: self.order });
        Ok(Offer::Kept)
    }

    /// Returns the names in order, with the memory that they hold.
    pub(super) fn into_sorted(self) -> (Vec<Ranked>, Reservation) {
        (self.names.into_iter().collect(), self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronolith_base::ManualClock;
    use std::sync::Arc;

    #[track_caller]
    fn check(order: Order, offers: &[(&str, f64)], want: &[&str]) {
        let ctx = ReadContext::unlimited(Arc::new(ManualClock::new(0)));
        let mut ranking = Ranking::new(order, 3, &ctx).expect("fits");
        for (name, score) in offers {
            ranking.offer(name, *score).expect("fits");
        }
        let (names, held) = ranking.into_sorted();
        let found: Vec<&str> = names.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(found, want, "{order:?}");
        let bytes: u64 = names.iter().map(|one| one.name.len() as u64 + ENTRY_BYTES).sum();
        assert_eq!((held.bytes(), ctx.budget.used_bytes()), (bytes, bytes));
    }

    #[test]
    fn the_first_names_are_kept_once() {
        let offers = [("c", 0.5), ("a", 0.1), ("e", 1.0), ("c", 0.5), ("b", 0.5), ("a", 0.1), ("d", 0.9)];
        check(Order::NameAscending, &offers, &["a", "b", "c"]);
        check(Order::NameDescending, &offers, &["e", "d", "c"]);
        check(Order::ScoreDescending, &offers, &["e", "d", "b"]);
        check(Order::NameAscending, &offers[..2], &["a", "c"]);
    }

    #[test]
    fn names_after_the_last_are_refused() {
        let ctx = ReadContext::unlimited(Arc::new(ManualClock::new(0)));
        let mut ranking = Ranking::new(Order::NameAscending, 1, &ctx).expect("fits");
        assert_eq!(ranking.offer("b", 1.0).expect("fits"), Offer::Kept);
        assert_eq!(ranking.offer("c", 1.0).expect("fits"), Offer::Refused);
        assert_eq!(ranking.offer("a", 1.0).expect("fits"), Offer::Kept);
        assert_eq!(ranking.offer("b", 1.0).expect("fits"), Offer::Refused);
    }
}
