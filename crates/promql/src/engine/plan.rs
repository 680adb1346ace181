//! Lowering: the logical plan of a checked syntax tree.
//!
//! Invariants: operands are added in the order in which Prometheus evaluates them. Errors that Prometheus
//! reports while it evaluates become nodes that fail; the only errors here are errors of durations and of
//! trees that have not been checked.
//! Not here: functions by name (`plan::function`), operators (`exec::plan::operators`, `language`).

mod function;
mod windows;

use chronolith_exec::aggregate::Aggregation;
use chronolith_exec::arith::{ElementOp, FilterSide};
use chronolith_exec::error::Error;
use chronolith_exec::grid::{Grid, Windows};
use chronolith_exec::join::ScalarSide;
use chronolith_exec::map::ElementFn;
use chronolith_exec::plan::node::{
    FunctionNode, GroupLabels, MapFn, NameEffect, Named, NodeKind, ScalarFn, Selection,
};
use chronolith_exec::plan::properties::NameRules;
use chronolith_exec::plan::{OccurrenceId, Plan};
use chronolith_exec::samples::SampleParts;
use chronolith_exec::select::InstantField;
use chronolith_model::METRIC_NAME;

use super::query::{EngineOptions, Query};
use crate::ast::{
    Aggregate, AggregateOp, Binary, BinaryOp, Expr, ExprKind, MatrixSelector, RangeExtension, Span, Subquery,
    UnaryOp, ValueType, VectorSelector,
};
use chronolith_exec::metric_name::NameRemoval;

/// A plan without nodes.
pub(super) fn empty_plan(options: &EngineOptions) -> Plan {
    Plan::new(NameRules {
        are_delayed: options.name_removal == NameRemoval::Delayed,
        have_metadata: options.type_and_unit_labels,
    })
}

/// Adds a query over the steps of `grid` to a plan, and returns its root.
///
/// # Errors
/// Durations that cannot be computed. Parts of the query may have been added.
pub(super) fn lower(plan: &mut Plan, query: &Query<'_>, options: &EngineOptions, grid: Grid) -> Lowered {
    Lowering { query, options, plan }.expr(query.expr, Scope { grid, stats: StatsScope::Open })
}

/// The node of an expression, or the error of a duration in it.
type Lowered = Result<OccurrenceId, Error>;

/// Adds one query to a plan.
struct Lowering<'q> {
    query: &'q Query<'q>,
    options: &'q EngineOptions,
    plan: &'q mut Plan,
}

/// Context of an expression.
#[derive(Clone, Copy)]
struct Scope {
    grid: Grid,
    /// Parts of histograms that functions above need.
    stats: StatsScope,
}

/// Parts of histograms that functions above a selector need.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StatsScope {
    /// Unknown: no function above decides.
    Open,
    /// Only count and sum.
    StatsOnly,
    /// Buckets, whatever functions below need.
    Buckets,
}

impl Scope {
    /// Below a function that needs these parts. Buckets that functions further up need stay needed.
    fn within(self, stats: StatsScope) -> Scope {
        if self.stats == StatsScope::Buckets { self } else { Scope { stats, ..self } }
    }
}

impl Lowering<'_> {
    fn expr(&mut self, expr: &Expr, scope: Scope) -> Lowered {
        match &expr.kind {
            ExprKind::Number(number) => Ok(self.plan.push_constant(number.value)),
            // Not computed: texts are arguments of functions, or the whole query.
            ExprKind::String(_) => Ok(self.plan.push_constant(f64::NAN)),
            ExprKind::Paren(inner) | ExprKind::Unary(UnaryOp::Plus, inner) => self.expr(inner, scope),
            ExprKind::Unary(UnaryOp::Minus, inner) => {
                let operand = self.expr(inner, scope)?;
                if expr.value_type() == ValueType::Scalar {
                    return Ok(self.push(NodeKind::Scalar(ScalarFn::Negate), vec![operand], scope, &[], ""));
                }
                let negate = MapFn::Make(|_| ElementFn::Negate);
                let kind = NodeKind::Map(Named { name: "negate", function: negate });
                Ok(self.push(kind, vec![operand], scope, &[expr.span], "negate"))
            }
            ExprKind::Selector(selector) => {
                self.selector(selector, scope, InstantField::Value, expr.span, "select")
            }
            ExprKind::Matrix(matrix) => self.matrix(matrix, scope),
            ExprKind::Subquery(subquery) => self.subquery(subquery, scope),
            ExprKind::Aggregate(aggregate) => self.aggregate(aggregate, expr.span, scope),
            ExprKind::Binary(_) => self.chain(expr, scope),
            ExprKind::Call(call) => self.call(call, expr.span, scope),
        }
    }

    fn push(
        &mut self,
        kind: NodeKind,
        inputs: Vec<OccurrenceId>,
        scope: Scope,
        spans: &[Span],
        label: &'static str,
    ) -> OccurrenceId {
        let positions = spans.iter().map(|span| span.position()).collect();
        self.plan.push(kind, inputs, scope.grid, positions, label)
    }

    fn parts(&self, scope: Scope) -> SampleParts {
        let stats_only = scope.stats == StatsScope::StatsOnly;
        SampleParts { stats_only, start_times: self.options.start_times }
    }

    fn selector(
        &mut self,
        selector: &VectorSelector,
        scope: Scope,
        field: InstantField,
        span: Span,
        label: &'static str,
    ) -> Lowered {
        let windows = self.instant_windows(selector, scope.grid)?;
        let parts = self.parts(scope);
        let select = |windows| Selection::new(&selector.matchers, windows, parts);
        let is_smoothed = selector.extension == Some(RangeExtension::Smoothed);
        let kind = if is_smoothed && field == InstantField::Value {
            NodeKind::Smoothed(select(Windows { after_ms: windows.width_ms, ..windows }))
        } else {
            NodeKind::Latest(select(windows), field)
        };
        Ok(self.push(kind, Vec::new(), scope, &[span], label))
    }

    fn matrix(&mut self, matrix: &MatrixSelector, scope: Scope) -> Lowered {
        let windows = self.range_windows(matrix, scope.grid)?;
        let selection = Selection::new(&matrix.selector.matchers, windows, self.parts(scope));
        Ok(self.push(NodeKind::Samples(selection), Vec::new(), scope, &[], ""))
    }

    fn subquery(&mut self, subquery: &Subquery, scope: Scope) -> Lowered {
        let (grid, windows) = self.subquery_grid(subquery, scope.grid)?;
        let inner = Scope { grid: grid.unwrap_or(Grid::instant(windows.end(0))), ..scope };
        let inner = self.expr(&subquery.expr, inner.within(StatsScope::Buckets))?;
        Ok(self.push(NodeKind::Subquery(windows, grid), vec![inner], scope, &[], ""))
    }

    fn aggregate(&mut self, aggregate: &Aggregate, span: Span, scope: Scope) -> Lowered {
        let labels = GroupLabels::new(aggregate.grouping.clone(), aggregate.without);
        let label = aggregate.op.as_str();
        let kind = match aggregate.op {
            AggregateOp::CountValues => return self.count_values(aggregate, labels, span, scope),
            AggregateOp::Select(op) => NodeKind::Rank(op, labels),
            AggregateOp::Fold(op) => NodeKind::Aggregate(op, labels),
        };
        let mut spans = vec![span, aggregate.expr.unwrap_parens().span];
        let mut inputs = Vec::new();
        if let Some(param) = &aggregate.param {
            spans.push(param.unwrap_parens().span);
            inputs.push(self.expr(param, scope)?);
        }
        inputs.push(self.expr(&aggregate.expr, scope)?);
        debug_assert_eq!(
            inputs.len() == 2,
            matches!(kind, NodeKind::Rank(..) | NodeKind::Aggregate(Aggregation::Quantile, _)),
            "the parser checks that {label} has its parameter"
        );
        Ok(self.push(kind, inputs, scope, &spans, label))
    }

    fn count_values(
        &mut self,
        aggregate: &Aggregate,
        grouping: GroupLabels,
        span: Span,
        scope: Scope,
    ) -> Lowered {
        let label = aggregate.param.as_ref().map_or(Ok(""), string_of)?;
        let inner = self.expr(&aggregate.expr, scope.within(StatsScope::Buckets))?;
        if !is_label_name(label) {
            let name = aggregate.param.as_ref().and_then(|param| self.literal(param));
            let name = name.map_or_else(|| format!("{label:?}"), str::to_owned);
            let fail = NodeKind::Fail(format!("invalid label name {name}"));
            return Ok(self.push(fail, vec![inner], scope, &[span], "count_values"));
        }
        // Values may become names.
        let names = if label == METRIC_NAME {
            NameEffect::Rewrites
        } else if grouping.includes(METRIC_NAME) {
            NameEffect::Keeps
        } else {
            NameEffect::Drops
        };
        let function = FunctionNode::new("count_values", names);
        let texts = vec![label.to_owned()];
        let function = FunctionNode { texts, grouping, keeps_series: false, ..function };
        Ok(self.push(NodeKind::Function(function), vec![inner], scope, &[span], "count_values"))
    }

    /// A string literal as written in the query: bytes that are not UTF-8 are lost in the tree.
    fn literal(&self, expr: &Expr) -> Option<&str> {
        let Span { start, end } = expr.unwrap_parens().span;
        self.query.text.get(start as usize..end as usize).filter(|text| text.starts_with('"'))
    }

    /// A chain `((a + b) - c) * d`, from the innermost left side outwards: chains may be long, and a loop
    /// needs no stack.
    fn chain(&mut self, expr: &Expr, scope: Scope) -> Lowered {
        let (base, spine) = expr.left_spine();
        // An operand is below its own operator and all that follow.
        let last_reader = spine.iter().rposition(|binary| reads_buckets(binary.op));
        let operand_scope = |first_above: usize| {
            let is_read = last_reader.is_some_and(|reader| reader >= first_above);
            if is_read { scope.within(StatsScope::Buckets) } else { scope }
        };
        let is_scalar = |expr: &Expr| expr.value_type() == ValueType::Scalar;
        let mut left_is_scalar = is_scalar(base);
        let mut left = self.expr(base, if left_is_scalar { scope } else { operand_scope(0) })?;
        let count = spine.len();
        for (idx, binary) in spine.into_iter().enumerate() {
            let right_is_scalar = is_scalar(&binary.rhs);
            let right_scope = if right_is_scalar { scope } else { operand_scope(idx) };
            let right = self.expr(&binary.rhs, right_scope)?;
            let kind = binary_kind(binary, left_is_scalar, right_is_scalar);
            left_is_scalar &= right_is_scalar;
            let lhs = binary.lhs.span;
            let span = Span { start: lhs.start, end: binary.rhs.span.end };
            // The whole chain is one operator in reports.
            let label = if idx + 1 == count && !left_is_scalar { binary.op.as_str() } else { "" };
            let spans: &[Span] = if left_is_scalar { &[] } else { &[span, lhs] };
            left = self.push(kind, vec![left, right], scope, spans, label);
        }
        Ok(left)
    }
}

fn binary_kind(binary: &Binary, left_is_scalar: bool, right_is_scalar: bool) -> NodeKind {
    let element_op = |keeps| ElementOp::new(binary.op, binary.return_bool, keeps);
    // The parser sets it if both sides are vectors.
    let matching = || binary.matching.clone().unwrap_or_default();
    match (left_is_scalar, right_is_scalar) {
        (true, true) => NodeKind::Scalar(ScalarFn::Binary(binary.op)),
        (true, false) => NodeKind::VectorScalar(element_op(FilterSide::Right), ScalarSide::Left),
        (false, true) => NodeKind::VectorScalar(element_op(FilterSide::Left), ScalarSide::Right),
        (false, false) if binary.op.is_set() => NodeKind::Set(binary.op, matching()),
        (false, false) => NodeKind::Join(element_op(FilterSide::Left), matching()),
    }
}

/// Returns true if an operator looks into the buckets of its operands.
fn reads_buckets(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::TrimLower | BinaryOp::TrimUpper | BinaryOp::Equal | BinaryOp::NotEqual)
}

/// The text of a string expression.
///
/// # Errors
/// The expression is not a string.
pub(super) fn string_of(expr: &Expr) -> Result<&str, Error> {
    match &expr.unwrap_parens().kind {
        ExprKind::String(text) => Ok(text),
        _ => {
            let found = expr.value_type().describe();
            Err(Error::Language(format!("expected {}, got {found}", ValueType::String.describe())))
        }
    }
}

/// Returns true if a text can name a label. The parser leaves U+FFFD where a literal holds bytes that are not
/// UTF-8, so a name with that character in it counts as one of those.
pub(super) fn is_label_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::REPLACEMENT_CHARACTER)
}
