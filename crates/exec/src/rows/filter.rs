//! Conditions on points: the part that tags decide is decided per series, the rest per row.
//!
//! Invariants: a tag that a series does not have is the empty text.

use std::sync::Arc;

use chronolith_model::query::TypedValues;
use chronolith_model::{Labels, MatchOp, Matcher};

use super::allowance::{ALLOCATION_BYTES, TEXT_BYTES};
use super::error::RowError;
use super::eval::{EvalInput, Place, evaluate};
use super::execution::RowExecution;
use super::plan::{Expr, Literal, Operator, Variable};
use super::variables::Variables;

/// Condition of one series.
#[derive(Debug, Clone)]
pub(crate) enum SeriesFilter {
    /// All points meet it.
    All,
    /// No point meets it.
    None,
    /// The condition depends on fields and is evaluated per row.
    Rows(Arc<Expr>),
}

/// Decides what the tags decide.
pub(crate) fn filter_of_series(
    filter: &Expr,
    tags: &Labels,
    execution: &RowExecution,
) -> Result<SeriesFilter, RowError> {
    Ok(match simplify(filter, tags, execution)? {
        Expr::Literal(Literal::Boolean(true)) => SeriesFilter::All,
        Expr::Literal(_) => SeriesFilter::None,
        rest => SeriesFilter::Rows(Arc::new(rest)),
    })
}

/// Bytes of an expression in memory, names of variables and regexes aside, which all copies share.
pub(crate) fn expr_bytes(expr: &Expr) -> usize {
    let below = match expr {
        Expr::Variable(_) | Expr::Call(_) => 0,
        Expr::Literal(Literal::Text(text)) => text.len() + TEXT_BYTES,
        Expr::Literal(_) => 0,
        Expr::Binary(_, left, right) => expr_bytes(left) + expr_bytes(right) + 2 * ALLOCATION_BYTES,
        Expr::Match { operand, .. } => expr_bytes(operand) + ALLOCATION_BYTES,
        Expr::Math(_, arguments) => arguments.iter().map(expr_bytes).sum::<usize>() + ALLOCATION_BYTES,
    };
    size_of::<Expr>() + below
}

/// Returns true if the expression contains a tag.
pub(crate) fn has_tags(expr: &Expr) -> bool {
    match expr {
        Expr::Variable(Variable::Tag { .. }) => true,
        Expr::Variable(Variable::Field { .. }) | Expr::Call(_) | Expr::Literal(_) => false,
        Expr::Binary(_, left, right) => has_tags(left) || has_tags(right),
        Expr::Match { operand, .. } => has_tags(operand),
        Expr::Math(_, arguments) => arguments.iter().any(has_tags),
    }
}

/// Replaces tags by their values, and parts without variables by constants.
fn simplify(expr: &Expr, tags: &Labels, execution: &RowExecution) -> Result<Expr, RowError> {
    let simple = match expr {
        Expr::Variable(Variable::Tag { name }) => {
            let value = tags.get(name).unwrap_or("");
            return Ok(Expr::Literal(Literal::Text(value.as_bytes().into())));
        }
        Expr::Variable(_) | Expr::Call(_) | Expr::Literal(_) => return Ok(expr.clone()),
        Expr::Binary(operator, left, right) => {
            let left = simplify(left, tags, execution)?;
            let right = simplify(right, tags, execution)?;
            if let Some(result) = short_circuit(*operator, &left, &right) {
                return Ok(result);
            }
            Expr::Binary(*operator, Box::new(left), Box::new(right))
        }
        Expr::Match { operand, regex, negated } => {
            let operand = Box::new(simplify(operand, tags, execution)?);
            Expr::Match { operand, regex: regex.clone(), negated: *negated }
        }
        Expr::Math(function, arguments) => {
            let simplified = arguments.iter().map(|argument| simplify(argument, tags, execution));
            Expr::Math(*function, simplified.collect::<Result<_, RowError>>()?)
        }
    };
    let is_constant = match &simple {
        Expr::Binary(_, left, right) => is_literal(left) && is_literal(right),
        Expr::Match { operand, .. } => is_literal(operand),
        Expr::Math(_, arguments) => arguments.iter().all(is_literal),
        _ => false,
    };
    if is_constant {
        let variables = Variables::default();
        let input = EvalInput {
            variables: &variables,
            columns: &[],
            calls: &[],
            row_count: 1,
            place: Place::SeriesCondition,
            number: None,
            execution,
        };
        if let Some(value) = evaluate(&simple, &input)?.column().get(0) {
            return Ok(Expr::Literal(value));
        }
    }
    Ok(simple)
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(_))
}

/// Result of a conjunction or disjunction of which one side is known.
fn short_circuit(operator: Operator, left: &Expr, right: &Expr) -> Option<Expr> {
    let decides = match operator {
        Operator::And => false,
        Operator::Or => true,
        _ => return None,
    };
    match (left, right) {
        (Expr::Literal(Literal::Boolean(known)), other) | (other, Expr::Literal(Literal::Boolean(known)))
            if is_condition(other) =>
        {
            let known = *known;
            Some(if known == decides { Expr::Literal(Literal::Boolean(known)) } else { other.clone() })
        }
        _ => None,
    }
}

/// Returns true if the value is a boolean for certain.
fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(Literal::Boolean(_)) | Expr::Match { .. } => true,
        Expr::Binary(Operator::And | Operator::Or, left, right) => is_condition(left) && is_condition(right),
        Expr::Binary(operator, ..) => is_comparison(*operator),
        _ => false,
    }
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Ge, Gt, Le, Lt, Ne};
    matches!(operator, Eq | Ne | Lt | Le | Gt | Ge)
}

/// Indexes of the rows that meet a condition.
pub(crate) fn selected_rows(filter: &Expr, input: &EvalInput<'_>) -> Result<Vec<u32>, RowError> {
    let evaluated = evaluate(filter, input)?;
    let column = evaluated.column();
    let TypedValues::Booleans(values) = &column.values else { return Ok(Vec::new()) };
    let is_true = |row: &u32| values[*row as usize] && column.is_present(*row as usize);
    Ok((0..input.row_count as u32).filter(is_true).collect())
}

/// Matchers of series without which no point meets the condition.
pub(crate) fn series_matchers(filter: Option<&Expr>) -> Vec<Matcher> {
    let mut matchers = Vec::new();
    if let Some(filter) = filter {
        collect_matchers(filter, &mut matchers);
    }
    matchers
}

fn collect_matchers(filter: &Expr, out: &mut Vec<Matcher>) {
    let Expr::Binary(operator, left, right) = filter else { return };
    let op = match operator {
        Operator::And => {
            collect_matchers(left, out);
            collect_matchers(right, out);
            return;
        }
        Operator::Eq => MatchOp::Equal,
        Operator::Ne => MatchOp::NotEqual,
        _ => return,
    };
    if let (Expr::Variable(Variable::Tag { name }), Expr::Literal(Literal::Text(value)))
    | (Expr::Literal(Literal::Text(value)), Expr::Variable(Variable::Tag { name })) = (&**left, &**right)
        && let Ok(value) = std::str::from_utf8(value)
        && let Ok(matcher) = Matcher::new(name, op, value)
    {
        out.push(matcher);
    }
}
