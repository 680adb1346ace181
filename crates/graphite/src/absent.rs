//! The value of a point without one.
//!
//! Invariant: NaN is never a value, so it can stand for none.

/// No value at this point.
pub(crate) const ABSENT: f64 = f64::NAN;
