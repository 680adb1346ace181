//! Consolidation: several values of a fine grid to one point of a coarse one.
//!
//! Invariants: a point needs one value at least, and as many of the whole as the xFilesFactor asks for;
//! values are added in order.
//! Not here: aggregation over series (`aggregation`).

use crate::absent::ABSENT;
use crate::aggregation::{larger, smaller};
use crate::error::EvalError;

/// A consolidation function by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consolidation {
    /// Sum of values by their count.
    Average,
    /// Sum of values by the count of points, empty ones included.
    AverageZero,
    /// Sum of values.
    Sum,
    /// Largest value.
    Max,
    /// Smallest value.
    Min,
    /// Value of the earliest time.
    First,
    /// Value of the last time.
    Last,
    /// A name that is refused as soon as points have to be consolidated.
    Unknown(String),
}

impl Consolidation {
    /// Any text is accepted; see [`Consolidation::Unknown`].
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "average" | "avg" => Consolidation::Average,
            "avg_zero" => Consolidation::AverageZero,
            "sum" => Consolidation::Sum,
            "max" => Consolidation::Max,
            "min" => Consolidation::Min,
            "first" => Consolidation::First,
            "last" => Consolidation::Last,
            _ => Consolidation::Unknown(name.to_owned()),
        }
    }

    /// Name as formats show it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Consolidation::Average => "average",
            Consolidation::AverageZero => "avg_zero",
            Consolidation::Sum => "sum",
            Consolidation::Max => "max",
            Consolidation::Min => "min",
            Consolidation::First => "first",
            Consolidation::Last => "last",
            Consolidation::Unknown(name) => name,
        }
    }

    /// Points of `count` values each; the last may have fewer, and is measured against `count` all the
    /// same.
    pub(crate) fn points(
        &self,
        values: &[f64],
        count: usize,
        x_files_factor: f64,
    ) -> Result<Vec<f64>, EvalError> {
        if let Consolidation::Unknown(name) = self {
            return Err(EvalError::Parameter(format!("invalid consolidation function: '{name}'")));
        }
        assert!(count > 1, "a point of one value is not consolidated, whatever its factor");
        let point = |bucket: &[f64]| {
            let present = bucket.iter().filter(|value| !value.is_nan()).count();
            if present == 0 || (present as f64) / (count as f64) < x_files_factor {
                ABSENT
            } else {
                self.point(bucket, present)
            }
        };
        Ok(values.chunks(count).map(point).collect())
    }

    fn point(&self, bucket: &[f64], present: usize) -> f64 {
        debug_assert!(present > 0 && present <= bucket.len(), "an empty point has no value");
        let mut values = bucket.iter().copied().filter(|value| !value.is_nan());
        match self {
            Consolidation::Average => values.fold(0.0, |sum, value| sum + value) / present as f64,
            Consolidation::AverageZero => values.fold(0.0, |sum, value| sum + value) / bucket.len() as f64,
            Consolidation::Sum => values.fold(0.0, |sum, value| sum + value),
            Consolidation::Max => values.reduce(larger).unwrap_or(ABSENT),
            Consolidation::Min => values.reduce(smaller).unwrap_or(ABSENT),
            Consolidation::First => values.next().unwrap_or(ABSENT),
            Consolidation::Last => values.next_back().unwrap_or(ABSENT),
            Consolidation::Unknown(_) => ABSENT,
        }
    }
}
