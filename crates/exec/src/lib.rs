//! Query operators over columns, for every query language: scan, windows and rollups, hash aggregate, topk,
//! joins, sets, shared subplans, with memory reservations, deadline, cancellation and a trace.
//!
//! Invariants: operators know no syntax tree and no text of a language. Positions in a query are opaque, and
//! notes and errors are typed: the language resolves and words them.
//! A language describes a query as a [`plan::Plan`], of which operators are made.
//! Not here: parsing, functions that only one language has (they implement [`operator::SeriesOperator`]),
//! storage.

pub mod aggregate;
pub mod annotation;
pub mod arith;
pub mod cardinality;
pub mod column;
pub mod error;
pub mod execution;
pub mod grid;
pub mod grouping;
pub mod histogram;
pub mod join;
pub mod label_sets;
pub mod map;
pub mod metric_name;
pub mod note;
pub mod operator;
pub mod plan;
pub mod position;
mod rolled_up;
pub mod rollup;
pub mod rows;
pub mod samples;
pub mod scan;
pub mod select;
pub mod selection;
pub mod share;
pub mod step_set;
pub mod trace;
pub mod typed;
pub mod window;
