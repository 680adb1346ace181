//! SELECT: checks, expansion by the schema of the stores, plan, rows. With INTO the rows are written.
//!
//! Not here: meaning (`semantics`), the plan (`lowering`), operators (`exec::rows`).

use std::sync::Arc;

use chronolith_exec::rows::column::{RowBatch, RowColumn};
use chronolith_exec::rows::error::RowError;
use chronolith_exec::rows::execution::{RowEnvironment, RowLimits};
use chronolith_exec::rows::source::RowSource as _;
use chronolith_exec::rows::stream::RowStream;
use chronolith_model::query::TypedValues;
use chronolith_model::{Queryable, TimeUnit};

use super::into::PointWriter;
use super::typed_schema::StoreSchema;
use super::{Session, StatementError};
use crate::ast::Select;
use crate::lowering::{LoweredSelect, lower_select};
use crate::result::{Cell, ResultSink, SeriesHeader};
use crate::semantics::{check_select, expand_select};

/// Rows of a SELECT, and what they are called.
pub(super) struct OpenSelect {
    pub(super) stream: RowStream,
    pub(super) columns: Vec<String>,
}

impl Session<'_> {
    pub(super) fn select(&self, select: &Select, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
        let Some(target) = &select.target else {
            let mut open = self.open_select(select)?;
            return send_rows(&mut open, sink);
        };
        let mut open = self.open_select(select)?;
        let mut writer = PointWriter::new(self, target)?;
        while let Some(batch) = open.stream.next_batch().map_err(|error| self.row_error(error))? {
            writer.add(&batch, &open.columns)?;
        }
        let written = writer.finish()?;
        sink.series(&SeriesHeader::new("result", &["time", "written"]))?;
        let written = i64::try_from(written).unwrap_or(i64::MAX);
        Ok(sink.row(&[Cell::Time(0), Cell::Integer(written)])?)
    }

    /// Plans a SELECT and selects its series.
    pub(super) fn open_select(&self, select: &Select) -> Result<OpenSelect, StatementError> {
        let checked = check_select(select.clone(), self.now_ns).map_err(StatementError::text)?;
        let schema = StoreSchema::new(self, checked.bounds.range());
        let expanded = expand_select(checked, &schema)?;
        let LoweredSelect { plan, stores, time_column, .. } =
            lower_select(&expanded, &schema, TimeUnit::Nano)?;
        let named = plan.columns.iter().map(|column| column.name.to_string());
        let columns = std::iter::once(time_column).chain(named).collect();
        let stores: Result<Vec<_>, StatementError> =
            stores.iter().map(|store| self.policy_source(&store.database, &store.policy)).collect();
        let environment = self.environment(stores?);
        let stream = RowStream::open(plan, environment).map_err(|error| self.row_error(error))?;
        Ok(OpenSelect { stream, columns })
    }

    fn environment(&self, stores: Vec<Arc<dyn Queryable>>) -> RowEnvironment {
        let limits = RowLimits {
            series_max: self.limits.series_max,
            points_max: self.limits.points_max,
            buckets_max: self.limits.buckets_max,
        };
        RowEnvironment { stores, ctx: self.ctx.clone(), limits, seed: self.now_ns.unsigned_abs() }
    }

    /// Words an error of the operators.
    pub(super) fn row_error(&self, error: RowError) -> StatementError {
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
            error => StatementError::text(error),
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
            Err(RowError::Query(error)) => return Err(error.into()),
            Err(error) => return Err(StatementError::text(error)),
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
            })?;
            current = Some(batch.series.clone());
        }
        send_batch(&batch, sink)?;
    }
}

fn send_batch(batch: &RowBatch, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
    let mut cells: Vec<Cell<'_>> = Vec::with_capacity(batch.columns.len() + 1);
    for (row, &time) in batch.times.iter().enumerate() {
        cells.clear();
        cells.push(Cell::Time(time));
        cells.extend(batch.columns.iter().map(|column| cell(column, row)));
        sink.row(&cells)?;
    }
    Ok(())
}

/// Value of a row.
pub(super) fn cell(column: &RowColumn, row: usize) -> Cell<'_> {
    if !column.is_present(row) {
        return Cell::Null;
    }
    match &column.values {
        TypedValues::Floats(values) => Cell::Float(values[row]),
        TypedValues::Integers(values) => Cell::Integer(values[row]),
        TypedValues::Unsigned(values) => Cell::Unsigned(values[row]),
        TypedValues::Booleans(values) => Cell::Boolean(values[row]),
        TypedValues::Texts(values) => Cell::Text(&values[row]),
        TypedValues::Histograms(_) => Cell::Null,
    }
}
