//! Contract with the store: fetching series, finding nodes, events.
//!
//! Invariants: a fetched value is never NaN unless the point is empty; times of a series are multiples of its
//! step apart, the range is `(from, until]` widened to the step as whisper does it.
//! Not here: evaluation, HTTP, any implementation but the one in memory for tests.

pub mod glob;
pub mod memory;
pub mod meta_tags;
pub mod path_walk;
pub mod tag_query;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::consolidation::Consolidation;
use crate::error::EvalError;
use tag_query::TagExpression;

/// Selection of one expression of a target.
#[derive(Debug, Clone, PartialEq)]
pub enum Selector {
    /// Path with globs.
    Path(String),
    /// All expressions hold: `seriesByTag`.
    Tags(Vec<TagExpression>),
}

/// One expression with its range; a request of a target holds all of its expressions.
#[derive(Debug, Clone, PartialEq)]
pub struct FetchRequest {
    /// Path expression or call of `seriesByTag` as the target has it; [`crate::Series::path_expression`] of
    /// the series that are fetched.
    pub expression: String,
    /// The series.
    pub selector: Selector,
    /// Exclusive start, seconds.
    pub from: i64,
    /// Inclusive end, seconds.
    pub until: i64,
    /// Points per series that the caller will show, a hint for the choice of an archive.
    pub points_hint: Option<u64>,
    /// Preferred method of an archive, a hint.
    pub consolidation_hint: Option<Consolidation>,
}

/// A series of the store in the range of a request.
#[derive(Debug, Clone)]
pub struct FetchedSeries {
    /// Path, or canonical name with tags.
    pub name: String,
    /// Tags, `name` among them.
    pub tags: BTreeMap<String, String>,
    /// Time of the first value, seconds.
    pub start: i64,
    /// Time after the last value, seconds.
    pub end: i64,
    /// Seconds between values.
    pub step: i64,
    /// NaN is "no value".
    pub values: Arc<Vec<f64>>,
    /// Default consolidation of the series.
    pub consolidation: Consolidation,
    /// Default share of values that a consolidated point needs, if the store has one.
    pub x_files_factor: Option<f64>,
}

/// A node of the tree of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Path from the root.
    pub path: String,
    /// The path is a series.
    pub is_leaf: bool,
    /// Times with data of a leaf, seconds, ascending.
    pub intervals: Vec<(i64, i64)>,
}

impl Node {
    /// Last element of the path.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or("")
    }
}

/// A store that targets are evaluated over.
pub trait Source {
    /// Returns the series of each request, in the order of the requests; order within one is free.
    /// # Errors
    /// [`EvalError::Limit`], [`EvalError::Canceled`] or [`EvalError::Storage`].
    fn fetch(&self, requests: &[FetchRequest]) -> Result<Vec<Vec<FetchedSeries>>, EvalError>;

    /// Returns the nodes that match a path with globs, in any order. Ends of the range are optional.
    /// # Errors
    /// As [`Source::fetch`].
    fn find(&self, pattern: &str, from: Option<i64>, until: Option<i64>) -> Result<Vec<Node>, EvalError>;

    /// Reserves memory for computed points until the end of the request; [`Source::fetch`] reserves memory
    /// for the points it returns.
    /// # Errors
    /// [`EvalError::Storage`] if there is no room.
    fn reserve(&self, _bytes: u64) -> Result<(), EvalError> {
        Ok(())
    }

    /// Returns the times of events in `[from, until]` that have all `tags`, seconds. No tags select all
    /// events.
    /// # Errors
    /// As [`Source::fetch`].
    fn event_times(&self, _tags: &[String], _from: i64, _until: i64) -> Result<Vec<i64>, EvalError> {
        Ok(Vec::new())
    }
}
