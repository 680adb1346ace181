//! Text to syntax tree: the language of Go's `text/template`, with its errors.
//!
//! Not here: evaluation (`eval`), types and arguments of functions (`functions`).

mod display;
mod lexer;
mod number;
mod parser;
mod token;
mod token_buffer;
mod tree;

pub(super) use display::Context;
pub(super) use number::Number;
pub(super) use parser::{DEPTH_MAX, SyntaxError, parse};
pub(super) use tree::{Branch, Command, Loop, Node, Operand, Pipeline, Trees};
