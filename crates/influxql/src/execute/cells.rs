//! Values of rows as results take them.

use chronolith_exec::rows::column::RowColumn;
use chronolith_exec::rows::plan::{Expr, Fill, Literal};
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

/// Number of `fill()` as the cell of a row without a value in a column of texts or booleans, as InfluxDB
/// prints it. Columns of numbers have it in their values (`exec`), cast to their type.
#[derive(Debug, Clone, Copy)]
pub(super) struct NullNumber {
    number: Cell<'static>,
    is_variable: bool,
}

impl NullNumber {
    /// The number for a column of a plan; `None` if its nulls stay.
    pub(super) fn of(fill: &Fill, column: &Expr) -> Option<NullNumber> {
        let number = match fill {
            Fill::Number(Literal::Float(number)) => Cell::Float(*number),
            Fill::Number(Literal::Integer(number)) => Cell::Integer(*number),
            _ => return None,
        };
        match column {
            Expr::Variable(_) => Some(NullNumber { number, is_variable: true }),
            Expr::Call(_) => Some(NullNumber { number, is_variable: false }),
            _ => None,
        }
    }

    /// Cell of a row that has no value in `column`. A null of a call over numbers is a result: it stays.
    pub(super) fn cell(&self, column: &RowColumn) -> Cell<'static> {
        match column.values {
            TypedValues::Texts(_) | TypedValues::Booleans(_) => self.number,
            _ if self.is_variable => self.number,
            _ => Cell::Null,
        }
    }
}
