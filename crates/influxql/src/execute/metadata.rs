//! SHOW MEASUREMENTS, SERIES, TAG KEYS, TAG VALUES, FIELD KEYS.

use std::collections::BTreeSet;

use chronolith_model::{METRIC_NAME, Matcher, TimeRange, WordKind};
use jiff::tz::TimeZone;

use super::condition::{TagCondition, TagFilter, check_left_sides};
use super::schema::{NumbersOfValue, Schema};
use super::session::{Session, StatementError};
use crate::ast::{DataType, Expr, KeyMatch, Page, ShowSeries, ShowTagValues, Source, Statement};
use crate::condition::{TimeBounds, check_operands, split_condition};
use crate::fold::FoldContext;
use crate::result::{Cell, ResultSink, SeriesHeader};

/// Type of the values of a kind.
pub(super) fn data_type(kind: WordKind) -> DataType {
    match kind {
        WordKind::Float => DataType::Float,
        WordKind::Integer => DataType::Integer,
        WordKind::Unsigned => DataType::Unsigned,
        WordKind::Boolean => DataType::Boolean,
        WordKind::Text => DataType::String,
    }
}

/// Returns the items of a page.
pub(super) fn paged<T>(items: impl IntoIterator<Item = T>, page: Page) -> impl Iterator<Item = T> {
    let at_most = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let limit = if page.limit == 0 { usize::MAX } else { at_most(page.limit) };
    items.into_iter().skip(at_most(page.offset)).take(limit)
}

/// Selection of the keys of WITH KEY.
pub(super) fn key_selector(keys: &KeyMatch) -> Result<impl Fn(&str) -> bool + '_, StatementError> {
    let regex = match keys {
        KeyMatch::Matches(regex) | KeyMatch::NotMatches(regex) => {
            Some(regex.compile().map_err(StatementError::text)?)
        }
        _ => None,
    };
    Ok(move |key: &str| {
        let matches = || regex.as_ref().is_some_and(|regex| regex.is_match(key));
        match keys {
            KeyMatch::Equal(own) => own == key,
            KeyMatch::NotEqual(own) => own != key,
            KeyMatch::Matches(_) => matches(),
            KeyMatch::NotMatches(_) => !matches(),
            KeyMatch::In(list) => list.iter().any(|own| own == key),
        }
    })
}

/// Returns what a SHOW statement lists.
pub(super) fn schema<'a>(
    session: &'a Session<'_>,
    database: &str,
    condition: Option<&Expr>,
) -> Result<Schema<'a>, StatementError> {
    schema_with(session, database, condition, NumbersOfValue::Always)
}

fn schema_with<'a>(
    session: &'a Session<'_>,
    database: &str,
    condition: Option<&Expr>,
    numbers_of_value: NumbersOfValue,
) -> Result<Schema<'a>, StatementError> {
    let stores = session.database_sources(database)?;
    let (range, rest) = split_time(session, condition)?;
    let mut schema = Schema::new(stores, TagFilter::default(), range, session.ctx)?;
    if let Some(rest) = &rest {
        schema.resolve(TagCondition::of(rest)?, numbers_of_value)?;
    }
    Ok(schema)
}

pub(super) fn show_schema(
    session: &Session<'_>,
    statement: &Statement,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    match statement {
        Statement::ShowMeasurements(show) => show_measurements(session, show, sink),
        Statement::ShowSeries(show) => show_series(session, show, sink),
        Statement::ShowTagKeys(show) => show_tag_keys(session, show, sink),
        Statement::ShowTagValues(show) => show_tag_values(session, show, sink),
        Statement::ShowFieldKeys(show) => show_field_keys(session, show, sink),
        statement => Err(StatementError::Text(format!("invalid statement: {statement}"))),
    }
}

fn show_measurements(
    session: &Session<'_>,
    show: &ShowSeries,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    let (range, rest) = split_time(session, show.condition.as_ref())?;
    refuse_time(range, "SHOW MEASUREMENTS")?;
    rest.as_ref().map_or(Ok(()), check_left_sides)?;
    // A database that does not exist has no measurements; other lists are errors then.
    if !show.database.is_empty() && session.database_sources(&show.database).is_err() {
        return Ok(());
    }
    let schema = schema(session, &show.database, show.condition.as_ref())?;
    let mut names = schema.measurements_without_filter(&show.sources)?;
    if let Some(condition) = &show.condition {
        refuse_order(&schema, &names, condition)?;
        let condition = TagCondition::of(condition)?;
        let mut kept = BTreeSet::new();
        for name in names {
            if schema.measurement_meets(&name, &condition)? {
                kept.insert(name);
            }
        }
        names = kept;
    }
    let mut page = paged(&names, show.page).peekable();
    if page.peek().is_some() {
        sink.series(&SeriesHeader::new("measurements", &["name"]))?;
    }
    for name in page {
        sink.row(&[Cell::text(name)])?;
    }
    Ok(())
}

fn show_series(
    session: &Session<'_>,
    show: &ShowSeries,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    let schema = schema(session, &show.database, show.condition.as_ref())?;
    refuse_order_of(&schema, &show.sources, show.condition.as_ref())?;
    let keys = schema.series_keys(&show.sources)?;
    let mut page = paged(&keys, show.page).peekable();
    if page.peek().is_some() {
        sink.series(&SeriesHeader::new("", &["key"]))?;
    }
    for key in page {
        sink.row(&[Cell::text(key)])?;
    }
    Ok(())
}

fn show_tag_keys(
    session: &Session<'_>,
    show: &ShowSeries,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    let schema = schema_with(session, &show.database, show.condition.as_ref(), NumbersOfValue::Never)?;
    refuse_order_of(&schema, &show.sources, show.condition.as_ref())?;
    for measurement in paged(schema.measurements(&show.sources)?, show.series_page) {
        let keys = schema.tag_keys(&measurement)?;
        let mut page = paged(&keys, show.page).peekable();
        if page.peek().is_some() {
            sink.series(&SeriesHeader::new(&measurement, &["tagKey"]))?;
        }
        for key in page {
            sink.row(&[Cell::text(key)])?;
        }
    }
    Ok(())
}

fn show_field_keys(
    session: &Session<'_>,
    show: &ShowSeries,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    let schema = schema(session, &show.database, show.condition.as_ref())?;
    for measurement in schema.measurements(&show.sources)? {
        let fields = schema.fields(&[&measurement])?;
        let mut rows: Vec<(&String, &'static str)> = Vec::new();
        for (field, kinds) in &fields {
            let mut types: Vec<&'static str> = kinds.iter().map(|kind| data_type(*kind).name()).collect();
            types.sort_unstable();
            rows.extend(types.into_iter().map(|name| (field, name)));
        }
        let mut page = paged(rows, show.page).peekable();
        if page.peek().is_some() {
            sink.series(&SeriesHeader::new(&measurement, &["fieldKey", "fieldType"]))?;
        }
        for (field, name) in page {
            sink.row(&[Cell::text(field), Cell::text(name)])?;
        }
    }
    Ok(())
}

fn show_tag_values(
    session: &Session<'_>,
    show: &ShowTagValues,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    let clauses = &show.clauses;
    let condition = clauses.condition.as_ref();
    let schema = schema_with(session, &clauses.database, condition, NumbersOfValue::Never)?;
    let selects = key_selector(&show.keys)?;
    let rest = split_time(session, condition)?.1;
    rest.as_ref().map_or(Ok(()), check_left_sides)?;
    let of_value = rest.as_ref().map(TagCondition::of).transpose()?;
    let of_value = of_value.and_then(|condition| condition.of_value_column());
    let is_listed = |value: &String| of_value.as_ref().is_none_or(|one| one.selects_value(value));
    refuse_order_of_tags(&schema, &clauses.sources, clauses.condition.as_ref())?;
    for measurement in schema.measurements(&clauses.sources)? {
        let mut rows: Vec<(String, String)> = Vec::new();
        for key in schema.tag_keys(&measurement)?.into_iter().filter(|key| selects(key)) {
            let values = schema.values(&key, vec![Matcher::equal(METRIC_NAME, &measurement)])?;
            rows.extend(values.into_iter().filter(is_listed).map(|value| (key.clone(), value)));
        }
        let mut page = paged(&rows, clauses.page).peekable();
        if page.peek().is_some() {
            sink.series(&SeriesHeader::new(&measurement, &["key", "value"]))?;
        }
        for (key, value) in page {
            sink.row(&[Cell::text(key), Cell::text(value)])?;
        }
    }
    Ok(())
}

/// Refuses an ordered comparison (`<`, `>`) of anything but a field of all measurements: the index cannot
/// decide it.
fn refuse_order_of(
    schema: &Schema<'_>,
    sources: &[Source],
    condition: Option<&Expr>,
) -> Result<(), StatementError> {
    match condition {
        Some(condition) if has_order(condition) => {
            refuse_order(schema, &schema.measurements_without_filter(sources)?, condition)
        }
        _ => Ok(()),
    }
}

/// Refuses a comparison by order of a tag.
fn refuse_order_of_tags(
    schema: &Schema<'_>,
    sources: &[Source],
    condition: Option<&Expr>,
) -> Result<(), StatementError> {
    let mut names = Vec::new();
    condition.into_iter().for_each(|condition| collect_references(condition, &mut names));
    if names.is_empty() {
        return Ok(());
    }
    for measurement in schema.measurements_without_filter(sources)? {
        let keys = schema.tag_keys_without_filter(&measurement)?;
        if names.iter().any(|name| keys.iter().any(|key| key == name)) {
            return Err(StatementError::text("invalid tag comparison operator"));
        }
    }
    Ok(())
}

fn refuse_order(
    schema: &Schema<'_>,
    measurements: &BTreeSet<String>,
    condition: &Expr,
) -> Result<(), StatementError> {
    if !has_order(condition) {
        return Ok(());
    }
    let mut names = Vec::new();
    collect_references(condition, &mut names);
    for measurement in measurements {
        let fields = schema.fields(&[measurement])?;
        if names.iter().any(|name| !fields.contains_key(*name)) {
            return Err(StatementError::text("invalid tag comparison operator"));
        }
    }
    Ok(())
}

/// Returns true if an expression compares by order something that is not the time.
fn has_order(expr: &Expr) -> bool {
    let mut names = Vec::new();
    collect_references(expr, &mut names);
    !names.is_empty()
}

/// Collects what an expression compares by order, but the time.
fn collect_references<'e>(expr: &'e Expr, out: &mut Vec<&'e str>) {
    match expr {
        Expr::Paren(inner) => collect_references(inner, out),
        Expr::Chain(chain) => {
            let operands = || std::iter::once(&chain.first).chain(chain.rest.iter().map(|(_, right)| right));
            if chain.rest.iter().any(|(op, _)| op.is_order()) {
                out.extend(operands().filter_map(|operand| match operand {
                    Expr::Ref(var) if var.name != "time" => Some(var.name.as_str()),
                    _ => None,
                }));
            }
            operands().for_each(|operand| collect_references(operand, out));
        }
        _ => {}
    }
}

/// Refuses a condition on time.
pub(super) fn refuse_time(range: TimeRange, statement: &str) -> Result<(), StatementError> {
    if range == TimeRange::ALL {
        return Ok(());
    }
    Err(StatementError::Text(format!("{statement} doesn't support time in WHERE clause")))
}

/// Splits a condition into a range of times and the rest.
pub(super) fn split_time(
    session: &Session<'_>,
    condition: Option<&Expr>,
) -> Result<(TimeRange, Option<Expr>), StatementError> {
    let context = FoldContext { now_ns: Some(session.now_ns), zone: TimeZone::UTC, computes_math: false };
    let split = split_condition(condition, &context).map_err(StatementError::text)?;
    split.rest.as_ref().map_or(Ok(()), check_operands).map_err(StatementError::text)?;
    let is_bounded = split.bounds != TimeBounds::default();
    Ok((if is_bounded { split.bounds.range() } else { TimeRange::ALL }, split.rest))
}
