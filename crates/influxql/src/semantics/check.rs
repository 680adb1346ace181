//! Checks of a SELECT and its subqueries, without any series.

use jiff::tz::TimeZone;

use super::checked::{CheckedSelect, CheckedSource, Interval};
use super::dimension::check_dimensions;
use super::field::{FieldRules, check_condition, is_time};
use crate::ast::{Expr, Field, Fill, Page, Select, Source};
use crate::condition::{Condition, split_condition};
use crate::error::SemanticError;
use crate::fold::{FoldContext, fold};
use crate::time::zone_named;

/// Checks a SELECT and its subqueries at the present `now_ns`, in nanoseconds since 1970.
///
/// # Errors
/// [`SemanticError`].
pub fn check_select(select: Select, now_ns: i64) -> Result<CheckedSelect, SemanticError> {
    let (checked, sources) = preprocess(select, now_ns)?;
    compile(checked, sources, now_ns)
}

/// Global properties: condition, windows, order. Sources are returned apart, since they inherit.
fn preprocess(mut select: Select, now_ns: i64) -> Result<(CheckedSelect, Vec<Source>), SemanticError> {
    let zone = select.zone.as_deref().and_then(zone_named).unwrap_or(TimeZone::UTC);
    let context = FoldContext { now_ns: Some(now_ns), zone, computes_math: false };
    let Condition { rest, mut bounds } = split_condition(select.condition.as_ref(), &context)?;
    rest.as_ref().map_or(Ok(()), check_condition)?;
    let interval = check_dimensions(&mut select.dimensions, &context)?;
    if interval.is_some() && bounds.max_ns.is_none() {
        bounds.max_ns = Some(now_ns);
    }
    let order = select.order();
    let checked = CheckedSelect {
        fields: select.fields,
        time_column: crate::ast::TIME_COLUMN.to_owned(),
        target: select.target,
        sources: Vec::new(),
        condition: rest,
        bounds,
        dimensions: select.dimensions,
        interval,
        fill: select.fill,
        order,
        page: Page { limit: select.limit, offset: select.offset },
        series_page: Page { limit: select.series_limit, offset: select.series_offset },
        zone: select.zone,
    };
    Ok((checked, select.sources))
}

/// Fields, then subqueries.
fn compile(
    mut checked: CheckedSelect,
    sources: Vec<Source>,
    now_ns: i64,
) -> Result<CheckedSelect, SemanticError> {
    let is_inherited = checked.interval.is_some_and(|interval| interval.is_inherited);
    let mut rules = FieldRules::new(checked.interval.is_some(), is_inherited, checked.page.limit);
    let mut fields = Vec::with_capacity(checked.fields.len());
    for Field { expr, alias } in std::mem::take(&mut checked.fields) {
        if is_time(&expr) {
            if let Some(alias) = alias {
                checked.time_column = alias;
            }
            continue;
        }
        let expr = fold(expr, &FoldContext { computes_math: true, ..FoldContext::timeless() });
        rules.check_field(&expr)?;
        // `(time)` is a field for the rules, and `time` without its parentheses.
        if is_time(&expr) {
            checked.time_column = alias.unwrap_or(checked.time_column);
            continue;
        }
        fields.push(Field { expr: distinct_as_call(expr), alias });
    }
    checked.fields = fields;
    rules.finish(checked.fill)?;
    for source in sources {
        let source = match source {
            Source::Measurement(measurement) => CheckedSource::Measurement(measurement),
            Source::Select(select) => CheckedSource::Select(Box::new(subquery(*select, &checked, now_ns)?)),
        };
        checked.sources.push(source);
    }
    Ok(checked)
}

/// A subquery has the order of the outer query, and its windows if it has none.
fn subquery(select: Select, outer: &CheckedSelect, now_ns: i64) -> Result<CheckedSelect, SemanticError> {
    let is_sorted = !select.sort.is_empty();
    let (mut checked, sources) = preprocess(select, now_ns)?;
    if is_sorted && checked.order != outer.order {
        let message = "subqueries must be ordered in the same direction as the query itself";
        return Err(SemanticError::new(message));
    }
    checked.order = outer.order;
    match (&mut checked.interval, outer.interval) {
        (Some(_), _) if checked.fill == Fill::Null => checked.fill = Fill::None,
        (interval @ None, Some(outer)) => *interval = Some(Interval { is_inherited: true, ..outer }),
        _ => {}
    }
    compile(checked, sources, now_ns)
}

/// `DISTINCT name` as `distinct(name)`.
fn distinct_as_call(expr: Expr) -> Expr {
    let as_call = &mut |expr: Expr| -> Result<Expr, std::convert::Infallible> {
        Ok(match expr {
            Expr::Distinct(name) => Expr::call("distinct", vec![Expr::reference(&name)]),
            expr => expr,
        })
    };
    match expr.try_map(as_call) {
        Ok(expr) => expr,
        Err(never) => match never {},
    }
}
