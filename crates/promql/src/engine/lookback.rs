//! Range of samples around an evaluation time that decide the value of an expression (its lookback), for the
//! result cache.
//!
//! Invariants: if there is a lookback, the value of a step is a function of the samples within it, whatever
//! the first and last step of the query are. An error is not: two series with the same labels fail a query
//! even in a step of a subquery that no step of the query looks at, so results are joined only if no two
//! series can become equal. `@` and functions of the query's own range or step (`start()`, `end()`,
//! `range()`, `step()`, computed durations) have none.
//! Not here: the cache (`server`).

mod collision;

use super::query::EngineOptions;
use crate::ast::{DurationExpr, Expr, ExprKind, VectorSelector};

/// Samples within `[time - past_ms, time + future_ms]` decide the value at `time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookback {
    /// Into the past; 0 or more.
    pub past_ms: i64,
    /// Into the future (negative offsets); 0 or more.
    pub future_ms: i64,
    /// The result over a range equals the joined results over its parts. If not, a query over the whole range
    /// may fail ("vector cannot contain metrics with the same labelset") where none over a part does.
    pub joins: bool,
}

/// Evaluation times relative to those of the query.
#[derive(Clone, Copy)]
struct Shift {
    earliest_ms: i64,
    latest_ms: i64,
}

/// The lookback of `expr`; `None` if its steps are not independent of each other and of the query's range.
/// Cost: the nodes of the tree.
#[must_use]
pub fn lookback(expr: &Expr, lookback_ms: i64, options: &EngineOptions) -> Option<Lookback> {
    let mut lookback = Lookback { past_ms: 0, future_ms: 0, joins: !collision::is_possible(expr, options) };
    let mut left = vec![(expr, Shift { earliest_ms: 0, latest_ms: 0 })];
    while let Some((expr, shift)) = left.pop() {
        match &expr.kind {
            ExprKind::Number(_) | ExprKind::String(_) => {}
            ExprKind::Paren(inner) | ExprKind::Unary(_, inner) => left.push((inner, shift)),
            ExprKind::Selector(selector) => lookback.add_selector(selector, lookback_ms, shift)?,
            ExprKind::Matrix(matrix) => {
                lookback.add_selector(&matrix.selector, literal(&matrix.range)?, shift)?;
            }
            ExprKind::Subquery(subquery) => {
                if subquery.at.is_some() {
                    return None;
                }
                let (range_ms, offset_ms) = (literal(&subquery.range)?, literal(&subquery.offset)?);
                let step_ms = match &subquery.step {
                    Some(step) => literal(step)?,
                    None => options.subquery_step_ms,
                };
                let inner = Shift {
                    earliest_ms: shift.earliest_ms.saturating_sub(offset_ms).saturating_sub(range_ms),
                    latest_ms: shift.latest_ms.saturating_sub(offset_ms),
                };
                if step_ms <= 0 {
                    return None;
                }
                left.push((&subquery.expr, inner));
            }
            ExprKind::Call(call) => {
                if matches!(call.function.name, "start" | "end" | "range" | "step" | "info") {
                    return None;
                }
                left.extend(call.args.iter().map(|arg| (arg, shift)));
            }
            ExprKind::Aggregate(aggregate) => {
                left.extend(aggregate.param.iter().map(|param| (param, shift)));
                left.push((&aggregate.expr, shift));
            }
            ExprKind::Binary(binary) => {
                left.push((&binary.lhs, shift));
                left.push((&binary.rhs, shift));
            }
        }
    }
    Some(lookback)
}

impl Lookback {
    fn add_selector(&mut self, selector: &VectorSelector, width_ms: i64, shift: Shift) -> Option<()> {
        if selector.at.is_some() || selector.extension.is_some() {
            return None;
        }
        let offset_ms = literal(&selector.offset)?;
        let earliest_ms = shift.earliest_ms.saturating_sub(offset_ms).saturating_sub(width_ms);
        let latest_ms = shift.latest_ms.saturating_sub(offset_ms);
        self.past_ms = self.past_ms.max(earliest_ms.saturating_neg());
        self.future_ms = self.future_ms.max(latest_ms);
        Some(())
    }
}

fn literal(duration: &DurationExpr) -> Option<i64> {
    match duration {
        DurationExpr::Literal(ms) => Some(*ms),
        DurationExpr::Computed(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::{ParserOptions, parse_expr};

    /// Lookback in seconds with a lookback of 5 m.
    #[track_caller]
    fn check(text: &str, want: Option<(i64, i64)>) {
        let all = ParserOptions { experimental_functions: true, binop_fill_modifiers: true };
        let expr = parse_expr(text, all).unwrap_or_else(|error| panic!("{text}: {error}"));
        let got = lookback(&expr, 300_000, &EngineOptions::default());
        assert_eq!(got.map(|lookback| (lookback.past_ms / 1000, lookback.future_ms / 1000)), want, "{text}");
    }

    #[test]
    fn ranges_and_offsets_add_up() {
        check("1", Some((0, 0)));
        check("time()", Some((0, 0)));
        check("m", Some((300, 0)));
        check("timestamp(m)", Some((300, 0)));
        check("rate(m[1h]) + m", Some((3600, 0)));
        check("m offset 1h", Some((3900, 0)));
        check("m offset -1h", Some((0, 3600)));
        check("m offset -1m", Some((240, 60)));
        check("max_over_time(rate(m[5m])[1h:1m])", Some((3900, 0)));
        check("max_over_time(rate(m[5m] offset 1m)[1h:] offset -2h) / m", Some((300, 7140)));
        check("sum by (a) (topk(3, -(m)))", Some((300, 0)));
    }

    #[test]
    fn what_depends_on_the_whole_query_has_no_reach() {
        for text in ["m @ 5", "m @ start()", "rate(m[5m] @ end())", "max_over_time(m[5m:1m] @ 5)"] {
            check(text, None);
        }
        for text in
            ["m[5m + step()]", "m offset (1m + 1m)", "end() - m", "m * step()", "rate(m[5m] smoothed)"]
        {
            check(text, None);
        }
    }
}
