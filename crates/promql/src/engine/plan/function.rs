//! Functions by name: the operators that compute them.
//! Invariants: every function of the language is here or refused with its name; none is silently wrong.

use chronolith_exec::arith::{go_max, go_min};
use chronolith_exec::column::{StepScalar, StepSeries};
use chronolith_exec::error::Error;
use chronolith_exec::grid::{Grid, Windows};
use chronolith_exec::map::{ElementFn, absent, drop_name, map_values, step_times, to_scalar};
use chronolith_exec::note::{Note, Severity};
use chronolith_exec::operator::{Blocking, BoxOperator};
use chronolith_exec::rollup::Rollup;
use chronolith_exec::scan::{Scan, ScanFn};
use chronolith_exec::select::InstantField;
use chronolith_exec::window::{RangeCall, RangeFn, absent_over_time};
use chronolith_model::Labels;

use super::properties::{is_label_name, stays_distinct, string_of};
use super::reference_time::reference_shift;
use super::{Planner, StatsScope};
use crate::ast::{Call, Expr, ExprKind, RangeExtension, Span, ValueType};
use crate::engine::call::absent::labels_of_absent;
use crate::engine::call::buckets::{BucketCall, BucketFn};
use crate::engine::call::calendar::CalendarField;
use crate::engine::call::counter_check;
use crate::engine::call::label::{self, label_join, label_replace};
use crate::engine::call::math::element_fn;
use crate::engine::call::order::{Direction, SortKey, sort};
use crate::engine::call::stats::{HistogramStat, histogram_stats};
use crate::engine::call::target_info::TargetInfo;

impl<'q> Planner<'q> {
    /// A function that yields a scalar.
    pub(super) fn scalar_call(&self, call: &'q Call, grid: Grid) -> Result<StepScalar, Error> {
        let query = self.evaluation.query;
        let seconds = |ms: i64| ms as f64 / 1000.0;
        Ok(match (call.function.name, &call.args[..]) {
            ("time", _) => StepScalar::PerStep(grid.times().map(seconds).collect()),
            ("pi", _) => StepScalar::Constant(std::f64::consts::PI),
            ("start", _) => StepScalar::Constant(seconds(query.start_ms)),
            ("end", _) => StepScalar::Constant(seconds(query.end_ms)),
            ("range", _) => StepScalar::Constant(seconds(query.end_ms - query.start_ms)),
            // A query with one time has no step, however it was asked.
            ("step", _) if query.start_ms == query.end_ms => StepScalar::Constant(0.0),
            ("step", _) => StepScalar::Constant(seconds(query.step_ms)),
            ("scalar", [vector]) => to_scalar(self.vector(vector, grid)?, grid.count)?,
            ("min_of", [a, b]) => self.scalar(a, grid)?.combine(self.scalar(b, grid)?, go_min),
            ("max_of", [a, b]) => self.scalar(a, grid)?.combine(self.scalar(b, grid)?, go_max),
            _ => return Err(unsupported(call)),
        })
    }

    /// A function that yields a vector.
    pub(super) fn call(&self, call: &'q Call, span: Span, grid: Grid) -> Result<BoxOperator<'q>, Error> {
        let name = call.function.name;
        if name == "changes" {
            return self.scoped(StatsScope::Buckets, || self.range_call(call, span, grid));
        }
        if call.function.args.contains(&ValueType::Matrix) {
            return self.range_call(call, span, grid);
        }
        match (name, &call.args[..]) {
            ("vector", [scalar]) => {
                let scalar = self.scalar(scalar, grid)?;
                Ok(self.constant((0..grid.count).map(|step| scalar.at(step)).collect()))
            }
            ("absent", [vector]) => {
                let labels = absent_labels(vector);
                // Of a selector itself not even that much is read.
                let is_selector = matches!(vector.unwrap_parens().kind, ExprKind::Selector(_));
                let scope = if is_selector { StatsScope::Open } else { StatsScope::StatsOnly };
                let inner = self.scoped(scope, || self.vector(vector, grid))?;
                Ok(absent(self.execution(), inner, grid.count, labels))
            }
            ("timestamp", [vector]) => self.timestamp(vector, grid),
            ("start_timestamp", [vector]) => self.start_timestamp(vector, grid),
            ("info", [vector, selector @ ..]) => self.info(vector, selector.first(), grid),
            ("sort" | "sort_desc" | "sort_by_label" | "sort_by_label_desc", [vector, labels @ ..]) => {
                self.sort(call, vector, labels, span, grid)
            }
            ("label_replace", [vector, target, template, source, pattern]) => {
                let inner = self.vector(vector, grid)?;
                let regex = label::compile(string_of(pattern)?)?;
                let target = label_name(target, name)?;
                let (template, source) = (string_of(template)?, string_of(source)?);
                let operator = label_replace(inner, regex, target, template, source);
                Ok(Blocking::merge(self.execution(), operator))
            }
            ("label_join", [vector, target, separator, sources @ ..]) => {
                let inner = self.vector(vector, grid)?;
                let sources: Vec<&str> = sources.iter().map(string_of).collect::<Result<_, _>>()?;
                if let Some(bad) = sources.iter().find(|source| !is_label_name(source)) {
                    let message = format!("invalid source label name in {name}(): {bad}");
                    return Err(Error::Language(message));
                }
                let (target, separator) = (label_name(target, name)?, string_of(separator)?);
                let operator = label_join(inner, target, separator, sources);
                Ok(Blocking::merge(self.execution(), operator))
            }
            ("histogram_quantile" | "histogram_quantiles" | "histogram_fraction", args) => {
                self.bucket_call(call, args, span, grid)
            }
            (_, []) => match CalendarField::function(name) {
                Some(field) => {
                    Ok(self.constant(grid.times().map(|time| field((time / 1000) as f64)).collect()))
                }
                None => Err(unsupported(call)),
            },
            (_, [vector]) if HistogramStat::named(name).is_some() => self.histogram_stat(name, vector, grid),
            (_, [vector, params @ ..]) => {
                let function = self.element_fn(call, params, grid)?;
                let operator = map_values(self.execution(), self.vector(vector, grid)?, function);
                Ok(self.merged(operator, vector))
            }
        }
    }

    /// One series without labels.
    fn constant(&self, values: Vec<f64>) -> BoxOperator<'q> {
        Blocking::boxed(self.execution(), |_| Ok(vec![StepSeries::floats(Labels::empty(), values)]))
    }

    fn element_fn(&self, call: &'q Call, params: &'q [Expr], grid: Grid) -> Result<ElementFn, Error> {
        Ok(match (call.function.name, params) {
            ("clamp", [least, greatest]) => {
                ElementFn::Clamp(self.scalar(least, grid)?, self.scalar(greatest, grid)?)
            }
            ("clamp_min", [least]) => ElementFn::ClampMin(self.scalar(least, grid)?),
            ("clamp_max", [greatest]) => ElementFn::ClampMax(self.scalar(greatest, grid)?),
            ("round", []) => ElementFn::Round(StepScalar::Constant(1.0)),
            ("round", [unit]) => ElementFn::Round(self.scalar(unit, grid)?),
            (name, []) => element_fn(name).ok_or_else(|| unsupported(call))?,
            _ => return Err(unsupported(call)),
        })
    }

    fn timestamp(&self, vector: &'q Expr, grid: Grid) -> Result<BoxOperator<'q>, Error> {
        let execution = self.execution();
        let operator: BoxOperator<'q> = match &vector.unwrap_parens().kind {
            ExprKind::Selector(selector) => {
                drop_name(execution, self.select(selector, grid, InstantField::Time)?)
            }
            _ => {
                let inner = self.scoped(StatsScope::StatsOnly, || self.vector(vector, grid))?;
                step_times(execution, inner, grid)
            }
        };
        Ok(self.merged(operator, vector))
    }

    /// Only selectors know when counters started; of anything else there is no result.
    fn start_timestamp(&self, vector: &'q Expr, grid: Grid) -> Result<BoxOperator<'q>, Error> {
        match &vector.unwrap_parens().kind {
            ExprKind::Selector(selector) if self.evaluation.options.start_times => {
                let inner = self.select(selector, grid, InstantField::StartTime)?;
                Ok(self.merged(drop_name(self.execution(), inner), vector))
            }
            _ => {
                let mut inner = self.scoped(StatsScope::StatsOnly, || self.vector(vector, grid))?;
                // Errors and annotations of the argument are reported nevertheless.
                while inner.next(&mut StepSeries::default())? {}
                Ok(Blocking::boxed(self.execution(), |_| Ok(Vec::new())))
            }
        }
    }

    fn info(
        &self,
        vector: &'q Expr,
        selector: Option<&'q Expr>,
        grid: Grid,
    ) -> Result<BoxOperator<'q>, Error> {
        let matchers = match selector.map(|selector| &selector.unwrap_parens().kind) {
            Some(ExprKind::Selector(selector)) => &selector.matchers[..],
            _ => &[],
        };
        let shift = reference_shift(self.evaluation, vector)?;
        let windows = Windows::new(grid, shift, self.evaluation.lookback_ms());
        let execution = self.execution();
        let info = TargetInfo { execution, matchers, windows };
        let mut inner = self.vector(vector, grid)?;
        Ok(Blocking::boxed(execution, move |memory| info.compute(&mut *inner, memory)))
    }

    fn histogram_stat(&self, name: &str, vector: &'q Expr, grid: Grid) -> Result<BoxOperator<'q>, Error> {
        let stat = HistogramStat::named(name).unwrap_or(HistogramStat::Count);
        let inner = if stat.is_stats_only() {
            self.scoped(StatsScope::StatsOnly, || self.vector(vector, grid))?
        } else {
            self.scoped(StatsScope::Buckets, || self.vector(vector, grid))?
        };
        Ok(self.merged(histogram_stats(self.execution(), inner, stat), vector))
    }

    fn sort(
        &self,
        call: &'q Call,
        vector: &'q Expr,
        labels: &'q [Expr],
        span: Span,
        grid: Grid,
    ) -> Result<BoxOperator<'q>, Error> {
        let inner = self.vector(vector, grid)?;
        // With one step, as in an instant query, elements have an order.
        if grid.start_ms != grid.end_ms {
            let text = "sort is ineffective for range queries since results are always ordered by labels";
            let note = Note::Language(Severity::Warning, text.into());
            self.execution().annotations.add(note, span.emitted_by(span));
        }
        let name = call.function.name;
        let direction = if name.ends_with("_desc") { Direction::Descending } else { Direction::Ascending };
        let key = if name.starts_with("sort_by_label") {
            let names = labels.iter().map(|label| string_of(label).map(str::to_owned));
            SortKey::Labels(names.collect::<Result<_, _>>()?, direction)
        } else {
            SortKey::Value(direction)
        };
        Ok(sort(self.execution(), inner, key))
    }

    fn bucket_call(
        &self,
        call: &'q Call,
        args: &'q [Expr],
        emitter: Span,
        grid: Grid,
    ) -> Result<BoxOperator<'q>, Error> {
        let vector = args.iter().find(|arg| arg.value_type() == ValueType::Vector);
        let Some(vector) = vector else { return Err(unsupported(call)) };
        let mut inner = self.scoped(StatsScope::Buckets, || self.vector(vector, grid))?;
        let function = match (call.function.name, args) {
            ("histogram_quantile", [quantile, _]) => {
                let values = self.scalar(quantile, grid)?;
                self.warn_of_quantile(&values, quantile, emitter);
                BucketFn::Quantile(values)
            }
            ("histogram_quantiles", [_, label, quantiles @ ..]) => {
                let mut all = Vec::new();
                for quantile in quantiles {
                    let values = self.scalar(quantile, grid)?;
                    self.warn_of_quantile(&values, quantile, emitter);
                    all.push(values);
                }
                BucketFn::Quantiles(label_name(label, call.function.name)?.to_owned(), all)
            }
            ("histogram_fraction", [lower, upper, _]) => {
                BucketFn::Fraction(self.scalar(lower, grid)?, self.scalar(upper, grid)?)
            }
            _ => return Err(unsupported(call)),
        };
        let execution = self.execution();
        let origin = vector.unwrap_parens().span.emitted_by(emitter);
        let call = BucketCall { execution, function, origin, grid };
        let computed = Blocking::boxed(execution, move |memory| call.compute(&mut *inner, memory));
        Ok(Blocking::merge(execution, computed))
    }

    fn range_call(&self, call: &'q Call, emitter: Span, grid: Grid) -> Result<BoxOperator<'q>, Error> {
        let of_matrix = |arg: &&Expr| arg.value_type() == ValueType::Matrix;
        let Some(matrix) = call.args.iter().find(of_matrix) else { return Err(unsupported(call)) };
        if call.function.name == "absent_over_time" {
            if let ExprKind::Matrix(selector) = &matrix.unwrap_parens().kind {
                check_extension(call.function.name, selector.selector.extension)?;
            }
            let (source, windows) = self.windows(matrix, grid)?;
            let labels = absent_labels(matrix);
            return Ok(absent_over_time(self.execution(), source, windows, labels));
        }
        let (execution, rollup) = (self.execution(), self.rollup(call, grid)?);
        let span = matrix.unwrap_parens().span;
        // The parameter that may be warned of stands last in `integral`, else first.
        let param = if call.function.name == "integral" { call.args.last() } else { call.args.first() };
        let param_span = param.map_or(span, |param| param.unwrap_parens().span);
        let param_origin = param_span.emitted_by(emitter);
        let keeps_name = rollup.keeps_name();
        let counter_check = counter_check::of(self.evaluation.options);
        let function = |windows, extension, position: Span| {
            let origin = position.emitted_by(emitter);
            RangeFn { execution, windows, rollup, extension, origin, param_origin, counter_check }
        };
        let operator: BoxOperator<'q> = if let ExprKind::Matrix(selector) = &matrix.unwrap_parens().kind {
            let windows = self.evaluation.range_windows(selector, grid)?;
            let extension = selector.selector.extension;
            check_extension(call.function.name, extension)?;
            let function = ScanFn::Range(function(windows, extension, span));
            let matchers = &selector.selector.matchers;
            Box::new(Scan::new(execution, matchers, windows, self.parts(), function, None)?)
        } else {
            let (source, windows) = self.windows(matrix, grid)?;
            Box::new(RangeCall::new(source, function(windows, None, Span::default())))
        };
        let distinct = keeps_name || execution.delays_names() || stays_distinct(matrix);
        Ok(if distinct { operator } else { Blocking::merge(execution, operator) })
    }

    fn rollup(&self, call: &'q Call, grid: Grid) -> Result<Rollup, Error> {
        Ok(match (call.function.name, &call.args[..]) {
            ("rate", _) => Rollup::Rate,
            ("increase", _) => Rollup::Increase,
            ("delta", _) => Rollup::Delta,
            ("irate", _) => Rollup::InstantRate,
            ("idelta", _) => Rollup::InstantDelta,
            ("deriv", _) => Rollup::Deriv,
            ("resets", _) => Rollup::Resets,
            ("changes", _) => Rollup::Changes,
            ("sum_over_time", _) => Rollup::Sum,
            ("avg_over_time", _) => Rollup::Avg,
            ("min_over_time", _) => Rollup::Min,
            ("max_over_time", _) => Rollup::Max,
            ("count_over_time", _) => Rollup::Count,
            ("first_over_time", _) => Rollup::First,
            ("last_over_time", _) => Rollup::Last,
            ("present_over_time", _) => Rollup::Present,
            ("stddev_over_time", _) => Rollup::Stddev,
            ("stdvar_over_time", _) => Rollup::Stdvar,
            ("mad_over_time", _) => Rollup::Mad,
            ("ts_of_first_over_time", _) => Rollup::TimeOfFirst,
            ("ts_of_last_over_time", _) => Rollup::TimeOfLast,
            ("ts_of_max_over_time", _) => Rollup::TimeOfMax,
            ("ts_of_min_over_time", _) => Rollup::TimeOfMin,
            ("integral", [_]) => Rollup::Integral(StepScalar::Constant(2.0)),
            ("integral", [_, strategy]) => Rollup::Integral(self.scalar(strategy, grid)?),
            ("predict_linear", [_, ahead]) => Rollup::PredictLinear(self.scalar(ahead, grid)?),
            ("quantile_over_time", [quantile, _]) => Rollup::Quantile(self.scalar(quantile, grid)?),
            ("double_exponential_smoothing", [_, level, trend]) => {
                Rollup::Smoothing(self.scalar(level, grid)?, self.scalar(trend, grid)?)
            }
            _ => return Err(unsupported(call)),
        })
    }
}

/// Functions that know what to do with samples outside of the range.
fn check_extension(name: &str, extension: Option<RangeExtension>) -> Result<(), Error> {
    const ANCHORED: &[&str] = &["changes", "delta", "increase", "rate", "resets"];
    const SMOOTHED: &[&str] = &["delta", "increase", "rate"];
    let (word, functions) = match extension {
        None => return Ok(()),
        Some(RangeExtension::Anchored) => ("anchored", ANCHORED),
        Some(RangeExtension::Smoothed) => ("smoothed", SMOOTHED),
    };
    if functions.contains(&name) {
        return Ok(());
    }
    let functions = functions.join(", ");
    let message = format!("{word} modifier can only be used with: {functions} - not with {name}");
    Err(Error::Language(message))
}

fn unsupported(call: &Call) -> Error {
    Error::Language(format!("function {}() is not supported by this version", call.function.name))
}

fn absent_labels(expr: &Expr) -> Labels {
    match &expr.unwrap_parens().kind {
        ExprKind::Selector(selector) => labels_of_absent(&selector.matchers),
        ExprKind::Matrix(matrix) => labels_of_absent(&matrix.selector.matchers),
        _ => Labels::empty(),
    }
}

/// The name of a label that a function is to set.
fn label_name<'e>(expr: &'e Expr, function: &str) -> Result<&'e str, Error> {
    let name = string_of(expr)?;
    if !is_label_name(name) {
        return Err(Error::Language(format!("invalid destination label name in {function}(): {name}")));
    }
    Ok(name)
}
