//! Lowering of functions by name.
//! Invariants: every function of the language is here or refused with its name; none is silently wrong.
//! Not here: evaluation of the functions that only PromQL has (`language`).

use chronolith_exec::column::StepScalar;
use chronolith_exec::grid::{TimeShift, Windows};
use chronolith_exec::plan::OccurrenceId;
use chronolith_exec::plan::node::{
    FunctionNode, MakeRollup, NameEffect, Named, NodeKind, RollupNode, ScalarFn, Selection,
};
use chronolith_exec::plan::properties::Reference;
use chronolith_exec::rollup::Rollup;
use chronolith_exec::samples::SampleParts;
use chronolith_exec::select::InstantField;
use chronolith_model::{Labels, METRIC_NAME};

use super::{Lowered, Lowering, Scope, StatsScope, string_of};
use crate::ast::{AggregateOp, Call, Expr, ExprKind, RangeExtension, Span, ValueType};
use crate::engine::call::absent::labels_of_absent;
use crate::engine::call::calendar::CalendarField;
use crate::engine::call::math::map_fn;
use crate::engine::call::stats::HistogramStat;

impl Lowering<'_> {
    pub(super) fn call(&mut self, call: &Call, span: Span, scope: Scope) -> Lowered {
        let name = call.function.name;
        if call.function.returns == ValueType::Scalar {
            return self.scalar_call(call, span, scope);
        }
        if call.function.args.contains(&ValueType::Matrix) {
            let scope = if name == "changes" { scope.within(StatsScope::Buckets) } else { scope };
            return self.range_call(call, span, scope);
        }
        match (name, &call.args[..]) {
            ("absent", [vector]) => {
                // `absent` over a selector needs neither values nor statistics of histograms.
                let is_selector = matches!(vector.unwrap_parens().kind, ExprKind::Selector(_));
                let stats = if is_selector { StatsScope::Open } else { StatsScope::StatsOnly };
                let inner = self.expr(vector, scope.within(stats))?;
                Ok(self.push(NodeKind::Absent(absent_labels(vector)), vec![inner], scope, &[span], name))
            }
            ("timestamp" | "start_timestamp", [vector]) => self.timestamp(call, vector, span, scope),
            ("info", [vector, selector @ ..]) => self.info(vector, selector.first(), span, scope),
            ("vector", [_]) => {
                self.function(call, FunctionNode::new(name, NameEffect::Drops), span, scope, scope)
            }
            ("sort" | "sort_desc" | "sort_by_label" | "sort_by_label_desc", _) => {
                self.function(call, FunctionNode::new(name, NameEffect::Keeps), span, scope, scope)
            }
            ("label_replace" | "label_join", [vector, target, ..]) => {
                let names = self.effect_of_label(vector, string_of(target)?);
                self.function(call, FunctionNode::new(name, names), span, scope, scope)
            }
            (_, []) if CalendarField::function(name).is_some() => {
                let function = FunctionNode::new(name, NameEffect::Drops);
                let function = FunctionNode { depends_on_time: true, ..function };
                self.function(call, function, span, scope, scope)
            }
            _ if name.starts_with("histogram_") => {
                let is_stats_only = HistogramStat::named(name).is_some_and(HistogramStat::is_stats_only);
                let stats = if is_stats_only { StatsScope::StatsOnly } else { StatsScope::Buckets };
                let function = FunctionNode::new(name, NameEffect::Removes);
                let function = FunctionNode { keeps_series: false, ..function };
                self.function(call, function, span, scope, scope.within(stats))
            }
            (_, args) => match map_fn(name) {
                Some(function) if !args.is_empty() => {
                    let inputs = args.iter().map(|arg| self.expr(arg, scope)).collect::<Result<_, _>>()?;
                    let kind = NodeKind::Map(Named { name, function });
                    Ok(self.push(kind, inputs, scope, &[span], name))
                }
                _ => Ok(self.unsupported(call, span, scope)),
            },
        }
    }

    /// A function that yields a scalar.
    fn scalar_call(&mut self, call: &Call, span: Span, scope: Scope) -> Lowered {
        let query = self.query;
        let of_query = |lowering: &mut Self, ms: i64| {
            lowering.plan.set_depends_on_range();
            Ok(lowering.plan.push_constant(ms as f64 / 1000.0))
        };
        let kind = match call.function.name {
            "pi" => return Ok(self.plan.push_constant(std::f64::consts::PI)),
            "start" => return of_query(self, query.start_ms),
            "end" => return of_query(self, query.end_ms),
            "range" => return of_query(self, query.end_ms - query.start_ms),
            // A query with one time has no step, however it was asked.
            "step" if query.start_ms == query.end_ms => return of_query(self, 0),
            "step" => return of_query(self, query.step_ms),
            "time" => NodeKind::Times,
            "scalar" => NodeKind::ScalarOf,
            "min_of" => NodeKind::Scalar(ScalarFn::Min),
            "max_of" => NodeKind::Scalar(ScalarFn::Max),
            _ => return Ok(self.unsupported(call, span, scope)),
        };
        let inputs = call.args.iter().map(|arg| self.expr(arg, scope)).collect::<Result<_, _>>()?;
        Ok(self.push(kind, inputs, scope, &[], ""))
    }

    /// A function that only PromQL has: texts are arguments of the node, other arguments its inputs. The
    /// vector is evaluated in a scope of its own.
    fn function(
        &mut self,
        call: &Call,
        mut function: FunctionNode,
        span: Span,
        scope: Scope,
        vector_scope: Scope,
    ) -> Lowered {
        let mut inputs = Vec::new();
        let mut spans = vec![span];
        for arg in &call.args {
            match arg.value_type() {
                ValueType::String => function.texts.push(string_of(arg)?.to_owned()),
                of_arg => {
                    let scope = if of_arg == ValueType::Vector { vector_scope } else { scope };
                    inputs.push(self.expr(arg, scope)?);
                    spans.push(arg.unwrap_parens().span);
                }
            }
        }
        Ok(self.push(NodeKind::Function(function), inputs, scope, &spans, call.function.name))
    }

    /// Times of the samples of a selector; for other expressions, the times of the steps. Only selectors know
    /// when counters started.
    fn timestamp(&mut self, call: &Call, vector: &Expr, span: Span, scope: Scope) -> Lowered {
        let name = call.function.name;
        let is_start = name == "start_timestamp";
        let field = if is_start { InstantField::StartTime } else { InstantField::Time };
        match &vector.unwrap_parens().kind {
            ExprKind::Selector(selector) if !is_start || self.options.start_times => {
                self.selector(selector, scope, field, span, name)
            }
            _ => {
                let function = FunctionNode::new(name, NameEffect::Removes);
                let function = FunctionNode { depends_on_time: !is_start, ..function };
                self.function(call, function, span, scope, scope.within(StatsScope::StatsOnly))
            }
        }
    }

    fn info(&mut self, vector: &Expr, selector: Option<&Expr>, span: Span, scope: Scope) -> Lowered {
        // Info series are looked up at a time of their own.
        self.plan.set_depends_on_range();
        let inner = self.expr(vector, scope)?;
        let matchers = match selector.map(|selector| &selector.unwrap_parens().kind) {
            Some(ExprKind::Selector(selector)) => {
                // The offset is not used, but has to be a duration.
                self.selector_shift(selector)?;
                &selector.matchers[..]
            }
            _ => &[],
        };
        // Without a reference in common, info series of the evaluation time are looked up.
        let (shift, depends_on_time) = match self.plan.properties(inner).reference {
            Reference::Shared(shift) => (shift, false),
            _ => (TimeShift { fixed_ms: None, offset_ms: 0 }, true),
        };
        let windows = Windows::new(scope.grid, shift, self.lookback_ms());
        let function = FunctionNode {
            selection: Some(Selection::new(matchers, windows, SampleParts::default())),
            depends_on_time,
            ..FunctionNode::new("info", NameEffect::Rewrites)
        };
        Ok(self.push(NodeKind::Function(function), vec![inner], scope, &[span], "info"))
    }

    /// An overwritten label may be the only difference of two series; one that no series has is safe.
    fn effect_of_label(&self, vector: &Expr, target: &str) -> NameEffect {
        let is_absent = match &vector.unwrap_parens().kind {
            ExprKind::Aggregate(aggregate) => {
                let groups_by_target = aggregate.grouping.iter().any(|label| label == target);
                matches!(aggregate.op, AggregateOp::Fold(_)) && !aggregate.without && !groups_by_target
            }
            _ => false,
        };
        if is_absent && target != METRIC_NAME { NameEffect::Keeps } else { NameEffect::Rewrites }
    }

    fn range_call(&mut self, call: &Call, span: Span, scope: Scope) -> Lowered {
        let name = call.function.name;
        let is_range = |arg: &&Expr| arg.value_type() == ValueType::Matrix;
        let Some(range_expr) = call.args.iter().find(is_range) else {
            return Ok(self.unsupported(call, span, scope));
        };
        let (extension, range_span) = match &range_expr.unwrap_parens().kind {
            ExprKind::Matrix(matrix) => (matrix.selector.extension, range_expr.unwrap_parens().span),
            // Prometheus points at the beginning of the query.
            _ => (None, Span::default()),
        };
        let mut inputs = vec![self.expr(range_expr, scope)?];
        for param in call.args.iter().filter(|arg| !is_range(arg)) {
            inputs.push(self.expr(param, scope)?);
        }
        if let Some(message) = refused_extension(name, extension) {
            return Ok(self.push(NodeKind::Fail(message), inputs, scope, &[span], name));
        }
        if name == "absent_over_time" {
            return Ok(self.push(NodeKind::Absent(absent_labels(range_expr)), inputs, scope, &[span], name));
        }
        let Some(make) = rollup(name) else { return Ok(self.unsupported(call, span, scope)) };
        // The parameter of the warning is the last one of `integral`, otherwise the first one.
        let param = if name == "integral" { call.args.last() } else { call.args.first() };
        let param_span = param.map_or(range_span, |param| param.unwrap_parens().span);
        let keeps_name = matches!(name, "first_over_time" | "last_over_time");
        let names = if keeps_name { NameEffect::Keeps } else { NameEffect::Removes };
        let depends_on_time = name == "predict_linear";
        let kind = RollupNode { extension, names, depends_on_time, ..RollupNode::new(name, make) };
        let kind = NodeKind::Rollup(kind);
        Ok(self.push(kind, inputs, scope, &[span, range_span, param_span], name))
    }

    fn unsupported(&mut self, call: &Call, span: Span, scope: Scope) -> OccurrenceId {
        let name = call.function.name;
        let message = format!("function {name}() is not supported by this version");
        self.push(NodeKind::Fail(message), Vec::new(), scope, &[span], name)
    }
}

fn rollup(name: &str) -> Option<MakeRollup> {
    Some(match name {
        "rate" => |_| Rollup::Rate,
        "increase" => |_| Rollup::Increase,
        "delta" => |_| Rollup::Delta,
        "irate" => |_| Rollup::InstantRate,
        "idelta" => |_| Rollup::InstantDelta,
        "deriv" => |_| Rollup::Deriv,
        "resets" => |_| Rollup::Resets,
        "changes" => |_| Rollup::Changes,
        "sum_over_time" => |_| Rollup::Sum,
        "avg_over_time" => |_| Rollup::Avg,
        "min_over_time" => |_| Rollup::Min,
        "max_over_time" => |_| Rollup::Max,
        "count_over_time" => |_| Rollup::Count,
        "first_over_time" => |_| Rollup::First,
        "last_over_time" => |_| Rollup::Last,
        "present_over_time" => |_| Rollup::Present,
        "stddev_over_time" => |_| Rollup::Stddev,
        "stdvar_over_time" => |_| Rollup::Stdvar,
        "mad_over_time" => |_| Rollup::Mad,
        "ts_of_first_over_time" => |_| Rollup::TimeOfFirst,
        "ts_of_last_over_time" => |_| Rollup::TimeOfLast,
        "ts_of_max_over_time" => |_| Rollup::TimeOfMax,
        "ts_of_min_over_time" => |_| Rollup::TimeOfMin,
        "integral" => |params| Rollup::Integral(params.take().unwrap_or(StepScalar::Constant(2.0))),
        "predict_linear" => |params| Rollup::PredictLinear(params.take_or_nan()),
        "quantile_over_time" => |params| Rollup::Quantile(params.take_or_nan()),
        "double_exponential_smoothing" => {
            |params| Rollup::Smoothing(params.take_or_nan(), params.take_or_nan())
        }
        _ => return None,
    })
}

/// The message if a function does not know what to do with samples outside of the range.
fn refused_extension(name: &str, extension: Option<RangeExtension>) -> Option<String> {
    const ANCHORED: &[&str] = &["changes", "delta", "increase", "rate", "resets"];
    const SMOOTHED: &[&str] = &["delta", "increase", "rate"];
    let (word, functions) = match extension? {
        RangeExtension::Anchored => ("anchored", ANCHORED),
        RangeExtension::Smoothed => ("smoothed", SMOOTHED),
    };
    let message =
        || format!("{word} modifier can only be used with: {} - not with {name}", functions.join(", "));
    (!functions.contains(&name)).then(message)
}

fn absent_labels(expr: &Expr) -> Labels {
    match &expr.unwrap_parens().kind {
        ExprKind::Selector(selector) => labels_of_absent(&selector.matchers),
        ExprKind::Matrix(matrix) => labels_of_absent(&matrix.selector.matchers),
        _ => Labels::empty(),
    }
}
