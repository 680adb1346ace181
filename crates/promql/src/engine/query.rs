//! A query, and the limits and switches of an engine.

use chronolith_exec::metric_name::NameRemoval;

use crate::ast::Expr;
use crate::parser::ParserOptions;

/// Sharing of parts of a query that occur more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Computed once, except while samples are counted per step: they count for every use.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Limits and switches of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineOptions {
    /// Lookback of instant selectors.
    pub lookback_ms: i64,
    /// Step of subqueries that do not name one.
    pub subquery_step_ms: i64,
    /// Samples that one query may hold at a time.
    pub samples_max: u64,
    /// Memory that one query may use. For the caller that makes the `ReadContext`.
    pub query_memory_bytes_max: u64,
    /// Samples, in bytes, that one query may read by estimate before it starts.
    pub read_bytes_max: u64,
    /// Timeout of one query. For the caller that makes the `ReadContext`.
    pub timeout_ms: u64,
    /// Steps that a range query may have. For the server, which checks it before the query is parsed.
    pub points_per_series_max: u64,
    /// Time at which metric names are removed.
    pub name_removal: NameRemoval,
    /// Experimental parts that the parser accepts.
    pub parser: ParserOptions,
    /// Threads that one query may use; as many more help all queries of an engine together.
    pub threads: usize,
    /// True if `rate` and similar functions use start timestamps, and `start_timestamp` returns them
    /// (Prometheus's feature `use-start-timestamps`).
    pub start_times: bool,
    /// True if the label `__type__` declares counters (Prometheus's feature `type-and-unit-labels`).
    pub type_and_unit_labels: bool,
    /// Sharing of equal parts of a query.
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

/// An expression and its evaluation times.
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
    /// Distance between times; 0 for an instant query.
    pub step_ms: i64,
    /// Replaces the lookback of the engine.
    pub lookback_ms: Option<i64>,
}
