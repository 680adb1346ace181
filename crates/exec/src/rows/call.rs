//! One call of a plan for one group: which samples it reads, how parts of a group are folded and merged, and
//! how the merged part becomes points (windows with fill, transformations, limits).
//!
//! Invariants: parts merge in the order of the members of a group. Results are in the order of the plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_model::query::{ColumnType, TypedValues};

use super::accumulate::extreme::DescendingExtremeKernel;
use super::accumulate::moments::{CountKernel, MeanKernel, Number, SpreadKernel, StddevKernel, SumKernel};
use super::accumulate::pick::{PickKernel, PickRule};
use super::accumulate::pool::{MedianKernel, PoolFn, PoolKernel};
use super::accumulate::{Accumulator, AuxValues, Element, Points, Samples, Windowed};
use super::allowance::{Allowance, TEXT_BYTES};
use super::bounds::WindowBounds;
use super::column::{RowColumn, cast_values};
use super::error::RowError;
use super::execution::RowExecution;
use super::fill::fill_windows;
use super::finish::Finish;
use super::merge::{merge_bytes, merge_members};
use super::plan::{
    Aggregate, Call, Extremes, Fill, Function, Input, Literal, Order, RowPlan, Transform, Variable,
};
use super::points::{Member, PointColumns};
use super::range::range_of_call;
use super::transform;
use super::variables::{Variables, column_variables, input_variable};

/// Call of a plan with what its samples need.
pub(crate) struct PreparedCall<'p> {
    pub(crate) plan: &'p RowPlan,
    pub(crate) call: &'p Call,
    /// Argument at the bottom.
    pub(crate) variable: usize,
    pub(crate) column_type: ColumnType,
    /// Windows and times of the samples that are read.
    pub(crate) bounds: WindowBounds,
    /// Other variables of selected points.
    pub(crate) aux: Vec<usize>,
    pub(crate) aux_types: Vec<ColumnType>,
    /// True if a selected point keeps its time.
    keeps_time: bool,
    rng: Arc<Rng>,
}

impl<'p> PreparedCall<'p> {
    /// `None` if no source has the argument.
    pub(crate) fn new(
        plan: &'p RowPlan,
        call: &'p Call,
        variables: &Variables,
        execution: &RowExecution,
    ) -> Result<Option<PreparedCall<'p>>, RowError> {
        let Some(variable) = variables.index(input_variable(call)) else { return Ok(None) };
        let Some(column_type) = variables.types[variable] else { return Ok(None) };
        let is_selector = matches!(&call.function, Function::Aggregate(aggregate) if aggregate.is_selector());
        let is_only_selector = plan.calls.len() == 1 && is_selector;
        let aux = if is_only_selector { column_variables(plan, variables, execution)? } else { Vec::new() };
        Ok(Some(PreparedCall {
            plan,
            call,
            variable,
            column_type,
            bounds: WindowBounds::new(range_of_call(plan, call), plan.windows.clone()),
            aux_types: aux.iter().map(|idx| variables.types[*idx].unwrap_or_default()).collect(),
            aux,
            keeps_time: is_only_selector && plan.windows.is_none(),
            rng: Arc::new(Rng::from_seed(execution.environment.seed)),
        }))
    }

    /// Nothing has been folded yet.
    pub(crate) fn new_part(&self) -> Result<Part, RowError> {
        Ok(match &innermost(self.call).function {
            Function::Aggregate(Aggregate::Integral { .. }) | Function::Transform(_) => {
                Part::Points(Vec::new())
            }
            Function::Aggregate(Aggregate::Top(extremes) | Aggregate::Bottom(extremes))
                if !extremes.distinct_tags.is_empty() =>
            {
                Part::PerTags(BTreeMap::new())
            }
            Function::Aggregate(aggregate) => {
                Part::Windows(self.accumulator(aggregate, self.column_type, self.keeps_time)?)
            }
        })
    }

    /// Adds the samples of a member. Memory of retained samples is taken from `memory`.
    pub(crate) fn fold(
        &self,
        part: &mut Part,
        member: &Member,
        samples: &Samples<'_>,
        memory: &mut Allowance,
    ) -> Result<(), RowError> {
        match part {
            Part::Windows(accumulator) => accumulator.fold(&self.bounds, samples, memory),
            Part::Points(members) => {
                let points = samples.times.len() * (size_of::<i64>() + 1) + samples.values.heap_bytes();
                memory.take(points + size_of::<PointColumns>() + size_of::<Option<RowColumn>>())?;
                members.push(PointColumns {
                    times: samples.times.to_vec(),
                    columns: vec![Some(RowColumn::of(samples.values.clone()))],
                });
                Ok(())
            }
            Part::PerTags(parts) => {
                let (Aggregate::Top(extremes) | Aggregate::Bottom(extremes)) = self.aggregate() else {
                    return Ok(());
                };
                let key = key_of(member, extremes);
                let accumulator = match parts.entry(key) {
                    std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::btree_map::Entry::Vacant(entry) => {
                        let texts: usize = entry.key().iter().map(|text| text.len() + TEXT_BYTES).sum();
                        memory.take(texts + KEY_BYTES)?;
                        let best = match self.aggregate() {
                            Aggregate::Top(_) => Aggregate::Max,
                            _ => Aggregate::Min,
                        };
                        entry.insert(self.accumulator(&best, self.column_type, true)?)
                    }
                };
                accumulator.fold(&self.bounds, samples, memory)
            }
        }
    }

    /// The points of a group in the order of the plan, with fill and limits. The points and the buffers of
    /// their computation are taken from `memory`.
    pub(crate) fn finish(
        &self,
        part: Part,
        execution: &RowExecution,
        memory: &mut Allowance,
    ) -> Result<Points, RowError> {
        execution.check()?;
        let points = self.finish_call(self.call, part, &mut Finish { execution, memory })?;
        Ok(sliced(points, self.plan))
    }

    fn finish_call(&self, call: &Call, part: Part, to: &mut Finish<'_>) -> Result<Points, RowError> {
        let order = self.plan.order;
        let width = self.plan.windows.as_ref().map(|windows| windows.width);
        match (&call.function, &call.input) {
            (Function::Transform(transform), Input::Call(inner)) => {
                let points = self.finish_call(inner, part, to)?;
                let points = to.without_nulls(points)?;
                transform::apply(transform, &points, order, width, to)
            }
            (Function::Transform(transform), Input::Points(_)) => {
                let points = self.merged(part, to)?;
                transform::apply(transform, &points, order, width, to)
            }
            (Function::Aggregate(Aggregate::Integral { unit }), _) => {
                let points = self.merged(part, to)?;
                // As floats; times and areas of vectors that grow.
                to.memory.take(points.times.len().saturating_mul(8 + 3 * 16))?;
                let floats = cast_values(&points.values.values, ColumnType::Float);
                let Some(TypedValues::Floats(values)) = floats else {
                    return Err(RowError::Type { function: "integral", column_type: self.column_type });
                };
                Ok(transform::integral::integrate(&points.times, &values, *unit, &self.bounds, order))
            }
            (Function::Aggregate(aggregate), Input::Call(inner)) => {
                let points = self.finish_call(inner, part, to)?;
                let mut points = to.without_nulls(points)?;
                if order == Order::Descending {
                    reverse(&mut points);
                }
                let mut accumulator =
                    self.accumulator(aggregate, points.values.values.column_type(), false)?;
                let samples = Samples { times: &points.times, values: &points.values.values, aux: &[] };
                accumulator.fold(&self.bounds, &samples, to.memory)?;
                let points = accumulator.finish(&self.bounds, &[], to.memory)?;
                self.filled(points, aggregate, to)
            }
            (Function::Aggregate(aggregate), Input::Points(_)) => {
                let points = match part {
                    Part::Windows(accumulator) => {
                        accumulator.finish(&self.bounds, &self.aux_types, to.memory)?
                    }
                    Part::PerTags(parts) => self.best_of_tags(parts, aggregate, to)?,
                    Part::Points(_) => Points::new(self.column_type, &self.aux_types),
                };
                self.filled(points, aggregate, to)
            }
        }
    }

    /// Applies the order of the plan, and fill where the aggregation has one value per window.
    fn filled(
        &self,
        mut points: Points,
        aggregate: &Aggregate,
        to: &mut Finish<'_>,
    ) -> Result<Points, RowError> {
        let order = self.plan.order;
        let has_many = matches!(
            aggregate,
            Aggregate::Distinct | Aggregate::Sample(_) | Aggregate::Top(_) | Aggregate::Bottom(_)
        );
        if has_many {
            return match order {
                Order::Ascending => Ok(points),
                Order::Descending => {
                    let _copy = to.execution.reserve(2 * points.heap_bytes() + 4 * points.times.len())?;
                    Ok(latest_first(&points))
                }
            };
        }
        if order == Order::Descending {
            reverse(&mut points);
        }
        if self.plan.windows.is_none() || self.plan.fill == Fill::None {
            return Ok(points);
        }
        let is_count = matches!(aggregate, Aggregate::Count);
        fill_windows(points, &self.plan.fill, &self.bounds, order, to, is_count)
    }

    /// The extreme points among the best of each combination of tags.
    fn best_of_tags(
        &self,
        parts: BTreeMap<Vec<String>, Box<dyn Accumulator>>,
        aggregate: &Aggregate,
        to: &mut Finish<'_>,
    ) -> Result<Points, RowError> {
        let mut extreme = self.accumulator(aggregate, self.column_type, true)?;
        for accumulator in parts.into_values() {
            to.execution.check()?;
            let points = accumulator.finish(&self.bounds, &self.aux_types, to.memory)?;
            let samples = Samples { times: &points.times, values: &points.values.values, aux: &points.aux };
            extreme.fold(&self.bounds, &samples, to.memory)?;
        }
        extreme.finish(&self.bounds, &self.aux_types, to.memory)
    }

    /// Merged points of all members.
    fn merged(&self, part: Part, to: &mut Finish<'_>) -> Result<Points, RowError> {
        let Part::Points(members) = part else { return Ok(Points::new(self.column_type, &[])) };
        let _copies = to.execution.reserve(merge_bytes(&members))?;
        let mut merged = merge_members(members, self.plan.order);
        let values = merged.columns.pop().flatten();
        let values = values.unwrap_or_else(|| RowColumn::new(self.column_type));
        Ok(Points { times: merged.times, values, aux: Vec::new() })
    }

    fn aggregate(&self) -> &Aggregate {
        match &innermost(self.call).function {
            Function::Aggregate(aggregate) => aggregate,
            Function::Transform(_) => &Aggregate::Count,
        }
    }

    fn accumulator(
        &self,
        aggregate: &Aggregate,
        column_type: ColumnType,
        keeps_time: bool,
    ) -> Result<Box<dyn Accumulator>, RowError> {
        let kernels = Kernels { order: self.plan.order, rng: &self.rng, keeps_time };
        if self.aux.is_empty() {
            kernels.of_type::<()>(aggregate, column_type)
        } else {
            kernels.of_type::<Box<[Option<Literal>]>>(aggregate, column_type)
        }
    }
}

/// Part of the result of a call for some members of a group.
pub(crate) enum Part {
    Windows(Box<dyn Accumulator>),
    /// Best point per window of each combination of tags.
    PerTags(BTreeMap<Vec<String>, Box<dyn Accumulator>>),
    /// Points of each member.
    Points(Vec<PointColumns>),
}

impl Part {
    /// Adds the part of later members.
    pub(crate) fn merge(&mut self, later: Part, memory: &mut Allowance) -> Result<(), RowError> {
        match (self, later) {
            (Part::Windows(accumulator), Part::Windows(later)) => accumulator.merge(later, memory)?,
            (Part::Points(members), Part::Points(later)) => members.extend(later),
            (Part::PerTags(parts), Part::PerTags(later)) => {
                for (key, accumulator) in later {
                    match parts.get_mut(&key) {
                        Some(known) => known.merge(accumulator, memory)?,
                        None => {
                            parts.insert(key, accumulator);
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Bytes of a combination of tags and its accumulator, texts not included.
const KEY_BYTES: usize = 192;

/// Kernels of the aggregations, for each type that they have results for.
struct Kernels<'k> {
    order: Order,
    rng: &'k Arc<Rng>,
    keeps_time: bool,
}

impl Kernels<'_> {
    fn of_type<X: AuxValues>(
        &self,
        aggregate: &Aggregate,
        column_type: ColumnType,
    ) -> Result<Box<dyn Accumulator>, RowError> {
        let found = match column_type {
            ColumnType::Float => self.of_numbers::<f64, X>(aggregate),
            ColumnType::Integer => self.of_numbers::<i64, X>(aggregate),
            ColumnType::Unsigned => self.of_numbers::<u64, X>(aggregate),
            ColumnType::Boolean => self.of_any::<bool, X>(aggregate),
            ColumnType::Text => self.of_texts::<X>(aggregate),
            ColumnType::Histogram => None,
        };
        found.ok_or(RowError::Type { function: name_of(aggregate), column_type })
    }

    fn of_numbers<T: Number, X: AuxValues>(&self, aggregate: &Aggregate) -> Option<Box<dyn Accumulator>> {
        Some(match aggregate {
            Aggregate::Mean => Windowed::<T, _>::boxed(MeanKernel),
            Aggregate::Median => Windowed::<T, _>::boxed(MedianKernel),
            Aggregate::Spread => Windowed::<T, _>::boxed(SpreadKernel),
            Aggregate::Stddev => Windowed::<T, _>::boxed(StddevKernel(self.order)),
            Aggregate::Sum => Windowed::<T, _>::boxed(SumKernel),
            Aggregate::Percentile(percent) => self.pool::<T, X>(PoolFn::Percentile(*percent)),
            Aggregate::Top(extremes) => self.pool::<T, X>(PoolFn::Top(extremes.count)),
            Aggregate::Bottom(extremes) => self.pool::<T, X>(PoolFn::Bottom(extremes.count)),
            _ => return self.of_any::<T, X>(aggregate),
        })
    }

    /// Texts have no greatest and least.
    fn of_texts<X: AuxValues>(&self, aggregate: &Aggregate) -> Option<Box<dyn Accumulator>> {
        match aggregate {
            Aggregate::Max | Aggregate::Min => None,
            _ => self.of_any::<Arc<[u8]>, X>(aggregate),
        }
    }

    fn of_any<T: Element, X: AuxValues>(&self, aggregate: &Aggregate) -> Option<Box<dyn Accumulator>> {
        Some(match aggregate {
            Aggregate::Count => Windowed::<T, _>::boxed(CountKernel),
            Aggregate::First => self.pick::<T, X>(PickRule::First),
            Aggregate::Last => self.pick::<T, X>(PickRule::Last),
            Aggregate::Max => self.extreme::<T, X>(PickRule::Max),
            Aggregate::Min => self.extreme::<T, X>(PickRule::Min),
            Aggregate::Mode => self.pool::<T, X>(PoolFn::Mode(self.order)),
            Aggregate::Distinct => self.pool::<T, X>(PoolFn::Distinct(self.order)),
            Aggregate::Sample(count) => self.pool::<T, X>(PoolFn::Sample(*count, self.rng.clone())),
            _ => return None,
        })
    }

    fn pick<T: Element, X: AuxValues>(&self, rule: PickRule) -> Box<dyn Accumulator> {
        Windowed::<T, _>::boxed(PickKernel::<X>::new(rule, self.keeps_time))
    }

    fn extreme<T: Element, X: AuxValues>(&self, rule: PickRule) -> Box<dyn Accumulator> {
        // Points ascend. In ascending order the first one, which may be NaN, is where the others begin.
        if self.order == Order::Descending && T::COLUMN_TYPE == ColumnType::Float {
            return Windowed::<T, _>::boxed(DescendingExtremeKernel::<X>::new(rule, self.keeps_time));
        }
        self.pick::<T, X>(rule)
    }

    fn pool<T: Element, X: AuxValues>(&self, function: PoolFn) -> Box<dyn Accumulator> {
        Windowed::<T, _>::boxed(PoolKernel::<X>::new(function, self.keeps_time))
    }
}

/// Type of the results of a call for values of a type; `None` if it has none.
pub(crate) fn result_type(call: &Call, of: ColumnType) -> Option<ColumnType> {
    let of = match &call.input {
        Input::Points(_) => of,
        Input::Call(inner) => result_type(inner, of)?,
    };
    match &call.function {
        Function::Transform(transform) => transform::result_type(transform, of),
        Function::Aggregate(Aggregate::Count) => Some(ColumnType::Integer),
        Function::Aggregate(
            Aggregate::Mean | Aggregate::Median | Aggregate::Stddev | Aggregate::Integral { .. },
        ) => Some(ColumnType::Float),
        Function::Aggregate(_) => Some(of),
    }
}

/// Returns the column of a call that reads no field: nulls, or the number of `fill()` if the type of the call
/// does not depend on its points.
pub(crate) fn column_without_points(call: &Call, fill: &Fill, count: usize) -> RowColumn {
    let (Some(column_type), Fill::Number(number)) = (result_type_without_points(call), fill) else {
        return RowColumn::nulls(ColumnType::Float, count);
    };
    let mut column = RowColumn::new(column_type);
    (0..count).for_each(|_| column.push(Some(number)));
    column
}

/// Type of the results of a call over a field that no source has; `None` if it depends on the field.
fn result_type_without_points(call: &Call) -> Option<ColumnType> {
    let of_input = || match &call.input {
        Input::Points(Variable::Field { cast, .. }) => *cast,
        Input::Points(Variable::Tag { .. }) => None,
        Input::Call(inner) => result_type_without_points(inner),
    };
    match &call.function {
        Function::Aggregate(
            Aggregate::Count
            | Aggregate::Mean
            | Aggregate::Median
            | Aggregate::Stddev
            | Aggregate::Integral { .. },
        ) => result_type(call, ColumnType::Float),
        Function::Aggregate(_)
        | Function::Transform(Transform::Difference { .. } | Transform::CumulativeSum) => of_input(),
        Function::Transform(Transform::Elapsed { .. }) => Some(ColumnType::Integer),
        Function::Transform(_) => Some(ColumnType::Float),
    }
}

/// The call that reads points.
fn innermost(call: &Call) -> &Call {
    match &call.input {
        Input::Points(_) => call,
        Input::Call(inner) => innermost(inner),
    }
}

/// Returns the tags of `top()` and `bottom()` of a call: a subquery is grouped by them, too.
pub(crate) fn distinct_tags(call: &Call) -> &[Arc<str>] {
    match &innermost(call).function {
        Function::Aggregate(Aggregate::Top(extremes) | Aggregate::Bottom(extremes)) => {
            &extremes.distinct_tags
        }
        _ => &[],
    }
}

fn key_of(member: &Member, extremes: &Extremes) -> Vec<String> {
    extremes.distinct_tags.iter().map(|tag| member.tags.get(tag).unwrap_or("").to_owned()).collect()
}

fn reverse(points: &mut Points) {
    points.times.reverse();
    points.values.reverse();
    points.aux.iter_mut().for_each(RowColumn::reverse);
}

/// Returns the points in descending order of time; points at one time keep their order.
fn latest_first(points: &Points) -> Points {
    let mut rows: Vec<u32> = (0..points.times.len() as u32).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(points.times[*row as usize]));
    points.gather(&rows)
}

/// Limit and offset, per call and series.
fn sliced(points: Points, plan: &RowPlan) -> Points {
    let count = points.times.len();
    let from = plan.slice.offset.min(count);
    let limit = if plan.slice.limit == 0 { count } else { plan.slice.limit };
    let to = from.saturating_add(limit).min(count);
    if from == 0 && to == count { points } else { points.range(from, to) }
}

fn name_of(aggregate: &Aggregate) -> &'static str {
    match aggregate {
        Aggregate::Count => "count",
        Aggregate::Distinct => "distinct",
        Aggregate::Integral { .. } => "integral",
        Aggregate::Mean => "mean",
        Aggregate::Median => "median",
        Aggregate::Mode => "mode",
        Aggregate::Spread => "spread",
        Aggregate::Stddev => "stddev",
        Aggregate::Sum => "sum",
        Aggregate::First => "first",
        Aggregate::Last => "last",
        Aggregate::Max => "max",
        Aggregate::Min => "min",
        Aggregate::Percentile(_) => "percentile",
        Aggregate::Sample(_) => "sample",
        Aggregate::Top(_) => "top",
        Aggregate::Bottom(_) => "bottom",
    }
}
