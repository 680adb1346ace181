//! Durations that depend on the query: `[step() * 2]`.

use crate::ast::{BinaryOp, DurationExpr, DurationNode};

use super::arith::{go_max, go_min};
use super::run::Run;
use super::{EvalError, Query};

/// Longest duration: some 292 years, as upstream's nanoseconds hold.
const SECONDS_MAX: f64 = (i64::MAX / 1_000_000_000) as f64;

/// Milliseconds of a duration that may be negative (an offset).
pub(crate) fn offset_ms(run: &Run<'_>, duration: &DurationExpr) -> Result<i64, EvalError> {
    let DurationExpr::Computed(node, _) = duration else { return Ok(literal(duration)) };
    let seconds = compute(node, run.query)?;
    if seconds.is_nan() || seconds.abs() > SECONDS_MAX {
        return Err(EvalError::Execution("duration is out of range".to_owned()));
    }
    Ok((seconds * 1000.0).round() as i64)
}

/// Milliseconds of a duration that has to be positive (a range, a step).
pub(crate) fn positive_ms(run: &Run<'_>, duration: &DurationExpr) -> Result<i64, EvalError> {
    let ms = offset_ms(run, duration)?;
    if ms <= 0 {
        return Err(EvalError::Execution("duration must be greater than 0".to_owned()));
    }
    Ok(ms)
}

fn literal(duration: &DurationExpr) -> i64 {
    match duration {
        DurationExpr::Literal(ms) => *ms,
        DurationExpr::Computed(..) => 0,
    }
}

fn compute(node: &DurationNode, query: &Query<'_>) -> Result<f64, EvalError> {
    let fail = |message: &str| Err(EvalError::Execution(message.to_owned()));
    Ok(match node {
        DurationNode::Number(seconds) | DurationNode::Units(seconds) => *seconds,
        DurationNode::Step => query.step_ms as f64 / 1000.0,
        DurationNode::Range => (query.end_ms - query.start_ms) as f64 / 1000.0,
        DurationNode::Neg(inner) => -compute(inner, query)?,
        DurationNode::Paren(inner) => compute(inner, query)?,
        DurationNode::MinOf(a, b) => go_min(compute(a, query)?, compute(b, query)?),
        DurationNode::MaxOf(a, b) => go_max(compute(a, query)?, compute(b, query)?),
        DurationNode::Binary(op, a, b) => {
            let (a, b) = (compute(a, query)?, compute(b, query)?);
            match op {
                BinaryOp::Div if b == 0.0 => return fail("division by zero"),
                BinaryOp::Mod if b == 0.0 => return fail("modulo by zero"),
                op => super::arith::scalar_op(*op, a, b),
            }
        }
    })
}
