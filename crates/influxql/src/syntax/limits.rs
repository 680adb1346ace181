//! Limits of texts.

/// Bytes of a text of statements.
pub const QUERY_BYTES_MAX: usize = 8 << 20;
/// Levels of parentheses, calls and subqueries.
pub const NESTING_MAX: usize = 128;
/// Bytes of the compiled regexes of one text of statements: compiling them takes time that grows with them.
pub(super) const REGEX_BYTES_MAX: usize = 64 << 20;
/// Operands, arguments, fields and sources of one text of statements.
pub const TERMS_MAX: usize = 500_000;
