//! Everything that functions need besides their arguments, and their results.

use super::super::alert::{Functions, TemplateData};
use super::super::limits::{Exceeded, Meter};
use super::super::value::Value;
use super::regex_cache::RegexCache;

/// Result of a function.
pub(super) type Outcome = Result<Value, Failure>;

/// Error of Go where a nil is used as a pointer.
pub(super) const NIL_DEREFERENCE: &str = "runtime error: invalid memory address or nil pointer dereference";

/// Everything that functions need besides their arguments.
pub(in crate::template) struct Environment<'e> {
    pub(in crate::template) data: &'e TemplateData<'e>,
    pub(in crate::template) functions: &'e mut dyn Functions,
    pub(in crate::template) meter: Meter,
    pub(super) regexes: RegexCache,
}

impl<'e> Environment<'e> {
    pub(in crate::template) fn new(
        data: &'e TemplateData<'e>,
        functions: &'e mut dyn Functions,
        meter: Meter,
    ) -> Environment<'e> {
        Environment { data, functions, meter, regexes: RegexCache::default() }
    }
}

/// Failed call of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::template) enum Failure {
    Message(String),
    Limit(Exceeded),
}

impl From<Exceeded> for Failure {
    fn from(exceeded: Exceeded) -> Failure {
        Failure::Limit(exceeded)
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::Message(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Failure {
        Failure::Message(message.to_owned())
    }
}

/// Returns the value that is printed for `value`: the target of a pointer, and a text for no value.
pub(in crate::template) fn printable(value: &Value) -> Value {
    match value {
        Value::Nil => Value::text("<no value>"),
        // Only the pointer has a text of its own.
        Value::Pointer(target) if !matches!(target.as_ref(), Value::Histogram(_)) => printable(target),
        value => value.clone(),
    }
}

/// Returns the bytes of a text; any other value has none.
pub(super) fn text_of(value: &Value) -> &[u8] {
    match value {
        Value::Text(text) | Value::Html(text) => text,
        _ => b"",
    }
}
