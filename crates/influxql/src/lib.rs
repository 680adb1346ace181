//! InfluxQL: parses statements of InfluxDB 1.8, splits conditions into time and the rest, checks and types
//! SELECT, and lowers it to a plan of `exec`.
//!
//! Invariants: error texts equal InfluxDB 1.8's, which clients match. No text, however hostile, overflows the
//! stack: nesting is bounded by [`NESTING_MAX`], and chains of operators are flat.
//! Not here: execution of statements, the catalog, HTTP.

pub mod ast;
pub mod condition;
mod error;
pub mod execute;
pub mod fold;
mod footprint;
pub mod lowering;
pub mod result;
pub mod semantics;
pub mod storage;
pub mod syntax;
pub mod time;

pub use error::SemanticError;
pub use syntax::{NESTING_MAX, Parameter, Parameters, ParseError, QUERY_BYTES_MAX, TERMS_MAX};
pub use syntax::{parse_expr, parse_query, parse_query_with, parse_statement};
