//! Expressions of one batch, under its admitted call: expressions with common selections are evaluated
//! together, the others one by one.
//!
//! Invariants: each expression has a context of its own, so that limits count and a kill ends it alone. An
//! expression that fails at a limit while it is evaluated together is evaluated again by itself. Work on a
//! common part counts for the first expression that reads it.
//! Not here: what can be computed once (`chronolith_promql::engine::batch`).

use std::collections::HashMap;
use std::sync::Arc;

use chronolith_model::QueryError;
use chronolith_promql::engine::batch::{BatchPlan, Compute};
use chronolith_promql::engine::trace::Trace;
use chronolith_promql::{Query, QueryResult, Value};
use chronolith_rules::round::{Evaluate, Expression, Interrupted};

use super::batch_evaluation::{BatchEvaluation, Failure, GroupCaller, Timing};
use super::component::{Component, RuleCall};
use crate::evaluation::call_context::CallContext;
use crate::evaluation::promql::{Detail, ParsedQuery, PromqlError, evaluate_parsed, new_trace, value_bytes};
use crate::evaluation::run::{Admitted, CallError, further_query};
use crate::refusal::Refusal;

/// The value of an expression, or the reason that it has none, and when and how long it was evaluated.
struct Outcome {
    timing: Timing,
    value: Result<Value, String>,
}

/// A batch that is being evaluated.
struct Batch<'b, 'a> {
    evaluation: &'b mut BatchEvaluation<'a>,
    admitted: &'b Admitted,
    queries: &'b [Query<'b>],
    outcomes: Vec<Option<Outcome>>,
}

impl Evaluate for BatchEvaluation<'_> {
    fn evaluate(
        &mut self,
        expressions: &[Expression<'_>],
        time_ms: i64,
    ) -> Result<Vec<Result<Value, String>>, Interrupted> {
        if self.interrupts.is_requested() {
            return Err(Interrupted);
        }
        let admitted = match self.admit() {
            Ok(admitted) => admitted,
            Err(why) => {
                let started_ns = self.service.env.clock.now_ms().saturating_mul(1_000_000);
                let timing = Timing { started_ns, duration_ns: 0 };
                self.timings.extend(expressions.iter().map(|_| timing));
                return Ok(expressions.iter().map(|_| Err(why.clone())).collect());
            }
        };
        self.values_memory.clear();
        let outcomes = Batch::evaluate(self, &admitted, expressions, time_ms)?;
        let (timings, values): (Vec<Timing>, _) =
            outcomes.into_iter().map(|Outcome { timing, value }| (timing, value)).unzip();
        self.timings.extend(timings);
        Ok(values)
    }
}

impl<'b, 'a> Batch<'b, 'a> {
    /// Evaluates the expressions at one time; returns one outcome per expression.
    ///
    /// # Errors
    /// [`Interrupted`].
    fn evaluate(
        evaluation: &'b mut BatchEvaluation<'a>,
        admitted: &'b Admitted,
        expressions: &'b [Expression<'b>],
        time_ms: i64,
    ) -> Result<Vec<Outcome>, Interrupted> {
        let query = |one: &Expression<'b>| Query {
            text: one.text,
            expr: one.expr,
            start_ms: time_ms,
            end_ms: time_ms,
            step_ms: 0,
            lookback_ms: None,
        };
        let queries: Vec<Query<'_>> = expressions.iter().map(query).collect();
        let plan = match &queries[..] {
            [] | [_] => None,
            several => Some(evaluation.service.queries.engine.plan_batch(several)),
        };
        let outcomes = queries.iter().map(|_| None).collect();
        let mut batch = Batch { evaluation, admitted, queries: &queries, outcomes };
        batch.evaluate_all(plan.as_ref())?;
        Ok(batch.outcomes.into_iter().flatten().collect())
    }

    fn evaluate_all(&mut self, plan: Option<&BatchPlan>) -> Result<(), Interrupted> {
        let components = plan.map_or(&[][..], BatchPlan::components);
        let by_first: HashMap<usize, &[usize]> =
            components.iter().filter_map(|component| Some((*component.first()?, &component[..]))).collect();
        for idx in 0..self.queries.len() {
            match by_first.get(&idx).zip(plan) {
                Some((component, plan)) => self.evaluate_component(plan, component)?,
                None if self.outcomes[idx].is_none() => self.evaluate_alone(idx)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Evaluates expressions that have something in common.
    fn evaluate_component(&mut self, plan: &BatchPlan, component: &[usize]) -> Result<(), Interrupted> {
        let calls: Result<Vec<RuleCall>, Refusal> = component.iter().map(|_| self.call()).collect();
        let Ok(calls) = calls else {
            return component.iter().try_for_each(|idx| self.evaluate_alone(*idx));
        };
        let component = Component { plan, members: component, queries: self.queries, calls: &calls };
        component
            .run(self.evaluation.service, &mut |idx, call, compute| self.evaluate_member(idx, call, compute))
    }

    fn evaluate_member(
        &mut self,
        idx: usize,
        call: &RuleCall,
        compute: &mut Compute<'_>,
    ) -> Result<(), Interrupted> {
        let service = self.evaluation.service;
        let counters = &service.rules.engine.counters;
        self.evaluate_rule(idx, &call.ctx, &call.trace, |batch| match compute() {
            Some(result) => {
                counters.shared_evaluations.add(1);
                result.map_err(PromqlError::Evaluation)
            }
            None => {
                counters.repeated_evaluations.add(1);
                let ctx = batch.further_query().repeating(&call.ctx);
                batch.run(idx, &ctx, &call.trace)
            }
        })
    }

    fn evaluate_alone(&mut self, idx: usize) -> Result<(), Interrupted> {
        let ctx = self.further_query();
        let trace = Arc::new(new_trace(self.evaluation.service, Detail::default()));
        let _listed = self.evaluation.interrupts.enter(ctx.cancel_flag());
        self.evaluate_rule(idx, &ctx, &trace, |batch| batch.run(idx, &ctx, &trace))
    }

    /// Evaluates an expression by `compute` as a query that is listed and logged, and keeps its outcome.
    fn evaluate_rule(
        &mut self,
        idx: usize,
        ctx: &CallContext,
        trace: &Arc<Trace>,
        compute: impl FnOnce(&Self) -> Result<QueryResult, PromqlError>,
    ) -> Result<(), Interrupted> {
        let service = self.evaluation.service;
        let clock = &service.env.clock;
        let started_ns = clock.now_ms().saturating_mul(1_000_000);
        let start_mono_ns = clock.mono_ns();
        let value = self.value(idx, ctx, trace, compute);
        let duration_ns = clock.mono_ns().saturating_sub(start_mono_ns);
        let value = match value {
            Err(_) if self.evaluation.interrupts.is_requested() => return Err(Interrupted),
            Err(failure) => Err(self.evaluation.text_of(failure)),
            Ok(value) => self.evaluation.within_series_limit(value).and_then(|value| self.counted(value)),
        };
        self.outcomes[idx] = Some(Outcome { timing: Timing { started_ns, duration_ns }, value });
        Ok(())
    }

    fn value(
        &self,
        idx: usize,
        ctx: &CallContext,
        trace: &Arc<Trace>,
        compute: impl FnOnce(&Self) -> Result<QueryResult, PromqlError>,
    ) -> Result<Value, Failure> {
        let BatchEvaluation { service, group, .. } = *self.evaluation;
        let Query { text, expr, start_ms, .. } = self.queries[idx];
        let caller = GroupCaller(group);
        let query = self.evaluation.promql_query(text, start_ms, &caller)?;
        let parsed = ParsedQuery { query: &query, expr, trace: trace.clone() };
        let result = evaluate_parsed::<Failure>(service, parsed, ctx, || compute(self));
        service.count_end(ctx, result.as_ref().err().map(CallError::end));
        result
    }

    /// Counts the memory of a value until the next batch.
    fn counted(&mut self, value: Value) -> Result<Value, String> {
        let memory = self.admitted.ctx().budget.reserve(value_bytes(&value));
        self.evaluation.values_memory.push(memory.map_err(|full| QueryError::from(full).to_string())?);
        Ok(value)
    }

    /// Evaluates an expression by itself.
    fn run(&self, idx: usize, ctx: &CallContext, trace: &Trace) -> Result<QueryResult, PromqlError> {
        let BatchEvaluation { service, identity, .. } = *self.evaluation;
        let source = ctx.source_of(service, identity)?;
        let result = service.queries.engine.run_traced(&*source, &self.queries[idx], ctx, trace);
        result.map_err(PromqlError::Evaluation)
    }

    fn further_query(&self) -> CallContext {
        further_query(self.evaluation.service, self.admitted)
    }

    fn call(&self) -> Result<RuleCall, Refusal> {
        let BatchEvaluation { service, identity, .. } = *self.evaluation;
        let ctx = self.further_query();
        let source = ctx.source_of(service, identity)?;
        Ok(RuleCall { ctx, trace: Arc::new(new_trace(service, Detail::default())), source })
    }
}
