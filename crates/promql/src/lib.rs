//! PromQL: parser, checker and engine over any [`chronolith_model::Queryable`].
//!
//! Not here: storage, HTTP, JSON.

pub mod ast;
pub mod engine;
pub mod functions;
pub mod parser;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../tests/support/testing.rs"]
mod testing;
mod value_type;

pub use engine::{
    Engine, EngineOptions, EvalError, MatrixSeries, NameRemoval, Query, QueryResult, Sharing, Value,
    VectorSample,
};
