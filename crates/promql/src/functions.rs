//! The functions of the language and their types.

use crate::ast::ValueType;

/// Signature of a function.
#[derive(Debug, PartialEq)]
pub struct Function {
    /// Name as written.
    pub name: &'static str,
    /// Types of the arguments that must or may be given.
    pub args: &'static [ValueType],
    /// 0: exactly `args`; n > 0: up to n of the last may be left out or added as upstream counts; -1: the last repeats.
    pub variadic: i32,
    /// Type of the result.
    pub returns: ValueType,
    /// Behind `promql-experimental-functions`.
    pub experimental: bool,
}
