//! Kernels that select one point per window: first, last, max, min.
//!
//! Invariants: of equal times `first` and `last` select the greater value (`first` of booleans: false); of
//! equal values `max` and `min` select the earliest time. Among points equal in both, the point of the first
//! member.

use std::marker::PhantomData;

use chronolith_model::query::ColumnType;

use super::{AuxValues, Element, Emitted, Kernel, Run};

/// The point of a window that is selected so far.
pub(crate) struct Picked<T, X> {
    pub(super) time: i64,
    pub(super) value: T,
    pub(super) aux: X,
}

/// Rule of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PickRule {
    First,
    Last,
    Max,
    Min,
}

impl PickRule {
    /// Returns true if the point `(time, value)` is selected instead of the one before.
    pub(super) fn replaces<T: Element>(self, time: i64, value: &T, old_time: i64, old_value: &T) -> bool {
        match self {
            PickRule::First => time < old_time || time == old_time && value.is_first_before(old_value),
            PickRule::Last => time > old_time || time == old_time && value > old_value,
            PickRule::Max => value > old_value || value == old_value && time < old_time,
            PickRule::Min => value < old_value || value == old_value && time < old_time,
        }
    }

    /// Row of a run that is selected. Times ascend.
    fn row_of<T: Element>(self, times: &[i64], values: &[T]) -> usize {
        let last = values.len() - 1;
        let better = |wins: fn(&T, &T) -> bool| {
            let mut best = 0;
            for (row, value) in values.iter().enumerate().skip(1) {
                if wins(value, &values[best]) {
                    best = row;
                }
            }
            best
        };
        let equal_times = |row: usize, wins: fn(&T, &T) -> bool| {
            let mut best = row;
            for other in 0..=last {
                if times[other] == times[row] && wins(&values[other], &values[best]) {
                    best = other;
                }
            }
            best
        };
        match self {
            PickRule::Max => better(|value, best| value > best),
            PickRule::Min => better(|value, best| value < best),
            // Rows of a subquery may have equal times.
            PickRule::First if last > 0 && times[1] == times[0] => equal_times(0, T::is_first_before),
            PickRule::First => 0,
            PickRule::Last if last > 0 && times[last - 1] == times[last] => equal_times(last, |a, b| a > b),
            PickRule::Last => last,
        }
    }
}

/// Selects one point per window.
pub(crate) struct PickKernel<X> {
    rule: PickRule,
    /// True if the result has the time of the point, false for the start of the window.
    keeps_time: bool,
    _aux: PhantomData<fn() -> X>,
}

impl<X> PickKernel<X> {
    pub(crate) fn new(rule: PickRule, keeps_time: bool) -> PickKernel<X> {
        PickKernel { rule, keeps_time, _aux: PhantomData }
    }
}

impl<T: Element, X: AuxValues> Kernel<T> for PickKernel<X> {
    type State = Option<Picked<T, X>>;
    type Out = T;

    fn fold(&self, state: &mut Option<Picked<T, X>>, run: &Run<'_, T>) {
        let row = self.rule.row_of(run.times, run.values);
        let time = run.times[row];
        let value = &run.values[row];
        let wins = state.as_ref().is_none_or(|old| self.rule.replaces(time, value, old.time, &old.value));
        if wins {
            let aux = X::of_row(run.aux, run.first + row);
            *state = Some(Picked { time, value: value.clone(), aux });
        }
    }

    fn merge(&self, state: &mut Option<Picked<T, X>>, later: Option<Picked<T, X>>) {
        let Some(later) = later else { return };
        let wins = state
            .as_ref()
            .is_none_or(|old| self.rule.replaces(later.time, &later.value, old.time, &old.value));
        if wins {
            *state = Some(later);
        }
    }

    fn fold_bytes(&self, _state: &Option<Picked<T, X>>, run: &Run<'_, T>) -> usize {
        // 1: a text is shared, but kept.
        X::allocated_bytes(run.aux) + usize::from(T::COLUMN_TYPE == ColumnType::Text)
    }

    fn heap_bytes(&self, state: &Option<Picked<T, X>>) -> usize {
        state.as_ref().map_or(0, |picked| picked.value.heap_bytes() + picked.aux.heap_bytes())
    }

    fn emit(&self, state: Option<Picked<T, X>>, window: i64, out: &mut Emitted<T>) {
        let Some(picked) = state else { return };
        picked.aux.push_to(&mut out.aux);
        out.push(if self.keeps_time { picked.time } else { window }, Some(picked.value));
    }
}
