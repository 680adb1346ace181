//! Limits of a target, and why one is refused.

/// Bytes of one target.
pub const TARGET_BYTES_MAX: usize = 256 << 10;
/// Height of a tree; a pipe counts as one.
pub const NESTING_MAX: usize = 64;
/// Expressions that the parser tries in one target, backtracking included.
pub const ATTEMPTS_MAX: usize = 50_000;

/// Bytes that the parser reads in one target, including bytes of attempts that fail.
pub const READ_BYTES_MAX: usize = 32 << 20;

/// A target that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// No expression begins at this byte.
    #[error("expected a path, a function call or a template at byte {offset} of target \"{target}\"")]
    Expected {
        /// Byte offset in the target.
        offset: usize,
        /// The target, shortened.
        target: String,
    },
    /// A call without its closing parenthesis, or with arguments that are none.
    #[error("expected a closing parenthesis after the arguments of {name}(")]
    Unclosed {
        /// The function, shortened.
        name: String,
    },
    /// More bytes than [`TARGET_BYTES_MAX`].
    #[error("target has {bytes} bytes, limit {TARGET_BYTES_MAX}")]
    TooLong {
        /// Bytes of the target.
        bytes: usize,
    },
    /// Higher than [`NESTING_MAX`].
    #[error("target nests more than {NESTING_MAX} calls")]
    TooDeep,
    /// More than [`ATTEMPTS_MAX`] expressions were tried, or more than [`READ_BYTES_MAX`] bytes read.
    #[error(
        "target is too complex: more than {ATTEMPTS_MAX} expressions tried or {READ_BYTES_MAX} bytes read"
    )]
    TooComplex,
}
