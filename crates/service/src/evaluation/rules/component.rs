//! Rules that are evaluated together: a call per expression, equal parts computed once (ADR 0130).
//!
//! Invariant: a stop cancels each query of a component, since one may read a part that belongs to another.
//! Not here: what can be computed once (`chronolith_promql::engine::batch`), outcomes of rules (`batch`,
//! `repair`, `backfill`).

use std::ops::ControlFlow;
use std::sync::Arc;

use chronolith_model::{Queryable, TenantId};
use chronolith_promql::Query;
use chronolith_promql::engine::batch::{BatchPlan, Compute, Member};
use chronolith_promql::engine::trace::Trace;
use chronolith_rules::rule::Rule;

use crate::activity::active_queries::StartedQuery;
use crate::activity::top_queries::QueryLanguage;
use crate::evaluation::call_context::CallContext;
use crate::evaluation::running::RunningQuery;
use crate::service::Service;

/// Context, counts and source of an expression.
pub(super) struct RuleCall {
    pub(super) ctx: CallContext,
    pub(super) trace: Arc<Trace>,
    pub(super) source: Arc<dyn Queryable>,
}

/// Queries with parts in common.
pub(super) struct Component<'a> {
    pub(super) plan: &'a BatchPlan,
    /// Indexes of its queries in `queries`.
    pub(super) members: &'a [usize],
    /// Queries of the plan.
    pub(super) queries: &'a [Query<'a>],
    /// One call per member.
    pub(super) calls: &'a [RuleCall],
}

impl Component<'_> {
    /// Calls `evaluate` once per query, in order, with its index, its call and the function that computes its
    /// value.
    ///
    /// # Errors
    /// The first error of `evaluate`, which ends the evaluation.
    pub(super) fn run<E>(
        &self,
        service: &Service,
        evaluate: &mut dyn FnMut(usize, &RuleCall, &mut Compute<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Component { plan, members, queries, calls } = *self;
        assert_eq!(members.len(), calls.len(), "one call per query");
        let interrupts = &service.rules.engine.interrupts;
        let _listed: Vec<_> = calls.iter().map(|call| interrupts.enter(call.ctx.cancel_flag())).collect();
        let with_calls = members.iter().zip(calls).map(|(idx, RuleCall { ctx, trace, source })| Member {
            query: &queries[*idx],
            source: &**source,
            ctx,
            trace,
        });
        let with_calls: Vec<Member<'_>> = with_calls.collect();
        let end =
            service.queries.engine.run_component(
                plan,
                members,
                &with_calls,
                &mut |at, compute| match evaluate(members[at], &calls[at], compute) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => ControlFlow::Break(error),
                },
            );
        match end {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }
}

/// Lists the query of a rule as running until the result is dropped.
pub(super) fn begin_query<'q>(
    service: &'q Service,
    tenant: &'q TenantId,
    query: &'q Query<'_>,
    ctx: &'q CallContext,
    trace: &Arc<Trace>,
) -> RunningQuery<'q> {
    let started = StartedQuery {
        tenant,
        language: QueryLanguage::PromQl,
        text: query.text,
        times_ms: (query.start_ms, query.end_ms, query.step_ms),
        ctx,
        trace: trace.clone(),
    };
    RunningQuery::begin(service, started)
}

/// The query of a rule over consecutive rounds; over one it is an instant query.
pub(super) fn query_over(rule: &Rule, first_ms: i64, last_ms: i64, interval_ms: i64) -> Query<'_> {
    Query {
        text: &rule.query,
        expr: &rule.expr,
        start_ms: first_ms,
        end_ms: last_ms,
        step_ms: if first_ms == last_ms { 0 } else { interval_ms },
        lookback_ms: None,
    }
}
