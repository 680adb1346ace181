//! Values of rows as results take them.

use chronolith_exec::rows::column::RowColumn;
use chronolith_model::query::TypedValues;

use crate::result::Cell;

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
