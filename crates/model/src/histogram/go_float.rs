//! Floats as text, as Go formats them.

use crate::decimal::{decimal, scientific};

/// `value` as Go's `%g` and `%v` print it: shortest digits, an exponent below 1e-4 and from 1e+06 on.
#[must_use]
pub fn go_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = scientific(value);
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent = exponent.parse::<i32>().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return decimal(value);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}
