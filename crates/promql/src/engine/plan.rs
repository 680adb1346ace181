//! From the tree to operators.
//! Holds: an expression that is the same in all steps is computed once and repeated; series that may become
//! equal when their names go are merged.
//! Not here: functions by name (`plan::function`).

mod estimate;
mod function;
mod reference_time;
mod shared;
mod survey;
mod traced;

use std::cell::Cell;

use chronolith_model::matcher::MatchOp;
use chronolith_model::{METRIC_NAME, Matcher};

use self::shared::Shared;
use super::aggregate::Grouping;
use super::aggregate::distinct::CountValues;
use super::aggregate::fold::Fold;
use super::aggregate::rank::Rank;
use super::annotation::bad_quantile;
use super::annotation::order::Origin;
use super::arith::{ElementOp, FilterSide, go_max, go_min, scalar_op};
use super::binary::set::{Keep, SetFilter, SetUnion};
use super::binary::{ScalarSide, StepNotes, VectorScalar, VectorVector};
use super::call::MapValues;
use super::call::math::ElementFn;
use super::grid::{Grid, TimeShift, Windows};
use super::leaf::{Leaf, LeafFn};
use super::run::Run;
use super::samples::SampleParts;
use super::select::{InstantField, SeriesReader};
use super::series::{BoxOperator, Merge, Ready, Repeat, StepScalar, StepSeries};
use super::window::WindowSource;
use super::{EvalError, duration, unwrap_parens};
use crate::ast::{
    Aggregate, AggregateOp, AtModifier, Binary, BinaryOp, DurationExpr, Expr, ExprKind, MatchCardinality,
    MatrixSelector, RangeExtension, Span, Subquery, UnaryOp, ValueType, VectorMatching, VectorSelector,
};

/// Builds operators of one query.
pub(crate) struct Planner<'q> {
    run: &'q Run<'q>,
    /// Whether selectors stand below a function that asks for nothing but count and sum of histograms.
    stats: Cell<StatsScope>,
    /// The `count` or `group` whose operand is planned next, until that operand is: only a selector uses it.
    counted_by: Cell<Option<&'q Aggregate>>,
    /// Parts that are computed once; none where one use is planned by itself.
    shared: Shared<'q>,
}

/// How much of histograms is asked for above a selector.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum StatsScope {
    /// Nothing has been said.
    Open,
    /// Only count and sum.
    StatsOnly,
    /// Buckets, whatever is asked for below.
    Buckets,
}

impl<'q> Planner<'q> {
    /// Builds something in a scope. Buckets that something further up asks for are needed all the same.
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
            start_times: self.run.options.start_times,
        }
    }

    fn vector_untraced(&self, expr: &'q Expr, grid: Grid) -> Result<BoxOperator<'q>, EvalError> {
        if grid.start_ms != grid.end_ms && self.is_step_invariant(expr) {
            let inner = self.vector_at(expr, Grid::instant(grid.start_ms))?;
            return Ok(Box::new(Repeat { inner, count: grid.count }));
        }
        self.vector_at(expr, grid)
    }

    fn vector_at(&self, expr: &'q Expr, grid: Grid) -> Result<BoxOperator<'q>, EvalError> {
        match &expr.kind {
            ExprKind::Paren(inner) => self.vector(inner, grid),
            ExprKind::Selector(selector) if selector.extension == Some(RangeExtension::Smoothed) => {
                let windows = self.instant_windows(selector, grid)?;
                let windows = Windows { after_ms: windows.width_ms, ..windows };
                let function = LeafFn::Smoothed(Origin::own(expr.span));
                Ok(Box::new(Leaf::new(self.run, selector, windows, self.parts(), function)?))
            }
            ExprKind::Selector(selector) => self.select(selector, grid, InstantField::Value),
            ExprKind::Unary(UnaryOp::Plus, inner) => self.vector(inner, grid),
            ExprKind::Unary(UnaryOp::Minus, inner) => {
                let operator = MapValues {
                    run: self.run,
                    inner: self.vector(inner, grid)?,
                    function: ElementFn::Negate,
                };
                Ok(self.merged(Box::new(operator), inner))
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
    pub(crate) fn scalar(&self, expr: &'q Expr, grid: Grid) -> Result<StepScalar, EvalError> {
        match &expr.kind {
            ExprKind::Number(number) => Ok(StepScalar::Constant(number.value)),
            ExprKind::Paren(inner) | ExprKind::Unary(UnaryOp::Plus, inner) => self.scalar(inner, grid),
            ExprKind::Unary(UnaryOp::Minus, inner) => Ok(self.scalar(inner, grid)?.map(|v| -v)),
            ExprKind::Binary(_) => {
                let (base, spine) = left_spine(expr);
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
    pub(crate) fn windows(
        &self,
        expr: &'q Expr,
        grid: Grid,
    ) -> Result<(WindowSource<'q>, Windows), EvalError> {
        match &unwrap_parens(expr).kind {
            ExprKind::Matrix(matrix) => {
                let windows = self.range_windows(matrix, grid)?;
                let reader = SeriesReader::new(self.run, &matrix.selector.matchers, windows, self.parts())?;
                Ok((WindowSource::Selector(reader), windows))
            }
            ExprKind::Subquery(subquery) => self.subquery(subquery, grid),
            _ => Err(unexpected(ValueType::Matrix, expr)),
        }
    }

    fn range_windows(&self, matrix: &MatrixSelector, grid: Grid) -> Result<Windows, EvalError> {
        let width_ms = duration::positive_ms(self.run.query, &matrix.range)?;
        let shift = self.shift(&matrix.selector.offset, matrix.selector.at)?;
        let lookback_ms = self.run.lookback_ms();
        let (before_ms, after_ms) = match matrix.selector.extension {
            None => (0, 0),
            Some(RangeExtension::Anchored) => (lookback_ms, 0),
            Some(RangeExtension::Smoothed) => (lookback_ms, lookback_ms),
        };
        Ok(Windows { before_ms, after_ms, ..Windows::new(grid, shift, width_ms) })
    }

    fn subquery(&self, subquery: &'q Subquery, grid: Grid) -> Result<(WindowSource<'q>, Windows), EvalError> {
        let (inner_grid, windows) = self.subquery_grid(subquery, grid)?;
        let Some(inner_grid) = inner_grid else { return Ok((WindowSource::Void, windows)) };
        let mut hold = self.run.hold();
        hold.grow(inner_grid.count as u64, columns_bytes(&subquery.expr, inner_grid))?;
        let source = WindowSource::Subquery {
            inner: self.scoped(StatsScope::Buckets, || self.vector(&subquery.expr, inner_grid))?,
            grid: inner_grid,
            series: StepSeries::default(),
            hold,
        };
        Ok((source, windows))
    }

    /// Times at which a subquery computes its expression (`None`: none), and the windows over them.
    fn subquery_grid(&self, subquery: &Subquery, grid: Grid) -> Result<(Option<Grid>, Windows), EvalError> {
        let width_ms = duration::positive_ms(self.run.query, &subquery.range)?;
        let step_ms = match &subquery.step {
            Some(step) => duration::positive_ms(self.run.query, step)?,
            None => self.run.options.subquery_step_ms.max(1),
        };
        let shift = self.shift(&subquery.offset, subquery.at)?;
        let windows = Windows::new(grid, shift, width_ms);
        // Steps lie on multiples of the step, whatever the query's own times are.
        let before_first = windows.start(0);
        let first = before_first.div_euclid(step_ms).saturating_add(1).saturating_mul(step_ms);
        Ok((Grid::between(first, windows.end(grid.count - 1), step_ms), windows))
    }

    fn shift(&self, offset: &DurationExpr, at: Option<AtModifier>) -> Result<TimeShift, EvalError> {
        let fixed_ms = at.map(|at| match at {
            AtModifier::Time(time_ms) => time_ms,
            AtModifier::Start => self.run.query.start_ms,
            AtModifier::End => self.run.query.end_ms,
        });
        Ok(TimeShift { fixed_ms, offset_ms: duration::offset_ms(self.run.query, offset)? })
    }

    fn select(
        &self,
        selector: &'q VectorSelector,
        grid: Grid,
        field: InstantField,
    ) -> Result<BoxOperator<'q>, EvalError> {
        let windows = self.instant_windows(selector, grid)?;
        if let (InstantField::Value, Some(aggregate)) = (field, self.counted_by.take()) {
            let grouping = Grouping::new(aggregate);
            return Ok(Box::new(Leaf::counted(self.run, selector, windows, self.parts(), &grouping)?));
        }
        Ok(Box::new(Leaf::new(self.run, selector, windows, self.parts(), LeafFn::Instant(field))?))
    }

    fn instant_windows(&self, selector: &VectorSelector, grid: Grid) -> Result<Windows, EvalError> {
        Ok(Windows::new(grid, self.shift(&selector.offset, selector.at)?, self.run.lookback_ms()))
    }

    fn aggregate(
        &self,
        aggregate: &'q Aggregate,
        span: Span,
        grid: Grid,
    ) -> Result<BoxOperator<'q>, EvalError> {
        let (run, hold, step_count) = (self.run, self.run.hold(), grid.count);
        let param = || match &aggregate.param {
            Some(param) => self.scalar(param, grid),
            None => Ok(StepScalar::Constant(f64::NAN)),
        };
        let grouping = Grouping::new(aggregate);
        match aggregate.op {
            AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk | AggregateOp::LimitRatio => {
                let param = param()?;
                let inner = self.vector(&aggregate.expr, grid)?;
                self.warn_of_ratio(aggregate, span, &param);
                Ok(Box::new(Rank::new(
                    run,
                    inner,
                    (aggregate.op, grouping),
                    param,
                    step_count,
                    Origin::own(span),
                )))
            }
            AggregateOp::CountValues => {
                let label = aggregate.param.as_ref().map_or(Ok(""), string_of)?;
                if !is_label_name(label) {
                    let name = aggregate.param.as_ref().and_then(|param| self.literal(param));
                    let name = name.map_or_else(|| format!("{label:?}"), str::to_owned);
                    return Err(EvalError::Execution(format!("invalid label name {name}")));
                }
                let inner = Some(self.scoped(StatsScope::Buckets, || self.vector(&aggregate.expr, grid))?);
                let results = Ready(Vec::new().into_iter());
                Ok(Box::new(CountValues { inner, grouping, label, results, hold }))
            }
            op => {
                let param =
                    if op == AggregateOp::Quantile { param()? } else { StepScalar::Constant(f64::NAN) };
                let counts = matches!(op, AggregateOp::Count | AggregateOp::Group);
                self.counted_by.set(counts.then_some(aggregate));
                let inner = self.fold_input(&aggregate.expr, grid)?;
                if let (AggregateOp::Quantile, Some(expr)) = (op, &aggregate.param) {
                    self.warn_of_quantile(&beyond(&param, 0.0, 1.0), expr, span);
                }
                Ok(Box::new(Fold::new(run, inner, (aggregate, span), param, step_count)))
            }
        }
    }

    /// A text as it is written in the query: bytes that are not UTF-8 are lost in the tree.
    fn literal(&self, expr: &Expr) -> Option<&'q str> {
        let Span { start, end } = unwrap_parens(expr).span;
        self.run.query.text.get(start as usize..end as usize).filter(|text| text.starts_with('"'))
    }

    fn warn_of_ratio(&self, aggregate: &Aggregate, speaker: Span, param: &StepScalar) {
        let Some(expr) = aggregate.param.as_ref().filter(|_| aggregate.op == AggregateOp::LimitRatio) else {
            return;
        };
        for &ratio in beyond(param, -1.0, 1.0).values().iter().filter(|ratio| !ratio.is_nan()) {
            let message = format!(
                "ratio value should be between -1 and 1, got {}, capping to {}",
                chronolith_model::histogram::go_float(ratio),
                ratio.signum()
            );
            let span = unwrap_parens(expr).span;
            self.run.annotations.warn(&message, Origin { span, speaker });
        }
    }

    /// Warns of quantiles outside 0..1.
    fn warn_of_quantile(&self, quantile: &StepScalar, expr: &Expr, speaker: Span) {
        let origin = Origin { span: unwrap_parens(expr).span, speaker };
        for &value in quantile.values().iter().filter(|&&v| !(0.0..=1.0).contains(&v)) {
            self.run.annotations.warn(&bad_quantile(value), origin);
        }
    }

    /// A chain `((a + b) - c) * d`, built from the innermost left side outwards: chains may be long, and a loop
    /// needs no stack.
    fn chain(&self, expr: &'q Expr, grid: Grid) -> Result<BoxOperator<'q>, EvalError> {
        let (base, spine) = left_spine(expr);
        // An operand stands below its own operator and all that follow.
        let last_reader = spine.iter().rposition(|binary| reads_buckets(binary.op));
        let operand = |expr: &'q Expr, first_above: usize| {
            if value_type(expr) == ValueType::Scalar {
                return Ok::<_, EvalError>(Side::Scalar(self.scalar(expr, grid)?));
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

    fn join(&self, left: Side<'q>, right: Side<'q>, binary: &'q Binary) -> Result<Side<'q>, EvalError> {
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
        let operator = Box::new(VectorScalar {
            run: self.run,
            inner,
            scalar,
            side,
            op,
            origin: origin_of(binary),
            notes: StepNotes::default(),
        });
        if op.drops_name() { self.merged_unless(distinct, operator) } else { operator }
    }

    fn vectors(
        &self,
        left: BoxOperator<'q>,
        right: BoxOperator<'q>,
        binary: &'q Binary,
    ) -> Result<BoxOperator<'q>, EvalError> {
        let run = self.run;
        let Some(matching) = binary.matching.as_ref() else {
            return Err(EvalError::Execution("operator between vectors without matching".to_owned()));
        };
        Ok(match binary.op {
            BinaryOp::And => Box::new(SetFilter::new(left, right, matching, Keep::Matched, run)),
            BinaryOp::Unless => Box::new(SetFilter::new(left, right, matching, Keep::Unmatched, run)),
            BinaryOp::Or => Merge::boxed(Box::new(SetUnion::new(left, right, matching, run.hold())), run),
            op => {
                let element_op = ElementOp::new(op, binary.return_bool, FilterSide::Left);
                Box::new(VectorVector::new(run, (left, right), matching, element_op, origin_of(binary)))
            }
        })
    }

    /// Merges what an operator yields that dropped the names of `inner`'s series, if two of them may be equal then.
    fn merged(&self, operator: BoxOperator<'q>, inner: &Expr) -> BoxOperator<'q> {
        self.merged_unless(stays_distinct(inner), operator)
    }

    fn merged_unless(&self, distinct: bool, operator: BoxOperator<'q>) -> BoxOperator<'q> {
        if self.run.delays_names() || distinct { operator } else { Merge::boxed(operator, self.run) }
    }
}

/// Where an operator's messages point: at its left side.
fn origin_of(binary: &Binary) -> Origin {
    let (left, right) = (binary.lhs.span, binary.rhs.span);
    Origin { span: left, speaker: Span { start: left.start, end: right.end } }
}

/// What an aggregation warns of in its parameter: NaN if there is one, the least value if it is below `low` and the
/// greatest if it is above `high`. Beside a NaN only infinities are told from it, as Go's minimum and maximum do.
fn beyond(param: &StepScalar, low: f64, high: f64) -> StepScalar {
    let values = param.values();
    let nan = values.iter().copied().find(|v| v.is_nan());
    let least = values.iter().copied().reduce(go_min).filter(|&v| v < low);
    let greatest = values.iter().copied().reduce(go_max).filter(|&v| v > high);
    StepScalar::PerStep(nan.into_iter().chain(least).chain(greatest).collect())
}

fn unexpected(want: ValueType, expr: &Expr) -> EvalError {
    EvalError::Execution(format!("expected {}, got {}", want.describe(), value_type(expr).describe()))
}

/// Returns true if an operator looks into the buckets of its operands.
fn reads_buckets(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::TrimLower | BinaryOp::TrimUpper | BinaryOp::Equal | BinaryOp::NotEqual)
}

/// The text of a string expression.
///
/// # Errors
/// It is none.
pub(crate) fn string_of(expr: &Expr) -> Result<&str, EvalError> {
    match &unwrap_parens(expr).kind {
        ExprKind::String(text) => Ok(text),
        _ => Err(unexpected(ValueType::String, expr)),
    }
}

/// Whether a text can name a label. The parser leaves U+FFFD where a literal holds bytes that are not UTF-8, so a
/// name with that character in it counts as one of those.
pub(crate) fn is_label_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::REPLACEMENT_CHARACTER)
}

/// Type of an expression's value.
pub(crate) fn value_type(expr: &Expr) -> ValueType {
    match &expr.kind {
        ExprKind::Number(_) => ValueType::Scalar,
        ExprKind::String(_) => ValueType::String,
        ExprKind::Selector(_) | ExprKind::Aggregate(_) => ValueType::Vector,
        ExprKind::Matrix(_) | ExprKind::Subquery(_) => ValueType::Matrix,
        ExprKind::Call(call) => call.function.returns,
        ExprKind::Paren(inner) | ExprKind::Unary(_, inner) => value_type(inner),
        ExprKind::Binary(_) => {
            let (base, spine) = left_spine(expr);
            let mut sides = std::iter::once(base).chain(spine.into_iter().map(|binary| &binary.rhs));
            let scalar = sides.all(|side| value_type(side) == ValueType::Scalar);
            if scalar { ValueType::Scalar } else { ValueType::Vector }
        }
    }
}

/// One side of an operator.
enum Side<'q> {
    Scalar(StepScalar),
    Vector {
        operator: BoxOperator<'q>,
        /// As [`stays_distinct`] says.
        distinct: bool,
    },
}

/// The innermost left side of a chain of operators, and the operators from there outwards.
fn left_spine(mut expr: &Expr) -> (&Expr, Vec<&Binary>) {
    let mut spine = Vec::new();
    while let ExprKind::Binary(binary) = &expr.kind {
        spine.push(&**binary);
        expr = &binary.lhs;
    }
    spine.reverse();
    (expr, spine)
}

/// Whether the result of an operator stays distinct without metric names; `None`: as its left side.
fn binary_stays_distinct(binary: &Binary) -> Option<bool> {
    match binary.op {
        BinaryOp::And | BinaryOp::Unless => None,
        BinaryOp::Or => Some(false),
        op if keeps_names(op) && !binary.return_bool => match &binary.matching {
            // Labels come from the "many" side, names from an included label, and none from what fills a gap.
            Some(m) if m.card == MatchCardinality::OneToMany => {
                Some(stays_distinct(&binary.rhs) && !brings_names(m))
            }
            Some(m) if brings_names(m) => Some(false),
            _ => None,
        },
        // Arithmetic drops names.
        _ => Some(!binary.matching.as_ref().is_some_and(brings_names)),
    }
}

/// Whether an operator passes on elements, or parts of them, of one side.
fn keeps_names(op: BinaryOp) -> bool {
    op.is_comparison() || matches!(op, BinaryOp::TrimLower | BinaryOp::TrimUpper)
}

/// Whether `group_left(__name__)`, or an element that stands for a missing one, may give results other names than those
/// of the series.
fn brings_names(matching: &VectorMatching) -> bool {
    matching.include.iter().any(|label| label == METRIC_NAME)
        || matching.fill_left.is_some()
        || matching.fill_right.is_some()
}

/// Bytes of the columns that the operators of an expression work with, one each.
pub(crate) fn columns_bytes(expr: &Expr, grid: Grid) -> u64 {
    grid.column_bytes().saturating_mul(vector_depth(expr) as u64 + 1)
}

/// How many operators over vectors stand inside each other at most.
pub(crate) fn vector_depth(expr: &Expr) -> usize {
    let (mut deepest, mut left) = (0, vec![(expr, 1)]);
    while let Some((expr, depth)) = left.pop() {
        deepest = deepest.max(depth);
        match &expr.kind {
            ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Selector(_) | ExprKind::Matrix(_) => {}
            ExprKind::Paren(inner) => left.push((inner, depth)),
            ExprKind::Unary(_, inner) => left.push((inner, depth + 1)),
            ExprKind::Subquery(subquery) => left.push((&subquery.expr, depth + 1)),
            ExprKind::Aggregate(aggregate) => {
                left.extend(aggregate.param.iter().map(|param| (param, depth + 1)));
                left.push((&aggregate.expr, depth + 1));
            }
            ExprKind::Binary(_) if value_type(expr) == ValueType::Scalar => {
                // Scalars are computed at once, a chain in a loop; what they are made of may still be deep.
                let (base, spine) = left_spine(expr);
                left.push((base, depth + 1));
                left.extend(spine.into_iter().map(|binary| (&binary.rhs, depth + 1)));
            }
            ExprKind::Binary(_) => {
                let (base, spine) = left_spine(expr);
                let count = spine.len();
                left.push((base, depth + count));
                left.extend(spine.into_iter().enumerate().map(|(at, b)| (&b.rhs, depth + count - at)));
            }
            ExprKind::Call(call) => left.extend(call.args.iter().map(|arg| (arg, depth + 1))),
        }
    }
    deepest
}

/// Whether series of `expr` stay different from each other without their metric names.
fn stays_distinct(expr: &Expr) -> bool {
    let one_name = |matchers: &[Matcher]| {
        matchers.iter().any(|m| &*m.name == METRIC_NAME && m.op == MatchOp::Equal && !m.value.is_empty())
    };
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => true,
        ExprKind::Selector(selector) => one_name(&selector.matchers),
        ExprKind::Matrix(matrix) => one_name(&matrix.selector.matchers),
        ExprKind::Subquery(subquery) => stays_distinct(&subquery.expr),
        ExprKind::Paren(inner) => stays_distinct(inner),
        // The name is gone already.
        ExprKind::Unary(op, inner) => *op == UnaryOp::Minus || stays_distinct(inner),
        ExprKind::Aggregate(aggregate) => match aggregate.op {
            AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::Limitk | AggregateOp::LimitRatio => {
                stays_distinct(&aggregate.expr)
            }
            // Values become names.
            AggregateOp::CountValues
                if aggregate
                    .param
                    .as_ref()
                    .is_some_and(|label| string_of(label).is_ok_and(|l| l == METRIC_NAME)) =>
            {
                false
            }
            _ => aggregate.without || !aggregate.grouping.iter().any(|label| label == METRIC_NAME),
        },
        ExprKind::Binary(_) => {
            let (base, spine) = left_spine(expr);
            let mut scalar = value_type(base) == ValueType::Scalar;
            let mut distinct = stays_distinct(base);
            for binary in spine {
                // A filter yields the series of its vector, whichever side that is.
                let of_vector = if scalar { stays_distinct(&binary.rhs) } else { distinct };
                distinct = binary_stays_distinct(binary).unwrap_or(of_vector);
                scalar &= value_type(&binary.rhs) == ValueType::Scalar;
            }
            distinct
        }
        ExprKind::Call(call) => function::result_stays_distinct(call),
    }
}

impl Planner<'_> {
    /// Returns true if an expression has the same value in all steps.
    fn is_step_invariant(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Number(_) | ExprKind::String(_) => true,
            ExprKind::Selector(selector) => selector.at.is_some(),
            ExprKind::Matrix(matrix) => matrix.selector.at.is_some(),
            ExprKind::Subquery(subquery) => subquery.at.is_some(),
            ExprKind::Paren(inner) | ExprKind::Unary(_, inner) => self.is_step_invariant(inner),
            ExprKind::Aggregate(aggregate) => {
                aggregate.param.as_ref().is_none_or(|param| self.is_step_invariant(param))
                    && self.is_step_invariant(&aggregate.expr)
            }
            ExprKind::Binary(_) => {
                let (base, spine) = left_spine(expr);
                self.is_step_invariant(base)
                    && spine.into_iter().all(|binary| self.is_step_invariant(&binary.rhs))
            }
            // The time of a sample that stays the same does, too.
            ExprKind::Call(call) if call.function.name == "timestamp" => call.args.iter().all(|arg| {
                let arg = unwrap_parens(arg);
                matches!(arg.kind, ExprKind::Selector(_)) && self.is_step_invariant(arg)
            }),
            // Without a reference in common, info series of the evaluation time are looked up.
            ExprKind::Call(call) if call.function.name == "info" => {
                call.args.first().is_some_and(|arg| self.is_step_invariant(arg) && self.shares_reference(arg))
            }
            ExprKind::Call(call) => {
                !function::depends_on_time(call) && call.args.iter().all(|arg| self.is_step_invariant(arg))
            }
        }
    }
}
