//! The same query with and without sharing of equal parts: everything that comes out, as text with all bits.

use std::sync::Arc;

use chronolith_base::SystemClock;
use chronolith_model::ReadContext;
use chronolith_promql::parser::parse_expr;
use chronolith_promql::{Engine, EngineOptions, Query, QueryResult, Sharing, Value};

use crate::testing::MemQueryable;

/// Queries in which a query occurs more than once; `#` stands for it.
pub(crate) const FORMS: &[&str] = &[
    "#",
    "(#) + (#)",
    "(#) and (#)",
    "(#) or -(#)",
    "(#) unless ((#) > 1)",
    "sum(#) / on () group_right sum by (job, instance, le) (#)",
    "count(#) - count(#) + on () (# < bool 2)",
    "topk(2, #) or avg without (job) (#)",
    "max_over_time((#)[3m:1m]) - min_over_time((#)[3m:1m])",
    "scalar(#) + (#)",
];

/// Evaluates `text` both ways from `start_ms` to `end_ms`.
///
/// # Errors
/// What differs.
pub(crate) fn compare(
    source: &MemQueryable,
    options: &EngineOptions,
    text: &str,
    range_ms: (i64, i64, i64),
) -> Result<Compared, String> {
    let Ok(expr) = parse_expr(text, options.parser) else { return Ok(Compared::NoQuery) };
    let (start_ms, end_ms, step_ms) = range_ms;
    let query = Query { text, expr: &expr, start_ms, end_ms, step_ms, lookback_ms: None };
    let evaluate = |sharing| {
        let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
        let result = Engine::new(EngineOptions { sharing, ..options.clone() }).run(source, &query, &ctx);
        (result.map_err(|error| error.to_string()), ctx.budget.used_bytes())
    };
    let (shared, left_bytes) = evaluate(Sharing::Auto);
    let (alone, _) = evaluate(Sharing::Off);
    if render(&shared) != render(&alone) {
        return Err(format!("{text} at {range_ms:?}: shared {}, else {}", render(&shared), render(&alone)));
    }
    if left_bytes > 0 {
        return Err(format!("{text}: {left_bytes} bytes are not given back"));
    }
    let read = |result: &Result<QueryResult, String>| result.as_ref().map_or(0, |result| result.samples_read);
    Ok(if read(&shared) < read(&alone) { Compared::Shared } else { Compared::Alike })
}

/// Outcome of a comparison whose results agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Something was read once that is read more often without sharing.
    Shared,
    /// Both runs read the same number of samples.
    Alike,
    /// The parser refuses the text.
    NoQuery,
}

/// A result with all bits of its values.
pub(crate) fn render(result: &Result<QueryResult, String>) -> String {
    let Ok(result) = result else { return format!("{result:?}") };
    let bits: Vec<u64> = match &result.value {
        Value::Vector(all) => all.iter().map(|element| element.value.to_bits()).collect(),
        Value::Matrix(all) => {
            all.iter().flat_map(|series| &series.values).map(|value| value.to_bits()).collect()
        }
        Value::Scalar { value, .. } => vec![value.to_bits()],
        Value::String { .. } => Vec::new(),
    };
    format!("{:?} {bits:x?} {:?} {:?}", result.value, result.warnings, result.infos)
}
