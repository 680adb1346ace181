//! Kernels of counts and sums: count, sum, mean, standard deviation, spread.
//!
//! Invariants: integers are summed exactly for means, and wrap at 64 bits for sums. Standard deviations keep
//! all samples, for a second pass.

use std::cmp::Reverse;

use super::{Element, Emitted, Kernel, Run, growth_bytes, vector_bytes};
use crate::rows::plan::Order;

/// Type with arithmetic.
pub(crate) trait Number: Element + Copy {
    /// Sum without loss by integers.
    type Total: Copy + Default + Send;

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn to_f64(self) -> f64;
    fn add_to(self, total: Self::Total) -> Self::Total;
    fn add_totals(a: Self::Total, b: Self::Total) -> Self::Total;
    fn total_to_f64(total: Self::Total) -> f64;
}

macro_rules! number {
    ($type:ty, $total:ty, $add:expr, $sub:expr) => {
        impl Number for $type {
            type Total = $total;

            fn add(self, other: $type) -> $type {
                $add(self, other)
            }

            fn sub(self, other: $type) -> $type {
                $sub(self, other)
            }

            fn to_f64(self) -> f64 {
                self as f64
            }

            fn add_to(self, total: $total) -> $total {
                total + self as $total
            }

            fn add_totals(a: $total, b: $total) -> $total {
                a + b
            }

            fn total_to_f64(total: $total) -> f64 {
                total as f64
            }
        }
    };
}
number!(f64, f64, |a: f64, b: f64| a + b, |a: f64, b: f64| a - b);
number!(i64, i128, i64::wrapping_add, i64::wrapping_sub);
number!(u64, i128, u64::wrapping_add, u64::wrapping_sub);

/// Number of samples.
pub(crate) struct CountKernel;

impl<T: Element> Kernel<T> for CountKernel {
    type State = i64;
    type Out = i64;

    fn fold(&self, state: &mut i64, run: &Run<'_, T>) {
        *state += run.times.len() as i64;
    }

    fn merge(&self, state: &mut i64, later: i64) {
        *state += later;
    }

    fn emit(&self, state: i64, window: i64, out: &mut Emitted<i64>) {
        out.push(window, Some(state));
    }
}

/// Sum of the type of the values.
pub(crate) struct SumKernel;

impl<T: Number> Kernel<T> for SumKernel {
    type State = T;
    type Out = T;

    fn fold(&self, state: &mut T, run: &Run<'_, T>) {
        *state = run.values.iter().fold(*state, |sum, value| sum.add(*value));
    }

    fn merge(&self, state: &mut T, later: T) {
        *state = state.add(later);
    }

    fn emit(&self, state: T, window: i64, out: &mut Emitted<T>) {
        out.push(window, Some(state));
    }
}

/// Mean of all samples, a float.
pub(crate) struct MeanKernel;

impl<T: Number> Kernel<T> for MeanKernel {
    type State = (T::Total, u64);
    type Out = f64;

    fn fold(&self, state: &mut (T::Total, u64), run: &Run<'_, T>) {
        state.0 = run.values.iter().fold(state.0, |total, value| value.add_to(total));
        state.1 += run.values.len() as u64;
    }

    fn merge(&self, state: &mut (T::Total, u64), later: (T::Total, u64)) {
        *state = (T::add_totals(state.0, later.0), state.1 + later.1);
    }

    fn emit(&self, state: (T::Total, u64), window: i64, out: &mut Emitted<f64>) {
        out.push(window, Some(T::total_to_f64(state.0) / state.1 as f64));
    }
}

/// Sample standard deviation in two passes over the samples in the order of the plan: the mean, which moves
/// with each value, then the squared differences to it. All digits equal InfluxDB's; one pass per series
/// would give other digits.
pub(crate) struct StddevKernel(pub(crate) Order);

impl<T: Number> Kernel<T> for StddevKernel {
    type State = Vec<(i64, T)>;
    type Out = f64;

    fn fold(&self, state: &mut Vec<(i64, T)>, run: &Run<'_, T>) {
        state.extend(run.times.iter().copied().zip(run.values.iter().copied()));
    }

    fn merge(&self, state: &mut Vec<(i64, T)>, later: Vec<(i64, T)>) {
        state.extend(later);
    }

    fn fold_bytes(&self, state: &Vec<(i64, T)>, run: &Run<'_, T>) -> usize {
        growth_bytes(state, run.values.len())
    }

    fn merge_bytes(&self, state: &Vec<(i64, T)>, later: &Vec<(i64, T)>) -> usize {
        growth_bytes(state, later.len())
    }

    fn heap_bytes(&self, state: &Vec<(i64, T)>) -> usize {
        vector_bytes(state)
    }

    /// A stable sort has a buffer.
    fn emit_bytes(&self, state: &Vec<(i64, T)>) -> usize {
        size_of_val(state.as_slice())
    }

    fn emit(&self, mut state: Vec<(i64, T)>, window: i64, out: &mut Emitted<f64>) {
        match self.0 {
            Order::Ascending => state.sort_by_key(|(time, _)| *time),
            Order::Descending => state.sort_by_key(|(time, _)| Reverse(*time)),
        }
        // The NaN of a subquery is counted in the length alone.
        let values = || state.iter().map(|(_, value)| value.to_f64()).filter(|value| !value.is_nan());
        let mut count = 0.0;
        let mut mean = 0.0;
        for value in values() {
            count += 1.0;
            mean += (value - mean) / count;
        }
        let squares = values().map(|value| (value - mean) * (value - mean));
        let deviation = (squares.sum::<f64>() / (count - 1.0)).sqrt();
        out.push(window, Some(if state.len() >= 2 { deviation } else { f64::NAN }));
    }
}

/// Returns true for NaN, the value that has no order.
pub(crate) fn is_nan<T: PartialOrd>(value: &T) -> bool {
    value.partial_cmp(value).is_none()
}

/// Difference between the greatest and the least value, NaN if one is NaN.
pub(crate) struct SpreadKernel;

impl<T: Number> Kernel<T> for SpreadKernel {
    type State = Option<(T, T)>;
    type Out = T;

    fn fold(&self, state: &mut Option<(T, T)>, run: &Run<'_, T>) {
        let first = run.values[0];
        let (mut least, mut greatest) = state.unwrap_or((first, first));
        for value in run.values {
            // NaN replaces, and is not replaced.
            least = if *value < least || is_nan(value) { *value } else { least };
            greatest = if *value > greatest || is_nan(value) { *value } else { greatest };
        }
        *state = Some((least, greatest));
    }

    fn merge(&self, state: &mut Option<(T, T)>, later: Option<(T, T)>) {
        let (Some((a, b)), Some((c, d))) = (*state, later) else {
            *state = state.or(later);
            return;
        };
        *state = Some((if c < a || is_nan(&c) { c } else { a }, if d > b || is_nan(&d) { d } else { b }));
    }

    fn emit(&self, state: Option<(T, T)>, window: i64, out: &mut Emitted<T>) {
        out.push(window, state.map(|(least, greatest)| greatest.sub(least)));
    }
}
