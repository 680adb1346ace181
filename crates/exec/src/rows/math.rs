//! Mathematical functions of columns.
//!
//! Invariants: functions that round keep the type of integers; others return floats, of which NaN is a value.

use chronolith_model::query::{ColumnType, TypedValues};

use super::column::{RowColumn, cast_values};
use super::plan::MathFn;

/// Applies a function of one argument.
pub(crate) fn unary(function: MathFn, column: &RowColumn) -> RowColumn {
    let present = column.present.clone();
    let keeps = matches!(function, MathFn::Abs | MathFn::Ceil | MathFn::Floor | MathFn::Round);
    let values = match &column.values {
        TypedValues::Integers(values) if function == MathFn::Abs => {
            TypedValues::Integers(values.iter().map(|value| value.wrapping_abs()).collect())
        }
        TypedValues::Integers(_) | TypedValues::Unsigned(_) if keeps => column.values.clone(),
        values => match cast_values(values, ColumnType::Float) {
            Some(TypedValues::Floats(mut values)) => {
                let apply = float_fn(function);
                values.iter_mut().for_each(|value| *value = apply(*value));
                TypedValues::Floats(values)
            }
            _ => return RowColumn::nulls(ColumnType::Float, column.len()),
        },
    };
    RowColumn { values, present }
}

/// Applies a function of two arguments.
pub(crate) fn binary(function: MathFn, first: &RowColumn, second: &RowColumn) -> RowColumn {
    let count = first.len();
    let floats = |column: &RowColumn| cast_values(&column.values, ColumnType::Float);
    let (Some(TypedValues::Floats(a)), Some(TypedValues::Floats(b))) = (floats(first), floats(second)) else {
        return RowColumn::nulls(ColumnType::Float, count);
    };
    let apply: fn(f64, f64) -> f64 = match function {
        MathFn::Atan2 => f64::atan2,
        MathFn::Pow => f64::powf,
        MathFn::Log => |value, base| value.ln() / base.ln(),
        _ => return RowColumn::nulls(ColumnType::Float, count),
    };
    let values = a.iter().zip(&b).map(|(a, b)| apply(*a, *b)).collect();
    let present = (first.present.is_some() || second.present.is_some())
        .then(|| (0..count).map(|row| first.is_present(row) && second.is_present(row)).collect());
    RowColumn { values: TypedValues::Floats(values), present }
}

fn float_fn(function: MathFn) -> fn(f64) -> f64 {
    match function {
        MathFn::Abs => f64::abs,
        MathFn::Acos => f64::acos,
        MathFn::Asin => f64::asin,
        MathFn::Atan => f64::atan,
        MathFn::Ceil => f64::ceil,
        MathFn::Cos => f64::cos,
        MathFn::Exp => f64::exp,
        MathFn::Floor => f64::floor,
        MathFn::Ln => f64::ln,
        MathFn::Log2 => f64::log2,
        MathFn::Log10 => f64::log10,
        MathFn::Round => f64::round,
        MathFn::Sin => f64::sin,
        MathFn::Sqrt => f64::sqrt,
        MathFn::Tan => f64::tan,
        MathFn::Atan2 | MathFn::Log | MathFn::Pow => |_| f64::NAN,
    }
}

/// The column with nulls in place of NaN.
pub(crate) fn nan_as_null(column: RowColumn) -> RowColumn {
    let RowColumn { values, mut present } = column;
    if let TypedValues::Floats(floats) = &values
        && floats.iter().any(|value| value.is_nan())
    {
        let marks = present.get_or_insert_with(|| vec![true; floats.len()]);
        marks.iter_mut().zip(floats).for_each(|(mark, value)| *mark &= !value.is_nan());
    }
    RowColumn { values, present }
}
