//! Pull contract of rows.

use chronolith_model::query::ColumnType;

use super::column::RowBatch;
use super::error::RowError;

/// Returns batches of rows, series after series.
pub trait RowSource {
    /// The next rows; `None` at the end. Batches are not empty.
    ///
    /// # Errors
    /// As the sources below; no rows follow then.
    fn next_batch(&mut self) -> Result<Option<RowBatch>, RowError>;

    /// Types of the columns; `None` if unknown before there are rows.
    fn column_types(&self) -> &[Option<ColumnType>];
}
