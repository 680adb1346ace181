//! Aggregation of a row or a series to one value.
//!
//! Invariants: values without a number are skipped, except where the definition says otherwise; sums are
//! taken in order, without compensation, so that results equal graphite-web's to the bit.
//! Not here: forming rows of series (`functions::combine`).

use crate::absent::ABSENT;
use crate::error::EvalError;

/// An aggregation by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aggregation {
    /// Mean of the values.
    Average,
    /// Sum by the count of points, empty ones included.
    AverageZero,
    /// Middle value, or the mean of the middle two.
    Median,
    /// Sum of all values.
    Sum,
    /// Smallest of all values.
    Min,
    /// Largest of all values.
    Max,
    /// First minus all others.
    Diff,
    /// Standard deviation of the population.
    StdDev,
    /// Count of values.
    Count,
    /// Largest minus smallest.
    Range,
    /// Product; nothing if a point is empty.
    Multiply,
    /// Last value in order.
    Last,
}

/// Names and their aggregation, in the order in which graphite-web lists them.
pub(crate) const NAMES: [(&str, Aggregation); 16] = [
    ("average", Aggregation::Average),
    ("avg_zero", Aggregation::AverageZero),
    ("median", Aggregation::Median),
    ("sum", Aggregation::Sum),
    ("min", Aggregation::Min),
    ("max", Aggregation::Max),
    ("diff", Aggregation::Diff),
    ("stddev", Aggregation::StdDev),
    ("count", Aggregation::Count),
    ("range", Aggregation::Range),
    ("multiply", Aggregation::Multiply),
    ("last", Aggregation::Last),
    ("rangeOf", Aggregation::Range),
    ("avg", Aggregation::Average),
    ("total", Aggregation::Sum),
    ("current", Aggregation::Last),
];

fn present(values: &[f64]) -> impl DoubleEndedIterator<Item = f64> + Clone {
    values.iter().copied().filter(|value| !value.is_nan())
}

/// Sum in order, from 0.
pub(crate) fn sum_in_order(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

impl Aggregation {
    /// # Errors
    /// [`EvalError::Parameter`] if no aggregation has this name.
    pub(crate) fn named(name: &str) -> Result<Self, EvalError> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, aggregation)| *aggregation)
            .ok_or_else(|| EvalError::Parameter(format!("unsupported aggregation function: {name}")))
    }

    /// Returns true if the result has no fraction where the values have none.
    #[must_use]
    pub(crate) fn keeps_integers(self) -> bool {
        !matches!(
            self,
            Aggregation::Average
                | Aggregation::AverageZero
                | Aggregation::StdDev
                | Aggregation::Range
                | Aggregation::Multiply
        )
    }

    /// Returns the value of a row or series; NaN if there is none.
    #[must_use]
    pub(crate) fn apply(self, values: &[f64]) -> f64 {
        let count = present(values).count();
        if self == Aggregation::Count {
            return count as f64;
        }
        if count == 0 && (self != Aggregation::AverageZero || values.is_empty()) {
            return ABSENT;
        }
        match self {
            Aggregation::Average => sum_in_order(present(values)) / count as f64,
            Aggregation::AverageZero => sum_in_order(present(values)) / values.len() as f64,
            Aggregation::Median => median(values),
            Aggregation::Sum => sum_in_order(present(values)),
            Aggregation::Min => smallest(values),
            Aggregation::Max => largest(values),
            Aggregation::Diff => present(values)
                .enumerate()
                .fold(0.0, |diff, (idx, value)| if idx == 0 { value } else { diff - value }),
            Aggregation::StdDev => deviation(values, count as f64),
            Aggregation::Count => count as f64,
            Aggregation::Range => largest(values) - smallest(values),
            Aggregation::Multiply if count < values.len() => ABSENT,
            Aggregation::Multiply => {
                values.iter().copied().reduce(|product, value| product * value).unwrap_or(ABSENT)
            }
            Aggregation::Last => present(values).next_back().unwrap_or(ABSENT),
        }
    }
}

/// The smaller of two values, the first of equal ones: 0 and -0 keep their order.
pub(crate) fn smaller(first: f64, second: f64) -> f64 {
    if second < first { second } else { first }
}

/// The larger of two values, the first of equal ones.
pub(crate) fn larger(first: f64, second: f64) -> f64 {
    if second > first { second } else { first }
}

/// Largest value; NaN if there is none.
#[must_use]
pub(crate) fn largest(values: &[f64]) -> f64 {
    present(values).reduce(larger).unwrap_or(ABSENT)
}

/// Smallest value; NaN if there is none.
#[must_use]
pub(crate) fn smallest(values: &[f64]) -> f64 {
    present(values).reduce(smaller).unwrap_or(ABSENT)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = present(values).collect();
    sorted.sort_by(f64::total_cmp);
    debug_assert!(!sorted.is_empty(), "a median is one of values");
    let middle = sorted.len() / 2;
    let at = |idx: usize| sorted.get(idx).copied().unwrap_or(ABSENT);
    if sorted.len() % 2 == 1 { at(middle) } else { (at(middle.wrapping_sub(1)) + at(middle)) / 2.0 }
}

fn deviation(values: &[f64], count: f64) -> f64 {
    debug_assert!(count > 0.0, "a deviation is one of values");
    let mean = sum_in_order(present(values)) / count;
    (sum_in_order(present(values).map(|value| (value - mean) * (value - mean))) / count).sqrt()
}

/// Value at a percentage of the sorted values, by rank among count + 1.
/// # Errors
/// [`EvalError::Parameter`] if the rank lies beyond the last value.
pub(crate) fn percentile(values: &[f64], percent: f64, method: PercentileMethod) -> Result<f64, EvalError> {
    let mut sorted: Vec<f64> = present(values).collect();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.last().copied() else { return Ok(ABSENT) };
    let fractional = (percent / 100.0) * (sorted.len() as f64 + 1.0);
    let mut rank = fractional.trunc();
    let fraction = fractional - rank;
    if method == PercentileMethod::Nearest {
        rank += fraction.ceil();
    }
    let beyond = || EvalError::Parameter(format!("percentile {percent} is out of range"));
    let at = |rank: f64| {
        let idx = if rank < 0.0 { rank + sorted.len() as f64 } else { rank };
        (idx >= 0.0).then(|| sorted.get(idx as usize).copied()).flatten().ok_or_else(beyond)
    };
    let value = if rank == 0.0 {
        at(0.0)?
    } else if rank - 1.0 == sorted.len() as f64 {
        last
    } else {
        at(rank - 1.0)?
    };
    if method == PercentileMethod::Nearest || rank == sorted.len() as f64 {
        return Ok(value);
    }
    Ok(value + fraction * (at(rank)? - value))
}

/// Choice of a percentile between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PercentileMethod {
    /// The value of the next rank.
    Nearest,
    /// On the line between the two.
    Interpolated,
}

#[cfg(test)]
mod tests;
