//! Writes Prometheus's JSON into one buffer: values as strings, times as seconds with milliseconds.
//! Invariants: valid JSON whatever the labels hold. Not here: envelopes of errors (`http::error`), status
//! pages.

use std::io::Write as _;

use chronolith_model::Labels;
use chronolith_model::decimal::{decimal, scientific};

pub(crate) mod histogram;

#[cfg(test)]
mod tests;

/// Appends a string with JSON's escapes.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    // PERF: most text has nothing to escape. Without an early exit the compiler compares 16 bytes per
    // instruction:
    //   cargo xtask bench label-endpoints
    if !bytes.iter().fold(false, |found, &byte| found | needs_escape(byte)) {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut plain_from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if !needs_escape(byte) {
            continue;
        }
        out.extend_from_slice(&bytes[plain_from..at]);
        plain_from = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => put_display(out, format_args!("\\u{byte:04x}")),
        }
    }
    out.extend_from_slice(&bytes[plain_from..]);
    out.push(b'"');
}

fn needs_escape(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// Appends a string with the escapes of Go's `encoding/json`, which keep it apart from HTML and scripts.
pub(crate) fn put_html_string(out: &mut Vec<u8>, text: &str) {
    let is_plain = |c: char| !matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
    if text.chars().all(is_plain) {
        return put_string(out, text);
    }
    let start = out.len();
    put_string(out, text);
    let escaped = String::from_utf8_lossy(&out.split_off(start)).into_owned();
    for c in escaped.chars() {
        if is_plain(c) {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            put_display(out, format_args!("\\u{:04x}", u32::from(c)));
        }
    }
}

/// Appends a value by its `Display`; writing to a `Vec` cannot fail.
pub(crate) fn put_display(out: &mut Vec<u8>, what: impl std::fmt::Display) {
    let written = write!(out, "{what}");
    debug_assert!(written.is_ok(), "a Vec takes all");
}

/// Integers below this are doubles without loss, and have no more digits than their shortest form.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
/// Numbers that `zmij` prints without an exponent.
const PLAIN_DIGITS: std::ops::Range<f64> = 1e-4..1e15;

/// Appends a value as Prometheus prints it, without quotes: plain digits, exponents only for the very small
/// and large.
// PERF: ns per value of a rate and of a counter: 74 and 57 by `Display`, 22 and 9 by these.
//   cargo xtask bench graph-answers
pub(crate) fn put_float(out: &mut Vec<u8>, value: f64) {
    let magnitude = value.abs();
    // Negative zero keeps its sign.
    if magnitude < EXACT_INTEGER_MAX && value.fract() == 0.0 && (value != 0.0 || value.is_sign_positive()) {
        out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
    } else if PLAIN_DIGITS.contains(&magnitude) {
        // The shortest digits of a number with a fraction.
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    } else if !value.is_finite() || (magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude)) {
        put_float_rare(out, value);
    } else {
        out.extend_from_slice(decimal(value).as_bytes());
    }
}

#[cold]
fn put_float_rare(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    } else {
        put_exponent(out, value);
    }
}

/// Appends a value in Go's `e` form: a sign and at least two digits in the exponent.
fn put_exponent(out: &mut Vec<u8>, value: f64) {
    let start = out.len();
    out.extend_from_slice(scientific(value).as_bytes());
    let Some(mark) = out[start..].iter().rposition(|&byte| byte == b'e').map(|at| start + at + 1) else {
        return;
    };
    if out.get(mark) != Some(&b'-') {
        out.insert(mark, b'+');
    }
    if out.len() == mark + 2 {
        out.insert(mark + 1, b'0');
    }
}

/// Appends a value as text expositions print it (Go's shortest `g`: exponents from 1e6 and below 1e-4).
pub(crate) fn put_float_general(out: &mut Vec<u8>, value: f64) {
    let magnitude = value.abs();
    if value.is_finite() && magnitude != 0.0 && !(1e-4..1e6).contains(&magnitude) {
        put_exponent(out, value);
    } else {
        put_float(out, value);
    }
}

/// Appends a value with an exponent in any case (Go's shortest `e`).
pub(crate) fn put_float_exponent(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() { put_exponent(out, value) } else { put_float_rare(out, value) }
}

/// Appends a finite value as Go's `encoding/json` prints it: as [`put_float`], with one digit in the
/// exponents -7 to -9.
pub(crate) fn put_json_float(out: &mut Vec<u8>, value: f64) {
    put_float(out, value);
    if let [.., b'e', b'-', b'0', digit] = *out.as_slice() {
        out.truncate(out.len() - 2);
        out.push(digit);
    }
}

/// Milliseconds as seconds; three decimals where they are not all zero.
pub(crate) fn put_time(out: &mut Vec<u8>, time_ms: i64) {
    if time_ms < 0 {
        out.push(b'-');
    }
    let ms = time_ms.unsigned_abs();
    out.extend_from_slice(itoa::Buffer::new().format(ms / 1000).as_bytes());
    let rest = ms % 1000;
    if rest != 0 {
        let digit = |number: u64| b'0' + (number % 10) as u8;
        out.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
    }
}

/// Milliseconds as seconds with as few decimals as they need, as Prometheus prints the time of a scalar or a
/// string.
pub(crate) fn put_time_short(out: &mut Vec<u8>, time_ms: i64) {
    put_time(out, time_ms);
    if time_ms % 1000 != 0 {
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

/// Appends a scalar as `[seconds,"value"]`; Prometheus never gives it an exponent.
pub(crate) fn put_scalar(out: &mut Vec<u8>, time_ms: i64, value: f64) {
    out.push(b'[');
    put_time_short(out, time_ms);
    out.extend_from_slice(b",\"");
    if value.is_finite() {
        put_display(out, value)
    } else {
        put_float_rare(out, value)
    }
    out.extend_from_slice(b"\"]");
}

/// Writes a sample as `[seconds,"value"]`.
pub(crate) fn put_sample(out: &mut Vec<u8>, time_ms: i64, value: f64) {
    out.push(b'[');
    put_time(out, time_ms);
    out.extend_from_slice(b",\"");
    put_float(out, value);
    out.extend_from_slice(b"\"]");
}

/// Labels as an object.
pub(crate) fn put_labels(out: &mut Vec<u8>, labels: &Labels) {
    put_pairs(out, labels.iter());
}

/// Pairs of strings as an object.
pub(crate) fn put_pairs<'a>(out: &mut Vec<u8>, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
    out.push(b'{');
    for (idx, (name, value)) in pairs.enumerate() {
        if idx > 0 {
            out.push(b',');
        }
        put_string(out, name);
        out.push(b':');
        put_string(out, value);
    }
    out.push(b'}');
}

/// Appends a list of strings.
pub(crate) fn put_strings<'a>(out: &mut Vec<u8>, texts: impl IntoIterator<Item = &'a str>) {
    out.push(b'[');
    for (idx, text) in texts.into_iter().enumerate() {
        if idx > 0 {
            out.push(b',');
        }
        put_string(out, text);
    }
    out.push(b']');
}

/// Opens the envelope of a success; the data follows.
pub(crate) fn open_success(out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"status\":\"success\",\"data\":");
}

/// Closes the envelope.
pub(crate) fn close_success(out: &mut Vec<u8>, warnings: &[String], infos: &[String]) {
    for (name, texts) in [("warnings", warnings), ("infos", infos)] {
        if !texts.is_empty() {
            put_display(out, format_args!(",\"{name}\":"));
            put_strings(out, texts.iter().map(String::as_str));
        }
    }
    out.push(b'}');
}
