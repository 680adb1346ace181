//! Texts of identifiers, strings and durations, as statements have them.
//!
//! Not here: the way back (`syntax::scanner`, `syntax::duration`).

use super::keyword::is_keyword;

const NS_PER_US: i64 = 1_000;
const NS_PER_MS: i64 = 1_000_000;
const NS_PER_SECOND: i64 = 1_000_000_000;
const UNITS: [(&str, i64); 7] = [
    ("w", 7 * 86_400 * NS_PER_SECOND),
    ("d", 86_400 * NS_PER_SECOND),
    ("h", 3_600 * NS_PER_SECOND),
    ("m", 60 * NS_PER_SECOND),
    ("s", NS_PER_SECOND),
    ("ms", NS_PER_MS),
    ("u", NS_PER_US),
];

/// Returns true if `ident` needs no quotes.
#[must_use]
pub fn is_plain_ident(ident: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    ident.starts_with(is_letter)
        && ident.chars().all(|c| is_letter(c) || c.is_ascii_digit())
        && !is_keyword(ident)
}

/// Returns `ident`, in double quotes if it needs them.
#[must_use]
pub fn quote_ident(ident: &str) -> String {
    if is_plain_ident(ident) { ident.to_owned() } else { in_quotes(ident, '"') }
}

/// Returns `text` as a string literal, in single quotes.
#[must_use]
pub fn quote_text(text: &str) -> String {
    in_quotes(text, '\'')
}

pub(crate) fn in_quotes(text: &str, quote: char) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push(quote);
    for c in text.chars() {
        match c {
            '\n' => quoted.push_str("\\n"),
            '\\' => quoted.push_str("\\\\"),
            c if c == quote => quoted.extend(['\\', c]),
            c => quoted.push(c),
        }
    }
    quoted.push(quote);
    quoted
}

/// Returns a duration of `ns` in the largest unit that divides it: `90m`, `1w`, `0s`.
#[must_use]
pub fn format_duration(ns: i64) -> String {
    if ns == 0 {
        return "0s".to_owned();
    }
    match UNITS.iter().find(|(_, unit_ns)| ns % unit_ns == 0) {
        Some((unit, unit_ns)) => format!("{}{unit}", ns / unit_ns),
        None => format!("{ns}ns"),
    }
}

/// Returns a duration of `ns` as Go prints it: `1h0m0s`, `1.5s`, `0s`. SHOW RETENTION POLICIES and CREATE
/// DATABASE use this form.
#[must_use]
pub fn format_duration_go(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    let second = NS_PER_SECOND.unsigned_abs();
    if ns == 0 {
        return "0s".to_owned();
    }
    if ns < second {
        let (unit, unit_ns) = match ns {
            ns if ns >= NS_PER_MS.unsigned_abs() => ("ms", NS_PER_MS.unsigned_abs()),
            ns if ns >= NS_PER_US.unsigned_abs() => ("µs", NS_PER_US.unsigned_abs()),
            _ => ("ns", 1),
        };
        return format!("{sign}{}{unit}", decimal(ns / unit_ns, ns % unit_ns, unit_ns));
    }
    let seconds = format!("{}s", decimal(ns / second % 60, ns % second, second));
    match (ns / second / 3_600, ns / second / 60 % 60) {
        (0, 0) => format!("{sign}{seconds}"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}"),
    }
}

/// Returns `whole + part / unit` without trailing zeros; `unit` is a power of ten.
fn decimal(whole: u64, part: u64, unit: u64) -> String {
    if part == 0 {
        return whole.to_string();
    }
    let digits = unit.ilog10() as usize;
    let text = format!("{part:0digits$}");
    format!("{whole}.{}", text.trim_end_matches('0'))
}
