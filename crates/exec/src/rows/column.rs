//! Result columns: values of one type with nulls, batches of rows.
//!
//! Invariants: all columns of a batch have one entry per time; a null has some value in `values`.

use std::sync::Arc;

use chronolith_model::query::{ColumnType, TypedValues};

use super::plan::Literal;

/// Values of one type with nulls.
#[derive(Debug, Clone, PartialEq)]
pub struct RowColumn {
    /// One per row.
    pub values: TypedValues,
    /// True for rows that have a value; `None`: all have one.
    pub present: Option<Vec<bool>>,
}

/// Name and grouping tags of the rows of a series of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultSeries {
    /// Name of the measurement.
    pub name: Arc<str>,
    /// Grouping tags in order of their keys; empty for a tag that the series do not have.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
}

/// Rows of one series of the result. Consecutive batches of one series share `series`.
#[derive(Debug, Clone, PartialEq)]
pub struct RowBatch {
    /// The series.
    pub series: Arc<ResultSeries>,
    /// Times of the rows, in the order of the plan.
    pub times: Vec<i64>,
    /// One per column of the plan.
    pub columns: Vec<RowColumn>,
}

/// Row of a gather that is null.
pub(crate) const NULL_ROW: u32 = u32::MAX;

/// Evaluates `$body` with `$vec` bound to the vector of a [`TypedValues`].
macro_rules! each_type {
    ($values:expr, $vec:ident => $body:expr) => {
        match $values {
            TypedValues::Floats($vec) => $body,
            TypedValues::Integers($vec) => $body,
            TypedValues::Unsigned($vec) => $body,
            TypedValues::Booleans($vec) => $body,
            TypedValues::Texts($vec) => $body,
            TypedValues::Histograms($vec) => $body,
        }
    };
}

/// As `each_type`, with the result as values of the same type.
macro_rules! map_type {
    ($values:expr, $vec:ident => $body:expr) => {
        match $values {
            TypedValues::Floats($vec) => TypedValues::Floats($body),
            TypedValues::Integers($vec) => TypedValues::Integers($body),
            TypedValues::Unsigned($vec) => TypedValues::Unsigned($body),
            TypedValues::Booleans($vec) => TypedValues::Booleans($body),
            TypedValues::Texts($vec) => TypedValues::Texts($body),
            TypedValues::Histograms($vec) => TypedValues::Histograms($body),
        }
    };
}

impl RowColumn {
    /// Without rows.
    #[must_use]
    pub fn new(column_type: ColumnType) -> RowColumn {
        RowColumn { values: TypedValues::new(column_type), present: None }
    }

    /// A column in which every row has a value.
    #[must_use]
    pub fn of(values: TypedValues) -> RowColumn {
        RowColumn { values, present: None }
    }

    /// Rows without values.
    #[must_use]
    pub fn nulls(column_type: ColumnType, count: usize) -> RowColumn {
        let mut column = RowColumn::new(column_type);
        (0..count).for_each(|_| column.push(None));
        column
    }

    /// The same value in all rows; nulls of floats for `None`.
    #[must_use]
    pub fn repeated(value: Option<&Literal>, count: usize) -> RowColumn {
        let values = match value {
            None => return RowColumn::nulls(ColumnType::Float, count),
            Some(Literal::Float(value)) => TypedValues::Floats(vec![*value; count]),
            Some(Literal::Integer(value)) => TypedValues::Integers(vec![*value; count]),
            Some(Literal::Unsigned(value)) => TypedValues::Unsigned(vec![*value; count]),
            Some(Literal::Boolean(value)) => TypedValues::Booleans(vec![*value; count]),
            Some(Literal::Text(value)) => TypedValues::Texts(vec![value.clone(); count]),
        };
        RowColumn::of(values)
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        each_type!(&self.values, values => values.len())
    }

    /// Returns true if there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the row has a value.
    #[must_use]
    pub fn is_present(&self, row: usize) -> bool {
        self.present.as_ref().is_none_or(|present| present[row])
    }

    /// Value of a row; `None` if it is null.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<Literal> {
        if !self.is_present(row) {
            return None;
        }
        match &self.values {
            TypedValues::Floats(values) => Some(Literal::Float(values[row])),
            TypedValues::Integers(values) => Some(Literal::Integer(values[row])),
            TypedValues::Unsigned(values) => Some(Literal::Unsigned(values[row])),
            TypedValues::Booleans(values) => Some(Literal::Boolean(values[row])),
            TypedValues::Texts(values) => Some(Literal::Text(values[row].clone())),
            TypedValues::Histograms(_) => None,
        }
    }

    /// Appends a value, cast to the type of the column; null if it cannot be cast.
    pub fn push(&mut self, value: Option<&Literal>) {
        let value = value.and_then(|value| cast_literal(value, self.values.column_type()));
        let is_present = value.is_some();
        match (&mut self.values, value) {
            (TypedValues::Floats(values), Some(Literal::Float(value))) => values.push(value),
            (TypedValues::Integers(values), Some(Literal::Integer(value))) => values.push(value),
            (TypedValues::Unsigned(values), Some(Literal::Unsigned(value))) => values.push(value),
            (TypedValues::Booleans(values), Some(Literal::Boolean(value))) => values.push(value),
            (TypedValues::Texts(values), Some(Literal::Text(value))) => values.push(value),
            (values, _) => push_default(values),
        }
        self.mark(is_present);
    }

    /// Appends row `row` of `other`, which is of the same type.
    ///
    /// # Panics
    /// If it has no such row or another type.
    pub fn push_from(&mut self, other: &RowColumn, row: usize) {
        self.values.push_from(&other.values, row);
        self.mark(other.is_present(row));
    }

    fn mark(&mut self, is_present: bool) {
        match &mut self.present {
            Some(present) => present.push(is_present),
            None if is_present => {}
            None => {
                let mut present = vec![true; self.len() - 1];
                present.push(false);
                self.present = Some(present);
            }
        }
    }

    /// The rows `rows`, in that order; [`NULL_ROW`] is null.
    #[must_use]
    pub(crate) fn gather(&self, rows: &[u32]) -> RowColumn {
        let has_null_rows = rows.contains(&NULL_ROW);
        if self.is_empty() {
            return RowColumn::nulls(self.values.column_type(), rows.len());
        }
        let pick = |row: &u32| if *row == NULL_ROW { 0 } else { *row as usize };
        let values = map_type!(&self.values, values => {
            rows.iter().map(|row| Clone::clone(&values[pick(row)])).collect()
        });
        let present = (has_null_rows || self.present.is_some())
            .then(|| rows.iter().map(|row| *row != NULL_ROW && self.is_present(*row as usize)).collect());
        RowColumn { values, present }
    }

    /// Rows `from` to `to`.
    #[must_use]
    pub(crate) fn range(&self, from: usize, to: usize) -> RowColumn {
        let values = map_type!(&self.values, values => values[from..to].to_vec());
        RowColumn { values, present: self.present.as_ref().map(|present| present[from..to].to_vec()) }
    }

    /// Reverses the rows.
    pub(crate) fn reverse(&mut self) {
        each_type!(&mut self.values, values => values.reverse());
        if let Some(present) = &mut self.present {
            present.reverse();
        }
    }

    /// Appends the rows of `other`. If the types differ, values that cannot be cast become null.
    pub(crate) fn append(&mut self, other: &RowColumn) {
        if self.values.column_type() != other.values.column_type() {
            for row in 0..other.len() {
                self.push(other.get(row).as_ref());
            }
            return;
        }
        let before = self.len();
        match (&mut self.values, &other.values) {
            (TypedValues::Floats(values), TypedValues::Floats(more)) => values.extend_from_slice(more),
            (TypedValues::Integers(values), TypedValues::Integers(more)) => values.extend_from_slice(more),
            (TypedValues::Unsigned(values), TypedValues::Unsigned(more)) => values.extend_from_slice(more),
            (TypedValues::Booleans(values), TypedValues::Booleans(more)) => values.extend_from_slice(more),
            (TypedValues::Texts(values), TypedValues::Texts(more)) => values.extend_from_slice(more),
            (TypedValues::Histograms(values), TypedValues::Histograms(more)) => {
                values.extend_from_slice(more);
            }
            _ => {}
        }
        match (&mut self.present, &other.present) {
            (None, None) => {}
            (Some(present), None) => present.resize(present.len() + other.len(), true),
            (None, Some(more)) => {
                let mut present = vec![true; before];
                present.extend_from_slice(more);
                self.present = Some(present);
            }
            (Some(present), Some(more)) => present.extend_from_slice(more),
        }
    }

    /// Bytes on the heap, for budgets.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.values.heap_bytes() + self.present.as_ref().map_or(0, Vec::len)
    }
}

fn push_default(values: &mut TypedValues) {
    match values {
        TypedValues::Floats(values) => values.push(0.0),
        TypedValues::Integers(values) => values.push(0),
        TypedValues::Unsigned(values) => values.push(0),
        TypedValues::Booleans(values) => values.push(false),
        TypedValues::Texts(values) => values.push(Arc::from(&[][..])),
        TypedValues::Histograms(values) => {
            let empty = chronolith_model::Histogram::Int(chronolith_model::IntHistogram::default());
            values.push(Arc::new(empty));
        }
    }
}

/// 2^63, the least float that a 64-bit integer does not hold.
const INTEGER_END: f64 = 9_223_372_036_854_775_808.0;

/// Casts a float as InfluxDB on x86-64 does: what no integer holds, NaN included, is the least integer.
pub(crate) fn float_to_integer(value: f64) -> i64 {
    if (-INTEGER_END..INTEGER_END).contains(&value) { value as i64 } else { i64::MIN }
}

/// Casts a float as InfluxDB on x86-64 does: values from 2^63 are cast by their distance to it, others as
/// integers whose bits are taken.
pub(crate) fn float_to_unsigned(value: f64) -> u64 {
    if value < INTEGER_END {
        float_to_integer(value).cast_unsigned()
    } else {
        float_to_integer(value - INTEGER_END).cast_unsigned() ^ (1 << 63)
    }
}

/// Casts a value: numbers to numbers, others to their own type.
#[must_use]
pub fn cast_literal(value: &Literal, to: ColumnType) -> Option<Literal> {
    match (value, to) {
        (Literal::Float(value), ColumnType::Integer) => Some(Literal::Integer(float_to_integer(*value))),
        (Literal::Float(value), ColumnType::Unsigned) => Some(Literal::Unsigned(float_to_unsigned(*value))),
        (Literal::Integer(value), ColumnType::Float) => Some(Literal::Float(*value as f64)),
        (Literal::Integer(value), ColumnType::Unsigned) => Some(Literal::Unsigned(*value as u64)),
        (Literal::Unsigned(value), ColumnType::Float) => Some(Literal::Float(*value as f64)),
        (Literal::Unsigned(value), ColumnType::Integer) => Some(Literal::Integer(*value as i64)),
        (Literal::Float(_), ColumnType::Float)
        | (Literal::Integer(_), ColumnType::Integer)
        | (Literal::Unsigned(_), ColumnType::Unsigned)
        | (Literal::Boolean(_), ColumnType::Boolean)
        | (Literal::Text(_), ColumnType::Text) => Some(value.clone()),
        _ => None,
    }
}

/// Returns true if [`cast_literal`] casts values of a type: numbers convert to numbers.
pub(crate) fn converts(from: ColumnType, to: ColumnType) -> bool {
    let is_number = |one| matches!(one, ColumnType::Float | ColumnType::Integer | ColumnType::Unsigned);
    from == to || is_number(from) && is_number(to)
}

/// Casts values as [`cast_literal`]; `None` if the types do not convert.
#[must_use]
pub(crate) fn cast_values(values: &TypedValues, to: ColumnType) -> Option<TypedValues> {
    macro_rules! convert {
        ($values:expr, $to:ty) => {
            $values.iter().map(|value| *value as $to).collect()
        };
    }
    Some(match (values, to) {
        (values, to) if values.column_type() == to => values.clone(),
        (TypedValues::Floats(values), ColumnType::Integer) => {
            TypedValues::Integers(values.iter().copied().map(float_to_integer).collect())
        }
        (TypedValues::Floats(values), ColumnType::Unsigned) => {
            TypedValues::Unsigned(values.iter().copied().map(float_to_unsigned).collect())
        }
        (TypedValues::Integers(values), ColumnType::Float) => TypedValues::Floats(convert!(values, f64)),
        (TypedValues::Integers(values), ColumnType::Unsigned) => TypedValues::Unsigned(convert!(values, u64)),
        (TypedValues::Unsigned(values), ColumnType::Float) => TypedValues::Floats(convert!(values, f64)),
        (TypedValues::Unsigned(values), ColumnType::Integer) => TypedValues::Integers(convert!(values, i64)),
        _ => return None,
    })
}

/// Rank of a type among the types of one field: a column has the type with the lowest rank that occurs.
#[must_use]
pub fn type_rank(column_type: ColumnType) -> u8 {
    match column_type {
        ColumnType::Float => 0,
        ColumnType::Integer => 1,
        ColumnType::Unsigned => 2,
        ColumnType::Text => 3,
        ColumnType::Boolean => 4,
        ColumnType::Histogram => 5,
    }
}
