//! Compensated summation (Kahan, with Neumaier's improvement).

/// Adds `value` to a sum with its compensation; returns both.
#[must_use]
pub fn kahan_add(value: f64, sum: f64, rest: f64) -> (f64, f64) {
    let total = sum + value;
    let rest = if total.is_infinite() {
        0.0
    } else if sum.abs() >= value.abs() {
        rest + ((sum - total) + value)
    } else {
        rest + ((value - total) + sum)
    };
    (total, rest)
}
