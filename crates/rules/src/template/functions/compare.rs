//! `eq`, `ne`, `lt`, `le`, `gt`, `ge`.

use std::cmp::Ordering;
use std::sync::Arc;

use super::super::format;
use super::super::text::to_text;
use super::super::value::Value;
use super::environment::{Failure, text_of};

/// Bytes of a value in an error.
const SHOWN_BYTES_MAX: usize = 4096;

/// Types that can be compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Complex,
    Int,
    Float,
    Text,
    Uint,
    /// All others, no value included.
    Other,
}

fn kind(value: &Value) -> Kind {
    match value {
        Value::Bool(_) => Kind::Bool,
        Value::Complex(_) => Kind::Complex,
        Value::Int(..) => Kind::Int,
        Value::Uint(..) => Kind::Uint,
        Value::Float(_) => Kind::Float,
        Value::Text(_) | Value::Html(_) => Kind::Text,
        _ => Kind::Other,
    }
}

/// Returns true if `value` is equal to any of `others`.
pub(super) fn eq(value: &Value, others: &[Value]) -> Result<bool, Failure> {
    if others.is_empty() {
        return Err("missing argument for comparison".into());
    }
    for other in others {
        if is_equal(value, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_equal(a: &Value, b: &Value) -> Result<bool, Failure> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Complex(a), Value::Complex(b)) => Ok(a == b),
        (Value::Float(a), Value::Float(b)) => Ok(a == b),
        (Value::Int(..) | Value::Uint(..), Value::Int(..) | Value::Uint(..)) => Ok(integer(a) == integer(b)),
        (a, b) if [a, b].into_iter().all(|value| kind(value) == Kind::Text) => Ok(text_of(a) == text_of(b)),
        (Value::Nil, Value::Nil) => Ok(true),
        (Value::Nil, _) | (_, Value::Nil) => Ok(false),
        (a, b) if kind(a) != kind(b) => Err(incompatible(a, b)),
        (a, b) => is_same(a, b),
    }
}

/// Equality of values that are not of basic types.
fn is_same(a: &Value, b: &Value) -> Result<bool, Failure> {
    let has_same_kind = match (a, b) {
        (Value::Struct(_) | Value::Time(_) | Value::Histogram(_), b) => {
            matches!(b, Value::Struct(_) | Value::Time(_) | Value::Histogram(_))
        }
        (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
    };
    if !has_same_kind {
        let [a_type, b_type] = [a.type_name(), b.type_name()];
        let [a, b] = [shown("%s", a), shown("%v", b)];
        return Err(format!("non-comparable types {a}: {a_type}, {b_type}: {b}").into());
    }
    match (a, b) {
        (Value::Pointer(a), Value::Pointer(b)) => Ok(Arc::ptr_eq(a, b)),
        (Value::Time(a), Value::Time(b)) => Ok(a == b),
        (_, Value::Time(_)) => Ok(false),
        (_, b) => Err(format!("non-comparable type {}: {}", shown("%s", b), b.type_name()).into()),
    }
}

pub(super) fn lt(a: &Value, b: &Value) -> Result<bool, Failure> {
    const INVALID: &str = "invalid type for comparison";
    if [a, b].into_iter().any(|value| kind(value) == Kind::Other) {
        return Err(INVALID.into());
    }
    match (a, b) {
        (Value::Int(..) | Value::Uint(..), Value::Int(..) | Value::Uint(..)) => Ok(integer(a) < integer(b)),
        (a, b) if kind(a) != kind(b) => Err(incompatible(a, b)),
        (Value::Float(a), Value::Float(b)) => Ok(a < b),
        (a, b) if kind(a) == Kind::Text => Ok(text_of(a).cmp(text_of(b)) == Ordering::Less),
        _ => Err(INVALID.into()),
    }
}

pub(super) fn le(a: &Value, b: &Value) -> Result<bool, Failure> {
    Ok(lt(a, b)? || is_equal(a, b)?)
}

fn integer(value: &Value) -> i128 {
    match value {
        Value::Int(_, number) => i128::from(*number),
        Value::Uint(_, number) => i128::from(*number),
        _ => 0,
    }
}

fn incompatible(a: &Value, b: &Value) -> Failure {
    format!("incompatible types for comparison: {} and {}", a.type_name(), b.type_name()).into()
}

fn shown(format: &str, value: &Value) -> String {
    match format::printf(format.as_bytes(), std::slice::from_ref(value), SHOWN_BYTES_MAX) {
        Ok(text) => to_text(&text),
        Err(format::TooLong) => "...".to_owned(),
    }
}
