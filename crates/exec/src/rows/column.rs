//! Result columns: values of one type with nulls, batches of rows.
//!
//! Invariants: all columns of a batch have one entry per time; a null has a default value in `values`.

use std::sync::Arc;

use chronolith_model::query::TypedValues;

/// Values of one type with nulls.
#[derive(Debug, Clone, PartialEq)]
pub struct RowColumn {
    /// One per row.
    pub values: TypedValues,
    /// True for rows that have a value; `None`: all have one.
    pub present: Option<Vec<bool>>,
}

/// Name and grouping tags of the rows of a series of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultSeries {
    /// Name of the measurement.
    pub name: Arc<str>,
    /// Grouping tags in order of their keys; empty for a tag that the series do not have.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
}

/// Rows of one series of the result. Consecutive batches of one series share `series`.
#[derive(Debug, Clone, PartialEq)]
pub struct RowBatch {
    /// The series.
    pub series: Arc<ResultSeries>,
    /// Times of the rows, in the order of the plan.
    pub times: Vec<i64>,
    /// One per column of the plan.
    pub columns: Vec<RowColumn>,
}
