//! Admission of a query by the estimated cost of its plan, so that a query that cannot succeed is refused
//! before it reads.
//!
//! Invariants: an estimate is compared with a limit times [`SLACK`], because a series that matches need not
//! have a value.
//! Not here: limits while running (`exec::execution`), the estimate (`exec::plan::estimate`).

use chronolith_exec::error::Error;
use chronolith_exec::execution::Execution;
use chronolith_exec::plan::{OccurrenceId, Plan};
use chronolith_model::{Selector, TimeRange};

use super::language::PromQl;
use crate::ast::ValueType;

/// A query is refused beyond this many times its limit.
const SLACK: u64 = 2;
/// Memory of a series in a result without its values.
const SERIES_BYTES: u64 = 200;
/// A decoded sample.
const SAMPLE_BYTES: u64 = 16;

/// Refuses the query `root` of a plan if it would need far more than its limits allow. If `shares`, equal
/// parts are read once.
///
/// # Errors
/// [`Error::Language`] with the estimate, the limit and a way out; errors of the source.
pub(super) fn admit(
    plan: &Plan,
    root: OccurrenceId,
    execution: &Execution<'_>,
    language: &PromQl<'_>,
    shares: bool,
) -> Result<(), Error> {
    let memory_max = execution.ctx.budget.limit_bytes();
    let read_max = language.options.read_bytes_max;
    if (memory_max, read_max) == (u64::MAX, u64::MAX) {
        return Ok(());
    }
    let step_count = execution.grid.map_or(1, |grid| grid.count as u64);
    // Only if all stored series would be too many, matchers are estimated.
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    let Some(all) = execution.source.estimate(&all, execution.ctx)? else { return Ok(()) };
    let read = all.samples.saturating_mul(2 * SAMPLE_BYTES);
    let per_series = step_count.saturating_mul(8).saturating_add(SERIES_BYTES);
    if all.series.saturating_mul(per_series).max(read) <= memory_max && read <= read_max {
        return Ok(());
    }
    let need = plan.estimate(root, execution.source, execution.ctx, shares)?;
    let is_matrix = language.query.expr.value_type() == ValueType::Matrix;
    let values = if is_matrix { 2 * need.samples } else { need.series.saturating_mul(step_count) };
    let result = values.saturating_mul(8).saturating_add(need.series.saturating_mul(SERIES_BYTES));
    let read = need.samples.saturating_mul(SAMPLE_BYTES);
    let narrow = "select fewer series, aggregate them, or ask for a shorter range or a longer step";
    if result / SLACK > memory_max {
        let result = show_bytes(result);
        let limit = show_bytes(memory_max);
        return Err(Error::Language(format!(
            "query would need about {result} for its result ({} series, {} steps), the limit is {limit}: {narrow}",
            need.series, step_count
        )));
    }
    if read / SLACK > read_max {
        let read = show_bytes(read);
        let limit = show_bytes(read_max);
        return Err(Error::Language(format!(
            "query would read about {read} ({} samples), the limit is {limit}: {narrow}",
            need.samples
        )));
    }
    Ok(())
}

/// Bytes for people: two or three digits and a unit.
fn show_bytes(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut shown = bytes as f64;
    let mut at = 0;
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
