//! Grammar of targets, as graphite-web 1.1.10 has it, to a tree.
//!
//! Invariants: size, nesting and work are bounded by constants; text after a complete expression is ignored,
//! as graphite-web ignores it.
//! Not here: names and parameters of functions (`functions`), evaluation (`eval`).

mod error;
mod parser;
mod scanner;
#[cfg(test)]
mod tests;
mod tree;

pub use error::{ATTEMPTS_MAX, NESTING_MAX, READ_BYTES_MAX, SyntaxError, TARGET_BYTES_MAX};
pub use parser::{parse, parse_target};
pub use tree::{FunctionCall, Literal, Node, Template};
