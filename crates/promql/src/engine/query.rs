//! A query, and the limits and switches of an engine.

use chronolith_exec::metric_name::NameRemoval;

use crate::ast::Expr;
use crate::parser::ParserOptions;

/// Whether parts of a query that occur more than once are computed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Where it pays, except where samples are counted by step: they count wherever they are used.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Limits and switches of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineOptions {
    /// How far an instant selector looks back for a sample.
    pub lookback_ms: i64,
    /// Step of subqueries that do not name one.
    pub subquery_step_ms: i64,
    /// Samples that one query may hold at a time.
    pub samples_max: u64,
    /// Memory that one query may use. For whoever makes the [`ReadContext`].
    pub query_memory_bytes_max: u64,
    /// Samples, in bytes, that one query may read by estimate before it starts.
    pub read_bytes_max: u64,
    /// How long one query may run. For whoever makes the [`ReadContext`].
    pub timeout_ms: u64,
    /// Steps that a range query may have. For the server, which checks it before the query is parsed.
    pub points_per_series_max: u64,
    /// When metric names go.
    pub name_removal: NameRemoval,
    /// What the parser lets through.
    pub parser: ParserOptions,
    /// Threads that one query may use; as many more help all queries of an engine together.
    pub threads: usize,
    /// Whether `rate` and its like look at when counters started, and `start_timestamp` tells it (upstream's feature
    /// `use-start-timestamps`).
    pub start_times: bool,
    /// Whether the label `__type__` says what a counter is (upstream's feature `type-and-unit-labels`).
    pub type_and_unit_labels: bool,
    /// Whether equal parts of a query are computed once.
    pub sharing: Sharing,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            lookback_ms: 5 * 60 * 1000,
            subquery_step_ms: 60 * 1000,
            samples_max: 50_000_000,
            query_memory_bytes_max: 4 << 30,
            read_bytes_max: u64::MAX,
            timeout_ms: 2 * 60 * 1000,
            points_per_series_max: 11_000,
            name_removal: NameRemoval::Immediate,
            parser: ParserOptions::default(),
            threads: 1,
            start_times: false,
            type_and_unit_labels: false,
            sharing: Sharing::Auto,
        }
    }
}

/// What to compute, and when.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The text that was parsed, for line and column in annotations; may be empty.
    pub text: &'a str,
    /// The expression.
    pub expr: &'a Expr,
    /// First time.
    pub start_ms: i64,
    /// Last time; equal to `start_ms` for an instant query.
    pub end_ms: i64,
    /// Distance of times; 0 for an instant query.
    pub step_ms: i64,
    /// Instead of the engine's.
    pub lookback_ms: Option<i64>,
}
