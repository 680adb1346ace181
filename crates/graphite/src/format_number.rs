//! Numbers as text, the way names and tags of graphite-web show them: Python's `repr`, `%g`, `%d` and
//! `round`.
//!
//! Invariant: results equal Python 3's to the byte; names are part of compatibility.
//! Not here: JSON.

/// Places that [`round_to`] accepts in either direction.
const ROUND_PLACES_MAX: i64 = 300;

/// Splits a number, printed as `d.ddde-X`, into sign and digits without the point, and the exponent.
fn scientific(text: &str) -> (bool, String, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let is_negative = mantissa.starts_with('-');
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    (is_negative, digits, exponent.parse().unwrap_or(0))
}

fn not_finite(value: f64) -> Option<String> {
    if value.is_nan() {
        return Some("nan".to_owned());
    }
    value.is_infinite().then(|| if value > 0.0 { "inf" } else { "-inf" }.to_owned())
}

/// Writes `digits` with the point after the first, and the exponent with two digits at least.
fn exponential(is_negative: bool, digits: &str, exponent: i32) -> String {
    let (first, rest) = digits.split_at(digits.len().min(1));
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if is_negative { "-" } else { "" };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", exponent.unsigned_abs())
}

/// Magnitudes that are written without an exponent.
const REPR_MIN: f64 = 1e-4;
const REPR_END: f64 = 1e16;

/// Shortest text that reads back as `value`: `1.0`, `0.1`, `1e+16`.
#[must_use]
pub(crate) fn repr(value: f64) -> String {
    let mut text = String::new();
    push_repr(value, &mut text);
    text
}

/// Appends [`repr`] of `value`. Cost: some 30 ns.
pub(crate) fn push_repr(value: f64, out: &mut String) {
    let magnitude = value.abs();
    if magnitude == 0.0 || (REPR_MIN..REPR_END).contains(&magnitude) {
        // Without an exponent in this range, as Python's.
        out.push_str(zmij::Buffer::new().format_finite(value));
    } else if let Some(text) = not_finite(value) {
        out.push_str(&text);
    } else {
        let (is_negative, digits, exponent) = scientific(&format!("{value:e}"));
        out.push_str(&exponential(is_negative, &digits, exponent));
    }
}

/// Six significant digits without trailing zeros: `%g`.
#[must_use]
pub(crate) fn general(value: f64) -> String {
    if let Some(text) = not_finite(value) {
        return text;
    }
    let (is_negative, digits, exponent) = scientific(&format!("{value:.5e}"));
    if !(-4..6).contains(&exponent) {
        let digits = digits.trim_end_matches('0');
        return exponential(is_negative, if digits.is_empty() { "0" } else { digits }, exponent);
    }
    let places = usize::try_from(5 - exponent).unwrap_or(0);
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Integer part, `%d`; `None` for infinities.
#[must_use]
pub(crate) fn truncated(value: f64) -> Option<String> {
    let whole = value.trunc();
    // `+ 0.0` turns -0 into 0.
    whole.is_finite().then(|| format!("{:.0}", whole + 0.0))
}

/// Rounds to `places` decimals (before the point if negative), the tie to the even digit of the exact
/// value.
#[must_use]
pub(crate) fn round_to(value: f64, places: i64) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let places = places.clamp(-ROUND_PLACES_MAX, ROUND_PLACES_MAX);
    if let Some(rounded) = round_fast(value, places) {
        return rounded;
    }
    match usize::try_from(places) {
        Ok(places) => format!("{value:.places$}").parse().unwrap_or(value),
        Err(_) => {
            let unit = 10f64.powi(i32::try_from(-places).unwrap_or(0));
            (value / unit).round_ties_even() * unit
        }
    }
}

/// PERF: text and back costs 250 ns per value. Below 2^40 and away from a tie the scaled integer is certain,
/// and one division of two exact numbers rounds as the decimal would.
fn round_fast(value: f64, places: i64) -> Option<f64> {
    const UNITS: [f64; 10] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
    const TIE_MARGIN: f64 = 1e-3;
    let unit = *UNITS.get(usize::try_from(places).ok()?)?;
    let scaled = value * unit;
    if scaled.abs() >= (1u64 << 40) as f64 {
        return None;
    }
    let whole = scaled.round();
    let distance = (scaled - whole).abs();
    (distance < 0.5 - TIE_MARGIN).then(|| whole / unit)
}

/// Python's `%`-formatting of one number: every verb takes the same value, `%%` is a per cent sign.
/// Returns `None` if a verb is unknown, none is there, or more than one takes the value.
#[must_use]
pub(crate) fn percent_format(pattern: &str, value: f64) -> Option<String> {
    let mut out = String::new();
    let mut used = 0;
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        out.push_str(rest.get(..at)?);
        rest = rest.get(at + 1..)?;
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let verb = rest.get(end..)?.chars().next()?;
        out.push_str(&formatted(rest.get(..end)?, verb, value)?);
        used += 1;
        rest = rest.get(end + 1..)?;
    }
    out.push_str(rest);
    (used == 1).then_some(out)
}

/// Width and precision of a verb.
const WIDTH_MAX: usize = 1000;

fn formatted(flags: &str, verb: char, value: f64) -> Option<String> {
    let (spec, precision) = match flags.split_once('.') {
        Some((spec, precision)) => (spec, Some(precision.parse::<usize>().unwrap_or(0).min(WIDTH_MAX))),
        None => (flags, None),
    };
    let width_at = spec.find(|c: char| c.is_ascii_digit() && c != '0').unwrap_or(spec.len());
    let (flags, width) = spec.split_at(width_at);
    let width = width.parse::<usize>().unwrap_or(0).min(WIDTH_MAX);
    let body = match verb {
        'd' | 'i' | 'u' => truncated(value)?,
        'f' | 'F' => format!("{value:.*}", precision.unwrap_or(6)),
        's' | 'r' | 'a' => repr(value),
        'g' | 'G' => general(value),
        'e' | 'E' => {
            let (is_negative, digits, exponent) = scientific(&format!("{value:.*e}", precision.unwrap_or(6)));
            exponential(is_negative, &digits, exponent)
        }
        _ => return None,
    };
    let body = if flags.contains('+') && !body.starts_with('-') { format!("+{body}") } else { body };
    Some(match (flags.contains('-'), flags.contains('0')) {
        (true, _) => format!("{body:<width$}"),
        (false, true) => format!("{body:0>width$}"),
        (false, false) => format!("{body:>width$}"),
    })
}

#[cfg(test)]
mod tests;
