//! SELECT: checks, expansion by the schema of the stores, plan, rows. With INTO the rows are written.
//!
//! Not here: meaning (`semantics`), the plan (`lowering`), operators (`exec::rows`).

use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_exec::rows::column::RowBatch;
use chronolith_exec::rows::error::RowError;
use chronolith_exec::rows::execution::{RowEnvironment, RowLimits};
use chronolith_exec::rows::source::RowSource as _;
use chronolith_exec::rows::stream::RowStream;
use chronolith_model::query::ColumnType;
use chronolith_model::{Queryable, TimeUnit};

use super::cells::{NullNumber, cell};
use super::into::PointWriter;
use super::session::{Session, StatementError};
use super::typed_schema::{StoreSchema, reserve_select};
use crate::ast::Select;
use crate::footprint::name_bytes;
use crate::lowering::{LoweredSelect, lower_select, unsupported_iterator};
use crate::result::{Cell, ResultSink, SeriesHeader};
use crate::semantics::{Schema as _, check_select, expand_select};
use crate::time::{TimeZone, zone_named};

/// Rows of a SELECT, and what they are called.
pub(super) struct OpenSelect {
    pub(super) stream: RowStream,
    /// Memory of the statement and its plan.
    _memory: Reservation,
    pub(super) columns: Vec<String>,
    point_tag_count: usize,
    zone: Option<TimeZone>,
    /// Per column, the number of `fill()` that takes the place of nulls that are no numbers.
    null_numbers: Vec<Option<NullNumber>>,
}

pub(super) fn select(
    session: &Session<'_>,
    select: &Select,
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    let Some(target) = &select.target else {
        let mut open = open_select(session, select)?;
        return send_rows(&mut open, sink);
    };
    let mut open = open_select(session, select)?;
    let mut writer = PointWriter::new(session, target, open.point_tag_count)?;
    while let Some(batch) = open.stream.next_batch().map_err(row_error)? {
        writer.add(&batch, &open.columns)?;
    }
    let written = writer.finish()?;
    sink.series(&SeriesHeader::new("result", &["time", "written"]))?;
    let written = i64::try_from(written).unwrap_or(i64::MAX);
    Ok(sink.row(&[Cell::Time(0), Cell::Integer(written)])?)
}

/// Plans a SELECT and selects its series.
pub(super) fn open_select(session: &Session<'_>, select: &Select) -> Result<OpenSelect, StatementError> {
    let memory = reserve_select(session, select)?;
    let checked = check_select(select.clone(), session.now_ns).map_err(StatementError::text)?;
    let schema = StoreSchema::new(session, checked.schema_range(), memory);
    let expanded = expand_select(checked, &schema)?;
    let LoweredSelect { plan, stores, time_column, point_tag_count, .. } =
        lower_select(&expanded, &schema, TimeUnit::Nano)?;
    drop(expanded);
    // Names of the result, here and in the header of each series.
    schema.reserve(plan.columns.iter().map(|column| 2 * name_bytes(&column.name)).sum())?;
    let memory = schema.into_memory();
    let named = plan.columns.iter().map(|column| column.name.to_string());
    let columns = std::iter::once(time_column).chain(named).collect();
    let null_numbers = plan.columns.iter().map(|column| NullNumber::of(&plan.fill, &column.expr)).collect();
    let stores: Result<Vec<_>, StatementError> =
        stores.iter().map(|store| session.policy_source(&store.database, &store.policy)).collect();
    let environment = environment(session, stores?);
    let stream = RowStream::open(plan, environment).map_err(row_error)?;
    Ok(OpenSelect {
        stream,
        _memory: memory,
        columns,
        point_tag_count,
        zone: select.zone.as_deref().and_then(zone_named),
        null_numbers,
    })
}

fn environment(session: &Session<'_>, stores: Vec<Arc<dyn Queryable>>) -> RowEnvironment {
    let limits = RowLimits {
        series_max: session.limits.series_max,
        points_max: session.limits.points_max,
        buckets_max: session.limits.buckets_max,
    };
    RowEnvironment { stores, ctx: session.ctx.clone(), limits, seed: session.now_ns.unsigned_abs() }
}

/// Words an error of the operators.
pub(super) fn row_error(error: RowError) -> StatementError {
    match error {
        RowError::Query(error) => StatementError::Query(error),
        RowError::SeriesLimit { found, limit } => {
            StatementError::Text(format!("max-select-series limit exceeded: ({found}/{limit})"))
        }
        RowError::PointLimit { found, limit } => {
            StatementError::Text(format!("max-select-point limit exceeed: ({found}/{limit})"))
        }
        RowError::BucketLimit { found, limit } => {
            StatementError::Text(format!("max-select-buckets limit exceeded: ({found}/{limit})"))
        }
        RowError::Type { function, column_type } => {
            let refused = match column_type {
                ColumnType::Text => "string",
                ColumnType::Boolean => "boolean",
                _ => return StatementError::text(error),
            };
            StatementError::Text(unsupported_iterator(function, refused))
        }
    }
}

/// Gives the rows to the sink.
fn send_rows(open: &mut OpenSelect, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
    let mut current: Option<Arc<chronolith_exec::rows::column::ResultSeries>> = None;
    loop {
        let batch = match open.stream.next_batch() {
            Ok(Some(batch)) => batch,
            Ok(None) => return Ok(()),
            Err(error) => return Err(row_error(error)),
        };
        if batch.times.is_empty() {
            continue;
        }
        if current.as_ref().is_none_or(|series| !Arc::ptr_eq(series, &batch.series)) {
            let tags = batch.series.tags.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            sink.series(&SeriesHeader {
                name: batch.series.name.to_string(),
                tags: tags.collect(),
                columns: open.columns.clone(),
                zone: open.zone.clone(),
            })?;
            current = Some(batch.series.clone());
        }
        send_batch(&batch, &open.null_numbers, sink)?;
    }
}

fn send_batch(
    batch: &RowBatch,
    null_numbers: &[Option<NullNumber>],
    sink: &mut dyn ResultSink,
) -> Result<(), StatementError> {
    let mut cells: Vec<Cell<'_>> = Vec::with_capacity(batch.columns.len() + 1);
    for (row, &time) in batch.times.iter().enumerate() {
        cells.clear();
        cells.push(Cell::Time(time));
        let columns = batch.columns.iter().zip(null_numbers);
        cells.extend(columns.map(|(column, number)| match cell(column, row) {
            Cell::Null => number.as_ref().map_or(Cell::Null, |number| number.cell(column)),
            other => other,
        }));
        sink.row(&cells)?;
    }
    Ok(())
}
