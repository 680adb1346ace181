//! Row-wise operators, for languages like InfluxQL: rows of several typed columns with nulls per group of
//! series, windows with fill, pooled aggregates, selectors and transformations.
//!
//! A language lowers a statement to a [`plan::RowPlan`] and pulls batches from a [`stream::RowStream`].
//! Invariants: operators know no language; errors are typed. Times are in the unit of the store.
//! A source returns series of all kinds with the labels `__name__`, `__field__`, `__kind__` and tags, and
//! reads each in its type.
//! Not here: parsing, type checks before execution, texts for clients.

mod accumulate;
mod allowance;
mod bounds;
mod call;
pub mod column;
pub mod error;
mod eval;
pub mod execution;
mod fill;
mod filter;
mod finish;
mod joined;
mod math;
mod merge;
pub mod plan;
mod points;
mod range;
mod raw;
mod selection;
pub mod source;
pub mod stream;
mod transform;
mod variables;

#[cfg(test)]
mod tests;
