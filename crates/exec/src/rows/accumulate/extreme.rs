//! Kernel of max and min of floats in descending order, where rows of a subquery may be NaN.
//!
//! Invariants: a comparison with NaN is false, so NaN is selected if, and only if, it is the point that is
//! read first, which is the latest one. Other NaN are skipped.
//! Not here: ascending order and other types (`pick`).

use std::marker::PhantomData;

use super::moments::is_nan;
use super::pick::{PickRule, Picked};
use super::{AuxValues, Element, Emitted, Kernel, Run};

/// Points of a window that may be selected.
pub(crate) struct Extreme<T, X> {
    /// Time of the point that is read first.
    first_time: i64,
    /// The point that is read first, if it is NaN.
    first_nan: Option<Picked<T, X>>,
    /// The greatest or least number.
    best: Option<Picked<T, X>>,
}

/// Selects the greatest or least point per window.
pub(crate) struct DescendingExtremeKernel<X> {
    rule: PickRule,
    /// True if the result has the time of the point, false for the start of the window.
    keeps_time: bool,
    _aux: PhantomData<fn() -> X>,
}

impl<X: AuxValues> DescendingExtremeKernel<X> {
    pub(crate) fn new(rule: PickRule, keeps_time: bool) -> DescendingExtremeKernel<X> {
        DescendingExtremeKernel { rule, keeps_time, _aux: PhantomData }
    }

    fn extreme_of<T: Element>(&self, run: &Run<'_, T>) -> Extreme<T, X> {
        let picked = |row: usize| Picked {
            time: run.times[row],
            value: run.values[row].clone(),
            aux: X::of_row(run.aux, run.first + row),
        };
        let first = run.values.len() - 1;
        let mut best: Option<usize> = None;
        for (row, value) in run.values.iter().enumerate().filter(|(_, value)| !is_nan(*value)) {
            let wins = best.is_none_or(|best| {
                self.rule.replaces(run.times[row], value, run.times[best], &run.values[best])
            });
            if wins {
                best = Some(row);
            }
        }
        Extreme {
            first_time: run.times[first],
            first_nan: is_nan(&run.values[first]).then(|| picked(first)),
            best: best.map(picked),
        }
    }
}

impl<T: Element, X: AuxValues> Kernel<T> for DescendingExtremeKernel<X> {
    type State = Option<Extreme<T, X>>;
    type Out = T;

    fn fold(&self, state: &mut Option<Extreme<T, X>>, run: &Run<'_, T>) {
        Kernel::<T>::merge(self, state, Some(self.extreme_of(run)));
    }

    fn merge(&self, state: &mut Option<Extreme<T, X>>, later: Option<Extreme<T, X>>) {
        let Some(later) = later else { return };
        let Some(known) = state else {
            *state = Some(later);
            return;
        };
        // The order of members is reversed, too: at one time the points of later ones are read first.
        if later.first_time >= known.first_time {
            known.first_time = later.first_time;
            known.first_nan = later.first_nan;
        }
        if let Some(point) = later.best {
            let wins = known
                .best
                .as_ref()
                .is_none_or(|old| self.rule.replaces(point.time, &point.value, old.time, &old.value));
            if wins {
                known.best = Some(point);
            }
        }
    }

    fn fold_bytes(&self, _state: &Option<Extreme<T, X>>, run: &Run<'_, T>) -> usize {
        2 * X::allocated_bytes(run.aux)
    }

    fn heap_bytes(&self, state: &Option<Extreme<T, X>>) -> usize {
        let points = state.iter().flat_map(|extreme| [&extreme.first_nan, &extreme.best]);
        points.flatten().map(|picked| picked.value.heap_bytes() + picked.aux.heap_bytes()).sum()
    }

    fn emit(&self, state: Option<Extreme<T, X>>, window: i64, out: &mut Emitted<T>) {
        let Some(picked) = state.and_then(|extreme| extreme.first_nan.or(extreme.best)) else { return };
        picked.aux.push_to(&mut out.aux);
        out.push(if self.keeps_time { picked.time } else { window }, Some(picked.value));
    }
}
