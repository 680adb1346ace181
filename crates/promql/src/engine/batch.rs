//! Evaluation of several queries over the same times as one plan: common parts are computed once, equal
//! selections are read once.
//!
//! Invariants: a query has the value, annotations and error that it has alone; where an error may belong to
//! another query, or to memory that sharing takes, it has no result. Each query has an execution of its own,
//! with its limits and counts. A common part belongs to the first query that reads it.
//! Not here: sharing within a plan (`exec::share`), the order and the logs of queries (the caller).

use std::ops::ControlFlow;

use chronolith_exec::column::StepSeries;
use chronolith_exec::error::Error;
use chronolith_exec::execution::{Environment, Execution};
use chronolith_exec::grid::Grid;
use chronolith_exec::operator::BoxOperator;
use chronolith_exec::plan::operators::{OperatorBuilder, builder_beside, builder_of_queries};
use chronolith_exec::plan::sharing::connected_components;
use chronolith_exec::plan::{OccurrenceId, Plan};
use chronolith_model::{QueryError, Queryable, ReadContext};

use super::language::PromQl;
use super::plan::{empty_plan, lower};
use super::trace::Trace;
use super::{
    Engine, EvalError, Evaluation, Query, QueryResult, Sharing, VECTOR_DEPTH_MAX, Value, matrix_of_steps,
    pull_all, result_of, settings, vector_value,
};
use crate::ast::ValueType;

/// Queries of a component: their operators exist at the same time.
const COMPONENT_QUERIES_MAX: usize = 128;

/// Plan of several queries.
pub struct BatchPlan {
    plan: Plan,
    grid: Grid,
    /// `None` for a query that is evaluated by itself.
    roots: Vec<Option<OccurrenceId>>,
    components: Vec<Vec<usize>>,
}

impl BatchPlan {
    /// Connected components of queries that have selections in common, by their indices, ascending. Other
    /// queries, and those that cannot be planned, are in none.
    #[must_use]
    pub fn components(&self) -> &[Vec<usize>] {
        &self.components
    }
}

/// A query of a component, and the state of its evaluation.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// The query as it was planned.
    pub query: &'a Query<'a>,
    /// Source of series.
    pub source: &'a dyn Queryable,
    /// Deadline, cancellation and memory of this query.
    pub ctx: &'a ReadContext,
    /// Counts of this query.
    pub trace: &'a Trace,
}

/// Evaluates one query of a component. `None` if it has to be evaluated by itself.
pub type Compute<'c> = dyn FnMut() -> Option<Result<QueryResult, EvalError>> + 'c;

impl Engine {
    /// Plans instant queries at one time, or range queries over the same steps. Only vectors have something
    /// in common.
    ///
    /// # Panics
    /// If the times of two queries differ.
    #[must_use]
    pub fn plan_batch(&self, queries: &[Query<'_>]) -> BatchPlan {
        let options = &self.options;
        let times = |query: &Query<'_>| (query.start_ms, query.end_ms, query.step_ms);
        let first = queries.first().map(times);
        let grid = first.and_then(|(start_ms, end_ms, step_ms)| Grid::between(start_ms, end_ms, step_ms));
        // Queries without a step are evaluated by themselves, and fail.
        let can_plan = grid.is_some();
        let grid = grid.unwrap_or(Grid::instant(0));
        let mut plan = empty_plan(options);
        let mut roots = Vec::with_capacity(queries.len());
        for query in queries {
            assert_eq!(Some(times(query)), first, "queries of a batch have the same times");
            let is_planned = can_plan && query.expr.value_type() == ValueType::Vector;
            let root = if is_planned { lower(&mut plan, query, options, grid).ok() } else { None };
            roots.push(root.filter(|root| plan.properties(*root).depth <= VECTOR_DEPTH_MAX));
        }
        let mut components = Vec::new();
        if options.sharing == Sharing::Auto {
            let (planned, ids): (Vec<usize>, Vec<OccurrenceId>) =
                roots.iter().enumerate().filter_map(|(idx, root)| Some((idx, (*root)?))).unzip();
            components = connected_components(&plan, &ids, COMPONENT_QUERIES_MAX);
            components.iter_mut().flatten().for_each(|idx| *idx = planned[*idx]);
        }
        BatchPlan { plan, grid, roots, components }
    }

    /// Evaluates the queries of a component of `batch`; `members` has one per index of it. Calls `visit`
    /// once per query, in order, with its index in `members`, until it breaks; the query is evaluated when
    /// `visit` calls the function that it gets. The first call builds the operators of all queries.
    pub fn run_component<B>(
        &self,
        batch: &BatchPlan,
        component: &[usize],
        members: &[Member<'_>],
        visit: &mut dyn FnMut(usize, &mut Compute<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        assert_eq!(component.len(), members.len(), "one member per query");
        let contexts: Vec<ReadContext> = members.iter().map(|one| self.with_threads(one.ctx)).collect();
        let evaluation = |((&idx, member), ctx)| self.evaluation_in(batch, idx, member, ctx);
        let evaluations: Vec<Evaluation<'_>> =
            component.iter().zip(members).zip(&contexts).filter_map(evaluation).collect();
        assert_eq!(evaluations.len(), members.len(), "queries of components are planned");
        let mut operators: Vec<Option<Result<BoxOperator<'_>, Error>>> = Vec::new();
        for (idx, evaluation) in evaluations.iter().enumerate() {
            let mut compute = || {
                if let Err(stopped) = evaluation.execution.ctx.check() {
                    return Some(Err(stopped.into()));
                }
                if operators.is_empty() {
                    operators = build(&evaluations);
                }
                let built = operators.get_mut(idx)?.take()?;
                let series = built.and_then(|operator| pull(evaluation, operator));
                if let Err(Error::BufferFull | Error::Query(QueryError::Memory(_))) = &series {
                    // The query is evaluated again, and needs the memory of series kept for other queries.
                    operators.iter_mut().for_each(|operator| *operator = None);
                    evaluation.execution.selections.get().into_iter().for_each(|open| open.clear());
                }
                own(evaluation, series.map(|series| result_of(evaluation, value_of(evaluation, series))))
            };
            visit(idx, &mut compute)?;
        }
        ControlFlow::Continue(())
    }

    /// The evaluation of query number `idx` of a batch.
    fn evaluation_in<'q>(
        &'q self,
        batch: &'q BatchPlan,
        idx: usize,
        member: &'q Member<'q>,
        ctx: &'q ReadContext,
    ) -> Option<Evaluation<'q>> {
        let BatchPlan { plan, grid, roots, .. } = batch;
        let root = (*roots.get(idx)?)?;
        let Member { query, source, trace, .. } = *member;
        let environment = Environment { source, ctx, trace, spare_threads: &self.spare_threads };
        let options = &self.options;
        let settings = settings(options, Sharing::Auto);
        let execution = Execution::new(environment, settings, Some(*grid), plan.evaluation_order(root));
        Some(Evaluation { execution, language: PromQl { query, options }, plan, root, grid: *grid })
    }
}

/// All series of a query. The columns of its operators count in its memory, as for a query alone.
fn pull<'q>(evaluation: &'q Evaluation<'q>, operator: BoxOperator<'q>) -> Result<Vec<StepSeries>, Error> {
    let Evaluation { plan, root, grid, .. } = evaluation;
    let mut memory = evaluation.execution.operator_memory();
    if evaluation.language.query.step_ms > 0 {
        memory.grow(grid.count as u64, plan.columns_bytes(*root, *grid))?;
    }
    pull_all(evaluation, operator)
}

/// The series of a query as a vector, or as a matrix of a range query.
fn value_of(evaluation: &Evaluation<'_>, series: Vec<StepSeries>) -> Value {
    match evaluation.language.query.step_ms {
        0 => vector_value(series, evaluation.grid.start_ms),
        _ => matrix_of_steps(series, evaluation.grid),
    }
}

/// Builds the operators of all queries of a component, so that each part knows all its readers before one of
/// them reads it.
fn build<'q>(evaluations: &'q [Evaluation<'q>]) -> Vec<Option<Result<BoxOperator<'q>, Error>>> {
    let Some((first, others)) = evaluations.split_first() else { return Vec::new() };
    let roots: Vec<OccurrenceId> = evaluations.iter().map(|evaluation| evaluation.root).collect();
    let builder = builder_of_queries(first.plan, &roots, &first.execution, &first.language);
    let beside = others.iter().map(|other| builder_beside(&builder, &other.execution, &other.language));
    let builders: Vec<OperatorBuilder<'q>> = beside.collect();
    let operator = |(evaluation, builder): (&'q Evaluation<'q>, &OperatorBuilder<'q>)| {
        evaluation.execution.trace.begin(evaluation.grid);
        evaluation.admit(builder.shares())?;
        builder.vector(evaluation.root)
    };
    let all = evaluations.iter().zip([&builder].into_iter().chain(&builders));
    let operators = all.map(|pair| Some(operator(pair))).collect();
    builder.seal();
    operators
}

/// The result, unless another query may have caused it: a query that owns a part can be canceled, reach its
/// limits or fail to read. A query that has been stopped itself has its error.
fn own(
    evaluation: &Evaluation<'_>,
    result: Result<QueryResult, Error>,
) -> Option<Result<QueryResult, EvalError>> {
    match result {
        Err(Error::BufferFull | Error::TooManySamples | Error::Query(_)) => {
            let stopped = evaluation.execution.ctx.check().err()?;
            Some(Err(EvalError::Query(stopped)))
        }
        result => Some(result.map_err(EvalError::from)),
    }
}
