//! Estimate of a query's cost from postings alone, so that a query that cannot succeed is refused before it
//! reads.
//!
//! Invariants: series are those that selectors match, as far as functions and operators keep them; unknown
//! numbers (an aggregation by labels, operators between vectors, filters) count as none. An estimate is
//! compared with a limit times [`SLACK`], because a series that matches need not have a value.
//! Not here: limits while running (`exec::execution`), how a source counts
//! (`model::query::Queryable::estimate`).

use chronolith_base::hash::HashMap;
use chronolith_exec::error::Error;
use chronolith_exec::grid::{Grid, Windows};
use chronolith_model::query::ReadEstimate;
use chronolith_model::{Matcher, Selector};

use super::cse::{Class, CommonSubexpressions};
use super::properties::unexpected;
use crate::ast::{AggregateOp, Binary, BinaryOp, Call, Expr, ExprKind, ValueType};
use crate::engine::evaluation::Evaluation;

/// A query is refused beyond this many times its limit.
const SLACK: u64 = 2;
/// Memory of a series in a result without its values.
const SERIES_BYTES: u64 = 200;
/// A decoded sample.
const SAMPLE_BYTES: u64 = 16;

/// Cost of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Need {
    /// Series that it yields.
    series: u64,
    /// Samples that are read for it.
    samples: u64,
}

impl Need {
    fn and(self, other: Need) -> Need {
        Need { series: self.series, samples: self.samples.saturating_add(other.samples) }
    }

    fn of_unknown_series(self) -> Need {
        Need { series: 0, ..self }
    }
}

/// Estimates one query.
pub(super) struct Estimator<'p, 'q> {
    evaluation: &'q Evaluation<'q>,
    common: &'p CommonSubexpressions,
    /// Series of repeated expressions whose selections are counted already.
    known: HashMap<(Class, Grid), u64>,
}

impl<'p, 'q> Estimator<'p, 'q> {
    /// Repeated expressions are read once.
    pub(super) fn new(evaluation: &'q Evaluation<'q>, common: &'p CommonSubexpressions) -> Estimator<'p, 'q> {
        Estimator { evaluation, common, known: HashMap::default() }
    }

    /// Refuses a query that would need far more than its limits allow.
    ///
    /// # Errors
    /// [`Error::Language`] with the estimate, the limit and a way out; and what keeps the query from being
    /// planned at all.
    pub(super) fn admit(mut self, expr: &'q Expr, grid: Grid) -> Result<(), Error> {
        let limits =
            (self.evaluation.execution.ctx.budget.limit_bytes(), self.evaluation.options.read_bytes_max);
        if limits == (u64::MAX, u64::MAX) || !self.may_be_too_large(grid)? {
            return Ok(());
        }
        let is_matrix = expr.value_type() == ValueType::Matrix;
        let need = self.need(expr, grid)?;
        let values = if is_matrix { 2 * need.samples } else { need.series.saturating_mul(grid.count as u64) };
        let result = values.saturating_mul(8).saturating_add(need.series.saturating_mul(SERIES_BYTES));
        let read = need.samples.saturating_mul(SAMPLE_BYTES);
        let narrow = "select fewer series, aggregate them, or ask for a shorter range or a longer step";
        if result / SLACK > limits.0 {
            let (result, limit) = (show_bytes(result), show_bytes(limits.0));
            return Err(Error::Language(format!(
                "query would need about {result} for its result ({} series, {} steps), the limit is {limit}: {narrow}",
                need.series, grid.count
            )));
        }
        if read / SLACK > limits.1 {
            let (read, limit) = (show_bytes(read), show_bytes(limits.1));
            return Err(Error::Language(format!(
                "query would read about {read} ({} samples), the limit is {limit}: {narrow}",
                need.samples
            )));
        }
        Ok(())
    }

    /// Returns true if all stored series would be too many: only then matchers are estimated.
    fn may_be_too_large(&self, grid: Grid) -> Result<bool, Error> {
        let all = Selector { matchers: &[], range: chronolith_model::TimeRange::ALL };
        let Some(all) = self.evaluation.execution.source.estimate(&all, self.evaluation.execution.ctx)?
        else {
            return Ok(false);
        };
        let per_series = (grid.count as u64).saturating_mul(8).saturating_add(SERIES_BYTES);
        let read = all.samples.saturating_mul(2 * SAMPLE_BYTES);
        let (memory_max, read_max) =
            (self.evaluation.execution.ctx.budget.limit_bytes(), self.evaluation.options.read_bytes_max);
        Ok(all.series.saturating_mul(per_series).max(read) > memory_max || read > read_max)
    }

    /// Cost of an expression. A repeated expression is read once.
    fn need(&mut self, expr: &'q Expr, grid: Grid) -> Result<Need, Error> {
        let repeated = self.common.repeated(expr, grid).map(|(class, _)| (class, grid));
        if let Some(&series) = repeated.and_then(|key| self.known.get(&key)) {
            return Ok(Need { series, samples: 0 });
        }
        let need = self.need_of_node(expr, grid)?;
        if let Some(key) = repeated {
            self.known.insert(key, need.series);
        }
        Ok(need)
    }

    fn need_of_node(&mut self, expr: &'q Expr, grid: Grid) -> Result<Need, Error> {
        match &expr.kind {
            ExprKind::Number(_) | ExprKind::String(_) => Ok(Need::default()),
            ExprKind::Paren(inner) | ExprKind::Unary(_, inner) => self.need(inner, grid),
            ExprKind::Selector(selector) => {
                self.need_of(&selector.matchers, self.evaluation.instant_windows(selector, grid)?)
            }
            ExprKind::Matrix(matrix) => {
                self.need_of(&matrix.selector.matchers, self.evaluation.range_windows(matrix, grid)?)
            }
            ExprKind::Subquery(subquery) => match self.evaluation.subquery_grid(subquery, grid)?.0 {
                Some(inner_grid) => self.need(&subquery.expr, inner_grid),
                None => Ok(Need::default()),
            },
            ExprKind::Call(call) => self.need_of_call(call, grid),
            ExprKind::Aggregate(aggregate) => {
                let inner = self.need(&aggregate.expr, grid)?;
                let is_fold = matches!(aggregate.op, AggregateOp::Fold(_));
                let one = is_fold && aggregate.grouping.is_empty() && !aggregate.without;
                Ok(Need { series: u64::from(one && inner.series > 0), ..inner })
            }
            ExprKind::Binary(_) => self.need_of_chain(expr, grid),
        }
    }

    fn need_of(&self, matchers: &[Matcher], windows: Windows) -> Result<Need, Error> {
        let selector = Selector { matchers, range: windows.read_range() };
        let found = self.evaluation.execution.source.estimate(&selector, self.evaluation.execution.ctx)?;
        let ReadEstimate { series, samples } = found.unwrap_or_default();
        Ok(Need { series, samples })
    }

    fn need_of_call(&mut self, call: &'q Call, grid: Grid) -> Result<Need, Error> {
        let mut need = Need::default();
        for arg in &call.args {
            let of_arg = self.need(arg.unwrap_parens(), grid)?;
            need = Need { series: need.series.max(of_arg.series), ..need.and(of_arg) };
        }
        let yields_less = call.function.returns != ValueType::Vector
            || call.function.name.starts_with("histogram_")
            || call.function.name.starts_with("absent");
        Ok(if yields_less { need.of_unknown_series() } else { need })
    }

    fn need_of_chain(&mut self, expr: &'q Expr, grid: Grid) -> Result<Need, Error> {
        let (base, spine) = expr.left_spine();
        let mut need = self.need(base, grid)?;
        let mut is_scalar = base.value_type() == ValueType::Scalar;
        for binary in spine {
            let right_is_scalar = binary.rhs.value_type() == ValueType::Scalar;
            let right = self.need(&binary.rhs, grid)?;
            let both = need.and(right);
            need = match (is_scalar, right_is_scalar) {
                _ if filters(binary) => both.of_unknown_series(),
                (true, false) => Need { series: right.series, ..both },
                (_, true) => both,
                (false, false) if binary.op == BinaryOp::Or => {
                    Need { series: need.series.max(right.series), ..both }
                }
                (false, false) => both.of_unknown_series(),
            };
            is_scalar &= right_is_scalar;
        }
        match expr.value_type() {
            ValueType::Scalar | ValueType::Vector => Ok(need),
            _ => Err(unexpected(ValueType::Vector, expr)),
        }
    }
}

fn filters(binary: &Binary) -> bool {
    binary.op.is_comparison() && !binary.return_bool
}

/// Bytes for people: two or three digits and a unit.
fn show_bytes(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut shown, mut at) = (bytes as f64, 0);
    while shown >= 999.5 && at + 1 < units.len() {
        shown /= 1000.0;
        at += 1;
    }
    let digits = usize::from(shown < 9.95 && at > 0);
    format!("{shown:.digits$} {}", units[at])
}

#[cfg(test)]
mod tests {
    use super::show_bytes;

    #[test]
    fn sizes_are_short() {
        for (bytes, want) in [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (107_374_182_400, "107 GB")] {
            assert_eq!(show_bytes(bytes), want);
        }
        assert_eq!(show_bytes(999_600), "1.0 MB");
        assert_eq!(show_bytes(u64::MAX), "18 EB");
    }
}
