//! Properties of the samples of roll-up windows that decide whether a result from roll-ups equals the result
//! from samples.

use crate::Columns;

/// Largest magnitude of a small integer: a million of them have an exact sum.
const SMALL_INTEGER_MAX: f64 = 4_294_967_296.0;

/// Properties of all samples of some windows; with none, all are true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollupFacts {
    /// Each sample counts: no slot has two.
    pub has_every_sample: bool,
    /// The values are integers of at most 2^32, so sums of up to 2^20 of them are exact in any order.
    pub has_small_integers: bool,
}

impl RollupFacts {
    /// Properties of no samples.
    pub const OF_NONE: RollupFacts = RollupFacts { has_every_sample: true, has_small_integers: true };

    /// Properties of `samples`, of which `counted` are in windows.
    #[must_use]
    pub fn of(samples: &Columns, counted: usize) -> RollupFacts {
        RollupFacts {
            has_every_sample: samples.len() == counted,
            has_small_integers: samples.values.iter().all(|value| is_small_integer(*value)),
        }
    }

    /// Properties of the samples of both.
    #[must_use]
    pub fn and(self, other: RollupFacts) -> RollupFacts {
        RollupFacts {
            has_every_sample: self.has_every_sample && other.has_every_sample,
            has_small_integers: self.has_small_integers && other.has_small_integers,
        }
    }
}

impl Default for RollupFacts {
    fn default() -> RollupFacts {
        RollupFacts::OF_NONE
    }
}

/// Returns true for an integer of at most 2^32.
#[must_use]
pub fn is_small_integer(value: f64) -> bool {
    value.abs() <= SMALL_INTEGER_MAX && value.trunc() == value
}
