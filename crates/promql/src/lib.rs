//! PromQL: parser, checker and engine over any [`chronolith_model::Queryable`].
//!
//! Not here: storage, HTTP, JSON.

pub mod ast;
pub mod functions;
pub mod parser;
pub mod engine;
