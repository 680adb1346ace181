//! Continuous queries: which windows are due, and their computation.
//!
//! Invariants: a window is computed again when late points have touched it, and after a pause of the server
//! no window is left out, at most [`WINDOW_COUNT_MAX`] per run.
//! Not here: schedule of the runs (`server`).

use super::metadata::split_time;
use super::session::{Session, StatementError};
use crate::ast::{BinaryOp, CreateContinuousQuery, Expr, Fill, Select, Statement};
use crate::result::{Cell, ResultSink, SeriesHeader, SinkClosed};
use crate::semantics::check_select;
use crate::syntax::parse_statement;

/// Windows that one run computes at most: later ones win.
const WINDOW_COUNT_MAX: i64 = 10_000;

/// A continuous query of the catalogue.
pub struct Continuous {
    create: CreateContinuousQuery,
    interval_ns: i64,
    offset_ns: i64,
}

/// Times of the points that a run reads, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueWindows {
    /// Start of the first window.
    pub start_ns: i64,
    /// End of the last window.
    pub end_ns: i64,
}

impl Continuous {
    /// Reads the statement that created it.
    ///
    /// # Errors
    /// The reason why it cannot run.
    pub fn parse(text: &str, now_ns: i64) -> Result<Continuous, String> {
        let statement = parse_statement(text).map_err(|error| error.to_string())?;
        let Statement::CreateContinuousQuery(create) = statement else {
            return Err("not a CREATE CONTINUOUS QUERY statement".to_owned());
        };
        let checked = check_select(create.select.clone(), now_ns).map_err(|error| error.to_string())?;
        let interval = checked.interval.ok_or("the query has no GROUP BY time()")?;
        Ok(Continuous { create: *create, interval_ns: interval.width_ns, offset_ns: interval.offset_ns })
    }

    /// Database of the query.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.create.database
    }

    /// The query, with its target.
    #[must_use]
    pub fn select(&self) -> &Select {
        &self.create.select
    }

    /// Returns true if a run over several windows has to give what a run for each of them would: InfluxDB
    /// computes one window at a time unless RESAMPLE FOR asks for more, and a window without points is then
    /// none of a group. Numbers stay where they stand in for one of several calls of a row.
    fn joins_single_windows(&self, windows: DueWindows) -> bool {
        let select = &self.create.select;
        let is_wildcard = |expr: &Expr| matches!(expr, Expr::Wildcard(_) | Expr::Regex(_));
        let has_several =
            select.fields.len() > 1 || select.fields.iter().any(|field| field.expr.any(&mut { is_wildcard }));
        let is_one_at_a_time = self.create.resample.for_ns.is_none_or(|for_ns| for_ns <= self.interval_ns);
        let width_ns = windows.end_ns.saturating_sub(windows.start_ns);
        width_ns > self.interval_ns
            && is_one_at_a_time
            && !(has_several && matches!(select.fill, Fill::Number(_)))
    }

    /// Returns the windows that are due at `now_ns`: those that ended since the last run, which ended at
    /// `last_end_ns`, or that RESAMPLE asks for, and those from `changed_ns` on, which late points touched.
    #[must_use]
    pub fn due(&self, now_ns: i64, last_end_ns: Option<i64>, changed_ns: Option<i64>) -> Option<DueWindows> {
        let interval_ns = self.interval_ns;
        let every_ns = self.create.resample.every_ns.unwrap_or(interval_ns).max(1);
        let for_ns = self.create.resample.for_ns.unwrap_or(interval_ns.max(every_ns));
        let floor = |time_ns: i64, width_ns: i64| time_ns.saturating_sub(time_ns.rem_euclid(width_ns));
        let window =
            |time_ns: i64| floor(time_ns.saturating_sub(self.offset_ns), interval_ns) + self.offset_ns;
        let end_ns = window(now_ns.saturating_add((interval_ns - every_ns).max(0)));
        let late_ns =
            changed_ns.map(window).filter(|start_ns| last_end_ns.is_some_and(|end| *start_ns < end));
        let is_due = last_end_ns.is_none_or(|last_ns| {
            let next_ns = floor(last_ns.saturating_sub((interval_ns - every_ns).max(0)), every_ns) + every_ns;
            now_ns >= next_ns.max(last_ns.saturating_sub((interval_ns - every_ns).max(0)))
                && end_ns > last_ns.saturating_sub(for_ns)
        });
        let regular_ns = is_due.then(|| {
            let start_ns = window(floor(now_ns, every_ns).saturating_add(interval_ns - for_ns - 1));
            last_end_ns.map_or(start_ns, |last_ns| start_ns.min(last_ns))
        });
        let start_ns = [regular_ns, late_ns].into_iter().flatten().min()?;
        let start_ns = start_ns.max(end_ns.saturating_sub(interval_ns.saturating_mul(WINDOW_COUNT_MAX)));
        (start_ns < end_ns).then_some(DueWindows { start_ns, end_ns })
    }
}

/// Takes the number of points from the result of INTO.
struct WrittenCount(u64);

impl ResultSink for WrittenCount {
    fn series(&mut self, _header: &SeriesHeader) -> Result<(), SinkClosed> {
        Ok(())
    }

    fn row(&mut self, cells: &[Cell<'_>]) -> Result<(), SinkClosed> {
        for cell in cells {
            if let Cell::Integer(count) = cell {
                self.0 += count.unsigned_abs();
            }
        }
        Ok(())
    }
}

impl Session<'_> {
    /// Computes windows of a continuous query and writes them to its target; returns the number of points
    /// that were written. The windows take the place of times in the condition of the query, as in InfluxDB:
    /// `time > now() - 5m` would cut the first of them, and overwrite the result of a full window. Conditions
    /// of its subqueries stay as they are.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub fn run_continuous(&self, query: &Continuous, windows: DueWindows) -> Result<u64, StatementError> {
        let mut select = query.create.select.clone();
        let bound = |op, time_ns| Expr::binary(Expr::reference("time"), op, Expr::Integer(time_ns));
        let mut condition = Expr::binary(
            bound(BinaryOp::GreaterEq, windows.start_ns),
            BinaryOp::And,
            bound(BinaryOp::Less, windows.end_ns),
        );
        let (_, rest) = split_time(self, select.condition.as_ref())?;
        if let Some(rest) = rest {
            condition =
                Expr::binary(Expr::Paren(Box::new(rest)), BinaryOp::And, Expr::Paren(Box::new(condition)));
        }
        select.condition = Some(condition);
        if query.joins_single_windows(windows) {
            select.fill = Fill::None;
        }
        let mut written = WrittenCount(0);
        self.execute(&Statement::Select(Box::new(select)), &mut written)?;
        Ok(written.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_NS: i64 = 60_000_000_000;

    #[track_caller]
    fn check(
        resample: &str,
        now: i64,
        last_end: Option<i64>,
        changed: Option<i64>,
        want: Option<(i64, i64)>,
    ) {
        let text = format!(
            "CREATE CONTINUOUS QUERY q ON db {resample} BEGIN SELECT mean(v) INTO x FROM m GROUP BY time(10m) END"
        );
        let query = Continuous::parse(&text, 0).expect("a query");
        let ns = |minutes: i64| minutes * MINUTE_NS;
        let due = query.due(ns(now), last_end.map(ns), changed.map(ns));
        let want = want.map(|(start, end)| DueWindows { start_ns: ns(start), end_ns: ns(end) });
        assert_eq!(due, want, "{resample} now {now} last {last_end:?} changed {changed:?}");
    }

    #[test]
    fn windows_are_due_when_they_have_ended() {
        check("", 125, None, None, Some((110, 120)));
        check("", 125, Some(120), None, None);
        check("", 130, Some(120), None, Some((120, 130)));
        check("", 165, Some(120), None, Some((120, 160)));
    }

    #[test]
    fn windows_that_late_points_touched_are_due_again() {
        check("", 125, Some(120), Some(95), Some((90, 120)));
        check("", 125, Some(120), Some(121), None);
    }

    #[test]
    fn resample_sets_how_often_and_how_far_back() {
        check("RESAMPLE FOR 30m", 130, Some(120), None, Some((100, 130)));
        check("RESAMPLE EVERY 5m", 125, Some(120), None, Some((120, 130)));
    }
}
