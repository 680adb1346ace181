//! Graphite's render language: parses targets as graphite-web 1.1.10 does and evaluates them over lists
//! of series.
//!
//! Invariants: names, order, tags, times and values of results are graphite-web's
//! (`examples/differential.rs`
//! measures it); no request panics, and each is bounded by [`Limits`].
//! Not here: HTTP, storage (the contract is [`storage::Source`]), the clock.

mod absent;
mod aggregation;
mod consolidation;
mod error;
mod eval;
mod format_number;
mod functions;
pub mod output;
mod parameters;
mod python_regex;
mod scope;
mod series;
pub mod storage;
pub mod syntax;
mod tagged_name;
pub mod time;
mod value;

pub use consolidation::Consolidation;
pub use error::EvalError;
pub use eval::{Request, evaluate};
pub use scope::Limits;
pub use series::{DrawOption, Series, Tags};
pub use tagged_name::{TaggedName, TaggedNameError};
