//! Planning of repeated parts: computed at the first use, read at the others.
//!
//! Invariants: uses share a subplan only if expression, grid and needed parts of histograms are equal; a use
//! whose series were dropped is planned alone, without sharing.
//! Not here: equality of expressions (`cse`), reading shared series (`exec::share`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use chronolith_base::hash::HashMap;

use chronolith_exec::aggregate::hash_aggregate::AggregateInput;
use chronolith_exec::error::Error;
use chronolith_exec::grid::Grid;
use chronolith_exec::operator::{BoxOperator, Traced};
use chronolith_exec::share::{BuildAlone, SharedPart, SharedReader, moved};
use chronolith_exec::trace::Use;

use super::cse::{Class, CommonSubexpressions, positions};
use super::estimate::Estimator;
use super::{Planner, StatsScope};
use crate::ast::{Expr, ExprKind};
use crate::engine::evaluation::Evaluation;

/// Key of a shared subplan: uses with equal keys share it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PartKey {
    class: Class,
    grid: Grid,
    stats: StatsScope,
}

/// The parts of a query that are used more than once.
#[derive(Default)]
pub(super) struct Shared<'q> {
    common: CommonSubexpressions,
    parts: RefCell<HashMap<PartKey, Planned<'q>>>,
}

struct Planned<'q> {
    first: &'q Expr,
    part: Rc<SharedPart<'q>>,
}

impl<'q> Planner<'q> {
    /// For a query; equal parts of it are computed once, if the settings allow it.
    pub(crate) fn sharing(evaluation: &'q Evaluation<'q>, expr: &'q Expr, grid: Grid) -> Planner<'q> {
        let mut planner = Planner::alone(evaluation, StatsScope::Open);
        let execution = &evaluation.execution;
        if execution.settings.shares && !execution.trace.counts_steps() {
            planner.shared.common = CommonSubexpressions::of(evaluation, expr, grid);
            execution.selections.expect(planner.shared.common.repeated_selections());
        }
        planner
    }

    /// Shares nothing.
    fn alone(evaluation: &'q Evaluation<'q>, stats: StatsScope) -> Planner<'q> {
        let shared = Shared::default();
        Planner { evaluation, stats: Cell::new(stats), counted_by: Cell::new(None), shared }
    }

    /// Refuses a query that would need far more than its limits allow, by [`Estimator::admit`].
    pub(crate) fn admit(&self, expr: &'q Expr, grid: Grid) -> Result<(), Error> {
        Estimator::new(self.evaluation, &self.shared.common).admit(expr, grid)
    }

    /// Ends planning: no subplan gets further readers.
    pub(crate) fn seal(&self) {
        self.shared.parts.borrow().values().for_each(|planned| planned.part.seal());
    }

    /// Key and number of uses of an expression that is used more than once.
    pub(super) fn repeated(&self, expr: &Expr, grid: Grid) -> Option<(PartKey, usize)> {
        let (class, uses) = self.shared.common.repeated(expr, grid)?;
        Some((PartKey { class, grid, stats: self.stats.get() }, uses))
    }

    /// A use of an expression that is used more than once.
    pub(super) fn shared_vector(
        &self,
        expr: &'q Expr,
        grid: Grid,
        (key, uses): (PartKey, usize),
    ) -> Result<BoxOperator<'q>, Error> {
        let (part, first) = self.part_of(expr, grid, (key, uses))?;
        let again = !std::ptr::eq(first, expr);
        let positions = again.then(|| positions(first, expr));
        let reader = SharedReader::new(part.clone(), positions, self.plan_alone(expr, grid));
        if !again {
            return Ok(Box::new(reader));
        }
        let node = self.node(expr, Use::Again);
        if let Some(node) = &node {
            node.node().mark_shared(part.marked());
        }
        Ok(Traced::boxed(Box::new(reader), node))
    }

    /// Input of an aggregation: a shared subplan feeds its series to the aggregation as they are computed.
    pub(super) fn aggregate_input(&self, expr: &'q Expr, grid: Grid) -> Result<AggregateInput<'q>, Error> {
        let expr = expr.unwrap_parens();
        let counted_by = self.counted_by.take();
        let Some(key) = self.repeated(expr, grid) else {
            self.counted_by.set(counted_by.filter(|_| matches!(expr.kind, ExprKind::Selector(_))));
            let inner = self.vector(expr, grid);
            self.counted_by.set(None);
            return Ok(AggregateInput::Alone(inner?));
        };
        let begun = self.shared.parts.borrow().get(&key.0).is_some_and(|planned| planned.part.has_begun());
        if begun {
            return Ok(AggregateInput::Alone(self.shared_vector(expr, grid, key)?));
        }
        let (part, first) = self.part_of(expr, grid, key)?;
        let again = !std::ptr::eq(first, expr);
        let positions = again.then(|| positions(first, expr));
        let node = if again { self.node(expr, Use::Again) } else { None };
        if let Some(node) = &node {
            node.node().mark_shared(part.marked());
        }
        let alone = self.plan_alone(expr, grid);
        Ok(AggregateInput::Shared { part, positions, node, alone })
    }

    /// The shared subplan of an expression, built if this is its first use, and that first use. Annotations
    /// of building it are emitted.
    fn part_of(
        &self,
        expr: &'q Expr,
        grid: Grid,
        (key, uses): (PartKey, usize),
    ) -> Result<(Rc<SharedPart<'q>>, &'q Expr), Error> {
        let annotations = &self.execution().annotations;
        if let Some(Planned { first, part }) = self.shared.parts.borrow().get(&key) {
            let set = part.build_annotations();
            if !set.is_empty() {
                annotations.append(moved(set, Some(&positions(first, expr))));
            }
            return Ok((part.clone(), first));
        }
        self.execution().record_shared();
        let before = annotations.start_new();
        let planned = self.traced(expr, grid);
        let of_plan = annotations.restore(before);
        annotations.append(of_plan.clone());
        let (inner, node) = planned?;
        let mut parts = self.shared.parts.borrow_mut();
        let id = parts.len() as u32 + 1;
        let part = SharedPart::new(self.execution(), inner, of_plan, id, uses, node);
        parts.insert(key, Planned { first: expr, part: part.clone() });
        Ok((part, expr))
    }

    fn plan_alone(&self, expr: &'q Expr, grid: Grid) -> BuildAlone<'q> {
        let (evaluation, stats) = (self.evaluation, self.stats.get());
        Box::new(move || Planner::alone(evaluation, stats).vector_untraced(expr, grid))
    }
}
