//! Kernels that keep all samples of a window: median, mode, percentile, distinct, sample, top, bottom.
//!
//! Invariants: samples are kept in the order of members; ties of equal values are decided by time.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::Arc;

use chronolith_base::Rng;

use super::moments::{Number, is_nan};
use super::{AuxValues, Element, Emitted, Kernel, Run, growth_bytes, vector_bytes};
use crate::rows::plan::Order;

/// Sample that is kept.
#[derive(Debug, Clone)]
pub(crate) struct Kept<T, X> {
    time: i64,
    value: T,
    aux: X,
}

impl<T: Element, X: AuxValues> Kept<T, X> {
    /// Bytes outside of the vector of samples.
    fn outside_bytes(&self) -> usize {
        self.value.heap_bytes() + self.aux.heap_bytes()
    }
}

/// Samples of a window.
pub(crate) struct Pool<T, X> {
    kept: Vec<Kept<T, X>>,
    /// Bytes of texts and other variables.
    outside_bytes: usize,
}

impl<T, X> Default for Pool<T, X> {
    fn default() -> Pool<T, X> {
        Pool { kept: Vec::new(), outside_bytes: 0 }
    }
}

/// Result of the kept samples of a window.
#[derive(Clone)]
pub(crate) enum PoolFn {
    /// Samples come in this order of time.
    Mode(Order),
    Percentile(f64),
    /// In the order in which a reader of the samples in this order of time meets them.
    Distinct(Order),
    Sample(usize, Arc<Rng>),
    Top(usize),
    Bottom(usize),
}

impl PoolFn {
    /// Bounds the kept samples of selections of the greatest or least ones.
    fn kept_max(&self) -> Option<usize> {
        match self {
            PoolFn::Top(count) | PoolFn::Bottom(count) => Some(*count),
            _ => None,
        }
    }
}

/// Keeps samples with their times.
pub(crate) struct PoolKernel<X> {
    function: PoolFn,
    keeps_time: bool,
    _aux: PhantomData<fn() -> X>,
}

impl<X: AuxValues> PoolKernel<X> {
    pub(crate) fn new(function: PoolFn, keeps_time: bool) -> PoolKernel<X> {
        PoolKernel { function, keeps_time, _aux: PhantomData }
    }

    /// Drops samples that cannot be among the extreme ones.
    fn trim<T: Element>(&self, pool: &mut Pool<T, X>) {
        if let Some(max) = self.function.kept_max()
            && pool.kept.len() > max.saturating_mul(2).max(64)
        {
            self.keep_extremes(&mut pool.kept, max);
            pool.outside_bytes = pool.kept.iter().map(Kept::outside_bytes).sum();
        }
    }

    fn keep_extremes<T: Element>(&self, kept: &mut Vec<Kept<T, X>>, max: usize) {
        let is_top = matches!(self.function, PoolFn::Top(_));
        kept.sort_by(|a, b| {
            let by_value = match is_top {
                true => is_nan(&a.value).cmp(&is_nan(&b.value)).then_with(|| order(&b.value, &a.value)),
                false => order(&a.value, &b.value),
            };
            by_value.then(a.time.cmp(&b.time))
        });
        kept.truncate(max);
    }
}

/// Order of values, NaN last.
fn order<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
}

impl<T: Element, X: AuxValues> Kernel<T> for PoolKernel<X> {
    type State = Pool<T, X>;
    type Out = T;

    fn fold(&self, state: &mut Pool<T, X>, run: &Run<'_, T>) {
        let samples = run.times.iter().zip(run.values).enumerate();
        let first = state.kept.len();
        state.kept.extend(samples.map(|(row, (time, value))| Kept {
            time: *time,
            value: value.clone(),
            aux: X::of_row(run.aux, run.first + row),
        }));
        state.outside_bytes += state.kept[first..].iter().map(Kept::outside_bytes).sum::<usize>();
        self.trim(state);
    }

    fn merge(&self, state: &mut Pool<T, X>, later: Pool<T, X>) {
        state.kept.extend(later.kept);
        state.outside_bytes += later.outside_bytes;
        self.trim(state);
    }

    fn fold_bytes(&self, state: &Pool<T, X>, run: &Run<'_, T>) -> usize {
        // 1: the state may keep texts whether it grows or not.
        growth_bytes(&state.kept, run.values.len()) + run.values.len() * X::allocated_bytes(run.aux) + 1
    }

    fn merge_bytes(&self, state: &Pool<T, X>, later: &Pool<T, X>) -> usize {
        growth_bytes(&state.kept, later.kept.len())
    }

    fn heap_bytes(&self, state: &Pool<T, X>) -> usize {
        vector_bytes(&state.kept) + state.outside_bytes
    }

    fn result_count(&self, state: &Pool<T, X>) -> usize {
        let count = state.kept.len();
        match &self.function {
            PoolFn::Mode(_) | PoolFn::Percentile(_) => count.min(1),
            PoolFn::Distinct(_) => count,
            PoolFn::Sample(max, _) | PoolFn::Top(max) | PoolFn::Bottom(max) => count.min(*max),
        }
    }

    /// A stable sort has a buffer.
    fn emit_bytes(&self, state: &Pool<T, X>) -> usize {
        state.kept.len() * size_of::<Kept<T, X>>()
    }

    fn emit(&self, state: Pool<T, X>, window: i64, out: &mut Emitted<T>) {
        let Pool { kept: mut state, .. } = state;
        let mut push = |kept: &Kept<T, X>, keeps_time: bool| {
            kept.aux.push_to(&mut out.aux);
            out.push(if keeps_time { kept.time } else { window }, Some(kept.value.clone()));
        };
        match &self.function {
            PoolFn::Mode(order) => {
                if let Some(kept) = mode_of(&mut state, *order) {
                    push(kept, false);
                }
            }
            PoolFn::Percentile(percent) => {
                state.sort_by(|a, b| order(&a.value, &b.value).then(a.time.cmp(&b.time)));
                let rank = (state.len() as f64 * percent / 100.0 + 0.5).floor() - 1.0;
                if rank >= 0.0 && rank < state.len() as f64 {
                    push(&state[rank as usize], self.keeps_time);
                }
            }
            PoolFn::Distinct(time_order) => {
                let by_time = |a: &Kept<T, X>, b: &Kept<T, X>| match time_order {
                    Order::Ascending => a.time.cmp(&b.time),
                    Order::Descending => b.time.cmp(&a.time),
                };
                state.sort_by(|a, b| order(&a.value, &b.value).then_with(|| by_time(a, b)));
                state.dedup_by(|later, first| later.value == first.value);
                state.sort_by(|a, b| by_time(a, b).then_with(|| order(&a.value, &b.value)));
                state.iter().for_each(|kept| push(kept, false));
            }
            PoolFn::Sample(count, rng) => {
                for idx in 0..state.len().min(*count) {
                    let other = idx + rng.below((state.len() - idx) as u64) as usize;
                    state.swap(idx, other);
                }
                state.truncate(*count);
                state.sort_by_key(|kept| kept.time);
                state.iter().for_each(|kept| push(kept, true));
            }
            PoolFn::Top(count) | PoolFn::Bottom(count) => {
                // Among values at one time, the more extreme one comes first.
                self.keep_extremes(&mut state, *count);
                state.sort_by_key(|kept| kept.time);
                state.iter().for_each(|kept| push(kept, true));
            }
        }
    }
}

/// The most frequent value, the least of equally frequent ones, unless a greater one begins before the last
/// sample of it. A value that occurs once is only returned if it is the least and no value occurs twice. In a
/// descending plan the last sample is the earliest one. Of booleans, true wins.
fn mode_of<T: Element, X>(kept: &mut [Kept<T, X>], time_order: Order) -> Option<&Kept<T, X>> {
    kept.sort_by(|a, b| {
        let by_time = match time_order {
            Order::Ascending => a.time.cmp(&b.time),
            Order::Descending => b.time.cmp(&a.time),
        };
        order(&a.value, &b.value).then(by_time)
    });
    let is_not_after = |a: i64, b: i64| match time_order {
        Order::Ascending => a <= b,
        Order::Descending => a >= b,
    };
    let mut best: Option<(usize, usize)> = None;
    let mut first = 0;
    while first < kept.len() {
        // NaN does not equal itself.
        let length = kept[first..].iter().take_while(|other| other.value == kept[first].value).count().max(1);
        let wins = best.is_none_or(|(best_first, best_length)| {
            length > best_length
                || length == best_length
                    && (T::IS_BOOLEAN
                        || length > 1
                            && is_not_after(kept[first].time, kept[best_first + best_length - 1].time))
        });
        if wins {
            best = Some((first, length));
        }
        first += length;
    }
    best.map(|(first, _)| &kept[first])
}

/// Middle value, or the mean of both.
pub(crate) struct MedianKernel;

impl<T: Number> Kernel<T> for MedianKernel {
    type State = Vec<T>;
    type Out = f64;

    fn fold(&self, state: &mut Vec<T>, run: &Run<'_, T>) {
        state.extend_from_slice(run.values);
    }

    fn merge(&self, state: &mut Vec<T>, later: Vec<T>) {
        state.extend(later);
    }

    fn emit(&self, mut state: Vec<T>, window: i64, out: &mut Emitted<f64>) {
        let middle = state.len() / 2;
        let is_even = state.len().is_multiple_of(2);
        let (below, value, _) = state.select_nth_unstable_by(middle, order);
        let high = *value;
        let low = below.iter().copied().max_by(order).unwrap_or(high);
        // The distance of integers is exact before it becomes a float.
        let mean = low.to_f64() + high.sub(low).to_f64() / 2.0;
        out.push(window, Some(if is_even { mean } else { high.to_f64() }));
    }

    fn fold_bytes(&self, state: &Vec<T>, run: &Run<'_, T>) -> usize {
        growth_bytes(state, run.values.len())
    }

    fn merge_bytes(&self, state: &Vec<T>, later: &Vec<T>) -> usize {
        growth_bytes(state, later.len())
    }

    fn heap_bytes(&self, state: &Vec<T>) -> usize {
        vector_bytes(state)
    }
}
