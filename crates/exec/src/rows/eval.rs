//! Expressions over columns: arithmetic, comparisons and logic, one loop per operator and pair of types.
//!
//! Invariants: the type of a result depends on the types of the operands alone; comparisons have no nulls.
//! Integers wrap at 64 bits.
//! Not here: mathematical functions (`math`).

use std::borrow::Cow;

use chronolith_base::Reservation;
use chronolith_model::query::{ColumnType, TypedValues};

use super::allowance::row_bytes;
use super::column::RowColumn;
use super::error::RowError;
use super::execution::RowExecution;
use super::math;
use super::plan::{Column, Expr, Fill, Literal, Operator, RowPlan};
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
    pub(crate) variables: &'a Variables,
    /// One per variable; `None` is null.
    pub(crate) columns: &'a [Option<RowColumn>],
    pub(crate) calls: &'a [RowColumn],
    pub(crate) row_count: usize,
    pub(crate) place: Place,
    /// Number of `fill()` of the plan, for columns of a result.
    pub(crate) number: Option<&'a Literal>,
    pub(crate) execution: &'a RowExecution,
}

/// Result of an expression, with the memory that is reserved for it.
pub(crate) struct Evaluated<'a> {
    column: Cow<'a, RowColumn>,
    memory: Option<Reservation>,
}

impl<'a> Evaluated<'a> {
    /// The value per row.
    pub(crate) fn column(&self) -> &RowColumn {
        &self.column
    }

    /// A column that is in memory already.
    fn known(column: &'a RowColumn) -> Evaluated<'a> {
        Evaluated { column: Cow::Borrowed(column), memory: None }
    }

    fn computed(column: RowColumn, memory: Reservation) -> Evaluated<'a> {
        Evaluated { column: Cow::Owned(column), memory: Some(memory) }
    }

    fn nulls(input: &EvalInput<'a>) -> Result<Evaluated<'a>, RowError> {
        let memory = input.execution.reserve(input.row_count.saturating_mul(row_bytes(ColumnType::Float)))?;
        Ok(Evaluated::computed(RowColumn::nulls(ColumnType::Float, input.row_count), memory))
    }
}

/// Bytes per row of a computed column of unknown type.
const COMPUTED_ROW_BYTES: usize = 17;
/// Columns of a plan between two checks of the deadline.
const COLUMNS_PER_CHECK: usize = 256;

/// Evaluates an expression for all rows.
///
/// # Errors
/// Memory of results that are not yet computed.
pub(crate) fn evaluate<'a>(expr: &Expr, input: &EvalInput<'a>) -> Result<Evaluated<'a>, RowError> {
    let reserve_rows = || input.execution.reserve(input.row_count.saturating_mul(COMPUTED_ROW_BYTES));
    match expr {
        Expr::Variable(variable) => {
            let columns: &'a [Option<RowColumn>] = input.columns;
            let idx = input.variables.index(variable);
            match idx.and_then(|idx| columns.get(idx)).and_then(Option::as_ref) {
                Some(column) => Ok(Evaluated::known(column)),
                None => Evaluated::nulls(input),
            }
        }
        Expr::Call(idx) => {
            let calls: &'a [RowColumn] = input.calls;
            match calls.get(*idx) {
                Some(column) => Ok(Evaluated::known(column)),
                None => Evaluated::nulls(input),
            }
        }
        Expr::Literal(value) => {
            let memory = reserve_rows()?;
            Ok(Evaluated::computed(RowColumn::repeated(Some(value), input.row_count), memory))
        }
        Expr::Binary(operator, left, right) => {
            input.execution.check()?;
            let exprs = [&**left, &**right];
            let left = evaluate(left, input)?.column_and_memory();
            let right = evaluate(right, input)?.column_and_memory();
            let nulls = [null_of(exprs[0], &left.0, input), null_of(exprs[1], &right.0, input)];
            let memory = reserve_rows()?;
            Ok(Evaluated::computed(binary(*operator, &left.0, &right.0, input.place, nulls), memory))
        }
        Expr::Match { operand, regex, negated } => {
            input.execution.check()?;
            let operand = evaluate(operand, input)?;
            let memory = reserve_rows()?;
            let operand = &*operand.column;
            let matches = |text: &[u8]| regex.is_match(&String::from_utf8_lossy(text)) != *negated;
            let values = match &operand.values {
                TypedValues::Texts(texts) => texts
                    .iter()
                    .enumerate()
                    .map(|(row, text)| operand.is_present(row) && matches(text))
                    .collect(),
                _ => vec![false; input.row_count],
            };
            Ok(Evaluated::computed(RowColumn::of(TypedValues::Booleans(values)), memory))
        }
        Expr::Math(function, arguments) => {
            let evaluated: Result<Vec<Evaluated<'a>>, RowError> =
                arguments.iter().map(|argument| evaluate_argument(argument, input)).collect();
            let evaluated = evaluated?;
            // The result, and its operands as floats.
            let mut memory = reserve_rows()?;
            memory.grow((2 * COMPUTED_ROW_BYTES).saturating_mul(input.row_count) as u64)?;
            let column = match &evaluated[..] {
                [one] => math::unary(*function, &one.column),
                [first, second] => math::binary(*function, &first.column, &second.column),
                _ => RowColumn::nulls(ColumnType::Float, input.row_count),
            };
            memory.shrink((2 * COMPUTED_ROW_BYTES).saturating_mul(input.row_count) as u64);
            Ok(Evaluated::computed(column, memory))
        }
    }
}

/// Evaluates an argument of a mathematical function. Texts and booleans are null there; the number of
/// `fill()`, which stands for their own nulls, is not.
fn evaluate_argument<'a>(argument: &Expr, input: &EvalInput<'a>) -> Result<Evaluated<'a>, RowError> {
    let evaluated = evaluate(argument, input)?;
    let null = null_of(argument, &evaluated.column, input);
    let (Some(number), NullIs::Number) = (input.number, null) else { return Ok(evaluated) };
    let memory = input.execution.reserve(input.row_count.saturating_mul(COMPUTED_ROW_BYTES))?;
    let column = &evaluated.column;
    let mut numbers = RowColumn::new(match number {
        Literal::Integer(_) => ColumnType::Integer,
        _ => ColumnType::Float,
    });
    (0..column.len()).for_each(|row| numbers.push((!column.is_present(row)).then_some(number)));
    Ok(Evaluated::computed(numbers, memory))
}

/// Value that stands for a null of a text or boolean in an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NullIs {
    /// No value: the result is null or false.
    Null,
    /// False, if the other operand is a boolean.
    False,
    /// The number of `fill()`, which is not a boolean.
    Number,
}

/// The meaning of nulls of an operand. A null that an operator or function returns is never replaced, and
/// columns of numbers have the number as a value.
fn null_of(operand: &Expr, column: &RowColumn, input: &EvalInput<'_>) -> NullIs {
    let is_stored = matches!(operand, Expr::Variable(_) | Expr::Call(_))
        && matches!(column.values, TypedValues::Booleans(_) | TypedValues::Texts(_));
    match input.place {
        Place::SeriesCondition => NullIs::Null,
        Place::Column if is_stored && input.number.is_some() => NullIs::Number,
        Place::RowCondition | Place::Column => NullIs::False,
    }
}

impl<'a> Evaluated<'a> {
    fn column_and_memory(self) -> (Cow<'a, RowColumn>, Option<Reservation>) {
        (self.column, self.memory)
    }
}

/// Evaluates the columns of a plan. The returned memory covers the columns, and a mark per row of columns in
/// which the outermost plan replaces NaN.
pub(crate) fn shown_columns(
    plan: &RowPlan,
    input: &EvalInput<'_>,
) -> Result<(Vec<RowColumn>, Reservation), RowError> {
    let mut memory = input.execution.reserve(plan.columns.len().saturating_mul(size_of::<RowColumn>()))?;
    let mut columns = Vec::with_capacity(plan.columns.len());
    for (idx, column) in plan.columns.iter().enumerate() {
        if idx.is_multiple_of(COLUMNS_PER_CHECK) {
            input.execution.check()?;
        }
        let (column, own) = evaluate(&column.expr, input)?.column_and_memory();
        let bytes = column.heap_bytes() + input.row_count;
        memory.grow(bytes as u64)?;
        // Computed values are moved, and reserved twice for this moment alone.
        let column = column.into_owned();
        drop(own);
        columns.push(column);
    }
    Ok((columns, memory))
}

/// The number of `fill()`.
pub(crate) fn number_of(fill: &Fill) -> Option<&Literal> {
    match fill {
        Fill::Number(number) => Some(number),
        _ => None,
    }
}

/// Types of the columns of a plan; `None` where nothing has the type of the column.
///
/// # Errors
/// Deadline and cancellation.
pub(crate) fn column_types(
    plan: &RowPlan,
    variables: &Variables,
    calls: &[Option<ColumnType>],
    execution: &RowExecution,
) -> Result<Vec<Option<ColumnType>>, RowError> {
    let columns: Vec<Option<RowColumn>> =
        variables.types.iter().map(|known| known.map(RowColumn::new)).collect();
    let call_columns: Vec<RowColumn> =
        calls.iter().map(|known| RowColumn::new(known.unwrap_or_default())).collect();
    let input = EvalInput {
        variables,
        columns: &columns,
        calls: &call_columns,
        row_count: 0,
        place: Place::Column,
        number: number_of(&plan.fill),
        execution,
    };
    let type_of = |column: &Column| match &column.expr {
        Expr::Call(idx) => calls.get(*idx).copied().flatten(),
        Expr::Variable(variable) => variables.index(variable).and_then(|idx| variables.types[idx]),
        // Without rows there is nothing to reserve.
        expr => evaluate(expr, &input).ok().map(|evaluated| evaluated.column.values.column_type()),
    };
    let mut types = Vec::with_capacity(plan.columns.len());
    for columns in plan.columns.chunks(COLUMNS_PER_CHECK) {
        execution.check()?;
        types.extend(columns.iter().map(type_of));
    }
    Ok(types)
}

/// Applies an operator row by row.
pub(crate) fn binary(
    operator: Operator,
    left: &RowColumn,
    right: &RowColumn,
    place: Place,
    nulls: [NullIs; 2],
) -> RowColumn {
    use TypedValues as Values;
    if matches!(left.values, Values::Booleans(_)) || matches!(right.values, Values::Booleans(_)) {
        return of_booleans(operator, left, right, nulls);
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

/// Operands of which at least one is a boolean.
fn of_booleans(operator: Operator, left: &RowColumn, right: &RowColumn, nulls: [NullIs; 2]) -> RowColumn {
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
    let mut out = RowColumn::new(ColumnType::Boolean);
    for row in 0..count {
        let a = operand(left, row, nulls[0]);
        let b = operand(right, row, nulls[1]);
        let value = match (a, b) {
            (Operand::Boolean(a), Operand::Boolean(b)) => Some(apply(a, b)),
            (Operand::Null(NullIs::False), Operand::Boolean(b)) => Some(apply(false, b)),
            (Operand::Boolean(a), Operand::Null(NullIs::False)) => Some(apply(a, false)),
            (Operand::Boolean(_), Operand::Other | Operand::Null(NullIs::Number)) if is_left_boolean => {
                Some(false)
            }
            _ => comparison(operator).map(|_| false),
        };
        out.push(value.map(Literal::Boolean).as_ref());
    }
    out
}

enum Operand {
    Null(NullIs),
    Boolean(bool),
    Other,
}

fn operand(column: &RowColumn, row: usize, null: NullIs) -> Operand {
    match &column.values {
        _ if !column.is_present(row) => Operand::Null(null),
        TypedValues::Booleans(values) => Operand::Boolean(values[row]),
        _ => Operand::Other,
    }
}
