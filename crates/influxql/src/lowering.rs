//! Lowering of a checked and expanded SELECT to a row plan of `exec`.
//!
//! Invariants: names of measurements are resolved; times are in the unit of the store; each call of the plan
//! is there once. AND and OR are balanced trees, so that a plan is shallow.
//! Not here: execution; writing of the rows of INTO.

mod call;
mod expr;
mod names;
mod scope;
#[cfg(test)]
mod tests;
mod ticks;

use std::sync::Arc;

use chronolith_base::hash::HashSet;
use chronolith_exec::rows::plan::{self, RowPlan, Slice};
use chronolith_model::TimeRange;
use chronolith_model::time::TimeUnit;

use crate::ast::{Dimension, Expr, Fill, FillNumber, Measurement, OrderBy, Target, VarRef};
use crate::error::SemanticError;
use crate::footprint::{FIELDS_PER_CHECK, level_bytes};
use crate::semantics::{CheckedSelect, CheckedSource, Schema};
use crate::time::zone_named;

use call::refused_casts;
pub(crate) use call::unsupported_iterator;
use expr::Columns;
use names::Names;
use scope::Scope;
use ticks::{first_tick, offset, span};

/// A SELECT as a plan.
#[derive(Debug, Clone)]
pub struct LoweredSelect {
    /// The plan; its columns have the names of the result's.
    pub plan: RowPlan,
    /// Databases and retention policies whose stores the plan reads: its `store` is an index.
    pub stores: Vec<StoreName>,
    /// Name of the column of times.
    pub time_column: String,
    /// INTO.
    pub target: Option<Target>,
    /// Last columns of the plan that are no columns of the result but tags of the points that INTO writes.
    pub point_tag_count: usize,
}

/// Name of a store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreName {
    /// Database.
    pub database: String,
    /// Retention policy.
    pub policy: String,
}

/// Lowers a SELECT that `expand_select` returned, for stores with times in `unit`.
///
/// # Errors
/// Errors of the schema, and [`SemanticError`] for fields of a type that a function does not take and for
/// operands that a plan cannot have.
pub fn lower_select<S: Schema>(
    select: &CheckedSelect,
    schema: &S,
    unit: TimeUnit,
) -> Result<LoweredSelect, S::Error>
where
    S::Error: From<SemanticError>,
{
    let mut lowering = Lowering { schema, unit, stores: Vec::new(), names: Names::default() };
    let plan = lowering.plan(select, Level::Outer)?;
    Ok(LoweredSelect {
        plan,
        stores: lowering.stores,
        time_column: select.time_column.clone(),
        target: select.target.clone(),
        point_tag_count: select.point_tags().len(),
    })
}

/// Level of a SELECT.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Outer,
    Subquery,
}

struct Lowering<'a, S> {
    schema: &'a S,
    unit: TimeUnit,
    stores: Vec<StoreName>,
    /// Names of columns and variables, each once for all levels of the plan.
    names: Names,
}

impl<S: Schema> Lowering<'_, S>
where
    S::Error: From<SemanticError>,
{
    fn plan(&mut self, select: &CheckedSelect, level: Level) -> Result<RowPlan, S::Error> {
        let mut sources = Vec::with_capacity(select.sources.len());
        for source in &select.sources {
            match source {
                CheckedSource::Measurement(measurement) => self.measurements(measurement, &mut sources)?,
                CheckedSource::Select(inner) => {
                    sources.push(plan::Source::Subquery(Arc::new(self.plan(inner, Level::Subquery)?)));
                }
            }
        }
        let of_level = select.fields.iter().map(|field| level_bytes(&field.name())).sum();
        self.schema.reserve_level(of_level)?;
        let mut scope = Scope::new(select, &sources, self.unit, &self.names);
        scope.set_casts_without_values(self.casts_without_values(select, &scope)?);
        let scope = scope;
        let mut lowered = RowPlan::new(sources);
        let mut columns = Columns::new(&scope, select.fields.len());
        let names = select.column_names();
        self.schema.reserve(0)?;
        let fields = select.column_fields();
        for (idx, (field, name)) in fields.iter().zip(names.iter().skip(1)).enumerate() {
            if idx.is_multiple_of(FIELDS_PER_CHECK) {
                self.schema.reserve(0)?;
            }
            columns.push(name, &field.expr)?;
        }
        for tag in select.point_tags() {
            columns.push(&tag.name.clone(), &Expr::Ref(tag))?;
        }
        (lowered.columns, lowered.calls) = columns.finish();
        let is_raw = lowered.calls.is_empty();
        lowered.filter =
            select.condition.as_ref().map(|condition| expr::filter(condition, &scope)).transpose()?;
        lowered.range = range(select, self.unit);
        lowered.group_tags = group_tags(&select.dimensions);
        lowered.windows = if is_raw { None } else { windows(select, self.unit) };
        lowered.fill = match (lowered.windows.is_some(), level) {
            // Without windows, a value stands for nulls of the rows that there are.
            (false, _) if matches!(select.fill, Fill::Number(_) | Fill::Previous) => fill(select.fill),
            (false, _) => plan::Fill::default(),
            (true, Level::Subquery) if select.fill == Fill::Null => plan::Fill::None,
            // INTO writes no nulls, and then no zeros of counts either, as in InfluxDB.
            (true, Level::Outer) if select.fill == Fill::Null && select.target.is_some() => plan::Fill::None,
            (true, _) => fill(select.fill),
        };
        lowered.order = match select.order {
            OrderBy::Ascending => plan::Order::Ascending,
            OrderBy::Descending => plan::Order::Descending,
        };
        lowered.slice = slice(select);
        Ok(lowered)
    }

    /// Casts that a function refuses and of which no measurement has a value: such calls have no points, of
    /// whatever type. The search ends at the first one that has, whose error ends the lowering. Fields
    /// without a cast have values, so that the text of the query bounds the look-ups.
    fn casts_without_values(
        &self,
        select: &CheckedSelect,
        scope: &Scope<'_>,
    ) -> Result<HashSet<VarRef>, S::Error> {
        let mut casts = HashSet::default();
        for field in &select.fields {
            for var in refused_casts(&field.expr).into_iter().filter(|var| !scope.is_of_subquery(&var.name)) {
                for source in &select.sources {
                    if let CheckedSource::Measurement(measurement) = source
                        && self.schema.has_values_of(measurement, &var.name, var.kind)?
                    {
                        return Ok(casts);
                    }
                }
                casts.insert(var);
            }
        }
        Ok(casts)
    }

    /// Adds the measurements that a source names or matches.
    fn measurements(
        &mut self,
        measurement: &Measurement,
        sources: &mut Vec<plan::Source>,
    ) -> Result<(), S::Error> {
        let store = self.store(measurement);
        for name in self.schema.measurements(measurement)? {
            sources.push(plan::Source::Measurement { store, name: Arc::from(name) });
        }
        Ok(())
    }

    fn store(&mut self, measurement: &Measurement) -> usize {
        let name = StoreName { database: measurement.database.clone(), policy: measurement.policy.clone() };
        self.stores.iter().position(|store| *store == name).unwrap_or_else(|| {
            self.stores.push(name);
            self.stores.len() - 1
        })
    }
}

fn range(select: &CheckedSelect, unit: TimeUnit) -> TimeRange {
    let start = select.bounds.min_ns.map_or(plan::OPEN_START, |ns| first_tick(ns, unit));
    let end = select.bounds.max_ns.map_or(plan::OPEN_END, |ns| first_tick(ns.saturating_add(1), unit));
    TimeRange::new(start.max(plan::OPEN_START), end)
}

/// Windows of GROUP BY; a negative width means none.
fn windows(select: &CheckedSelect, unit: TimeUnit) -> Option<plan::Windows> {
    let interval = select.interval.filter(|interval| interval.width_ns > 0)?;
    Some(plan::Windows {
        width: span(interval.width_ns, unit),
        offset: offset(interval.offset_ns, unit),
        zone: select.zone.as_deref().and_then(zone_named),
    })
}

fn fill(fill: Fill) -> plan::Fill {
    match fill {
        Fill::Null => plan::Fill::Null,
        Fill::None => plan::Fill::None,
        Fill::Previous => plan::Fill::Previous,
        Fill::Linear => plan::Fill::Linear,
        Fill::Number(FillNumber::Integer(number)) => plan::Fill::Number(plan::Literal::Integer(number)),
        Fill::Number(FillNumber::Float(number)) => plan::Fill::Number(plan::Literal::Float(number)),
    }
}

/// Tags of GROUP BY, each once.
fn group_tags(dimensions: &[Dimension]) -> Vec<Arc<str>> {
    let mut tags: Vec<Arc<str>> = Vec::new();
    let mut known = HashSet::default();
    for dimension in dimensions {
        if let Expr::Ref(var) = &dimension.expr
            && known.insert(var.name.as_str())
        {
            tags.push(Arc::from(var.name.as_str()));
        }
    }
    tags
}

fn slice(select: &CheckedSelect) -> Slice {
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    Slice {
        limit: count(select.page.limit),
        offset: count(select.page.offset),
        series_limit: count(select.series_page.limit),
        series_offset: count(select.series_page.offset),
    }
}
