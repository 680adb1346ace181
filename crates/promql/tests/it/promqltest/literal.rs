//! Literals of the promqltest language: durations, series, sequences of values.

use chronolith_model::{Labels, METRIC_NAME};

use super::histogram::{self, HistogramLiteral};

/// One step of a series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Point {
    /// Nothing.
    Gap,
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(Box<HistogramLiteral>),
}

/// A series and its values, one a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeriesLiteral {
    /// Labels of the series.
    pub(crate) labels: Labels,
    /// Values of the series.
    pub(crate) values: Vec<Point>,
    /// Start timestamps of counters, relative to the samples, in milliseconds; empty if not given.
    pub(crate) start_offsets: Vec<Option<i64>>,
}

/// Milliseconds of `1m30s`, `-5s`, or of a number of seconds.
pub(crate) fn duration_ms(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Some((seconds * 1000.0).round() as i64);
    }
    if let Some(positive) = text.strip_prefix('-') {
        return duration_ms(positive).map(|ms| -ms);
    }
    let (mut total, mut rest) = (0, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit_ms = match &rest[..unit_end] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        total += number * unit_ms;
        rest = &rest[unit_end..];
    }
    Some(total)
}

/// `name{label="value", ...} v v v`
pub(crate) fn series(line: &str) -> Result<SeriesLiteral, String> {
    let fail = |what: &str| format!("{what} in {line:?}");
    let name_end = line.find(|c: char| c == '{' || c.is_whitespace()).unwrap_or(line.len());
    let (name, mut rest) = line.split_at(name_end);
    let mut pairs: Vec<(String, String)> = Vec::new();
    if !name.is_empty() {
        pairs.push((METRIC_NAME.to_owned(), name.to_owned()));
    }
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside.trim_start();
        loop {
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (key, quoted) = match rest.chars().next() {
                Some('"' | '\'' | '`') => {
                    let (key, after) = quoted_text(rest).ok_or_else(|| fail("bad quotes"))?;
                    rest = after.trim_start();
                    (key, true)
                }
                _ => {
                    let end = rest.find('=').ok_or_else(|| fail("label without value"))?;
                    let key = rest[..end].trim().to_owned();
                    rest = &rest[end..];
                    (key, false)
                }
            };
            if let Some(after) = rest.strip_prefix('=') {
                let (value, after) = quoted_text(after.trim_start()).ok_or_else(|| fail("bad quotes"))?;
                pairs.push((key, value));
                rest = after.trim_start();
            } else if quoted {
                pairs.push((METRIC_NAME.to_owned(), key));
            }
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
    }
    let labels = Labels::from_pairs(pairs.iter().map(|(name, value)| (&**name, &**value)));
    let values = sequence(rest).ok_or_else(|| fail("bad values"))?;
    Ok(SeriesLiteral { labels, values, start_offsets: Vec::new() })
}

/// A quoted text at the start, and what follows it.
pub(crate) fn quoted_text(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| "\"'`".contains(*c))?;
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Some((out, &text[at + 1..]));
        }
        if c == '\\' && quote != '`' {
            out.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'u' => char::from_u32(
                    u32::from_str_radix(
                        &chars.by_ref().take(4).map(|(_, digit)| digit).collect::<String>(),
                        16,
                    )
                    .ok()?,
                )?,
                other => other,
            });
        } else {
            out.push(c);
        }
    }
    None
}

/// Start times relative to samples: `_`, `_x3`, `-1m`, `-1mx3`, `-30s-1mx3`.
pub(crate) fn start_offsets(text: &str) -> Option<Vec<Option<i64>>> {
    let mut offsets = Vec::new();
    for item in text.split_whitespace() {
        if let Some(rest) = item.strip_prefix('_') {
            offsets.extend(std::iter::repeat_n(None, repeats(rest)?.0.unwrap_or(1)));
            continue;
        }
        let (mut offset, rest) = signed_duration(item)?;
        let (step, rest) = if rest.starts_with(['+', '-']) { signed_duration(rest)? } else { (0, rest) };
        for _ in 0..=repeats(rest)?.0.unwrap_or(0) {
            offsets.push(Some(offset));
            offset += step;
        }
    }
    Some(offsets)
}

/// A duration with a sign at the start, and what follows it.
fn signed_duration(text: &str) -> Option<(i64, &str)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(['+', '-', 'x']).unwrap_or(unsigned.len());
    let ms = duration_ms(&unsigned[..end])?;
    Some((if text.starts_with('-') { -ms } else { ms }, &unsigned[end..]))
}

/// Values in order.
fn sequence(text: &str) -> Option<Vec<Point>> {
    let (mut values, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        rest = item(rest, &mut values)?.trim_start();
    }
    Some(values)
}

/// One item: `_`, `_x3`, `1`, `1x3`, `1+2x3`, `stale`, `{{...}}`, `{{...}}+{{...}}x3`.
fn item<'t>(text: &'t str, values: &mut Vec<Point>) -> Option<&'t str> {
    if let Some(rest) = text.strip_prefix('_') {
        let (count, rest) = repeats(rest)?;
        values.extend(std::iter::repeat_n(Point::Gap, count.unwrap_or(1)));
        return Some(rest);
    }
    if text.starts_with("{{") {
        return histograms(text, values);
    }
    let (mut value, mut rest) = number(text)?;
    let mut step = 0.0;
    if rest.starts_with(['+', '-']) {
        (step, rest) = number(rest)?;
    }
    let (count, rest) = repeats(rest)?;
    for _ in 0..=count.unwrap_or(0) {
        values.push(Point::Float(value));
        if step != 0.0 {
            value += step;
        }
    }
    Some(rest)
}

/// `{{...}}`, `{{...}}x3`, `{{...}}+{{...}}x3`.
fn histograms<'t>(text: &'t str, values: &mut Vec<Point>) -> Option<&'t str> {
    let (mut current, mut rest) = histogram::literal(text)?;
    let sign = rest.chars().next().filter(|sign| ['+', '-'].contains(sign));
    let step = match sign {
        Some(_) => {
            let (step, after) = histogram::literal(&rest[1..])?;
            rest = after;
            current.hint_set = step.hint_set;
            Some(step.histogram)
        }
        None => None,
    };
    let (count, rest) = repeats(rest)?;
    values.push(Point::Histogram(Box::new(current.clone())));
    for _ in 0..count.unwrap_or(0) {
        if let Some(step) = &step {
            let merged = if sign == Some('+') {
                current.histogram.add(step)
            } else {
                current.histogram.subtract(step)
            };
            merged.ok()?;
        }
        values.push(Point::Histogram(Box::new(current.clone())));
    }
    Some(rest)
}

/// `x3` at the start, if it is there.
fn repeats(text: &str) -> Option<(Option<usize>, &str)> {
    let Some(rest) = text.strip_prefix('x') else {
        return (text.is_empty() || text.starts_with(char::is_whitespace)).then_some((None, text));
    };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((Some(rest[..end].parse().ok()?), &rest[end..]))
}

/// A number at the start, and what follows it.
fn number(text: &str) -> Option<(f64, &str)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    for (word, value) in
        [("stale", chronolith_model::sample::STALE_NAN), ("inf", f64::INFINITY), ("nan", f64::NAN)]
    {
        if unsigned.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)) {
            let value = if word == "inf" { sign * value } else { value };
            return Some((value, &unsigned[word.len()..]));
        }
    }
    let mut end = 0;
    let bytes = unsigned.as_bytes();
    while let Some(&byte) = bytes.get(end) {
        let exponent_sign = end > 0 && matches!(byte, b'+' | b'-') && matches!(bytes[end - 1], b'e' | b'E');
        if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E') || exponent_sign) {
            break;
        }
        end += 1;
    }
    let value: f64 = unsigned[..end].parse().ok()?;
    Some((sign * value, &unsigned[end..]))
}

#[test]
fn sequences_expand_as_in_prometheus() {
    let values = |text: &str| -> Vec<Option<f64>> {
        let value = |point| if let Point::Float(value) = point { Some(value) } else { None };
        sequence(text).unwrap().into_iter().map(value).collect()
    };
    assert_eq!(values("1 2x2 _x2 3"), [Some(1.0), Some(2.0), Some(2.0), Some(2.0), None, None, Some(3.0)]);
    assert_eq!(values("0+10x2 5-1x1"), [Some(0.0), Some(10.0), Some(20.0), Some(5.0), Some(4.0)]);
    assert_eq!(values("1e+2 -Inf .5"), [Some(100.0), Some(f64::NEG_INFINITY), Some(0.5)]);
    let sums = sequence("{{sum:1}}+{{sum:2}}x2 1").unwrap();
    let sum = |point: &Point| if let Point::Histogram(h) = point { h.histogram.sum } else { -1.0 };
    assert_eq!(sums.iter().map(sum).collect::<Vec<_>>(), [1.0, 3.0, 5.0, -1.0]);
    assert_eq!(duration_ms("10s53ms"), Some(10_053));
    let offsets = start_offsets("_ -30s-1mx1 0sx1 1ms").unwrap();
    assert_eq!(offsets, [None, Some(-30_000), Some(-90_000), Some(0), Some(0), Some(1)]);
}
