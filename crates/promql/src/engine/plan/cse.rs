//! Common subexpression elimination: finds equal parts of a query, so that they are computed once.
//!
//! Invariants: two expressions have one class exactly if they differ in nothing but positions, the order of
//! matchers and grouping labels, and how durations are written. Uses are counted by class and grid, in the
//! order in which the query is planned; parts of a second use do not count, since it is shared as a whole. A
//! count may be too high (`timestamp(x)` does not plan `x`), never too low for what is planned: readers must
//! not rely on it.
//! Not here: the shared subplan (`exec::share`).

use chronolith_base::hash::{HashMap, HashSet};

use chronolith_exec::error::Error;
use chronolith_exec::grid::Grid;
use chronolith_exec::selection::{MatcherSet, matcher_set};
use chronolith_exec::share::PositionMap;

use super::properties::is_step_invariant;
use crate::ast::{
    Aggregate, AggregateOp, AtModifier, Binary, BinaryOp, DurationExpr, Expr, ExprKind, MatchCardinality,
    RangeExtension, UnaryOp, ValueType, VectorMatching, VectorSelector,
};
use crate::engine::duration;
use crate::engine::evaluation::Evaluation;
use crate::engine::evaluation_order::push_operands;

/// Number of a class of equal expressions.
pub(super) type Class = u32;

/// Structure of a node; its operands by their class.
#[derive(PartialEq, Eq, Hash)]
enum Shape {
    Number(u64),
    Text(String),
    Selector(SelectorShape),
    Matrix(SelectorShape, i64),
    Subquery(Class, i64, Option<i64>, i64, Option<AtModifier>),
    Call(&'static str, Vec<Class>),
    /// Operator, parameter, operand, labels, `without`.
    Aggregate(AggregateOp, Option<Class>, Class, Vec<String>, bool),
    /// Operator, operands, bool modifier.
    Binary(BinaryOp, Class, Class, bool, Option<MatchingShape>),
    Unary(UnaryOp, Class),
    Paren(Class),
}

#[derive(PartialEq, Eq, Hash)]
struct SelectorShape {
    matchers: MatcherSet,
    offset_ms: i64,
    at: Option<AtModifier>,
    extension: Option<RangeExtension>,
}

#[derive(PartialEq, Eq, Hash)]
struct MatchingShape {
    card: MatchCardinality,
    labels: Vec<String>,
    on: bool,
    include: Vec<String>,
    fills: [Option<u64>; 2],
}

/// Classes of the expressions of a query, and how often each is used.
#[derive(Default)]
pub(super) struct CommonSubexpressions {
    /// By address of the expression, which stays where it is for as long as the query.
    classes: HashMap<usize, Class>,
    uses: HashMap<(Class, Grid), usize>,
    /// Selections per set of matchers.
    selections: HashMap<MatcherSet, usize>,
}

impl CommonSubexpressions {
    /// Of a whole query; nothing is shared in one that cannot be planned, or has a single selector.
    pub(super) fn of(evaluation: &Evaluation<'_>, expr: &Expr, grid: Grid) -> CommonSubexpressions {
        if selector_count_at_most_two(expr) < 2 {
            return CommonSubexpressions::default();
        }
        let mut pass =
            CsePass { evaluation, shapes: HashMap::default(), common: CommonSubexpressions::default() };
        match pass.visit(expr, grid) {
            Ok(()) => pass.common,
            Err(_) => CommonSubexpressions::default(),
        }
    }

    /// Matchers by which more than one selection is made.
    pub(super) fn repeated_selections(&self) -> HashSet<MatcherSet> {
        let repeated = self.selections.iter().filter(|(_, uses)| **uses > 1);
        repeated.map(|(matchers, _)| matchers.clone()).collect()
    }

    /// Class of an expression that is used more than once on this grid, and how often.
    pub(super) fn repeated(&self, expr: &Expr, grid: Grid) -> Option<(Class, usize)> {
        let class = *self.classes.get(&address(expr))?;
        let uses = *self.uses.get(&(class, grid))?;
        (uses > 1).then_some((class, uses))
    }
}

fn address(expr: &Expr) -> usize {
    std::ptr::from_ref(expr).addr()
}

struct CsePass<'q> {
    evaluation: &'q Evaluation<'q>,
    shapes: HashMap<Shape, Class>,
    common: CommonSubexpressions,
}

impl CsePass<'_> {
    /// Counts the uses in an expression that is planned on `grid`.
    fn visit(&mut self, expr: &Expr, grid: Grid) -> Result<(), Error> {
        match &expr.kind {
            ExprKind::Number(_) | ExprKind::String(_) => return Ok(()),
            ExprKind::Matrix(matrix) => {
                self.count_selection(&matrix.selector);
                return Ok(());
            }
            ExprKind::Paren(inner) | ExprKind::Unary(UnaryOp::Plus, inner) => return self.visit(inner, grid),
            ExprKind::Subquery(subquery) => {
                return match self.evaluation.subquery_grid(subquery, grid)?.0 {
                    Some(inner_grid) => self.visit(&subquery.expr, inner_grid),
                    None => Ok(()),
                };
            }
            _ => {}
        }
        let is_vector = expr.value_type() != ValueType::Scalar;
        if is_vector {
            let class = self.class_of(expr)?;
            let uses = self.common.uses.entry((class, grid)).or_default();
            *uses += 1;
            if *uses > 1 {
                return Ok(());
            }
        }
        let once = is_vector && grid.start_ms != grid.end_ms && is_step_invariant(self.evaluation, expr);
        let grid = if once { Grid::instant(grid.start_ms) } else { grid };
        match &expr.kind {
            ExprKind::Selector(selector) => {
                self.count_selection(selector);
                Ok(())
            }
            ExprKind::Unary(_, inner) => self.visit(inner, grid),
            ExprKind::Call(call) => {
                // The second argument of `info` is no vector that is computed.
                let count = if call.function.name == "info" { 1 } else { call.args.len() };
                call.args.iter().take(count).try_for_each(|arg| self.visit(arg, grid))
            }
            ExprKind::Aggregate(aggregate) => {
                aggregate.param.iter().try_for_each(|param| self.visit(param, grid))?;
                self.visit(&aggregate.expr, grid)
            }
            ExprKind::Binary(_) => {
                let (base, spine) = expr.left_spine();
                self.visit(base, grid)?;
                spine.into_iter().try_for_each(|binary| self.visit(&binary.rhs, grid))
            }
            _ => Ok(()),
        }
    }

    fn count_selection(&mut self, selector: &VectorSelector) {
        *self.common.selections.entry(matcher_set(&selector.matchers)).or_default() += 1;
    }

    fn class_of(&mut self, expr: &Expr) -> Result<Class, Error> {
        if let Some(&class) = self.common.classes.get(&address(expr)) {
            return Ok(class);
        }
        if let ExprKind::Binary(_) = &expr.kind {
            return self.class_of_chain(expr);
        }
        let shape = match &expr.kind {
            ExprKind::Number(number) => Shape::Number(number.value.to_bits()),
            ExprKind::String(text) => Shape::Text(text.clone()),
            ExprKind::Selector(selector) => Shape::Selector(self.shape_of(selector)?),
            ExprKind::Matrix(matrix) => {
                Shape::Matrix(self.shape_of(&matrix.selector)?, self.ms(&matrix.range)?)
            }
            ExprKind::Subquery(subquery) => Shape::Subquery(
                self.class_of(&subquery.expr)?,
                self.ms(&subquery.range)?,
                subquery.step.as_ref().map(|step| self.ms(step)).transpose()?,
                self.ms(&subquery.offset)?,
                subquery.at,
            ),
            ExprKind::Call(call) => {
                let args = call.args.iter().map(|arg| self.class_of(arg)).collect::<Result<_, _>>()?;
                Shape::Call(call.function.name, args)
            }
            ExprKind::Aggregate(aggregate) => self.shape_of_aggregate(aggregate)?,
            ExprKind::Unary(op, inner) => Shape::Unary(*op, self.class_of(inner)?),
            // Parentheses count, so that equal expressions have equally many positions.
            ExprKind::Paren(inner) => Shape::Paren(self.class_of(inner)?),
            ExprKind::Binary(_) => return self.class_of_chain(expr),
        };
        Ok(self.class(expr, shape))
    }

    /// A chain may be long: from the innermost left side outwards.
    fn class_of_chain(&mut self, expr: &Expr) -> Result<Class, Error> {
        let mut spine = Vec::new();
        let mut base = expr;
        while let ExprKind::Binary(binary) = &base.kind {
            spine.push((base, &**binary));
            base = &binary.lhs;
        }
        let mut class = self.class_of(base)?;
        for (node, binary) in spine.into_iter().rev() {
            let Binary { op, rhs, return_bool, matching, .. } = binary;
            let right = self.class_of(rhs)?;
            let shape =
                Shape::Binary(*op, class, right, *return_bool, matching.as_ref().map(shape_of_matching));
            class = self.class(node, shape);
        }
        Ok(class)
    }

    fn class(&mut self, expr: &Expr, shape: Shape) -> Class {
        let next = self.shapes.len() as Class;
        let class = *self.shapes.entry(shape).or_insert(next);
        self.common.classes.insert(address(expr), class);
        class
    }

    fn ms(&self, duration: &DurationExpr) -> Result<i64, Error> {
        duration::offset_ms(self.evaluation.query, duration)
    }

    fn shape_of(&self, selector: &VectorSelector) -> Result<SelectorShape, Error> {
        let matchers = matcher_set(&selector.matchers);
        let (at, extension) = (selector.at, selector.extension);
        Ok(SelectorShape { matchers, offset_ms: self.ms(&selector.offset)?, at, extension })
    }

    fn shape_of_aggregate(&mut self, aggregate: &Aggregate) -> Result<Shape, Error> {
        let param = aggregate.param.as_ref().map(|param| self.class_of(param)).transpose()?;
        let inner = self.class_of(&aggregate.expr)?;
        let mut labels = aggregate.grouping.clone();
        labels.sort_unstable();
        Ok(Shape::Aggregate(aggregate.op, param, inner, labels, aggregate.without))
    }
}

fn shape_of_matching(matching: &VectorMatching) -> MatchingShape {
    MatchingShape {
        card: matching.card,
        labels: matching.labels.clone(),
        on: matching.on,
        include: matching.include.clone(),
        fills: [matching.fill_left, matching.fill_right].map(|fill| fill.map(f64::to_bits)),
    }
}

/// Number of selectors, counted up to two: most queries have one, and nothing to share.
fn selector_count_at_most_two(expr: &Expr) -> usize {
    let (mut count, mut left) = (0, vec![expr]);
    while let Some(expr) = left.pop() {
        if let ExprKind::Selector(_) | ExprKind::Matrix(_) = &expr.kind {
            count += 1;
            if count == 2 {
                break;
            }
        }
        push_operands(expr, &mut left);
    }
    count
}

/// From positions in one expression to those in another one of its class.
pub(super) fn positions(from: &Expr, to: &Expr) -> PositionMap {
    let (mut all, mut left) = (PositionMap::default(), vec![(from, to)]);
    let (mut from_operands, mut to_operands) = (Vec::new(), Vec::new());
    while let Some((from, to)) = left.pop() {
        all.insert(from.span.position(), to.span.position());
        push_operands(from, &mut from_operands);
        push_operands(to, &mut to_operands);
        debug_assert_eq!(from_operands.len(), to_operands.len(), "expressions of one class have equal parts");
        left.extend(from_operands.drain(..).zip(to_operands.drain(..)));
    }
    all
}
