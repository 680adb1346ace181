//! Planning of parts that occur more than once: computed at the first use, read at the others.
//!
//! Holds: a use stands for a shared part only if expression, grid and what is asked of histograms are equal; a use that
//! finds its part's series lost is planned by itself, without sharing anything.
//! Not here: which expressions are equal (`survey`), how series get to the uses (`engine::share`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use chronolith_base::hash::HashMap;

use super::survey::{Class, Survey, places};
use super::traced::watched;
use super::{Planner, StatsScope};
use crate::ast::{Expr, ExprKind};
use crate::engine::aggregate::fold::FoldInput;
use crate::engine::annotation::SetAside;
use crate::engine::grid::Grid;
use crate::engine::run::Run;
use crate::engine::series::BoxOperator;
use crate::engine::share::{PlanAlone, SharedPart, SharedReader, at_place};
use crate::engine::trace::Use;
use crate::engine::{EvalError, Sharing, unwrap_parens};

/// What makes two uses one part.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PartKey {
    class: Class,
    grid: Grid,
    stats: StatsScope,
}

/// The parts of a query that are used more than once.
#[derive(Default)]
pub(super) struct Shared<'q> {
    survey: Survey,
    parts: RefCell<HashMap<PartKey, Planned<'q>>>,
    /// What selections of a part take has been counted in the estimate.
    estimated: RefCell<HashMap<(Class, Grid), u64>>,
}

struct Planned<'q> {
    first: &'q Expr,
    part: Rc<SharedPart<'q>>,
}

impl<'q> Planner<'q> {
    /// For a query; equal parts of it are computed once, if the engine's options say so.
    pub(crate) fn sharing(run: &'q Run<'q>, expr: &'q Expr, grid: Grid) -> Planner<'q> {
        let mut planner = Planner::alone(run, StatsScope::Open);
        if run.sharing == Sharing::Auto && !run.trace.counts_steps() {
            planner.shared.survey = Survey::of(&planner, expr, grid);
            run.selections.expect(planner.shared.survey.repeated_selections());
        }
        planner
    }

    /// Shares nothing.
    fn alone(run: &'q Run<'q>, stats: StatsScope) -> Planner<'q> {
        Planner { run, stats: Cell::new(stats), counted_by: Cell::new(None), shared: Shared::default() }
    }

    /// All is planned: parts know their uses now.
    pub(crate) fn seal(&self) {
        self.shared.parts.borrow().values().for_each(|planned| planned.part.seal());
    }

    /// What to share an expression by, if it is used more than once.
    pub(super) fn repeated(&self, expr: &Expr, grid: Grid) -> Option<(PartKey, usize)> {
        let (class, uses) = self.shared.survey.repeated(expr, grid)?;
        Some((PartKey { class, grid, stats: self.stats.get() }, uses))
    }

    /// Series of an expression whose selections the estimate has counted already; else remembers `count`'s answer.
    pub(super) fn estimated_before(&self, expr: &Expr, grid: Grid) -> Option<u64> {
        let (class, _) = self.shared.survey.repeated(expr, grid)?;
        self.shared.estimated.borrow().get(&(class, grid)).copied()
    }

    /// Remembers the series that an expression is estimated to have.
    pub(super) fn remember_estimate(&self, expr: &Expr, grid: Grid, series: u64) {
        if let Some((class, _)) = self.shared.survey.repeated(expr, grid) {
            self.shared.estimated.borrow_mut().insert((class, grid), series);
        }
    }

    /// A use of an expression that is used more than once.
    pub(super) fn shared_vector(
        &self,
        expr: &'q Expr,
        grid: Grid,
        (key, uses): (PartKey, usize),
    ) -> Result<BoxOperator<'q>, EvalError> {
        let (part, first) = self.part_of(expr, grid, (key, uses))?;
        let again = !std::ptr::eq(first, expr);
        let places = again.then(|| places(first, expr));
        let reader = SharedReader::new(part.clone(), places, self.plan_alone(expr, grid));
        if !again {
            return Ok(Box::new(reader));
        }
        let place = self.place(expr, Use::Again);
        if let Some(place) = &place {
            place.node().mark_shared(part.marked());
        }
        Ok(watched(Box::new(reader), place))
    }

    /// What an aggregation folds: a shared part gives its series to the aggregation as they are computed.
    pub(super) fn fold_input(&self, expr: &'q Expr, grid: Grid) -> Result<FoldInput<'q>, EvalError> {
        let expr = unwrap_parens(expr);
        let counted_by = self.counted_by.take();
        let Some(key) = self.repeated(expr, grid) else {
            self.counted_by.set(counted_by.filter(|_| matches!(expr.kind, ExprKind::Selector(_))));
            let inner = self.vector(expr, grid);
            self.counted_by.set(None);
            return Ok(FoldInput::Alone(inner?));
        };
        let begun = self.shared.parts.borrow().get(&key.0).is_some_and(|planned| planned.part.has_begun());
        if begun {
            return Ok(FoldInput::Alone(self.shared_vector(expr, grid, key)?));
        }
        let (part, first) = self.part_of(expr, grid, key)?;
        let again = !std::ptr::eq(first, expr);
        let places = again.then(|| places(first, expr));
        let place = if again { self.place(expr, Use::Again) } else { None };
        if let Some(place) = &place {
            place.node().mark_shared(part.marked());
        }
        let alone = self.plan_alone(expr, grid);
        Ok(FoldInput::Shared { part, places, place, alone })
    }

    /// The part that an expression is, planned if this is its first use; and that first use. What is to be said about
    /// the plan is said.
    fn part_of(
        &self,
        expr: &'q Expr,
        grid: Grid,
        (key, uses): (PartKey, usize),
    ) -> Result<(Rc<SharedPart<'q>>, &'q Expr), EvalError> {
        let annotations = &self.run.annotations;
        if let Some(Planned { first, part }) = self.shared.parts.borrow().get(&key) {
            let said: &SetAside = part.said_at_plan();
            if !said.is_empty() {
                annotations.append(at_place(said, Some(&places(first, expr))));
            }
            return Ok((part.clone(), first));
        }
        self.run.note_shared();
        let before = annotations.set_aside();
        let planned = self.traced(expr, grid);
        let said = annotations.restore(before);
        annotations.append(said.clone());
        let (inner, node) = planned?;
        let mut parts = self.shared.parts.borrow_mut();
        let id = parts.len() as u32 + 1;
        let part = SharedPart::new(self.run, inner, said, (id, uses), node);
        parts.insert(key, Planned { first: expr, part: part.clone() });
        Ok((part, expr))
    }

    fn plan_alone(&self, expr: &'q Expr, grid: Grid) -> PlanAlone<'q> {
        let (run, stats) = (self.run, self.stats.get());
        Box::new(move || Planner::alone(run, stats).vector_untraced(expr, grid))
    }
}
