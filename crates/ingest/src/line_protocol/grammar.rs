//! Grammar of a line, step by step as InfluxDB 1.8 reads it: borders of lines, errors, and every line that
//! the fast walk (`line`) hands over.
//!
//! Invariants: complete on its own; errors are found in the order in which 1.8 finds them. A backslash
//! escapes one byte in two ways that differ for runs of backslashes: the scan of fields skips the byte after
//! it, the other scans look at the byte before a delimiter.
//! Not here: the columns of a batch (`line`), dropped lines (`refused`).

use chronolith_model::WordKind;
use chronolith_model::kind::{word_of_integer, word_of_unsigned};

use crate::number;

use super::fault::{Fault, KEY_BYTES_MAX, ParseReason};
use super::precision::Precision;

/// Bytes that 1.8 counts between series key and field key.
pub(super) const KEY_SEPARATOR_BYTES: usize = 4;

/// A parsed line; offsets are offsets of the line.
pub(super) struct ParsedLine<'a> {
    /// Measurement and tags.
    pub(super) key: &'a [u8],
    /// Keys and values as sent, at least one.
    pub(super) fields: Vec<(&'a [u8], FieldValue<'a>)>,
    /// Time in nanoseconds, if the line has one.
    pub(super) time_ns: Option<i64>,
}

/// Value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum FieldValue<'a> {
    /// A word and its kind.
    Word(WordKind, u64),
    /// Text between the quotes, with its escapes.
    Text(&'a [u8]),
}

/// Returns the offset of the newline that ends the line at `start`, or the length of the body.
///
/// Quotes hide newlines only where a field value can be: after a space, with more equals signs than commas.
pub(super) fn line_end(body: &[u8], start: usize) -> usize {
    let mut at = start;
    let mut has_space = false;
    let mut is_quoted = false;
    let mut equals = 0usize;
    let mut commas = 0usize;
    while let Some(&byte) = body.get(at) {
        match byte {
            b'\\' if at + 2 < body.len() => at += 1,
            b' ' => has_space = true,
            b'=' if has_space && !is_quoted => equals += 1,
            b',' if has_space && !is_quoted => commas += 1,
            b'"' if has_space && equals > commas => is_quoted = !is_quoted,
            b'\n' if !is_quoted => return at,
            _ => {}
        }
        at += 1;
    }
    body.len()
}

/// Returns the offset of the first byte from `at` that is no space, tab or NUL.
pub(super) fn skip_whitespace(line: &[u8], at: usize) -> usize {
    let rest = line.get(at..).unwrap_or(&[]);
    let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | 0)).count();
    at + blank
}

/// Parses a line without leading whitespace and without its newline.
pub(super) fn parse(line: &[u8], precision: Precision) -> Result<ParsedLine<'_>, Fault<'_>> {
    let key_end = scan_key(line)?;
    let key = line.get(..key_end).unwrap_or(&[]);
    if key.len() > KEY_BYTES_MAX {
        return Err(Fault::KeyTooLong(key.len()));
    }
    let start = skip_whitespace(line, key_end);
    let fields_end = scan_fields(line, start)?;
    let fields = line.get(start..fields_end).unwrap_or(&[]);
    if fields.is_empty() {
        return Err(Fault::Plain(ParseReason::MissingFields));
    }
    let fields = split_fields(fields, key.len())?;
    let time_ns = parse_time(line, fields_end, precision)?;
    check_utf8(line, key)?;
    for (field, _) in &fields {
        check_utf8(line, field)?;
    }
    Ok(ParsedLine { key, fields, time_ns })
}

/// Returns the end of measurement and tags.
fn scan_key(line: &[u8]) -> Result<usize, Fault<'_>> {
    if matches!(line.first(), None | Some(b',')) {
        return Err(Fault::Plain(ParseReason::MissingMeasurement));
    }
    let mut at = end_of_token(line, 0, b", ").ok_or(Fault::Plain(ParseReason::MissingFields))?;
    let tags_start = at + 1;
    let mut tag_count = 0usize;
    while line.get(at) == Some(&b',') {
        at = scan_tag(line, at + 1)?;
        tag_count += 1;
    }
    let tags = line.get(tags_start..at).unwrap_or(&[]);
    if tag_count > 1 && has_duplicate_tags(tags) {
        return Err(Fault::Plain(ParseReason::DuplicateTags));
    }
    Ok(at)
}

/// Returns the end of the tag at `start`: the offset of an unescaped comma or space.
fn scan_tag(line: &[u8], start: usize) -> Result<usize, Fault<'_>> {
    if matches!(line.get(start), None | Some(b' ' | b',' | b'=')) {
        return Err(Fault::Plain(ParseReason::MissingTagKey));
    }
    let missing_value = Fault::Plain(ParseReason::MissingTagValue);
    let equals = end_of_token(line, start, b"=, ").ok_or(missing_value)?;
    let value = equals + 1;
    if line.get(equals) != Some(&b'=') || matches!(line.get(value), None | Some(b' ' | b',')) {
        return Err(missing_value);
    }
    let end = end_of_token(line, value, b"=, ").ok_or(Fault::Plain(ParseReason::MissingFields))?;
    if line.get(end) == Some(&b'=') {
        return Err(Fault::Plain(ParseReason::InvalidTagFormat));
    }
    Ok(end)
}

/// Returns the first of `delimiters` after the byte at `start` that has no backslash before it.
fn end_of_token(line: &[u8], start: usize, delimiters: &[u8]) -> Option<usize> {
    let pairs = line.get(start..)?.windows(2);
    let found = pairs.map(|pair| (pair.first().copied(), pair.last().copied()));
    let ends = |(before, byte): (Option<u8>, Option<u8>)| {
        before != Some(b'\\') && byte.is_some_and(|byte| delimiters.contains(&byte))
    };
    found.into_iter().position(ends).map(|idx| start + idx + 1)
}

/// Returns true if two of the tags, separated by unescaped commas, have the same key.
pub(super) fn has_duplicate_tags(tags: &[u8]) -> bool {
    let mut keys: Vec<&[u8]> = TagPairs::new(tags).map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair.first() == pair.last())
}

/// Keys and values of tags as sent.
pub(super) struct TagPairs<'a> {
    rest: &'a [u8],
}

impl<'a> TagPairs<'a> {
    /// `tags` is what follows the comma after the measurement.
    pub(super) fn new(tags: &'a [u8]) -> TagPairs<'a> {
        TagPairs { rest: tags }
    }
}

impl<'a> Iterator for TagPairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        if self.rest.is_empty() {
            return None;
        }
        let equals = end_of_token(self.rest, 0, b"=").unwrap_or(self.rest.len());
        let (key, value) = self.rest.split_at(equals);
        let value = value.get(1..).unwrap_or(&[]);
        let end = end_of_token(value, 0, b",").unwrap_or(value.len());
        let (value, rest) = value.split_at(end);
        self.rest = rest.get(1..).unwrap_or(&[]);
        Some((key, value))
    }
}

/// Returns the end of the fields that start at `start`: an unescaped space outside of quotes, or the end.
fn scan_fields(line: &[u8], start: usize) -> Result<usize, Fault<'_>> {
    let at_offset = |offset: usize| line.get(offset).copied();
    let mut at = start;
    let mut is_quoted = false;
    let mut equals = 0usize;
    let mut commas = 0usize;
    while let Some(byte) = at_offset(at) {
        match byte {
            b'\\' if at + 1 < line.len() => at += 1,
            b'"' if equals > commas => is_quoted = !is_quoted,
            b'=' if !is_quoted => {
                equals += 1;
                let before = at.checked_sub(1).and_then(at_offset);
                let is_escaped = at.checked_sub(2).and_then(at_offset) == Some(b'\\');
                if matches!(before, Some(b' ' | b',')) && !is_escaped {
                    return Err(Fault::Plain(ParseReason::MissingFieldKey));
                }
                match at_offset(at + 1) {
                    None | Some(b',' | b' ') => return Err(Fault::Plain(ParseReason::MissingFieldValue)),
                    Some(b'"') => {}
                    Some(b'0'..=b'9' | b'.' | b'-' | b'N' | b'n') => {
                        at = check_number(line, at + 1)?;
                        continue;
                    }
                    Some(_) => {
                        at = check_boolean(line, at + 1)?;
                        continue;
                    }
                }
            }
            b',' if !is_quoted => commas += 1,
            b' ' if !is_quoted => break,
            _ => {}
        }
        at += 1;
    }
    if is_quoted {
        return Err(Fault::Plain(ParseReason::UnbalancedQuotes));
    }
    if equals == 0 || commas != equals - 1 {
        return Err(Fault::Plain(ParseReason::InvalidFieldFormat));
    }
    Ok(at.min(line.len()))
}

/// Returns the value that starts at `start` and ends before a comma or space, which nothing escapes.
fn bare_value(line: &[u8], start: usize) -> &[u8] {
    let rest = line.get(start..).unwrap_or(&[]);
    let end = rest.iter().position(|byte| matches!(byte, b',' | b' ')).unwrap_or(rest.len());
    rest.get(..end).unwrap_or(&[])
}

fn check_boolean(line: &[u8], start: usize) -> Result<usize, Fault<'_>> {
    let value = bare_value(line, start);
    boolean(value).ok_or(Fault::Plain(ParseReason::InvalidBoolean))?;
    Ok(start + value.len())
}

/// Returns the value of a boolean.
pub(super) fn boolean(text: &[u8]) -> Option<bool> {
    match text {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => Some(true),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => Some(false),
        _ => None,
    }
}

/// Returns the end of the number that starts at `start`.
fn check_number(line: &[u8], start: usize) -> Result<usize, Fault<'_>> {
    let value = bare_value(line, start);
    number_value(value)?;
    Ok(start + value.len())
}

/// Returns the word of a number by its suffix.
fn number_value(text: &[u8]) -> Result<FieldValue<'_>, Fault<'_>> {
    let invalid = Fault::Plain(ParseReason::InvalidNumber);
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let is_digits = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    match unsigned.split_last() {
        Some((b'i', digits)) => {
            let text = text.strip_suffix(b"i").unwrap_or(text);
            let value = number::integer(text).ok_or(if is_digits(digits) {
                Fault::Integer(text)
            } else {
                invalid
            })?;
            Ok(FieldValue::Word(WordKind::Integer, word_of_integer(value)))
        }
        Some((b'u', digits)) => {
            if digits.len() + 1 != text.len() || !is_digits(digits) {
                return Err(invalid);
            }
            let value = number::unsigned(digits).ok_or(Fault::Unsigned(digits))?;
            Ok(FieldValue::Word(WordKind::Unsigned, word_of_unsigned(value)))
        }
        _ => {
            check_float(unsigned)?;
            let value = number::float(text).ok_or(Fault::Plain(ParseReason::InvalidFloat))?;
            Ok(FieldValue::Word(WordKind::Float, value.to_bits()))
        }
    }
}

/// Checks the bytes of a float without its sign, one after the other.
fn check_float(text: &[u8]) -> Result<(), Fault<'_>> {
    let invalid = Fault::Plain(ParseReason::InvalidNumber);
    let mut has_point = false;
    let mut has_other = false;
    let mut before = 0;
    for &byte in text {
        match byte {
            b'.' if has_point => return Err(invalid),
            b'.' => has_point = true,
            b'0'..=b'9' | b'e' | b'E' => has_other = true,
            b'+' | b'-' if matches!(before, b'e' | b'E') => {}
            _ => return Err(invalid),
        }
        before = byte;
    }
    if has_other { Ok(()) } else { Err(invalid) }
}

/// Splits fields that were scanned; `key_bytes` is the length of the series key.
fn split_fields(fields: &[u8], key_bytes: usize) -> Result<Vec<(&[u8], FieldValue<'_>)>, Fault<'_>> {
    let mut found = Vec::new();
    let mut rest = fields;
    while !rest.is_empty() {
        let equals = unescaped_equals(rest);
        let (key, value) = rest.split_at(equals);
        if key.is_empty() {
            return Err(Fault::Plain(ParseReason::MissingFieldKey));
        }
        if value.len() < 2 {
            return Err(Fault::FieldValue(key));
        }
        let sum = key_bytes + KEY_SEPARATOR_BYTES + key.len();
        if sum > KEY_BYTES_MAX {
            return Err(Fault::KeyTooLong(sum));
        }
        let value = value.get(1..).unwrap_or(&[]);
        let (value, after) = value.split_at(value_end(value));
        found.push((key, field_value(value)?));
        rest = after.get(1..).unwrap_or(&[]);
    }
    Ok(found)
}

fn unescaped_equals(text: &[u8]) -> usize {
    if text.first() == Some(&b'=') { 0 } else { end_of_token(text, 0, b"=").unwrap_or(text.len()) }
}

/// Returns the end of a value: a comma outside of quotes. A backslash escapes a quote or a backslash.
fn value_end(text: &[u8]) -> usize {
    let mut at = 0;
    let mut is_quoted = false;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' if matches!(text.get(at + 1), Some(b'"' | b'\\')) => at += 1,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return at,
            _ => {}
        }
        at += 1;
    }
    at.min(text.len())
}

fn field_value(text: &[u8]) -> Result<FieldValue<'_>, Fault<'_>> {
    match text.first() {
        // Bytes after the closing quote take its place as the last byte.
        Some(b'"') => Ok(FieldValue::Text(text.get(1..text.len().max(2) - 1).unwrap_or(&[]))),
        Some(b'0'..=b'9' | b'.' | b'-' | b'N' | b'n') => number_value(text),
        _ => {
            let value = boolean(text).ok_or(Fault::Plain(ParseReason::InvalidBoolean))?;
            Ok(FieldValue::Word(WordKind::Boolean, f64::from(u8::from(value)).to_bits()))
        }
    }
}

/// Parses the time after the fields, which end at `fields_end`.
fn parse_time(line: &[u8], fields_end: usize, precision: Precision) -> Result<Option<i64>, Fault<'_>> {
    let start = skip_whitespace(line, fields_end);
    let rest = line.get(start..).unwrap_or(&[]);
    let end = rest.iter().position(|byte| matches!(byte, b' ' | b'\n')).unwrap_or(rest.len());
    let (text, after) = rest.split_at(end);
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::Plain(ParseReason::BadTimestamp));
    }
    if text.is_empty() {
        return Ok(None);
    }
    if digits.is_empty() {
        return Err(Fault::TimeSyntax(text));
    }
    let time = number::integer(text).ok_or(Fault::TimeTooLarge(text))?;
    let time_ns = precision.to_ns(time).ok_or(Fault::Plain(ParseReason::TimeRange))?;
    if !after.iter().all(|byte| *byte == b' ') {
        return Err(Fault::Plain(ParseReason::TrailingBytes));
    }
    Ok(Some(time_ns))
}

/// Checks a part of the line.
fn check_utf8<'a>(line: &'a [u8], part: &'a [u8]) -> Result<(), Fault<'a>> {
    let Err(error) = std::str::from_utf8(part) else { return Ok(()) };
    let at = error.valid_up_to();
    let offset = part.as_ptr().addr().wrapping_sub(line.as_ptr().addr()).wrapping_add(at);
    Err(Fault::Utf8 { byte: part.get(at).copied().unwrap_or(0), offset })
}
