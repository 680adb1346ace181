//! Errors of patterns, with the texts of Go's `regexp/syntax`.

use std::fmt;

/// Kinds of errors, with Go's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegexErrorKind {
    /// `\p{..}` or `[..]` with an invalid range.
    InvalidCharRange,
    /// A backslash before a character that cannot be escaped.
    InvalidEscape,
    /// `(?P<name>` without a valid name.
    InvalidNamedCapture,
    /// `(?` with unknown syntax.
    InvalidPerlOp,
    /// `a**`.
    InvalidRepeatOp,
    /// Above 1000, or minimum above maximum.
    InvalidRepeatSize,
    /// `[` without `]`.
    MissingBracket,
    /// `(` without `)`.
    MissingParen,
    /// `*` after nothing.
    MissingRepeatArgument,
    /// A backslash as the last character.
    TrailingBackslash,
    /// `)` without `(`.
    UnexpectedParen,
    /// More than 1000 levels.
    NestingDepth,
    /// Program above the limit.
    Large,
}

impl RegexErrorKind {
    fn text(self) -> &'static str {
        match self {
            RegexErrorKind::InvalidCharRange => "invalid character class range",
            RegexErrorKind::InvalidEscape => "invalid escape sequence",
            RegexErrorKind::InvalidNamedCapture => "invalid named capture",
            RegexErrorKind::InvalidPerlOp => "invalid or unsupported Perl syntax",
            RegexErrorKind::InvalidRepeatOp => "invalid nested repetition operator",
            RegexErrorKind::InvalidRepeatSize => "invalid repeat count",
            RegexErrorKind::MissingBracket => "missing closing ]",
            RegexErrorKind::MissingParen => "missing closing )",
            RegexErrorKind::MissingRepeatArgument => "missing argument to repetition operator",
            RegexErrorKind::TrailingBackslash => "trailing backslash at end of expression",
            RegexErrorKind::UnexpectedParen => "unexpected )",
            RegexErrorKind::NestingDepth => "expression nests too deeply",
            RegexErrorKind::Large => "expression too large",
        }
    }
}

/// Error of a pattern; the text is Go's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegexError {
    /// Kind.
    pub kind: RegexErrorKind,
    /// Invalid part of the pattern.
    pub part: String,
}

impl RegexError {
    pub(super) fn new(kind: RegexErrorKind, part: &str) -> RegexError {
        RegexError { kind, part: part.to_owned() }
    }
}

impl fmt::Display for RegexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error parsing regexp: {}: `{}`", self.kind.text(), self.part)
    }
}

impl std::error::Error for RegexError {}

/// Returns an error about the part of the pattern from `start` up to `after`.
pub(super) fn error(kind: RegexErrorKind, start: &str, after: &str) -> RegexError {
    RegexError::new(kind, &start[..start.len() - after.len()])
}
