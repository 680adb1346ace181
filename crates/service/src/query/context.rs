//! Parts that all queries share: engine, result cache, list of running queries, logs.

use chronolith_promql::ast::Expr;
use chronolith_promql::engine::{Engine, EngineOptions, NameRemoval};
use chronolith_promql::parser::{ParserOptions, parse_expr};

use super::log::QueryLog;
use super::range_cache::RangeCache;
use super::slow::SlowLog;
use crate::activity::active_queries::ActiveQueries;
use crate::activity::metric_usage::MetricUsage;
use crate::activity::top_queries::TopQueries;
use crate::admission::small::SmallQueries;
use crate::limits::QUERY_BYTES_MAX;
use crate::metrics::query::QueryMetrics;
use crate::options::{Features, ServiceOptions};

/// State that all queries share.
pub struct QueryContext {
    /// Evaluation of PromQL.
    pub engine: Engine,
    /// Experimental syntax that the parser accepts.
    pub parser: ParserOptions,
    /// Queries on async workers.
    pub small: SmallQueries,
    /// Queries that run.
    pub active: ActiveQueries,
    /// Results of range queries.
    pub cache: RangeCache,
    /// The query log.
    pub log: QueryLog,
    /// The log of slow queries.
    pub slow_log: SlowLog,
    /// Counters of all queries.
    pub metrics: QueryMetrics,
    /// Queries of the last hour by cost.
    pub top: TopQueries,
    /// Metrics that queries select.
    pub metric_usage: MetricUsage,
}

impl QueryContext {
    /// An empty state with the limits of the options.
    pub fn new(options: &ServiceOptions) -> QueryContext {
        let parser = parser_options(options.features);
        QueryContext {
            engine: Engine::new(engine_options(options, parser)),
            parser,
            small: SmallQueries::default(),
            active: ActiveQueries::default(),
            cache: RangeCache::new(options.query.cache_bytes_max),
            log: QueryLog::new(options.query.log_file.clone()),
            slow_log: SlowLog::default(),
            metrics: QueryMetrics::default(),
            top: TopQueries::default(),
            metric_usage: MetricUsage::default(),
        }
    }

    /// Parses the text of a query or a selector.
    ///
    /// # Errors
    /// The position and the fault there, in Prometheus's words.
    pub fn parse(&self, text: &str) -> Result<Expr, String> {
        check_length(text)?;
        parse_expr(text, self.parser).map_err(|why| why.to_string())
    }
}

/// Refuses texts that are too long to be parsed.
///
/// # Errors
/// Length and limit.
pub fn check_length(text: &str) -> Result<(), String> {
    if text.len() <= QUERY_BYTES_MAX {
        return Ok(());
    }
    Err(format!("query of {} bytes is longer than the limit of {QUERY_BYTES_MAX} bytes", text.len()))
}

/// Experimental syntax of these features.
pub(crate) fn parser_options(features: Features) -> ParserOptions {
    ParserOptions {
        experimental_functions: features.experimental_functions,
        binop_fill_modifiers: features.binop_fill_modifiers,
        unquoted_utf8_names: features.unquoted_utf8_names,
    }
}

fn engine_options(options: &ServiceOptions, parser: ParserOptions) -> EngineOptions {
    let query = &options.query;
    let name_removal =
        if options.features.delayed_name_removal { NameRemoval::Delayed } else { NameRemoval::Immediate };
    EngineOptions {
        lookback_ms: query.lookback_ms,
        samples_max: query.samples_max,
        query_memory_bytes_max: query.memory_bytes_max,
        read_bytes_max: query.read_bytes_max,
        timeout_ms: query.timeout_ms,
        name_removal,
        parser,
        threads: chronolith_base::thread::core_count(),
        start_times: options.features.start_timestamps,
        type_and_unit_labels: options.features.type_and_unit_labels,
        ..EngineOptions::default()
    }
}
