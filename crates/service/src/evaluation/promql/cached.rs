//! Range queries through the result cache.
//! Invariants: a query that is not cacheable is evaluated from the start, and so is an expression without a
//! lookback; a result with warnings of a source is not cached.
//! Not here: the cache (`query::range_cache`), its exactness (ADR 0025).

use chronolith_model::change::Generation;
use chronolith_model::{QueryError, Queryable};
use chronolith_promql::engine::lookback::{CachePlan, cache_plan};
use chronolith_promql::engine::{Query, QueryResult, StepSet, Value};

use super::{Evaluation, PromqlError};
use crate::query::range_cache::{Annotations, CacheKey, Wanted};

impl Evaluation<'_> {
    /// The result of a query, with the steps that need not be computed from the cache.
    pub(super) fn result(
        &self,
        source: &dyn Queryable,
        query: &Query<'_>,
    ) -> Result<QueryResult, PromqlError> {
        let run = |query: &Query<'_>| {
            let result = self.query.engine.run_traced(source, query, self.ctx, &self.trace);
            result.map_err(PromqlError::Evaluation)
        };
        let service = self.service;
        let asked = self.query;
        let cache = &service.queries.cache;
        let identity = asked.identity;
        // Entries belong to one tenant.
        let is_of_one = identity.sole_tenant().is_ok();
        let bypassed = !cache.is_on() || query.step_ms <= 0 || !asked.is_cacheable || !is_of_one;
        let lookback_ms = query.lookback_ms.unwrap_or(service.options.query.lookback_ms);
        let planned = Query { lookback_ms: Some(lookback_ms), ..*query };
        let plan = if bypassed { None } else { cache_plan(&planned, asked.engine.options()) };
        let Some(CachePlan { lookback, key: plan }) = plan else { return run(query) };
        let last_ms =
            query.start_ms + query.end_ms.saturating_sub(query.start_ms) / query.step_ms * query.step_ms;
        let key = CacheKey {
            tenant: identity.tenant().clone(),
            filter: identity.principal().filter().map(|filter| filter.text().clone()),
            plan,
            step_ms: query.step_ms,
            phase_ms: query.start_ms.rem_euclid(query.step_ms),
            lookback_ms,
            start_times: asked.engine.options().start_times,
        };
        let sources = service.lifecycle.source()?;
        // Before anything is read: samples written from here on count as changed for the next reader.
        let generation = sources.generation(identity.tenant());
        let wanted = Wanted { lookback, first_ms: query.start_ms, last_ms, text: asked.text };
        let changed = |since: &Generation| {
            let mut changed = sources.changed_since(identity.tenant(), since);
            if let Some(start_ms) = self.ctx.start_ms() {
                changed.removed_before_ms = changed.removed_before_ms.max(start_ms);
            }
            changed
        };
        let result = match cache.find(&key, wanted, changed) {
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
                join_annotations(&mut result, reused.annotations);
                if is_whole {
                    return Ok(result);
                }
                result
            }
        };
        if let Value::Matrix(series) = &result.value
            && self.ctx.warnings().texts().is_empty()
        {
            let annotations = annotations_of(&result, asked.text);
            cache.keep(key, generation, query.start_ms..=last_ms, series, annotations);
        }
        Ok(result)
    }
}

/// The annotations of `result`, with the steps of infos if those are known.
fn annotations_of(result: &QueryResult, text: &str) -> Annotations {
    if result.warnings.is_empty() && result.infos.is_empty() {
        return Annotations::default();
    }
    let steps_of = |at: usize| result.info_steps.as_ref().and_then(|steps| steps.get(at)).cloned();
    let infos = result.infos.iter().enumerate().map(|(at, info)| (info.clone(), steps_of(at)));
    Annotations { query: text.to_owned(), warnings: result.warnings.clone(), infos: infos.collect() }
}

/// Adds the annotations of the steps that were not computed, before the others.
fn join_annotations(result: &mut QueryResult, before: Annotations) {
    let fresh = std::mem::take(&mut result.infos);
    let mut steps: Vec<Option<StepSet>> = Vec::with_capacity(fresh.len());
    result.warnings.splice(0..0, before.warnings);
    for (info, of_info) in before.infos {
        result.infos.push(info);
        steps.push(of_info);
    }
    let mut fresh_steps = result.info_steps.take().map(Vec::into_iter);
    for info in fresh {
        let of_info = fresh_steps.as_mut().and_then(Iterator::next);
        match result.infos.iter().position(|other| *other == info) {
            Some(at) => steps[at] = steps[at].take().zip(of_info).and_then(|(a, b)| a.union(&b)),
            None => {
                result.infos.push(info);
                steps.push(of_info);
            }
        }
    }
    result.info_steps = fresh_steps.and_then(|_| steps.into_iter().collect());
}

fn empty_result() -> QueryResult {
    QueryResult {
        value: Value::Matrix(Vec::new()),
        warnings: Vec::new(),
        infos: Vec::new(),
        info_steps: Some(Vec::new()),
        samples_read: 0,
        samples_peak: 0,
    }
}
