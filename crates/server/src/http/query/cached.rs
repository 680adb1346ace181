//! Range queries through the cache of results.
//! Holds: a request with `nocache=1`, `stats` or `explain` is evaluated from the start, and so is an expression without
//! a reach; a result with warnings or infos is not kept, because they speak of all of its steps.
//! Not here: the cache (`range_cache`), its exactness (ADR 0025).

use chronolith_model::change::ChangeWatch as _;
use chronolith_model::{QueryError, Queryable};
use chronolith_promql::engine::reach::reach;
use chronolith_promql::engine::{Query, QueryResult, Value};

use super::explain::StatsWish;
use super::{ApiError, Explain, Running, eval_error};
use crate::app::App;
use crate::range_cache::CacheKey;

impl Running<'_> {
    /// The result of a query, with the steps that need not be computed from the cache.
    pub(super) fn result(
        &self,
        app: &App,
        source: &dyn Queryable,
        query: &Query<'_>,
    ) -> Result<QueryResult, ApiError> {
        let run = |query: &Query<'_>| {
            app.engine.run_traced(source, query, self.ctx, &self.trace).map_err(eval_error)
        };
        let request = self.request;
        let bypassed = !app.range_cache.is_on()
            || query.step_ms <= 0
            || request.stats != StatsWish::None
            || request.explain == Explain::Plan
            || matches!(request.call.params.get("nocache"), Some("1" | "true"));
        let lookback_ms = query.lookback_ms.unwrap_or(app.options.query.lookback_ms);
        let reach = if bypassed { None } else { reach(query.expr, lookback_ms, app.engine.options()) };
        let Some(reach) = reach else { return run(query) };
        let last_ms =
            query.start_ms + query.end_ms.saturating_sub(query.start_ms) / query.step_ms * query.step_ms;
        let key = CacheKey {
            tenant: request.call.tenant.clone(),
            text: query.expr.to_string(),
            step_ms: query.step_ms,
            phase_ms: query.start_ms.rem_euclid(query.step_ms),
            lookback_ms,
        };
        let store = app.store()?;
        // Before anything is read: what is written from here on counts as changed for the next reader.
        let generation = store.generation(&request.call.tenant);
        let steps = (query.start_ms, last_ms);
        let changed = |since| store.changed_since(&request.call.tenant, since);
        let result = match app.range_cache.find(&key, reach, steps, changed) {
            None => run(query)?,
            Some(reused) => {
                let _held = self.ctx.budget.reserve(reused.bytes()).map_err(QueryError::from)?;
                let is_whole = reused.last_ms >= last_ms;
                let mut result = if is_whole {
                    empty_result()
                } else {
                    run(&Query { start_ms: reused.last_ms + query.step_ms, ..*query })?
                };
                if let Value::Matrix(series) = &mut result.value {
                    *series = reused.followed_by(std::mem::take(series));
                }
                if is_whole {
                    return Ok(result);
                }
                result
            }
        };
        if let Value::Matrix(series) = &result.value
            && result.warnings.is_empty()
            && result.infos.is_empty()
        {
            app.range_cache.keep(key, generation, steps, series);
        }
        Ok(result)
    }
}

fn empty_result() -> QueryResult {
    QueryResult {
        value: Value::Matrix(Vec::new()),
        warnings: Vec::new(),
        infos: Vec::new(),
        samples_read: 0,
        samples_peak: 0,
    }
}
