//! Parameters of the API: query string and form body, times, durations and steps as Go reads them.
//! Invariants: a value is either understood completely or refused with Prometheus's text.

use std::borrow::Cow;
use std::num::{IntErrorKind, ParseIntError};

use axum::http::Uri;
use chronolith_base::utc::parse_rfc3339_ms;
use chronolith_model::duration::parse_duration_ms;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use percent_encoding::percent_decode_str;

use super::error::ApiError;
use crate::limits::PARAM_COUNT_MAX;

#[cfg(test)]
mod tests;

/// Nanoseconds of a millisecond.
pub(crate) const NS_PER_MS: i64 = 1_000_000;
/// Earliest time that Prometheus prints and reads back.
const MIN_TIME_TEXT: &str = "-292273086-05-16T16:47:06Z";
/// Latest time that Prometheus prints and reads back.
const MAX_TIME_TEXT: &str = "292277025-08-18T07:12:54.999999999Z";

/// Decoded `name=value` pairs, body before query string, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Params {
    pairs: Vec<(String, String)>,
    malformed: Option<String>,
}

impl Params {
    /// Parameters of a URL, for endpoints that have neither a form nor a tenant.
    pub(crate) fn of_url(uri: &Uri) -> Result<Params, ApiError> {
        let mut params = Params::default();
        params.parse(uri.query().unwrap_or(""))?;
        Ok(params)
    }

    /// Reads one urlencoded text. A pair with a broken escape or a semicolon is left out and remembered, as
    /// Prometheus does: most endpoints answer with the other pairs, a few ask [`Params::well_formed`].
    pub(crate) fn parse(&mut self, encoded: &str) -> Result<(), ApiError> {
        for pair in encoded.split('&').filter(|pair| !pair.is_empty()) {
            if let Some(why) = pair_fault(pair) {
                self.malformed.get_or_insert(why);
                continue;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            self.push(decode(name)?, decode(value)?)?;
        }
        Ok(())
    }

    /// Adds a decoded pair.
    ///
    /// # Errors
    /// If there are [`PARAM_COUNT_MAX`] already.
    pub(crate) fn push(&mut self, name: String, value: String) -> Result<(), ApiError> {
        if self.pairs.len() >= PARAM_COUNT_MAX {
            return Err(ApiError::bad_request(format!("more than {PARAM_COUNT_MAX} parameters")));
        }
        self.pairs.push((name, value));
        Ok(())
    }

    /// Checks that every pair could be read.
    ///
    /// # Errors
    /// Names the first pair that could not.
    pub(crate) fn well_formed(&self) -> Result<(), ApiError> {
        match &self.malformed {
            None => Ok(()),
            Some(why) => Err(ApiError::bad_request(format!("error parsing form values: {why}"))),
        }
    }

    /// The first value of `name`; an empty one counts as not given.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// All values of `name`.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Parameters whose names are `prefix`, something and `suffix`: that, and the value.
    pub(crate) fn bracketed<'a>(
        &'a self,
        prefix: &'a str,
        suffix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.pairs.iter().filter_map(move |(name, value)| {
            let inner = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
            Some((inner, value.as_str()))
        })
    }

    /// Milliseconds of the time `name`, or `default_ms`.
    pub(crate) fn time_ms(&self, name: &str, default_ms: i64) -> Result<i64, ApiError> {
        match self.get(name) {
            None => Ok(default_ms),
            Some(text) => parse_time_ms(text).map_err(|why| {
                ApiError::parameter(name, format_args!("invalid time value for '{name}': {why}"))
            }),
        }
    }

    /// Milliseconds of the time `name`, which must be there.
    pub(crate) fn time_ms_required(&self, name: &str) -> Result<i64, ApiError> {
        parse_time_ms(self.get(name).unwrap_or("")).map_err(|why| ApiError::parameter(name, why))
    }

    /// `limit` of queries and lists: 0 and absent mean "no limit".
    pub(crate) fn limit(&self, name: &str) -> Result<usize, ApiError> {
        let Some(text) = self.get(name) else { return Ok(0) };
        let number = text.parse::<i64>();
        let number = number.map_err(|error| ApiError::parameter(name, int_fault(text, &error, "Atoi")))?;
        usize::try_from(number).map_err(|_| ApiError::parameter(name, "limit must be non-negative"))
    }

    /// The whole number `name`; the inner error is for the caller to word.
    pub(crate) fn number(&self, name: &str) -> Option<Result<i64, ParseIntError>> {
        self.get(name).map(str::parse)
    }
}

/// Reason why a number cannot be read, in the words of Go's `strconv`.
pub(crate) fn int_fault(text: &str, error: &ParseIntError, function: &str) -> String {
    let why = match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {text:?}: {why}")
}

/// Reason why a `name=value` pair cannot be read, in Prometheus's words.
fn pair_fault(pair: &str) -> Option<String> {
    if pair.contains(';') {
        return Some("invalid semicolon separator in query".to_owned());
    }
    let shown: String = pair.get(broken_escape_idx(pair)?..)?.chars().take(3).collect();
    Some(format!("invalid URL escape {shown:?}"))
}

/// Index of the first `%` that two hexadecimal digits do not follow.
fn broken_escape_idx(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_escape =
        |at: usize| bytes.get(at + 1..at + 3).is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit));
    bytes.iter().enumerate().position(|(at, &byte)| byte == b'%' && !is_escape(at))
}

/// Percent-decoding of a form: `+` is a space.
fn decode(encoded: &str) -> Result<String, ApiError> {
    decode_percent(&encoded.replace('+', " "))
        .ok_or_else(|| ApiError::bad_request("parameter is not valid percent-encoded UTF-8"))
}

/// Percent-decoding; `None` for a broken escape or for bytes that are not UTF-8.
pub(crate) fn decode_percent(encoded: &str) -> Option<String> {
    if broken_escape_idx(encoded).is_some() {
        return None;
    }
    percent_decode_str(encoded).decode_utf8().ok().map(Cow::into_owned)
}

/// A time: seconds as a float, or RFC 3339.
pub(crate) fn parse_time_ms(text: &str) -> Result<i64, String> {
    let unknown = || format!("cannot parse {text:?} to a valid timestamp");
    if let Some(seconds) = parse_float(text) {
        return seconds_to_ms(seconds).ok_or_else(unknown);
    }
    match text {
        MIN_TIME_TEXT => Ok(TIME_MIN_MS),
        MAX_TIME_TEXT => Ok(TIME_MAX_MS),
        _ => parse_rfc3339_ms(text).ok_or_else(unknown),
    }
}

/// Milliseconds of a time in seconds, rounded as Prometheus does: its fraction first to milliseconds and then
/// down to nanoseconds, each as a float, so that half a millisecond may go either way.
fn seconds_to_ms(seconds: f64) -> Option<i64> {
    let fraction_s = (seconds.fract() * 1000.0).round() / 1000.0;
    let fraction_ns = (fraction_s * 1e9) as i64;
    let ms = seconds.trunc() * 1000.0 + fraction_ns.div_euclid(1_000_000) as f64;
    let legal = ms >= TIME_MIN_MS as f64 && ms <= TIME_MAX_MS as f64;
    legal.then_some(ms as i64)
}

/// Nanoseconds of a duration: seconds as a float, or Prometheus's form.
pub(crate) fn parse_duration_ns(text: &str) -> Result<i64, String> {
    if let Some(seconds) = parse_float(text) {
        let nanos = seconds * 1e9;
        // The greatest i64 is no float: the next one is 2^63. NaN is no length either.
        if nanos.is_nan() || nanos >= i64::MAX as f64 || nanos < i64::MIN as f64 {
            return Err(format!("cannot parse {text:?} to a valid duration. It overflows int64"));
        }
        return Ok(nanos as i64);
    }
    let parsed = parse_duration_ms(text).and_then(|ms| ms.checked_mul(NS_PER_MS));
    parsed.ok_or_else(|| format!("cannot parse {text:?} to a valid duration"))
}

/// A duration as Go prints it: `1h2m3.5s`, `1.5ms`, `0s`.
pub(crate) fn show_duration_ns(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    let text = match ns {
        0 => "0s".to_owned(),
        1..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{}ms", ns as f64 / 1e6),
        _ => {
            let minutes = ns / 60_000_000_000;
            let rest_ns = ns % 60_000_000_000;
            let seconds = rest_ns as f64 / 1e9;
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

/// Parses texts that both Go and Rust read as a float; words such as `infinity` included.
fn parse_float(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Undoes the `U__` escaping of label names in paths: `__` is `_`, `_2e_` is U+002E.
/// `None` where the name is not escaped or the escape is broken; the name then stands for itself.
pub(crate) fn unescape_name(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix("U__")?;
    let mut out = String::with_capacity(rest.len());
    while let Some(at) = rest.find('_') {
        out.push_str(rest.get(..at)?);
        let tail = rest.get(at + 1..)?;
        let (code, after) = tail.split_once('_')?;
        if code.is_empty() {
            out.push('_');
        } else if code.len() <= 6 {
            out.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
        } else {
            return None;
        }
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}
