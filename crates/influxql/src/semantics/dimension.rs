//! Checks of GROUP BY.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::checked::Interval;
use crate::ast::{Call, Dimension, Expr};
use crate::error::SemanticError;
use crate::fold::{FoldContext, fold};
use crate::time::{looks_like_time, parse_literal};

const OFFSET: &str = "time dimension offset must be duration or now()";

/// Checks dimensions and returns the windows. Dimensions are folded, and an offset of `now()` becomes a
/// duration.
pub(super) fn check_dimensions(
    dimensions: &mut [Dimension],
    context: &FoldContext,
) -> Result<Option<Interval>, SemanticError> {
    let mut interval = None;
    for dimension in dimensions {
        let expr = fold(std::mem::replace(&mut dimension.expr, Expr::Nil), &FoldContext::timeless());
        dimension.expr = match expr {
            Expr::Ref(var) if var.name.eq_ignore_ascii_case("time") => {
                return Err(SemanticError::new("time() is a function and expects at least one argument"));
            }
            Expr::Call(mut call) => {
                check_time_call(&call)?;
                if interval.is_some() {
                    return Err(SemanticError::new("multiple time dimensions not allowed"));
                }
                interval = windows(&mut call, context)?;
                Expr::Call(call)
            }
            expr @ (Expr::Ref(_) | Expr::Wildcard(_) | Expr::Regex(_)) => expr,
            _ => return Err(SemanticError::new("only time and tag dimensions allowed")),
        };
    }
    Ok(interval)
}

fn check_time_call(call: &Call) -> Result<(), SemanticError> {
    if call.name != "time" {
        return Err(SemanticError::new("only time() calls allowed in dimensions"));
    }
    if call.args.is_empty() || call.args.len() > 2 {
        return Err(SemanticError::new("time dimension expected 1 or 2 arguments"));
    }
    if matches!(call.args.first(), Some(Expr::Duration(_))) {
        return Ok(());
    }
    Err(SemanticError::new("time dimension must have duration argument"))
}

/// Windows of `time(width, offset)`; none for a width of 0.
fn windows(call: &mut Call, context: &FoldContext) -> Result<Option<Interval>, SemanticError> {
    let Some(Expr::Duration(width_ns)) = call.args.first() else { return Ok(None) };
    let width_ns = *width_ns;
    if width_ns == 0 {
        return Ok(None);
    }
    let mut offset_ns = 0;
    if let Some(offset) = call.args.get_mut(1) {
        offset_ns = offset_of(offset, width_ns, context)?;
        if matches!(offset, Expr::Call(_)) {
            *offset = Expr::Duration(offset_ns);
        }
    }
    Ok(Some(Interval { width_ns, offset_ns, is_inherited: false }))
}

/// Offset of windows in nanoseconds.
fn offset_of(offset: &Expr, width_ns: i64, context: &FoldContext) -> Result<i64, SemanticError> {
    match offset {
        Expr::Duration(ns) => Ok(ns.wrapping_rem(width_ns)),
        Expr::Call(call) if call.name != "now" => {
            Err(SemanticError::new("time dimension offset function must be now()"))
        }
        Expr::Call(call) if !call.args.is_empty() => {
            Err(SemanticError::new("time dimension offset now() function requires no arguments"))
        }
        Expr::Call(_) => Ok(from_zero_time(i128::from(context.now_ns.unwrap_or(0)), width_ns)),
        Expr::Time(time) => Ok(from_zero_time(time.as_nanosecond(), width_ns)),
        Expr::Text(text) if looks_like_time(text) => {
            let time = parse_offset(text, &context.zone)?;
            Ok(from_zero_time(time.as_nanosecond(), width_ns))
        }
        _ => Err(SemanticError::new(OFFSET)),
    }
}

fn parse_offset(text: &str, zone: &TimeZone) -> Result<Timestamp, SemanticError> {
    parse_literal(text, zone).ok_or_else(|| SemanticError::new("invalid timestamp string"))
}

/// Nanoseconds of the first of January of the year 1, from which offsets of times are counted.
const YEAR_ONE_NS: i128 = -62_135_596_800 * 1_000_000_000;

/// Time since the last multiple of `width_ns` after the year 1.
fn from_zero_time(ns: i128, width_ns: i64) -> i64 {
    i64::try_from((ns - YEAR_ONE_NS).rem_euclid(i128::from(width_ns.max(1)))).unwrap_or(0)
}
