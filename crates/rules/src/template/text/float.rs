//! Floats as Go's `strconv.ParseFloat` reads them.

/// Reasons of [`parse_float`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) enum FloatFault {
    Syntax,
    Range,
}

impl FloatFault {
    /// Returns Go's text.
    pub(in crate::template) fn text(self) -> &'static str {
        match self {
            FloatFault::Syntax => "invalid syntax",
            FloatFault::Range => "value out of range",
        }
    }
}

/// Reads a decimal or hexadecimal float, an infinity or NaN.
///
/// # Errors
/// [`FloatFault`]; a value beyond the range of a double is one, too.
pub(in crate::template) fn parse_float(text: &str) -> Result<f64, FloatFault> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    let lower = unsigned.to_ascii_lowercase();
    match lower.as_str() {
        "inf" | "infinity" => return Ok(sign * f64::INFINITY),
        "nan" if unsigned.len() == text.len() => return Ok(f64::NAN),
        _ => {}
    }
    if !is_underscore_ok(&lower) {
        return Err(FloatFault::Syntax);
    }
    let digits = lower.replace('_', "");
    let value = match digits.strip_prefix("0x") {
        Some(hex) => parse_hex(hex).ok_or(FloatFault::Syntax)?,
        None if is_decimal(&digits) => digits.parse().map_err(|_| FloatFault::Syntax)?,
        None => return Err(FloatFault::Syntax),
    };
    if value.is_infinite() { Err(FloatFault::Range) } else { Ok(sign * value) }
}

/// Returns true for `digits[.digits][e[sign]digits]` with at least one digit before the exponent.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once('e').map_or((text, None), |(m, e)| (m, Some(e)));
    let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let has_digits = |text: &str| !text.is_empty() && is_digits(text);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_mantissa = is_digits(whole) && is_digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    is_mantissa && exponent.is_none_or(|text| has_digits(text.strip_prefix(['+', '-']).unwrap_or(text)))
}

/// The part after `0x`, which needs an exponent of two.
fn parse_hex(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Beyond these exponents all values are zero or infinite.
    let magnitude = digits.parse::<i32>().unwrap_or(i32::MAX).min(1 << 20);
    let mut exponent = if exponent.starts_with('-') { -magnitude } else { magnitude };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut bits: u64 = 0;
    for (idx, c) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(c.to_digit(16)?);
        if idx >= whole.len() {
            exponent -= 4;
        }
        if bits >> 58 == 0 {
            bits = bits << 4 | digit;
        } else {
            // Digits that do not fit decide only the rounding.
            bits |= u64::from(digit != 0);
            exponent += 4;
        }
    }
    Some(scaled(bits as f64, exponent))
}

/// `value` times two to the power of `exponent`.
fn scaled(mut value: f64, mut exponent: i32) -> f64 {
    while exponent > 0 && value != 0.0 && value.is_finite() {
        let step = exponent.min(1000);
        value *= 2f64.powi(step);
        exponent -= step;
    }
    while exponent < 0 && value != 0.0 {
        let step = (-exponent).min(1000);
        value /= 2f64.powi(step);
        exponent += step;
    }
    value
}

/// Returns true if underscores are only between digits, or between a prefix of the base and a digit.
pub(in crate::template) fn is_underscore_ok(text: &str) -> bool {
    if !text.contains('_') {
        return true;
    }
    let lower = text.strip_prefix(['+', '-']).unwrap_or(text).to_ascii_lowercase();
    let digits = lower.strip_prefix("0x").or(lower.strip_prefix("0b")).or(lower.strip_prefix("0o"));
    let is_hex = lower.starts_with("0x");
    let is_digit = |c: char| c.is_ascii_digit() || (is_hex && c.is_ascii_hexdigit());
    // A prefix counts as a digit.
    let mut before = if digits.is_some() { '0' } else { '^' };
    for c in digits.unwrap_or(&lower).chars() {
        let is_bad = (c == '_' && !is_digit(before)) || (before == '_' && !is_digit(c));
        if is_bad {
            return false;
        }
        before = c;
    }
    before != '_'
}
