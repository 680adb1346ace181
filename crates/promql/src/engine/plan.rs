//! Builds the operators of a syntax tree.
//! Invariants: a step-invariant expression is computed once and repeated; series that may become equal when
//! metric names are removed are merged.
//! Not here: functions by name (`plan::function`).

mod cse;
mod estimate;
mod function;
pub(super) mod properties;
mod reference_time;
mod shared;

use std::cell::Cell;
use std::sync::Arc;

use chronolith_exec::aggregate::hash_aggregate::HashAggregate;
use chronolith_exec::aggregate::topk::top_k;
use chronolith_exec::arith::{ElementOp, FilterSide, go_max, go_min, scalar_op};
use chronolith_exec::column::{StepScalar, StepSeries};
use chronolith_exec::error::Error;
use chronolith_exec::execution::Execution;
use chronolith_exec::grid::{Grid, Windows};
use chronolith_exec::grouping::Grouping;
use chronolith_exec::join::set::{Keep, SetFilter, SetUnion};
use chronolith_exec::join::{ScalarSide, VectorScalar, vector_vector};
use chronolith_exec::map::{ElementFn, map_values};
use chronolith_exec::note::{Note, NotedValue, Severity};
use chronolith_exec::operator::{Blocking, BoxOperator, Repeat, Traced};
use chronolith_exec::position::Origin;
use chronolith_exec::samples::SampleParts;
use chronolith_exec::scan::{Scan, ScanFn};
use chronolith_exec::select::{InstantField, SeriesReader};
use chronolith_exec::trace::{Node, NodeHandle, Use};
use chronolith_exec::window::WindowSource;
use chronolith_model::histogram::go_float;

use self::properties::{
    binary_stays_distinct, columns_bytes, is_label_name, is_step_invariant, stays_distinct, string_of,
    unexpected,
};
use self::shared::Shared;
use super::call::count_values::count_values;
use super::evaluation::Evaluation;
use crate::ast::{
    Aggregate, AggregateOp, Aggregation, Binary, BinaryOp, Expr, ExprKind, RangeExtension, Span, Subquery,
    TopKOp, UnaryOp, ValueType, VectorSelector,
};

/// Builds operators of one query.
pub(crate) struct Planner<'q> {
    evaluation: &'q Evaluation<'q>,
    /// Parts of histograms that functions above the current selector need.
    stats: Cell<StatsScope>,
    /// The `count` or `group` whose operand is planned next: only a selector uses it.
    counted_by: Cell<Option<&'q Aggregate>>,
    /// Shared subplans; none if one use is planned alone.
    shared: Shared<'q>,
}

/// Parts of histograms that functions above a selector need.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum StatsScope {
    /// Unknown: no function above decides.
    Open,
    /// Only count and sum.
    StatsOnly,
    /// Buckets, whatever functions below need.
    Buckets,
}

impl<'q> Planner<'q> {
    fn execution(&self) -> &'q Execution<'q> {
        &self.evaluation.execution
    }

    /// Builds operators in a scope. Buckets that functions further up need stay needed.
    fn scoped<T>(&self, scope: StatsScope, build: impl FnOnce() -> T) -> T {
        let before = self.stats.get();
        if before != StatsScope::Buckets {
            self.stats.set(scope);
        }
        let built = build();
        self.stats.set(before);
        built
    }

    fn parts(&self) -> SampleParts {
        SampleParts {
            stats_only: self.stats.get() == StatsScope::StatsOnly,
            start_times: self.evaluation.options.start_times,
        }
    }

    /// Operators of an instant vector.
    pub(crate) fn vector(&self, expr: &'q Expr, grid: Grid) -> Result<BoxOperator<'q>, Error> {
        match self.repeated(expr, grid) {
            Some(key) => self.shared_vector(expr, grid, key),
            None => Ok(self.traced(expr, grid)?.0),
        }
    }

    /// Operators of an instant vector that is computed here, and the node that watches them.
    pub(super) fn traced(
        &self,
        expr: &'q Expr,
        grid: Grid,
    ) -> Result<(BoxOperator<'q>, Option<Arc<Node>>), Error> {
        match self.node(expr, Use::First) {
            None => Ok((self.vector_untraced(expr, grid)?, None)),
            Some(handle) => {
                let inner = handle.run(|| self.vector_untraced(expr, grid))?;
                let node = handle.node();
                Ok((Traced::boxed(inner, Some(handle)), Some(node)))
            }
        }
    }

    /// A node for an expression.
    pub(super) fn node(&self, expr: &'q Expr, of_shared: Use) -> Option<NodeHandle<'q>> {
        let text = self.evaluation.query.text.get(expr.span.start as usize..expr.span.end as usize);
        name_of(expr).and_then(|op| self.execution().trace.node(op, text.unwrap_or_default(), of_shared))
    }

    fn vector_untraced(&self, expr: &'q Expr, grid: Grid) -> Result<BoxOperator<'q>, Error> {
        if grid.start_ms != grid.end_ms && is_step_invariant(self.evaluation, expr) {
            let inner = self.vector_at(expr, Grid::instant(grid.start_ms))?;
            return Ok(Box::new(Repeat::new(inner, grid.count)));
        }
        self.vector_at(expr, grid)
    }

    fn vector_at(&self, expr: &'q Expr, grid: Grid) -> Result<BoxOperator<'q>, Error> {
        match &expr.kind {
            ExprKind::Paren(inner) => self.vector(inner, grid),
            ExprKind::Selector(selector) if selector.extension == Some(RangeExtension::Smoothed) => {
                let windows = self.evaluation.instant_windows(selector, grid)?;
                let windows = Windows { after_ms: windows.width_ms, ..windows };
                let function = ScanFn::Smoothed(Origin::own(expr.span.position()));
                Ok(Box::new(Scan::new(
                    self.execution(),
                    &selector.matchers,
                    windows,
                    self.parts(),
                    function,
                    None,
                )?))
            }
            ExprKind::Selector(selector) => self.select(selector, grid, InstantField::Value),
            ExprKind::Unary(UnaryOp::Plus, inner) => self.vector(inner, grid),
            ExprKind::Unary(UnaryOp::Minus, inner) => {
                let operator = map_values(self.execution(), self.vector(inner, grid)?, ElementFn::Negate);
                Ok(self.merged(operator, inner))
            }
            ExprKind::Aggregate(aggregate) => self.aggregate(aggregate, expr.span, grid),
            ExprKind::Binary(_) => self.chain(expr, grid),
            ExprKind::Call(call) => self.call(call, expr.span, grid),
            ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Matrix(_) | ExprKind::Subquery(_) => {
                Err(unexpected(ValueType::Vector, expr))
            }
        }
    }

    /// A scalar in every step.
    pub(crate) fn scalar(&self, expr: &'q Expr, grid: Grid) -> Result<StepScalar, Error> {
        match &expr.kind {
            ExprKind::Number(number) => Ok(StepScalar::Constant(number.value)),
            ExprKind::Paren(inner) | ExprKind::Unary(UnaryOp::Plus, inner) => self.scalar(inner, grid),
            ExprKind::Unary(UnaryOp::Minus, inner) => Ok(self.scalar(inner, grid)?.map(|v| -v)),
            ExprKind::Binary(_) => {
                let (base, spine) = expr.left_spine();
                spine.into_iter().try_fold(self.scalar(base, grid)?, |left, binary| {
                    let right = self.scalar(&binary.rhs, grid)?;
                    Ok(left.combine(right, |a, b| scalar_op(binary.op, a, b)))
                })
            }
            ExprKind::Call(call) => self.scalar_call(call, grid),
            _ => Err(unexpected(ValueType::Scalar, expr)),
        }
    }

    /// A range vector and its windows.
    pub(crate) fn windows(&self, expr: &'q Expr, grid: Grid) -> Result<(WindowSource<'q>, Windows), Error> {
        match &expr.unwrap_parens().kind {
            ExprKind::Matrix(matrix) => {
                let windows = self.evaluation.range_windows(matrix, grid)?;
                let reader =
                    SeriesReader::new(self.execution(), &matrix.selector.matchers, windows, self.parts())?;
                Ok((WindowSource::Selector(reader), windows))
            }
            ExprKind::Subquery(subquery) => self.subquery(subquery, grid),
            _ => Err(unexpected(ValueType::Matrix, expr)),
        }
    }

    fn subquery(&self, subquery: &'q Subquery, grid: Grid) -> Result<(WindowSource<'q>, Windows), Error> {
        let (inner_grid, windows) = self.evaluation.subquery_grid(subquery, grid)?;
        let Some(inner_grid) = inner_grid else { return Ok((WindowSource::Void, windows)) };
        let mut memory = self.execution().operator_memory();
        memory.grow(inner_grid.count as u64, columns_bytes(&subquery.expr, inner_grid))?;
        let source = WindowSource::Subquery {
            inner: self.scoped(StatsScope::Buckets, || self.vector(&subquery.expr, inner_grid))?,
            grid: inner_grid,
            series: StepSeries::default(),
            memory,
        };
        Ok((source, windows))
    }

    fn select(
        &self,
        selector: &'q VectorSelector,
        grid: Grid,
        field: InstantField,
    ) -> Result<BoxOperator<'q>, Error> {
        let windows = self.evaluation.instant_windows(selector, grid)?;
        let counted_by = if field == InstantField::Value { self.counted_by.take() } else { None };
        let grouping = counted_by.map(|aggregate| Grouping::new(&aggregate.grouping, aggregate.without));
        let function = ScanFn::Instant(field);
        let matchers = &selector.matchers;
        let scan = Scan::new(self.execution(), matchers, windows, self.parts(), function, grouping.as_ref());
        Ok(Box::new(scan?))
    }

    fn aggregate(&self, aggregate: &'q Aggregate, span: Span, grid: Grid) -> Result<BoxOperator<'q>, Error> {
        let execution = self.execution();
        let grouping = Grouping::new(&aggregate.grouping, aggregate.without);
        match aggregate.op {
            AggregateOp::Select(op) => {
                let param = self.param(aggregate, grid)?;
                let inner = self.vector(&aggregate.expr, grid)?;
                self.warn_of_ratio(aggregate, span, &param);
                let origin = Origin::own(span.position());
                Ok(top_k(execution, inner, op, grouping, param, grid.count, origin))
            }
            AggregateOp::CountValues => {
                let label = aggregate.param.as_ref().map_or(Ok(""), string_of)?;
                if !is_label_name(label) {
                    let name = aggregate.param.as_ref().and_then(|param| self.literal(param));
                    let name = name.map_or_else(|| format!("{label:?}"), str::to_owned);
                    return Err(Error::Language(format!("invalid label name {name}")));
                }
                let mut inner = self.scoped(StatsScope::Buckets, || self.vector(&aggregate.expr, grid))?;
                Ok(Blocking::boxed(execution, move |memory| {
                    count_values(&mut *inner, &grouping, label, memory)
                }))
            }
            AggregateOp::Fold(op) => {
                let param = match op {
                    Aggregation::Quantile => self.param(aggregate, grid)?,
                    _ => StepScalar::Constant(f64::NAN),
                };
                let counts = matches!(op, Aggregation::Count | Aggregation::Group);
                self.counted_by.set(counts.then_some(aggregate));
                let inner = self.aggregate_input(&aggregate.expr, grid)?;
                if let (Aggregation::Quantile, Some(expr)) = (op, &aggregate.param) {
                    self.warn_of_quantile(&beyond(&param, 0.0, 1.0), expr, span);
                }
                let origin = aggregate.expr.unwrap_parens().span.emitted_by(span);
                Ok(Box::new(HashAggregate::new(execution, inner, op, grouping, param, grid.count, origin)))
            }
        }
    }

    fn param(&self, aggregate: &'q Aggregate, grid: Grid) -> Result<StepScalar, Error> {
        match &aggregate.param {
            Some(param) => self.scalar(param, grid),
            None => Ok(StepScalar::Constant(f64::NAN)),
        }
    }

    /// A string literal as written in the query: bytes that are not UTF-8 are lost in the tree.
    fn literal(&self, expr: &Expr) -> Option<&'q str> {
        let Span { start, end } = expr.unwrap_parens().span;
        self.evaluation.query.text.get(start as usize..end as usize).filter(|text| text.starts_with('"'))
    }

    fn warn_of_ratio(&self, aggregate: &Aggregate, emitter: Span, param: &StepScalar) {
        let Some(expr) =
            aggregate.param.as_ref().filter(|_| aggregate.op == AggregateOp::Select(TopKOp::LimitRatio))
        else {
            return;
        };
        for &ratio in beyond(param, -1.0, 1.0).values().iter().filter(|ratio| !ratio.is_nan()) {
            let text = format!(
                "ratio value should be between -1 and 1, got {}, capping to {}",
                go_float(ratio),
                ratio.signum()
            );
            let note = Note::Language(Severity::Warning, text.into());
            self.execution().annotations.add(note, expr.unwrap_parens().span.emitted_by(emitter));
        }
    }

    /// Warns of quantiles outside 0..1.
    fn warn_of_quantile(&self, quantile: &StepScalar, expr: &Expr, emitter: Span) {
        let origin = expr.unwrap_parens().span.emitted_by(emitter);
        for &value in quantile.values().iter().filter(|&&v| !(0.0..=1.0).contains(&v)) {
            self.execution().annotations.add(Note::BadQuantile(NotedValue(value)), origin);
        }
    }

    /// A chain `((a + b) - c) * d`, built from the innermost left side outwards: chains may be long, and a
    /// loop needs no stack.
    fn chain(&self, expr: &'q Expr, grid: Grid) -> Result<BoxOperator<'q>, Error> {
        let (base, spine) = expr.left_spine();
        // An operand stands below its own operator and all that follow.
        let last_reader = spine.iter().rposition(|binary| reads_buckets(binary.op));
        let operand = |expr: &'q Expr, first_above: usize| {
            if expr.value_type() == ValueType::Scalar {
                return Ok::<_, Error>(Side::Scalar(self.scalar(expr, grid)?));
            }
            let operator = if last_reader.is_some_and(|reader| reader >= first_above) {
                self.scoped(StatsScope::Buckets, || self.vector(expr, grid))?
            } else {
                self.vector(expr, grid)?
            };
            Ok(Side::Vector { operator, distinct: stays_distinct(expr) })
        };
        let mut left = operand(base, 0)?;
        for (idx, binary) in spine.into_iter().enumerate() {
            let right = operand(&binary.rhs, idx)?;
            left = self.join(left, right, binary)?;
        }
        match left {
            Side::Vector { operator, .. } => Ok(operator),
            Side::Scalar(_) => Err(unexpected(ValueType::Vector, expr)),
        }
    }

    fn join(&self, left: Side<'q>, right: Side<'q>, binary: &'q Binary) -> Result<Side<'q>, Error> {
        let (operator, distinct) = match (left, right) {
            (Side::Scalar(left), Side::Scalar(right)) => {
                return Ok(Side::Scalar(left.combine(right, |a, b| scalar_op(binary.op, a, b))));
            }
            (Side::Scalar(scalar), Side::Vector { operator, distinct }) => {
                (self.with_scalar(operator, scalar, ScalarSide::Left, distinct, binary), distinct)
            }
            (Side::Vector { operator, distinct }, Side::Scalar(scalar)) => {
                (self.with_scalar(operator, scalar, ScalarSide::Right, distinct, binary), distinct)
            }
            (Side::Vector { operator: left, distinct }, Side::Vector { operator: right, .. }) => {
                (self.vectors(left, right, binary)?, distinct)
            }
        };
        Ok(Side::Vector { operator, distinct: binary_stays_distinct(binary).unwrap_or(distinct) })
    }

    fn with_scalar(
        &self,
        inner: BoxOperator<'q>,
        scalar: StepScalar,
        side: ScalarSide,
        distinct: bool,
        binary: &'q Binary,
    ) -> BoxOperator<'q> {
        let keeps = if side == ScalarSide::Left { FilterSide::Right } else { FilterSide::Left };
        let op = ElementOp::new(binary.op, binary.return_bool, keeps);
        let origin = origin_of(binary);
        let operator = Box::new(VectorScalar::new(self.execution(), inner, scalar, side, op, origin));
        if op.drops_name() { self.merged_unless(distinct, operator) } else { operator }
    }

    fn vectors(
        &self,
        left: BoxOperator<'q>,
        right: BoxOperator<'q>,
        binary: &'q Binary,
    ) -> Result<BoxOperator<'q>, Error> {
        let execution = self.execution();
        let Some(matching) = binary.matching.as_ref() else {
            return Err(Error::Language("operator between vectors without matching".to_owned()));
        };
        Ok(match binary.op {
            BinaryOp::And => Box::new(SetFilter::new(left, right, matching, Keep::Matched, execution)),
            BinaryOp::Unless => Box::new(SetFilter::new(left, right, matching, Keep::Unmatched, execution)),
            BinaryOp::Or => {
                let union = SetUnion::new(left, right, matching, execution.operator_memory());
                Blocking::merge(execution, Box::new(union))
            }
            op => {
                let element_op = ElementOp::new(op, binary.return_bool, FilterSide::Left);
                vector_vector(execution, left, right, matching, element_op, origin_of(binary))
            }
        })
    }

    /// Merges the series of an operator that removed metric names, if two of `inner`'s series may be equal
    /// then.
    fn merged(&self, operator: BoxOperator<'q>, inner: &Expr) -> BoxOperator<'q> {
        self.merged_unless(stays_distinct(inner), operator)
    }

    fn merged_unless(&self, distinct: bool, operator: BoxOperator<'q>) -> BoxOperator<'q> {
        let execution = self.execution();
        if execution.delays_names() || distinct { operator } else { Blocking::merge(execution, operator) }
    }
}

/// Origin of an operator's annotations: they point at its left operand.
fn origin_of(binary: &Binary) -> Origin {
    let (left, right) = (binary.lhs.span, binary.rhs.span);
    left.emitted_by(Span { start: left.start, end: right.end })
}

/// Parameter values that an aggregation warns of: NaN if there is one, the least value if it is below `low`
/// and the greatest if it is above `high`. With a NaN only infinities are reported, by the rules of Go's
/// minimum and maximum.
fn beyond(param: &StepScalar, low: f64, high: f64) -> StepScalar {
    let values = param.values();
    let nan = values.iter().copied().find(|v| v.is_nan());
    let least = values.iter().copied().reduce(go_min).filter(|&v| v < low);
    let greatest = values.iter().copied().reduce(go_max).filter(|&v| v > high);
    StepScalar::PerStep(nan.into_iter().chain(least).chain(greatest).collect())
}

/// One side of an operator.
enum Side<'q> {
    Scalar(StepScalar),
    Vector {
        operator: BoxOperator<'q>,
        /// True if [`stays_distinct`].
        distinct: bool,
    },
}

/// Returns true if an operator looks into the buckets of its operands.
fn reads_buckets(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::TrimLower | BinaryOp::TrimUpper | BinaryOp::Equal | BinaryOp::NotEqual)
}

/// Name of an operator in reports; `None` if the expression is not an operator.
fn name_of(expr: &Expr) -> Option<&'static str> {
    match &expr.kind {
        ExprKind::Selector(_) => Some("select"),
        ExprKind::Aggregate(aggregate) => Some(aggregate.op.as_str()),
        ExprKind::Call(call) => Some(call.function.name),
        ExprKind::Binary(binary) => Some(binary.op.as_str()),
        ExprKind::Unary(UnaryOp::Minus, _) => Some("negate"),
        ExprKind::Unary(UnaryOp::Plus, _) | ExprKind::Paren(_) => None,
        ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Matrix(_) | ExprKind::Subquery(_) => None,
    }
}
