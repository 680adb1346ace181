//! Execution of a plan as a stream of rows.
//!
//! Invariants: rows of a series are consecutive; subqueries are run when the plan is opened; the rows of the
//! outermost plan have no NaN.

use std::sync::Arc;

use chronolith_model::query::ColumnType;

use super::bounds::WindowBounds;
use super::column::RowBatch;
use super::error::RowError;
use super::execution::{RowEnvironment, RowExecution};
use super::joined::JoinedRows;
use super::math::nan_as_null;
use super::plan::RowPlan;
use super::raw::RawRows;
use super::selection::select;
use super::source::RowSource;

/// Rows of a query, read as they are pulled. Dropping it stops the query.
pub struct RowStream {
    rows: Box<dyn RowSource + Send>,
    /// False for subqueries, whose NaN are values of the plan above.
    is_outermost: bool,
}

impl RowStream {
    /// Selects the series of a plan and runs its subqueries. Samples are read by
    /// [`RowStream::next_batch`].
    ///
    /// # Errors
    /// As the stores, and limits.
    pub fn open(plan: RowPlan, environment: RowEnvironment) -> Result<RowStream, RowError> {
        let execution = RowExecution::new(environment, &plan);
        let stream = RowStream::open_in(plan, &Arc::new(execution))?;
        Ok(RowStream { is_outermost: true, ..stream })
    }

    fn open_in(mut plan: RowPlan, execution: &Arc<RowExecution>) -> Result<RowStream, RowError> {
        execution.check()?;
        let bounds = WindowBounds::new(plan.range, plan.windows.clone());
        let limit = execution.environment.limits.buckets_max;
        if let Some(found) = bounds.count()
            && limit != 0
            && found > limit
        {
            return Err(RowError::BucketLimit { found, limit });
        }
        let run = |inner: RowPlan| -> Result<Box<dyn RowSource>, RowError> {
            Ok(Box::new(RowStream::open_in(inner, execution)?))
        };
        if plan.calls.is_empty() {
            plan.range = execution.readable(plan.range);
        }
        let sources = std::mem::take(&mut plan.sources);
        let selection = select(&plan, sources, execution, &run)?;
        let plan = Arc::new(plan);
        let execution = execution.clone();
        let rows: Box<dyn RowSource + Send> = if plan.calls.is_empty() {
            Box::new(RawRows::new(plan, execution, selection)?)
        } else {
            Box::new(JoinedRows::new(plan, execution, selection)?)
        };
        Ok(RowStream { rows, is_outermost: false })
    }
}

impl RowSource for RowStream {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, RowError> {
        let batch = self.rows.next_batch()?;
        Ok(batch.map(|mut batch| {
            if self.is_outermost {
                batch.columns = batch.columns.into_iter().map(nan_as_null).collect();
            }
            batch
        }))
    }

    fn column_types(&self) -> &[Option<ColumnType>] {
        self.rows.column_types()
    }
}
