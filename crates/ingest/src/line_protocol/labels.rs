//! Wire key of a line and a field to labels: measurement, field, kind and tags, without their escapes.
//! Called for series that the series key cache lacks.
//!
//! Invariant: keys that differ in the order of their tags or in needless escapes give the same labels.

use std::borrow::Cow;

use chronolith_model::kind::{FIELD_LABEL, KIND_LABEL};
use chronolith_model::{LabelsBuilder, METRIC_NAME, Reject, SeriesKey, WordKind};

use super::grammar::TagPairs;

/// Bytes that a backslash escapes in measurements and field keys.
const NAME_ESCAPES: &[u8] = b",\" =";
/// Bytes that a backslash escapes in tag keys and tag values.
const TAG_ESCAPES: &[u8] = b", =";

/// Pushes the labels of a key, tags as they come.
///
/// # Errors
/// [`Reject::InvalidUtf8`] for text that is not UTF-8.
pub fn parse_labels(key: SeriesKey<'_>, out: &mut LabelsBuilder) -> Result<(), Reject> {
    let (name, tags) = split_key(key.raw);
    push(METRIC_NAME, &unescape(name, NAME_ESCAPES), out)?;
    push(FIELD_LABEL, &unescape(key.field, NAME_ESCAPES), out)?;
    if key.kind != WordKind::Float {
        out.push(KIND_LABEL, key.kind.label_value());
    }
    for (tag, value) in TagPairs::new(tags) {
        let tag = unescape(tag, TAG_ESCAPES);
        let tag = std::str::from_utf8(&tag).map_err(|_| Reject::InvalidUtf8)?;
        push(tag, &unescape(value, TAG_ESCAPES), out)?;
    }
    Ok(())
}

fn push(name: &str, value: &[u8], out: &mut LabelsBuilder) -> Result<(), Reject> {
    let value = std::str::from_utf8(value).map_err(|_| Reject::InvalidUtf8)?;
    out.push(name, value);
    Ok(())
}

/// Splits a key into its measurement and its tags, both as sent.
pub(super) fn split_key(raw: &[u8]) -> (&[u8], &[u8]) {
    let is_comma = |idx: &usize| {
        raw.get(*idx) == Some(&b',') && idx.checked_sub(1).and_then(|before| raw.get(before)) != Some(&b'\\')
    };
    let end = (0..raw.len()).find(is_comma).unwrap_or(raw.len());
    let (name, tags) = raw.split_at(end);
    (name, tags.get(1..).unwrap_or(&[]))
}

/// Returns a measurement without its escapes.
pub(super) fn measurement_of(raw: &[u8]) -> Cow<'_, [u8]> {
    unescape(split_key(raw).0, NAME_ESCAPES)
}

/// Returns a field key without its escapes.
pub(super) fn field_of(key: &[u8]) -> Cow<'_, [u8]> {
    unescape(key, NAME_ESCAPES)
}

/// Returns a tag key without its escapes.
pub(super) fn tag_of(key: &[u8]) -> Cow<'_, [u8]> {
    unescape(key, TAG_ESCAPES)
}

/// Removes backslashes before `escapes`; other backslashes are literal.
pub(super) fn unescape<'a>(text: &'a [u8], escapes: &[u8]) -> Cow<'a, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    unescape_into(text, escapes, &mut out);
    Cow::Owned(out)
}

/// Appends `text` without the backslashes before `escapes`.
pub(super) fn unescape_into(text: &[u8], escapes: &[u8], out: &mut Vec<u8>) {
    let mut bytes = text.iter().peekable();
    while let Some(&byte) = bytes.next() {
        match bytes.peek() {
            Some(&&escaped) if byte == b'\\' && escapes.contains(&escaped) => {
                out.push(escaped);
                bytes.next();
            }
            _ => out.push(byte),
        }
    }
}
