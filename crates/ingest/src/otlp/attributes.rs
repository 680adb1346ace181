//! Attributes of a message, borrowed, and their values as text.
//!
//! Invariants: numbers, arrays and maps have the text that the OpenTelemetry collector gives them (JSON with
//! sorted keys); nesting is bounded by [`ATTRIBUTE_DEPTH_MAX`].
//! Not here: names of labels (`names`), labels of a series (`labels`).

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::limits::{ATTRIBUTE_COUNT_MAX, ATTRIBUTE_DEPTH_MAX};
use super::refused::PointReject;
use crate::remote_write::WireError;
use crate::remote_write::wire::{Cursor, FIXED64, LEN, VARINT};

/// Attributes within a message: the fields of a number. Other fields of the message are skipped.
#[derive(Clone, Copy)]
pub(super) struct Attributes<'a> {
    message: Cursor<'a>,
    field: u64,
}

/// One attribute; a missing value is `None`.
pub(super) struct Attribute<'a> {
    pub(super) key: &'a str,
    value: Option<Value<'a>>,
}

/// Value of an attribute.
#[derive(Clone, Copy)]
enum Value<'a> {
    Text(&'a [u8]),
    Bool(bool),
    Int(i64),
    Double(f64),
    Array(Cursor<'a>),
    Map(Cursor<'a>),
    Bytes(&'a [u8]),
}

/// Fault of a value that is part of a JSON text.
enum Fault {
    Rejected(PointReject),
    /// JSON has no NaN and no infinity.
    NotJson,
}

impl From<WireError> for Fault {
    fn from(_: WireError) -> Fault {
        Fault::Rejected(PointReject::Malformed)
    }
}

impl<'a> Attributes<'a> {
    /// The fields `field` of `message`, which the caller has read over without an error.
    pub(super) fn new(message: Cursor<'a>, field: u64) -> Attributes<'a> {
        Attributes { message, field }
    }

    /// Calls `each` with every attribute, in order.
    ///
    /// # Errors
    /// The first fault of an attribute, or of `each`.
    pub(super) fn for_each(
        self,
        mut each: impl FnMut(Attribute<'a>) -> Result<(), PointReject>,
    ) -> Result<(), PointReject> {
        let mut at = self.message;
        let mut count = 0usize;
        while !at.is_empty() {
            match at.tag()? {
                (field, LEN) if field == self.field => {
                    count += 1;
                    if count > ATTRIBUTE_COUNT_MAX {
                        return Err(PointReject::TooManyAttributes);
                    }
                    each(key_value(at.message()?)?)?;
                }
                (_, other) => at.skip(other)?,
            }
        }
        Ok(())
    }
}

impl Attribute<'_> {
    /// Returns the text of the value; a missing one is empty.
    ///
    /// # Errors
    /// [`PointReject`] for text that is not UTF-8, deep nesting, and bytes that are no value.
    pub(super) fn text(&self) -> Result<String, PointReject> {
        let mut out = String::new();
        match self.value {
            None => {}
            Some(Value::Text(text)) => out.push_str(utf8(text)?),
            Some(Value::Bytes(bytes)) => STANDARD.encode_string(bytes, &mut out),
            Some(Value::Double(value)) if value.is_nan() => out.push_str("NaN"),
            Some(Value::Double(value)) if value.is_infinite() => {
                out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
            }
            Some(value) => match push_json(value, 0, &mut out) {
                Ok(()) => {}
                Err(Fault::Rejected(reject)) => return Err(reject),
                Err(Fault::NotJson) => out.clear(),
            },
        }
        Ok(out)
    }
}

fn utf8(text: &[u8]) -> Result<&str, PointReject> {
    std::str::from_utf8(text).map_err(|_| PointReject::InvalidUtf8)
}

fn key_value(mut message: Cursor<'_>) -> Result<Attribute<'_>, PointReject> {
    let mut attribute = Attribute { key: "", value: None };
    while !message.is_empty() {
        match message.tag()? {
            (1, LEN) => attribute.key = utf8(message.message()?.rest())?,
            (2, LEN) => attribute.value = any_value(message.message()?)?,
            (1 | 2, _) => return Err(PointReject::Malformed),
            (_, other) => message.skip(other)?,
        }
    }
    Ok(attribute)
}

/// The value of the field that comes last.
fn any_value(mut message: Cursor<'_>) -> Result<Option<Value<'_>>, WireError> {
    let mut value = None;
    while !message.is_empty() {
        value = Some(match message.tag()? {
            (1, LEN) => Value::Text(message.message()?.rest()),
            (2, VARINT) => Value::Bool(message.varint()? != 0),
            (3, VARINT) => Value::Int(message.varint()?.cast_signed()),
            (4, FIXED64) => Value::Double(f64::from_bits(message.fixed64()?)),
            (5, LEN) => Value::Array(message.message()?),
            (6, LEN) => Value::Map(message.message()?),
            (7, LEN) => Value::Bytes(message.message()?.rest()),
            (1..=7, _) => return Err(message.wrong_type()),
            (_, other) => {
                message.skip(other)?;
                continue;
            }
        });
    }
    Ok(value)
}

fn push_json(value: Value<'_>, depth: usize, out: &mut String) -> Result<(), Fault> {
    if depth >= ATTRIBUTE_DEPTH_MAX {
        return Err(Fault::Rejected(PointReject::AttributeTooDeep));
    }
    // Writing to a string does not fail.
    match value {
        Value::Text(text) => push_quoted(utf8(text).map_err(Fault::Rejected)?, out),
        Value::Bool(value) => out.push_str(if value { "true" } else { "false" }),
        Value::Int(value) => _ = write!(out, "{value}"),
        Value::Double(value) if !value.is_finite() => return Err(Fault::NotJson),
        Value::Double(value) => push_double(value, out),
        // The collector has no bytes for empty ones.
        Value::Bytes([]) => out.push_str("null"),
        Value::Bytes(bytes) => {
            out.push('"');
            STANDARD.encode_string(bytes, out);
            out.push('"');
        }
        Value::Array(message) => push_array(message, depth, out)?,
        Value::Map(message) => push_map(message, depth, out)?,
    }
    Ok(())
}

fn push_array(mut message: Cursor<'_>, depth: usize, out: &mut String) -> Result<(), Fault> {
    out.push('[');
    let mut is_first = true;
    while !message.is_empty() {
        match message.tag()? {
            (1, LEN) => {
                out.push_str(if is_first { "" } else { "," });
                is_first = false;
                push_nested(any_value(message.message()?)?, depth, out)?;
            }
            (1, _) => return Err(message.wrong_type().into()),
            (_, other) => message.skip(other)?,
        }
    }
    out.push(']');
    Ok(())
}

fn push_map(message: Cursor<'_>, depth: usize, out: &mut String) -> Result<(), Fault> {
    let mut pairs = Vec::new();
    let pushed = Attributes::new(message, 1).for_each(|pair| {
        pairs.push((pair.key, pair.value));
        Ok(())
    });
    pushed.map_err(Fault::Rejected)?;
    // The last one of equal keys counts.
    pairs.sort_by_key(|(key, _)| *key);
    out.push('{');
    let mut is_first = true;
    for (idx, (key, value)) in pairs.iter().enumerate() {
        if pairs.get(idx + 1).is_some_and(|(next, _)| next == key) {
            continue;
        }
        out.push_str(if is_first { "" } else { "," });
        is_first = false;
        push_quoted(key, out);
        out.push(':');
        push_nested(*value, depth, out)?;
    }
    out.push('}');
    Ok(())
}

fn push_nested(value: Option<Value<'_>>, depth: usize, out: &mut String) -> Result<(), Fault> {
    match value {
        Some(value) => push_json(value, depth + 1, out),
        None => {
            out.push_str("null");
            Ok(())
        }
    }
}

/// Appends a finite number as ECMAScript prints it, except that a negative zero keeps its sign.
fn push_double(value: f64, out: &mut String) {
    debug_assert!(value.is_finite(), "JSON has no other numbers");
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        _ = write!(out, "{digits}e{sign}{exponent}");
    } else {
        _ = write!(out, "{value}");
    }
}

/// Appends a JSON string.
fn push_quoted(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '\u{2028}' | '\u{2029}' => _ = write!(out, "\\u{:04x}", u32::from(c)),
            _ => out.push(c),
        }
    }
    out.push('"');
}
