//! Queries of a backfill: expressions over the rounds of a chunk, those with common parts together, and
//! stored samples.
//!
//! Invariants: each expression is listed while it is evaluated; a kill ends the backfill. An expression that
//! fails over several rounds is evaluated over fewer, down to one: a round fails only by itself.
//! Not here: which rounds (`run`), comparison and writes (`changes`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::{BudgetExceeded, Reservation};
use chronolith_model::query::Selector;
use chronolith_model::{Columns, Labels, Matcher, QueryError, Queryable, TimeRange};
use chronolith_promql::engine::batch::BatchPlan;
use chronolith_promql::engine::trace::Trace;
use chronolith_promql::{Query, QueryResult, Value};
use chronolith_rules::backfill::{ResultLimits, RoundResults, RoundTimes, results_of};
use chronolith_rules::group::Group;
use chronolith_rules::rule::Rule;

use crate::access::Identity;
use crate::evaluation::call_context::CallContext;
use crate::evaluation::promql::value_bytes;
use crate::evaluation::rules::component::{Component, RuleCall, begin_query, query_over};
use crate::evaluation::rules::view::{Corrections, RepairView};
use crate::evaluation::run::{Admitted, further_query_within};
use crate::refusal::Refusal;
use crate::service::Service;

/// End of a backfill before its last round. All before the last reported position is durable.
#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    /// The server stops.
    #[error("server is shutting down, the backfill can be resumed")]
    Stopping,
    /// The client has left, or the longest time of a backfill is over.
    #[error("backfill ended: {0}; it can be resumed")]
    Ended(QueryError),
    /// A user has killed a query of it.
    #[error("query {0} was killed by a request to status/active_queries/kill, the backfill can be resumed")]
    Killed(u64),
    /// There is no source to read.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Stored samples cannot be read.
    #[error("reading recorded samples: {0}")]
    Read(QueryError),
    /// Samples cannot be stored.
    #[error("storing samples: {0}")]
    Write(String),
}

/// Reason that an expression has no value.
enum Failure {
    /// The backfill ends.
    Ended(BackfillError),
    /// This query failed with this text.
    Failed(String),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Ended(refusal.into())
    }
}

/// Queries of one backfill.
#[derive(Clone, Copy)]
pub(super) struct RuleQueries<'a> {
    pub(super) service: &'a Service,
    pub(super) identity: &'a Identity,
    pub(super) admitted: &'a Admitted,
}

/// Results of earlier rounds that are not written yet, above the store.
pub(super) struct Overlay {
    pub(super) corrections: Arc<Corrections>,
    /// Series that have no samples from the time on.
    pub(super) hidden: Vec<Vec<Matcher>>,
    pub(super) hidden_from_ms: i64,
}

/// Stored samples of recorded series, and their memory.
#[derive(Default)]
pub(super) struct StoredSeries {
    pub(super) series: BTreeMap<Labels, Columns>,
    memory: Vec<Reservation>,
}

/// Gets the results of a rule, by its index among the asked ones.
pub(super) type Visit<'v> = dyn FnMut(usize, RoundResults) -> Result<(), BackfillError> + 'v;

impl RuleQueries<'_> {
    /// # Errors
    /// The server stops, the client has left, or the time is over.
    pub(super) fn check(&self) -> Result<(), BackfillError> {
        if self.service.rules.engine.is_stopping() || self.service.lifecycle.is_draining() {
            return Err(BackfillError::Stopping);
        }
        self.admitted.ctx().check().map_err(BackfillError::Ended)
    }

    /// Evaluates rules of a group over `rounds`, and hands the results of each rule to `visit` once. Returns
    /// true if a query had to be repeated over fewer rounds or by itself.
    pub(super) fn evaluate_together(
        &self,
        group: &Group,
        rules: &[&Rule],
        rounds: RoundTimes,
        visit: &mut Visit<'_>,
    ) -> Result<bool, BackfillError> {
        let queries: Vec<Query<'_>> = rules.iter().map(|rule| query_of(rule, rounds)).collect();
        let plan = self.service.queries.engine.plan_batch(&queries);
        let mut is_visited = vec![false; rules.len()];
        let limits = self.limits_of(group);
        for component in plan.components() {
            self.evaluate_component(&plan, component, &queries, &mut |idx, value| {
                is_visited[idx] = true;
                visit(idx, results_of(rules[idx], value, limits, rounds))
            })?;
        }
        let is_in_component = |idx: &usize| plan.components().iter().any(|one| one.contains(idx));
        let mut is_repeated = false;
        for idx in (0..rules.len()).filter(|idx| !is_visited[*idx]) {
            let mut is_split = false;
            let results = self.evaluate(group, rules[idx], rounds, None, &mut is_split)?;
            is_repeated |= is_split || is_in_component(&idx);
            visit(idx, results)?;
        }
        Ok(is_repeated)
    }

    /// Evaluates a rule over `rounds`; sets `is_split` if they had to be divided.
    pub(super) fn evaluate(
        &self,
        group: &Group,
        rule: &Rule,
        rounds: RoundTimes,
        overlay: Option<&Overlay>,
        is_split: &mut bool,
    ) -> Result<RoundResults, BackfillError> {
        let mut all = RoundResults::default();
        // The earliest rounds are on top.
        let mut left = vec![rounds];
        while let Some(rounds) = left.pop() {
            self.check()?;
            match (self.value_alone(&query_of(rule, rounds), overlay), rounds.halves()) {
                (Ok((value, _memory)), _) => {
                    all.append(results_of(rule, value, self.limits_of(group), rounds));
                }
                (Err(Failure::Ended(error)), _) => return Err(error),
                // Series that are equal in no single round may fail a query over several, and memory or time
                // may suffice for fewer rounds.
                (Err(Failure::Failed(_)), Some((first, second))) => {
                    *is_split = true;
                    left.extend([second, first]);
                }
                (Err(Failure::Failed(why)), None) => all.append(RoundResults::failed(rounds, &why)),
            }
        }
        Ok(all)
    }

    fn limits_of(&self, group: &Group) -> ResultLimits {
        let series_max = self.service.limits_of(self.identity.tenant()).queries.rules.series_max;
        ResultLimits { group: group.limit, series_max }
    }

    fn context(&self) -> CallContext {
        further_query_within(self.service, self.admitted, self.service.options.query.timeout_ms)
    }

    fn call(&self) -> Result<RuleCall, BackfillError> {
        let ctx = self.context();
        let source = ctx.source_of(self.service, self.identity)?;
        Ok(RuleCall { ctx, trace: Arc::new(Trace::new()), source })
    }

    /// Evaluates expressions that have something in common; `visit` gets the values of those that succeed.
    fn evaluate_component(
        &self,
        plan: &BatchPlan,
        component: &[usize],
        queries: &[Query<'_>],
        visit: &mut dyn FnMut(usize, Value) -> Result<(), BackfillError>,
    ) -> Result<(), BackfillError> {
        self.check()?;
        let calls: Vec<RuleCall> = component.iter().map(|_| self.call()).collect::<Result<_, _>>()?;
        let component = Component { plan, members: component, queries, calls: &calls };
        component.run(self.service, &mut |idx, call, compute| {
            let found = self.run_listed(&queries[idx], &call.ctx, &call.trace, || match compute() {
                Some(result) => result.map_err(|error| error.to_string()),
                None => Err(String::new()),
            });
            match found {
                Ok((value, _memory)) => visit(idx, value),
                // The expression is evaluated by itself later.
                Err(Failure::Failed(_)) => Ok(()),
                Err(Failure::Ended(error)) => Err(error),
            }
        })
    }

    fn value_alone(
        &self,
        query: &Query<'_>,
        overlay: Option<&Overlay>,
    ) -> Result<(Value, Reservation), Failure> {
        let RuleCall { ctx, trace, source } = self.call().map_err(Failure::Ended)?;
        let source: Arc<dyn Queryable> = match overlay {
            Some(Overlay { corrections, hidden, hidden_from_ms }) => Arc::new(RepairView {
                below: source,
                corrections: corrections.clone(),
                hidden: hidden.clone(),
                hidden_from_ms: *hidden_from_ms,
            }),
            None => source,
        };
        let _listed = self.service.rules.engine.interrupts.enter(ctx.cancel_flag());
        self.run_listed(query, &ctx, &trace, || {
            let result = self.service.queries.engine.run_traced(&*source, query, &ctx, &trace);
            result.map_err(|error| error.to_string())
        })
    }

    /// Lists a query while `compute` evaluates it; returns its value with the memory that it takes.
    fn run_listed(
        &self,
        query: &Query<'_>,
        ctx: &CallContext,
        trace: &Arc<Trace>,
        compute: impl FnOnce() -> Result<QueryResult, String>,
    ) -> Result<(Value, Reservation), Failure> {
        let running = begin_query(self.service, self.identity.tenant(), query, ctx, trace);
        self.service.rules.backfills.evaluations.add(1);
        let result = compute();
        if let Some(id) = running.killed_id() {
            return Err(Failure::Ended(BackfillError::Killed(id)));
        }
        let failed = |full: BudgetExceeded| Failure::Failed(QueryError::from(full).to_string());
        match result {
            Ok(result) => {
                let memory =
                    self.admitted.ctx().budget.reserve(value_bytes(&result.value)).map_err(failed)?;
                Ok((result.value, memory))
            }
            Err(why) => {
                self.check().map_err(Failure::Ended)?;
                Err(Failure::Failed(why))
            }
        }
    }

    /// Stored samples of the series that one of `selectors` selects, in `range`.
    pub(super) fn stored(
        &self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<StoredSeries, BackfillError> {
        let RuleCall { ctx, source, .. } = self.call()?;
        let mut stored = StoredSeries::default();
        for matchers in selectors {
            let selected = source.select(&Selector { matchers, range }, &ctx);
            let mut batches = selected.map_err(BackfillError::Read)?;
            let mut series = Vec::new();
            while batches.next_batch(&mut series).map_err(BackfillError::Read)? {}
            for one in series {
                let mut columns = Columns::default();
                one.samples.read(range, &mut columns).map_err(BackfillError::Read)?;
                if columns.is_empty() {
                    continue;
                }
                let bytes = columns.len() * 16 + columns.histogram_bytes() + one.labels.heap_bytes();
                let memory = self.admitted.ctx().budget.reserve(bytes as u64);
                stored.memory.push(memory.map_err(|full| BackfillError::Read(full.into()))?);
                stored.series.insert(one.labels, columns);
            }
        }
        Ok(stored)
    }
}

fn query_of(rule: &Rule, rounds: RoundTimes) -> Query<'_> {
    query_over(rule, rounds.first_ms(), rounds.last_ms(), rounds.interval_ms())
}
