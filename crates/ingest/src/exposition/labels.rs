//! Wire key of a text format to labels: name and labels as written, without their escapes. Called for series
//! that the series key cache lacks.
//!
//! A key is the text of a line before its value, blanks included. After a newline, which no such text
//! contains, labels follow that replace labels of the text: bounds of buckets and quantiles in the form of
//! OpenMetrics.
//! Invariant: keys that differ in blanks, order or needless escapes give the same labels.

use std::borrow::Cow;
use std::ops::Range;

use chronolith_model::{LabelSource, LabelsBuilder, METRIC_NAME, Reject, SeriesKey};

use super::fault::Fault;
use super::grammar::{self, LabelVisitor, Text};

/// Number of the text formats in [`LabelSource::protocol`]. Protobuf has the keys of remote write 1.0.
pub const PROTOCOL: u8 = 5;

/// Returns the source of keys of the text formats.
#[must_use]
pub fn text_keys() -> LabelSource {
    LabelSource { protocol: PROTOCOL, parse: parse_labels, is_typed: false }
}

/// Separates the text of a line from the labels that replace some of it.
pub(super) const REPLACED: u8 = b'\n';

/// Pushes the labels of a key, as they come.
///
/// # Errors
/// [`Reject::InvalidUtf8`] for bytes that are not a key.
pub fn parse_labels(key: SeriesKey<'_>, out: &mut LabelsBuilder) -> Result<(), Reject> {
    let end = key.raw.iter().position(|byte| *byte == REPLACED).unwrap_or(key.raw.len());
    let (text, replaced) = key.raw.split_at(end);
    let mut pushed = Push { out, is_utf8: true };
    let series = grammar::series::<Text>(text, 0, &mut pushed).map_err(|_| Reject::InvalidUtf8)?;
    let is_whole = series.end == text.len() && pushed.is_utf8;
    let name = text.get(series.name).unwrap_or(&[]);
    let name = unescape(std::str::from_utf8(name).map_err(|_| Reject::InvalidUtf8)?);
    out.push(METRIC_NAME, &name);
    if !is_whole {
        return Err(Reject::InvalidUtf8);
    }
    if let Some(replaced) = replaced.get(1..) {
        let end = grammar::labels_in_braces(replaced, &mut Set { out }).map_err(|_| Reject::InvalidUtf8)?;
        if end != replaced.len() {
            return Err(Reject::InvalidUtf8);
        }
    }
    Ok(())
}

/// Pushes labels to a builder.
pub(super) struct Push<'a> {
    pub(super) out: &'a mut LabelsBuilder,
    pub(super) is_utf8: bool,
}

impl LabelVisitor for Push<'_> {
    fn label(&mut self, bytes: &[u8], name: Range<usize>, value: Range<usize>) -> Result<(), Fault> {
        match texts(bytes, name, value) {
            Some((name, value)) => self.out.push(&unescape(name), &unescape(value)),
            None => self.is_utf8 = false,
        }
        Ok(())
    }
}

/// Sets labels of a builder.
struct Set<'a> {
    out: &'a mut LabelsBuilder,
}

impl LabelVisitor for Set<'_> {
    fn label(&mut self, bytes: &[u8], name: Range<usize>, value: Range<usize>) -> Result<(), Fault> {
        if let Some((name, value)) = texts(bytes, name, value) {
            self.out.set(name, value);
        }
        Ok(())
    }
}

fn texts(bytes: &[u8], name: Range<usize>, value: Range<usize>) -> Option<(&str, &str)> {
    let text = |range| std::str::from_utf8(grammar::slice(bytes, range)).ok();
    text(name).zip(text(value))
}

/// Resolves `\\`, `\"` and `\n`; other backslashes are literal.
pub(super) fn unescape(text: &str) -> Cow<'_, str> {
    unescape_these(text, &[('\\', '\\'), ('"', '"'), ('n', '\n')])
}

/// Resolves the escapes of help texts of format 0.0.4: `\\` and `\n`.
pub(super) fn unescape_help(text: &str) -> Cow<'_, str> {
    unescape_these(text, &[('\\', '\\'), ('n', '\n')])
}

fn unescape_these<'a>(text: &'a str, escapes: &[(char, char)]) -> Cow<'a, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = chars.peek().and_then(|next| escapes.iter().find(|(letter, _)| letter == next));
        match escaped {
            Some((_, meaning)) if c == '\\' => {
                out.push(*meaning);
                chars.next();
            }
            _ => out.push(c),
        }
    }
    Cow::Owned(out)
}
