//! Values of arguments and results: constants, lists of series, lists of lists.
//!
//! Invariant: conversions follow Python's, since names and tags print them.
//! Not here: types of parameters (`registry`).

use crate::format_number::{general, repr, truncated};
use crate::series::Series;
use crate::syntax::Literal;

/// An argument or a result.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// The constant `none`.
    None,
    /// Either true or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text of a quoted string.
    Text(String),
    /// A list of series.
    Series(Vec<Series>),
    /// A list of lists, from `mapSeries`.
    Lists(Vec<Vec<Series>>),
}

impl From<&Literal> for Value {
    fn from(literal: &Literal) -> Self {
        match literal {
            Literal::None => Value::None,
            Literal::Bool(value) => Value::Bool(*value),
            Literal::Int(value) => Value::Int(*value),
            Literal::Float(value) => Value::Float(*value),
            Literal::Text(text) => Value::Text(text.clone()),
        }
    }
}

impl Value {
    /// The number of a constant, true as 1 and false as 0.
    #[must_use]
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Value::Bool(value) => Some(f64::from(u8::from(*value))),
            Value::Int(value) => Some(*value as f64),
            Value::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// The number without a fraction, truncated; texts are read as integers.
    #[must_use]
    pub(crate) fn whole(&self) -> Option<i64> {
        match self {
            Value::Bool(value) => Some(i64::from(*value)),
            Value::Int(value) => Some(*value),
            Value::Float(value) if value.is_finite() => Some(value.trunc() as i64),
            Value::Text(text) => parse_integer(text),
            _ => None,
        }
    }

    /// Returns true if the value counts as true: neither empty nor zero.
    #[must_use]
    pub(crate) fn is_truthy(&self) -> bool {
        match self {
            Value::None => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::Series(list) => !list.is_empty(),
            Value::Lists(lists) => !lists.is_empty(),
        }
    }

    /// The text of `%s`.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        match self {
            Value::None => "None".to_owned(),
            Value::Bool(true) => "True".to_owned(),
            Value::Bool(false) => "False".to_owned(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => repr(*value),
            Value::Text(text) => text.clone(),
            Value::Series(list) => format!("{} series", list.len()),
            Value::Lists(lists) => format!("{} lists of series", lists.len()),
        }
    }

    /// Calls `visit` with each series.
    pub(crate) fn for_each_series(&self, visit: &mut dyn FnMut(&Series)) {
        match self {
            Value::Series(list) => list.iter().for_each(visit),
            Value::Lists(lists) => lists.iter().flatten().for_each(visit),
            _ => {}
        }
    }

    /// Bytes of memory, but for values that other series share.
    #[must_use]
    pub(crate) fn memory_bytes(&self) -> u64 {
        let mut bytes = if let Value::Text(text) = self { text.len() as u64 } else { 0 };
        self.for_each_series(&mut |series| bytes += series.label_bytes() + series.own_value_bytes());
        bytes
    }

    /// The text of `%g`.
    #[must_use]
    pub(crate) fn general_text(&self) -> Option<String> {
        self.number().map(general)
    }

    /// The text of `%d`.
    #[must_use]
    pub(crate) fn whole_text(&self) -> Option<String> {
        match self {
            Value::Int(value) => Some(value.to_string()),
            other => other.number().and_then(truncated),
        }
    }
}

/// Reads an integer as Python's `int` does, without underscores.
#[must_use]
pub(crate) fn parse_integer(text: &str) -> Option<i64> {
    let text = text.trim();
    text.strip_prefix('+').unwrap_or(text).parse().ok()
}

/// Reads a number as Python's `float` does, without underscores.
#[must_use]
pub(crate) fn parse_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.trim_start_matches(['+', '-']);
    let is_word = ["inf", "infinity", "nan"].iter().any(|word| digits.eq_ignore_ascii_case(word));
    if !is_word && digits.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    text.parse().ok()
}
