//! Random choices.

use chronolith_base::Rng;

/// Random choices of one seed.
#[derive(Clone, Copy)]
pub(crate) struct Chooser<'r>(pub(crate) &'r Rng);

impl<'r> Chooser<'r> {
    /// A number in `[0, bound)`.
    pub(crate) fn below(self, bound: usize) -> usize {
        self.0.below(bound.max(1) as u64) as usize
    }

    /// A number in `[low, high]`.
    pub(crate) fn between(self, low: i64, high: i64) -> i64 {
        low + self.0.below((high - low + 1) as u64) as i64
    }

    /// Returns true in `count` of 100 cases.
    pub(crate) fn percent(self, count: usize) -> bool {
        self.below(100) < count
    }

    /// One of `items`.
    pub(crate) fn pick<T>(self, items: &[T]) -> &T {
        &items[self.below(items.len())]
    }

    /// One of `items`, chosen by weight.
    pub(crate) fn weighted<T: Copy>(self, items: &[(usize, T)]) -> T {
        let total = items.iter().map(|(weight, _)| weight).sum();
        let mut left = self.below(total);
        for (weight, item) in items {
            if left < *weight {
                return *item;
            }
            left -= weight;
        }
        items[0].1
    }
}
