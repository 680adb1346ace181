//! PromQL for operators: functions that no other language has, notes about parameters, texts for reports.
//! Not here: functions of every language (`exec`), functions by name (`plan::function`).

use chronolith_exec::aggregate::Aggregation;
use chronolith_exec::aggregate::topk::TopKOp;
use chronolith_exec::annotation::Annotations;
use chronolith_exec::arith::{go_max, go_min};
use chronolith_exec::column::{StepScalar, StepSeries};
use chronolith_exec::error::Error;
use chronolith_exec::map::step_times;
use chronolith_exec::note::{Note, NotedValue, Severity};
use chronolith_exec::operator::{Blocking, BoxOperator};
use chronolith_exec::plan::node::NodeKind;
use chronolith_exec::plan::operators::{FunctionCall, Language, OperatorResult};
use chronolith_exec::position::{Origin, Position};
use chronolith_exec::window::CounterCheck;
use chronolith_model::Labels;
use chronolith_model::histogram::go_float;

use super::call::buckets::{BucketCall, BucketFn};
use super::call::calendar::CalendarField;
use super::call::count_values::count_values;
use super::call::counter_check;
use super::call::label::{self, label_join, label_replace};
use super::call::order::{Direction, SortKey, sort};
use super::call::stats::{HistogramStat, histogram_stats};
use super::call::target_info::TargetInfo;
use super::plan::is_label_name;
use super::query::{EngineOptions, Query};
use crate::ast::Span;

/// The language of one query.
pub(crate) struct PromQl<'q> {
    pub(crate) query: &'q Query<'q>,
    pub(crate) options: &'q EngineOptions,
}

impl Language for PromQl<'_> {
    fn text_at(&self, position: Position) -> &str {
        let Span { start, end } = Span::of(position);
        self.query.text.get(start as usize..end as usize).unwrap_or_default()
    }

    fn counter_check(&self) -> CounterCheck {
        counter_check::of(self.options)
    }

    fn check_param(
        &self,
        kind: &NodeKind,
        param: &StepScalar,
        origin: Origin,
        annotations: &Annotations<'_>,
    ) {
        match kind {
            NodeKind::Aggregate(Aggregation::Quantile, _) => {
                warn_of_quantile(&beyond(param, 0.0, 1.0), origin, annotations);
            }
            NodeKind::Rank(TopKOp::LimitRatio, _) => warn_of_ratio(param, origin, annotations),
            _ => {}
        }
    }

    fn function<'q>(&'q self, call: FunctionCall<'_, 'q>) -> OperatorResult<'q> {
        let execution = call.execution();
        let grid = call.grid;
        let name = call.function.name;
        Ok(match (name, &call.function.texts[..]) {
            ("vector", _) => {
                let scalar = call.scalar(0)?;
                constant(call, (0..grid.count).map(|step| scalar.at(step)).collect())
            }
            ("timestamp", _) => step_times(execution, call.vector(0)?, grid),
            ("start_timestamp", _) => {
                // Errors and annotations of the argument are reported, although there is no result.
                let mut inner = call.vector(0)?;
                while inner.next(&mut StepSeries::default())? {}
                Blocking::boxed(execution, |_| Ok(Vec::new()))
            }
            ("info", _) => info(call)?,
            ("sort" | "sort_desc" | "sort_by_label" | "sort_by_label_desc", labels) => sorted(call, labels)?,
            ("label_replace", [target, template, source, pattern]) => {
                let inner = call.vector(0)?;
                let regex = label::compile(pattern)?;
                let target = label_name(target, name)?;
                let operator = label_replace(execution, inner, regex, target, template, source);
                Blocking::merge(execution, operator)
            }
            ("label_join", [target, separator, sources @ ..]) => {
                let inner = call.vector(0)?;
                let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
                if let Some(bad) = sources.iter().find(|source| !is_label_name(source)) {
                    let message = format!("invalid source label name in {name}(): {bad}");
                    return Err(Error::Language(message));
                }
                let operator = label_join(execution, inner, label_name(target, name)?, separator, sources);
                Blocking::merge(execution, operator)
            }
            ("count_values", [label]) => {
                let mut inner = call.vector(0)?;
                let grouping = call.function.grouping.grouping();
                Blocking::boxed(execution, move |memory| count_values(&mut *inner, &grouping, label, memory))
            }
            ("histogram_quantile" | "histogram_quantiles" | "histogram_fraction", labels) => {
                buckets(call, labels)?
            }
            _ => match (HistogramStat::named(name), CalendarField::function(name)) {
                (Some(stat), _) => histogram_stats(execution, call.vector(0)?, stat),
                (_, Some(field)) => {
                    constant(call, grid.times().map(|time| field((time / 1000) as f64)).collect())
                }
                _ => return Err(unsupported(name)),
            },
        })
    }
}

/// One series without labels.
fn constant<'q>(call: FunctionCall<'_, 'q>, values: Vec<f64>) -> BoxOperator<'q> {
    Blocking::boxed(call.execution(), |_| Ok(vec![StepSeries::floats(Labels::empty(), values)]))
}

fn info<'q>(call: FunctionCall<'_, 'q>) -> OperatorResult<'q> {
    let Some(selection) = &call.function.selection else { return Err(unsupported("info")) };
    let execution = call.execution();
    let info =
        TargetInfo { execution, matchers: selection.matchers(), windows: selection.windows(call.grid) };
    let mut inner = call.vector(0)?;
    Ok(Blocking::boxed(execution, move |memory| info.compute(&mut *inner, memory)))
}

fn sorted<'q>(call: FunctionCall<'_, 'q>, labels: &[String]) -> OperatorResult<'q> {
    let inner = call.vector(0)?;
    // With one step, as in an instant query, elements have an order.
    if call.grid.start_ms != call.grid.end_ms {
        let text = "sort is ineffective for range queries since results are always ordered by labels";
        let note = Note::Language(Severity::Warning, text.into());
        call.execution().annotations.add(note, call.origin(0));
    }
    let name = call.function.name;
    let direction = if name.ends_with("_desc") { Direction::Descending } else { Direction::Ascending };
    let key = if name.starts_with("sort_by_label") {
        SortKey::Labels(labels.to_vec(), direction)
    } else {
        SortKey::Value(direction)
    };
    Ok(sort(call.execution(), inner, key))
}

fn buckets<'q>(call: FunctionCall<'_, 'q>, labels: &[String]) -> OperatorResult<'q> {
    let name = call.function.name;
    let annotations = &call.execution().annotations;
    let quantile = |input: usize| {
        let values = call.scalar(input)?;
        warn_of_quantile(&values, call.origin(input + 1), annotations);
        Ok::<_, Error>(values)
    };
    // The vector is computed first, at any argument position.
    let vector_idx = match name {
        "histogram_quantile" => 1,
        "histogram_fraction" => 2,
        _ => 0,
    };
    let mut inner = call.vector(vector_idx)?;
    let function = match (name, labels) {
        ("histogram_quantile", _) => BucketFn::Quantile(quantile(0)?),
        ("histogram_fraction", _) => BucketFn::Fraction(call.scalar(0)?, call.scalar(1)?),
        (_, [label]) => {
            let quantiles = (1..call.input_count()).map(quantile).collect::<Result<_, _>>()?;
            BucketFn::Quantiles(label_name(label, name)?.to_owned(), quantiles)
        }
        _ => return Err(unsupported(name)),
    };
    let execution = call.execution();
    let origin = call.origin(vector_idx + 1);
    let grid = call.grid;
    let call = BucketCall { execution, function, origin, grid };
    let computed = Blocking::boxed(execution, move |memory| call.compute(&mut *inner, memory));
    Ok(Blocking::merge(execution, computed))
}

fn unsupported(name: &str) -> Error {
    Error::Language(format!("function {name}() is not supported by this version"))
}

/// The name of a label that a function is to set.
fn label_name<'e>(name: &'e str, function: &str) -> Result<&'e str, Error> {
    if !is_label_name(name) {
        return Err(Error::Language(format!("invalid destination label name in {function}(): {name}")));
    }
    Ok(name)
}

fn warn_of_ratio(param: &StepScalar, origin: Origin, annotations: &Annotations<'_>) {
    for &ratio in beyond(param, -1.0, 1.0).values().iter().filter(|ratio| !ratio.is_nan()) {
        let text = format!(
            "ratio value should be between -1 and 1, got {}, capping to {}",
            go_float(ratio),
            ratio.signum()
        );
        annotations.add(Note::Language(Severity::Warning, text.into()), origin);
    }
}

/// Warns of quantiles outside 0..1.
fn warn_of_quantile(quantile: &StepScalar, origin: Origin, annotations: &Annotations<'_>) {
    for &value in quantile.values().iter().filter(|&&v| !(0.0..=1.0).contains(&v)) {
        annotations.add(Note::BadQuantile(NotedValue(value)), origin);
    }
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
