//! Key of a TSM file or WAL to labels, as the line protocol names series.
//!
//! A key is measurement and tags as written in a line, `#!~#`, and the field without escapes.
//! Invariant: keys that differ in needless escapes give the same labels.

use std::borrow::Cow;

use chronolith_model::kind::{FIELD_LABEL, KIND_LABEL};
use chronolith_model::{LabelsBuilder, METRIC_NAME, WordKind};

const SEPARATOR: &[u8] = b"#!~#";
/// Bytes that a backslash escapes in measurements.
const NAME_ESCAPES: &[u8] = b",\" =";
/// Bytes that a backslash escapes in tag keys and tag values.
const TAG_ESCAPES: &[u8] = b", =";

/// Reason why a series cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyReject {
    /// A name or value is not UTF-8.
    InvalidUtf8,
    /// A tag has a name that stores use themselves.
    ReservedTag,
    /// The key has no field, or a tag without key or value, or a tag twice.
    Malformed,
}

impl KeyReject {
    /// Text for operators.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            KeyReject::InvalidUtf8 => "a name or tag value is not UTF-8",
            KeyReject::ReservedTag => "a tag key is __name__, __field__ or __kind__",
            KeyReject::Malformed => "the key is malformed",
        }
    }
}

/// Replaces `out` by the sorted labels of a key.
///
/// # Errors
/// [`KeyReject`].
pub(crate) fn parse_labels(key: &[u8], kind: WordKind, out: &mut LabelsBuilder) -> Result<(), KeyReject> {
    out.clear();
    let (series, field) = split(key).ok_or(KeyReject::Malformed)?;
    let (measurement, tags) = split_at_unescaped(series, b',');
    push(METRIC_NAME, &unescape(measurement, NAME_ESCAPES), out)?;
    push(FIELD_LABEL, field, out)?;
    if kind != WordKind::Float {
        out.push(KIND_LABEL, kind.label_value());
    }
    let mut rest = tags;
    while let Some(tags) = rest {
        let (pair, after) = split_at_unescaped(tags, b',');
        let (tag, value) = split_at_unescaped(pair, b'=');
        let tag = unescape(tag, TAG_ESCAPES);
        let tag = std::str::from_utf8(&tag).map_err(|_| KeyReject::InvalidUtf8)?;
        if [METRIC_NAME, FIELD_LABEL, KIND_LABEL].contains(&tag) {
            return Err(KeyReject::ReservedTag);
        }
        if tag.is_empty() {
            return Err(KeyReject::Malformed);
        }
        push(tag, &unescape(value.ok_or(KeyReject::Malformed)?, TAG_ESCAPES), out)?;
        rest = after;
    }
    out.sort();
    if out.repeated_name().is_some() { Err(KeyReject::Malformed) } else { Ok(()) }
}

/// Splits a key into measurement with tags, and field.
pub(crate) fn split(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = key.windows(SEPARATOR.len()).position(|window| window == SEPARATOR)?;
    Some((key.get(..at)?, key.get(at + SEPARATOR.len()..)?))
}

fn push(name: &str, value: &[u8], out: &mut LabelsBuilder) -> Result<(), KeyReject> {
    if value.is_empty() {
        return Err(KeyReject::Malformed);
    }
    out.push(name, std::str::from_utf8(value).map_err(|_| KeyReject::InvalidUtf8)?);
    Ok(())
}

/// Splits at the first `delimiter` that no backslash precedes.
fn split_at_unescaped(text: &[u8], delimiter: u8) -> (&[u8], Option<&[u8]>) {
    let mut before = None;
    for (at, &byte) in text.iter().enumerate() {
        if byte == delimiter && before != Some(b'\\') {
            return (text.get(..at).unwrap_or_default(), text.get(at + 1..));
        }
        before = Some(byte);
    }
    (text, None)
}

/// Removes backslashes before `escapes`; other backslashes are literal.
fn unescape<'a>(text: &'a [u8], escapes: &[u8]) -> Cow<'a, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().peekable();
    while let Some(&byte) = bytes.next() {
        match bytes.next_if(|next| byte == b'\\' && escapes.contains(next)) {
            Some(&escaped) => out.push(escaped),
            None => out.push(byte),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &[u8], want: Result<&str, KeyReject>) {
        let mut labels = LabelsBuilder::new();
        let found = parse_labels(key, WordKind::Integer, &mut labels).map(|()| labels.finish().to_string());
        assert_eq!(found.as_deref().map_err(|reject| *reject), want);
    }

    /// Keys as InfluxDB 1.6.7 writes them for these lines: the field has lost its escapes, the rest has not.
    #[test]
    fn keys_are_unescaped_as_influxdb_reads_them() {
        check(b"cpu,host=a#!~#v", Ok(r#"cpu{__field__="v", __kind__="int", host="a"}"#));
        check(b"cpu#!~#v", Ok(r#"cpu{__field__="v", __kind__="int"}"#));
        let want = r#"{"m a,b", __field__="f 1,2=3", __kind__="int", "t x,y=z"="v 1,2=3"}"#;
        check(br"m\ a\,b,t\ x\,y\=z=v\ 1\,2\=3#!~#f 1,2=3", Ok(want));
        check(br#"m\=eq,t=v#!~#f"q"#, Ok(r#"{"m=eq", __field__="f\"q", __kind__="int", t="v"}"#));
        check(br#"m\"q,t=v#!~#f\\b"#, Ok(r#"{"m\"q", __field__="f\\\\b", __kind__="int", t="v"}"#));
        check(br"c=comma,t\q=v\q#!~#f", Ok(r#"{"c=comma", __field__="f", __kind__="int", "t\\q"="v\\q"}"#));
    }

    #[test]
    fn series_that_cannot_be_stored_are_named() {
        check(b"cpu\xff#!~#v", Err(KeyReject::InvalidUtf8));
        check(b"cpu#!~#v\xff", Err(KeyReject::InvalidUtf8));
        check(b"cpu,a=\xff#!~#v", Err(KeyReject::InvalidUtf8));
        check(b"cpu,__kind__=x#!~#v", Err(KeyReject::ReservedTag));
        for key in [&b""[..], b"cpu", b"#!~#v", b"cpu#!~#", b"cpu,#!~#v", b"cpu,a#!~#v", b"cpu,=a#!~#v"] {
            check(key, Err(KeyReject::Malformed));
        }
        check(b"cpu,a=1,a=2#!~#v", Err(KeyReject::Malformed));
    }
}
