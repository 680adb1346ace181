//! Durations that depend on the query: `[step() * 2]`.
//! Invariants: errors of durations are reported when the query is planned, before anything is computed, as in
//! Prometheus.

use chronolith_exec::arith::{go_max, go_min, scalar_op};
use chronolith_exec::error::Error;

use crate::ast::{BinaryOp, DurationExpr, DurationNode, Span};

use super::query::Query;

/// Longest duration: some 292 years, the range of Prometheus's nanoseconds.
const SECONDS_MAX: f64 = (i64::MAX / 1_000_000_000) as f64;

/// Milliseconds of a duration that may be negative (an offset).
pub(crate) fn offset_ms(query: &Query<'_>, duration: &DurationExpr) -> Result<i64, Error> {
    let (node, span) = match duration {
        DurationExpr::Literal(ms) => return Ok(*ms),
        DurationExpr::Computed(node, span) => (node, *span),
    };
    let seconds = compute(node, query)?;
    if !seconds.is_finite() {
        return Err(fail("duration is NaN or infinite", span));
    }
    if seconds.abs() > SECONDS_MAX {
        return Err(fail("duration is out of range", span));
    }
    // Fractions of a millisecond are cut, as in Prometheus.
    Ok((seconds * 1000.0) as i64)
}

/// Milliseconds of a duration that has to be positive (a range, a step).
pub(crate) fn positive_ms(query: &Query<'_>, duration: &DurationExpr) -> Result<i64, Error> {
    // Ranges and steps are whole milliseconds.
    match offset_ms(query, duration)? {
        ..=0 => Err(fail("duration must be greater than 0", duration.span())),
        ms => Ok(ms),
    }
}

fn fail(message: &str, Span { start, end }: Span) -> Error {
    Error::Language(format!("{start}:{end}: {message}"))
}

fn compute(node: &DurationNode, query: &Query<'_>) -> Result<f64, Error> {
    Ok(match node {
        DurationNode::Number(seconds) | DurationNode::Units(seconds) => *seconds,
        DurationNode::Step => query.step_ms as f64 / 1000.0,
        DurationNode::Range => (query.end_ms - query.start_ms) as f64 / 1000.0,
        DurationNode::Neg(inner) => -compute(inner, query)?,
        DurationNode::Paren(inner) => compute(inner, query)?,
        DurationNode::MinOf(a, b) => go_min(compute(a, query)?, compute(b, query)?),
        DurationNode::MaxOf(a, b) => go_max(compute(a, query)?, compute(b, query)?),
        DurationNode::Binary(op, a, b, span) => {
            let a = compute(a, query)?;
            let b = compute(b, query)?;
            match op {
                BinaryOp::Div if b == 0.0 => return Err(fail("division by zero", *span)),
                BinaryOp::Mod if b == 0.0 => return Err(fail("modulo by zero", *span)),
                op => scalar_op(*op, a, b),
            }
        }
    })
}
