//! Limits of a query text, and the experimental parts of the language.

/// Nesting levels of parentheses, signs, calls, subqueries and right operands.
pub const NESTING_MAX: usize = 256;

/// Binary operators in one query.
pub const OPERATORS_MAX: usize = 10_000;

/// Operators in one computed duration.
pub const DURATION_OPERATORS_MAX: usize = 128;

/// Bytes of a query: positions are 32 bits wide.
pub const QUERY_BYTES_MAX: usize = 1 << 30;

/// Experimental parts of the language that are enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParserOptions {
    /// Functions and aggregators marked experimental.
    pub experimental_functions: bool,
    /// `fill`, `fill_left`, `fill_right`.
    pub binop_fill_modifiers: bool,
    /// Unicode letters, and dots after the first character, in names without quotes.
    pub unquoted_utf8_names: bool,
}
