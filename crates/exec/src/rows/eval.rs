//! Expressions over columns: arithmetic, comparisons and logic, one loop per operator and pair of types.
//!
//! Invariants: the type of a result depends on the types of the operands alone; comparisons have no nulls.
//! Integers wrap at 64 bits.
//! Not here: mathematical functions (`math`).

use std::borrow::Cow;

use chronolith_model::query::{ColumnType, TypedValues};

use super::column::RowColumn;
use super::math;
use super::plan::{Column, Expr, Operator, RowPlan, Variable};
use super::variables::Variables;

/// Place of an expression, which decides what integers and nulls do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Condition on points of a series: integers are divided as integers, a null stays null next to a
    /// boolean.
    SeriesCondition,
    /// Condition on rows of a subquery: integers are divided as integers, a null is false next to a boolean.
    RowCondition,
    /// Column of a result: integers are divided as floats, a null is false next to a boolean.
    Column,
}

/// Values of the variables and calls of some rows.
pub(crate) struct EvalInput<'a> {
    pub(crate) variables: &'a [Variable],
    /// One per variable; `None` is null.
    pub(crate) columns: &'a [Option<RowColumn>],
    pub(crate) calls: &'a [RowColumn],
    pub(crate) row_count: usize,
    pub(crate) place: Place,
}

/// Evaluates an expression for all rows.
pub(crate) fn evaluate<'a>(expr: &Expr, input: &EvalInput<'a>) -> Cow<'a, RowColumn> {
    match expr {
        Expr::Variable(variable) => {
            let idx = input.variables.iter().position(|known| known == variable);
            let columns: &'a [Option<RowColumn>] = input.columns;
            match idx.and_then(|idx| columns.get(idx)).and_then(Option::as_ref) {
                Some(column) => Cow::Borrowed(column),
                None => Cow::Owned(RowColumn::nulls(ColumnType::Float, input.row_count)),
            }
        }
        Expr::Call(idx) => {
            let calls: &'a [RowColumn] = input.calls;
            match calls.get(*idx) {
                Some(column) => Cow::Borrowed(column),
                None => Cow::Owned(RowColumn::nulls(ColumnType::Float, input.row_count)),
            }
        }
        Expr::Literal(value) => Cow::Owned(RowColumn::repeated(Some(value), input.row_count)),
        Expr::Binary(operator, left, right) => {
            let left = evaluate(left, input);
            let right = evaluate(right, input);
            Cow::Owned(binary(*operator, &left, &right, input.place))
        }
        Expr::Match { operand, regex, negated } => {
            let operand = evaluate(operand, input);
            let matches = |text: &[u8]| regex.is_match(&String::from_utf8_lossy(text)) != *negated;
            let values = match &operand.values {
                TypedValues::Texts(texts) => texts
                    .iter()
                    .enumerate()
                    .map(|(row, text)| operand.is_present(row) && matches(text))
                    .collect(),
                _ => vec![false; input.row_count],
            };
            Cow::Owned(RowColumn::of(TypedValues::Booleans(values)))
        }
        Expr::Math(function, arguments) => {
            let arguments: Vec<_> = arguments.iter().map(|argument| evaluate(argument, input)).collect();
            Cow::Owned(match &arguments[..] {
                [one] => math::unary(*function, one),
                [first, second] => math::binary(*function, first, second),
                _ => RowColumn::nulls(ColumnType::Float, input.row_count),
            })
        }
    }
}

/// Evaluates the columns of a plan. NaN is null.
pub(crate) fn shown_columns(plan: &RowPlan, input: &EvalInput<'_>) -> Vec<RowColumn> {
    let columns = plan.columns.iter().map(|column| {
        let column = evaluate(&column.expr, input).into_owned();
        match column.values {
            TypedValues::Floats(values) => math::nan_as_null(values, column.present),
            values => RowColumn { values, present: column.present },
        }
    });
    columns.collect()
}

/// Types of the columns of a plan; `None` where nothing has the type of the column.
pub(crate) fn column_types(
    plan: &RowPlan,
    variables: &Variables,
    calls: &[Option<ColumnType>],
) -> Vec<Option<ColumnType>> {
    let columns: Vec<Option<RowColumn>> =
        variables.types.iter().map(|known| known.map(RowColumn::new)).collect();
    let call_columns: Vec<RowColumn> =
        calls.iter().map(|known| RowColumn::new(known.unwrap_or_default())).collect();
    let input = EvalInput {
        variables: &variables.all,
        columns: &columns,
        calls: &call_columns,
        row_count: 0,
        place: Place::Column,
    };
    let type_of = |column: &Column| match &column.expr {
        Expr::Call(idx) => calls.get(*idx).copied().flatten(),
        Expr::Variable(variable) => variables.index(variable).and_then(|idx| variables.types[idx]),
        expr => Some(evaluate(expr, &input).values.column_type()),
    };
    plan.columns.iter().map(type_of).collect()
}

/// Applies an operator row by row.
pub(crate) fn binary(operator: Operator, left: &RowColumn, right: &RowColumn, place: Place) -> RowColumn {
    use TypedValues as Values;
    if matches!(left.values, Values::Booleans(_)) || matches!(right.values, Values::Booleans(_)) {
        return of_booleans(operator, left, right, place);
    }
    let pair = Pair { left, right, operator };
    match (&left.values, &right.values) {
        (Values::Floats(a), Values::Floats(b)) => pair.floats(a, b, |a| *a, |b| *b),
        (Values::Floats(a), Values::Integers(b)) => pair.floats(a, b, |a| *a, |b| *b as f64),
        (Values::Floats(a), Values::Unsigned(b)) => pair.floats(a, b, |a| *a, |b| *b as f64),
        (Values::Integers(a), Values::Floats(b)) => pair.floats(a, b, |a| *a as f64, |b| *b),
        (Values::Unsigned(a), Values::Floats(b)) => pair.floats(a, b, |a| *a as f64, |b| *b),
        (Values::Integers(a), Values::Integers(b)) => {
            if operator == Operator::Div && place == Place::Column {
                return pair.floats(a, b, |a| *a as f64, |b| *b as f64);
            }
            pair.integers(a, b)
        }
        (Values::Unsigned(a), Values::Unsigned(b)) => pair.unsigned(a, b, |a| *a, |b| *b),
        (Values::Integers(a), Values::Unsigned(b)) => match comparison(operator) {
            Some(holds) => pair.compare(a, b, |a, b| holds(i128::from(*a).cmp(&i128::from(*b)).into())),
            None => pair.unsigned(a, b, |a| *a as u64, |b| *b),
        },
        (Values::Unsigned(a), Values::Integers(b)) => match comparison(operator) {
            Some(holds) => pair.compare(a, b, |a, b| holds(i128::from(*a).cmp(&i128::from(*b)).into())),
            None => pair.unsigned(a, b, |a| *a, |b| *b as u64),
        },
        (Values::Texts(a), Values::Texts(b)) => match operator {
            Operator::Eq => pair.compare(a, b, |a, b| a == b),
            Operator::Ne => pair.compare(a, b, |a, b| a != b),
            Operator::Add => pair.arithmetic(a, b, Values::Texts, |a, b| [&**a, &**b].concat().into()),
            _ => pair.undefined(),
        },
        _ => pair.undefined(),
    }
}

type Holds = fn(Option<std::cmp::Ordering>) -> bool;

/// Test of an order; `None` for operators that are no comparisons.
fn comparison(operator: Operator) -> Option<Holds> {
    use std::cmp::Ordering;
    Some(match operator {
        Operator::Eq => |order| order == Some(Ordering::Equal),
        Operator::Ne => |order| order != Some(Ordering::Equal),
        Operator::Lt => |order| order == Some(Ordering::Less),
        Operator::Le => |order| matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::Gt => |order| order == Some(Ordering::Greater),
        Operator::Ge => |order| matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        _ => return None,
    })
}

/// Operands that are no booleans.
struct Pair<'c> {
    left: &'c RowColumn,
    right: &'c RowColumn,
    operator: Operator,
}

impl Pair<'_> {
    fn present(&self) -> Option<Vec<bool>> {
        match (&self.left.present, &self.right.present) {
            (None, None) => None,
            (Some(one), None) | (None, Some(one)) => Some(one.clone()),
            (Some(a), Some(b)) => Some(a.iter().zip(b).map(|(a, b)| *a && *b).collect()),
        }
    }

    /// Comparison; false for nulls.
    fn compare<A, B>(&self, a: &[A], b: &[B], holds: impl Fn(&A, &B) -> bool) -> RowColumn {
        let mut values: Vec<bool> = a.iter().zip(b).map(|(a, b)| holds(a, b)).collect();
        if let Some(present) = self.present() {
            values.iter_mut().zip(present).for_each(|(value, present)| *value &= present);
        }
        RowColumn::of(TypedValues::Booleans(values))
    }

    fn arithmetic<A, B, T>(
        &self,
        a: &[A],
        b: &[B],
        wrap: impl Fn(Vec<T>) -> TypedValues,
        apply: impl Fn(&A, &B) -> T,
    ) -> RowColumn {
        let values = wrap(a.iter().zip(b).map(|(a, b)| apply(a, b)).collect());
        RowColumn { values, present: self.present() }
    }

    fn floats<A, B>(
        &self,
        a: &[A],
        b: &[B],
        left: impl Fn(&A) -> f64,
        right: impl Fn(&B) -> f64,
    ) -> RowColumn {
        if let Some(holds) = comparison(self.operator) {
            return self.compare(a, b, |a, b| holds(left(a).partial_cmp(&right(b))));
        }
        let wrap = TypedValues::Floats;
        match self.operator {
            Operator::Add => self.arithmetic(a, b, wrap, |a, b| left(a) + right(b)),
            Operator::Sub => self.arithmetic(a, b, wrap, |a, b| left(a) - right(b)),
            Operator::Mul => self.arithmetic(a, b, wrap, |a, b| left(a) * right(b)),
            Operator::Div => self.arithmetic(a, b, wrap, |a, b| match right(b) {
                0.0 => 0.0,
                divisor => left(a) / divisor,
            }),
            Operator::Mod => self.arithmetic(a, b, wrap, |a, b| left(a) % right(b)),
            _ => self.undefined(),
        }
    }

    fn integers(&self, a: &[i64], b: &[i64]) -> RowColumn {
        if let Some(holds) = comparison(self.operator) {
            return self.compare(a, b, |a, b| holds(Some(a.cmp(b))));
        }
        let apply: fn(&i64, &i64) -> i64 = match self.operator {
            Operator::Add => |a, b| a.wrapping_add(*b),
            Operator::Sub => |a, b| a.wrapping_sub(*b),
            Operator::Mul => |a, b| a.wrapping_mul(*b),
            Operator::Div => |a, b| if *b == 0 { 0 } else { a.wrapping_div(*b) },
            Operator::Mod => |a, b| if *b == 0 { 0 } else { a.wrapping_rem(*b) },
            Operator::BitAnd => |a, b| a & b,
            Operator::BitOr => |a, b| a | b,
            Operator::BitXor => |a, b| a ^ b,
            _ => return self.undefined(),
        };
        self.arithmetic(a, b, TypedValues::Integers, apply)
    }

    fn unsigned<A, B>(
        &self,
        a: &[A],
        b: &[B],
        left: impl Fn(&A) -> u64,
        right: impl Fn(&B) -> u64,
    ) -> RowColumn {
        if let Some(holds) = comparison(self.operator) {
            return self.compare(a, b, |a, b| holds(Some(left(a).cmp(&right(b)))));
        }
        let apply: fn(u64, u64) -> u64 = match self.operator {
            Operator::Add => u64::wrapping_add,
            Operator::Sub => u64::wrapping_sub,
            Operator::Mul => u64::wrapping_mul,
            Operator::Div => |a, b| a.checked_div(b).unwrap_or(0),
            Operator::Mod => |a, b| a.checked_rem(b).unwrap_or(0),
            Operator::BitAnd => |a, b| a & b,
            Operator::BitOr => |a, b| a | b,
            Operator::BitXor => |a, b| a ^ b,
            _ => return self.undefined(),
        };
        self.arithmetic(a, b, TypedValues::Unsigned, |a, b| apply(left(a), right(b)))
    }

    /// Types that do not go together: comparisons are false, others null.
    fn undefined(&self) -> RowColumn {
        undefined(self.operator, self.left.len())
    }
}

fn undefined(operator: Operator, count: usize) -> RowColumn {
    match comparison(operator) {
        Some(_) => RowColumn::of(TypedValues::Booleans(vec![false; count])),
        None => RowColumn::nulls(ColumnType::Float, count),
    }
}

/// Operands of which at least one is a boolean. A null becomes false if the other value is a boolean.
fn of_booleans(operator: Operator, left: &RowColumn, right: &RowColumn, place: Place) -> RowColumn {
    let count = left.len();
    let apply: fn(bool, bool) -> bool = match operator {
        Operator::And | Operator::BitAnd => |a, b| a && b,
        Operator::Or | Operator::BitOr => |a, b| a || b,
        Operator::BitXor | Operator::Ne => |a, b| a != b,
        Operator::Eq => |a, b| a == b,
        _ => return undefined(operator, count),
    };
    // A value of another type makes the result false, next to a boolean on the left.
    let is_left_boolean = matches!(left.values, TypedValues::Booleans(_));
    let casts_null = place != Place::SeriesCondition;
    let mut out = RowColumn::new(ColumnType::Boolean);
    for row in 0..count {
        let a = operand(left, row);
        let b = operand(right, row);
        let value = match (a, b) {
            (Operand::Boolean(a), Operand::Boolean(b)) => Some(apply(a, b)),
            (Operand::Null, Operand::Boolean(b)) if casts_null => Some(apply(false, b)),
            (Operand::Boolean(a), Operand::Null) if casts_null => Some(apply(a, false)),
            (Operand::Boolean(_), Operand::Other) if is_left_boolean => Some(false),
            _ => comparison(operator).map(|_| false),
        };
        out.push(value.map(super::plan::Literal::Boolean).as_ref());
    }
    out
}

enum Operand {
    Null,
    Boolean(bool),
    Other,
}

fn operand(column: &RowColumn, row: usize) -> Operand {
    match &column.values {
        _ if !column.is_present(row) => Operand::Null,
        TypedValues::Booleans(values) => Operand::Boolean(values[row]),
        _ => Operand::Other,
    }
}
