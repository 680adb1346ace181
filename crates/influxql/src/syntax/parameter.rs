//! Values for `$name` in statements.

use chronolith_base::hash::HashMap;

use crate::ast::Regex;

/// Value of a bound parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    /// Float.
    Number(f64),
    /// Integer.
    Integer(i64),
    /// Integer above the range of `Integer`.
    Unsigned(u64),
    /// String.
    Text(String),
    /// Boolean.
    Boolean(bool),
    /// Identifier: `{"identifier": "name"}`.
    Ident(String),
    /// Regular expression: `{"regex": "pattern"}`.
    Regex(Regex),
    /// Nanoseconds: `{"duration": "10m"}`.
    Duration(i64),
    /// A value that cannot be bound; the text of the error.
    Invalid(String),
}

/// Bound parameters of a text, by name without the dollar.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parameters {
    values: HashMap<String, Parameter>,
}

impl Parameters {
    /// Sets a parameter.
    pub fn insert(&mut self, name: &str, value: Parameter) {
        self.values.insert(name.to_owned(), value);
    }

    pub(super) fn get(&self, name: &str) -> Option<&Parameter> {
        self.values.get(name)
    }
}
