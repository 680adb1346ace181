//! Functions that may use roll-ups, and what they need of them.
//!
//! Not here: conditions for using a roll-up (`rolled_up`).

use chronolith_model::rollup::{RollupMethod, RollupMethods};

use crate::rollup::Rollup;
use crate::rollup::rate::Extrapolation;
use crate::window::RangeFn;

/// Use of roll-ups by a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RolledUpFn {
    /// One value per window: the value of the roll-up method.
    Pick(RollupMethod),
    /// Number of samples.
    Count,
    /// Sum of small integers, which is exact.
    Sum,
    /// Sum of small integers, divided by the number of samples.
    Average,
    /// Growth of a counter.
    Growth(Extrapolation),
}

impl RolledUpFn {
    /// `None` if the function needs all samples.
    pub(crate) fn of(function: &RangeFn<'_>) -> Option<RolledUpFn> {
        // Counts per step are counts of samples, which roll-ups do not read.
        if function.extension.is_some() || function.execution.trace.counts_steps() {
            return None;
        }
        match function.rollup {
            Rollup::Min => Some(RolledUpFn::Pick(RollupMethod::Min)),
            Rollup::Max => Some(RolledUpFn::Pick(RollupMethod::Max)),
            Rollup::First => Some(RolledUpFn::Pick(RollupMethod::First)),
            Rollup::Last => Some(RolledUpFn::Pick(RollupMethod::Last)),
            Rollup::Count => Some(RolledUpFn::Count),
            Rollup::Sum => Some(RolledUpFn::Sum),
            Rollup::Avg => Some(RolledUpFn::Average),
            Rollup::Rate => Some(RolledUpFn::Growth(Extrapolation::CounterPerSecond)),
            Rollup::Increase => Some(RolledUpFn::Growth(Extrapolation::Counter)),
            _ => None,
        }
    }

    /// Methods that it reads, of those that are kept; `None` if one is missing.
    pub(super) fn methods(self, kept: RollupMethods) -> Option<RollupMethods> {
        let wanted = match self {
            RolledUpFn::Pick(method) => RollupMethods::of(&[RollupMethod::Count, method]),
            RolledUpFn::Count => RollupMethods::of(&[RollupMethod::Count]),
            RolledUpFn::Sum | RolledUpFn::Average => {
                RollupMethods::of(&[RollupMethod::Count, RollupMethod::Sum])
            }
            RolledUpFn::Growth(_) => {
                let either = |a, b| if kept.has(a) { a } else { b };
                RollupMethods::of(&[
                    RollupMethod::Count,
                    RollupMethod::Resets,
                    either(RollupMethod::First, RollupMethod::Min),
                    either(RollupMethod::Last, RollupMethod::Max),
                ])
            }
        };
        kept.has_all(wanted).then_some(wanted)
    }

    /// Returns true if it adds values.
    pub(super) fn is_sum(self) -> bool {
        matches!(self, RolledUpFn::Sum | RolledUpFn::Average)
    }

    /// Windows at an end of a range whose samples are read.
    pub(super) fn windows_per_end(self) -> i64 {
        if matches!(self, RolledUpFn::Growth(_)) { 2 } else { 1 }
    }
}
