//! One evaluation of a query: its execution, and the windows of its selectors.

use chronolith_exec::error::Error;
use chronolith_exec::execution::Execution;
use chronolith_exec::grid::{Grid, TimeShift, Windows};

use super::duration;
use super::query::{EngineOptions, Query};
use crate::ast::{AtModifier, DurationExpr, MatrixSelector, RangeExtension, Subquery, VectorSelector};

/// A query that is evaluated.
pub(crate) struct Evaluation<'q> {
    /// State of its operators.
    pub(crate) execution: Execution<'q>,
    /// The query.
    pub(crate) query: &'q Query<'q>,
    /// Limits and switches.
    pub(crate) options: &'q EngineOptions,
}

impl Evaluation<'_> {
    /// Lookback of instant selectors.
    pub(crate) fn lookback_ms(&self) -> i64 {
        self.query.lookback_ms.unwrap_or(self.options.lookback_ms)
    }

    /// Windows of a range selector.
    pub(crate) fn range_windows(&self, matrix: &MatrixSelector, grid: Grid) -> Result<Windows, Error> {
        let width_ms = duration::positive_ms(self.query, &matrix.range)?;
        let shift = self.shift(&matrix.selector.offset, matrix.selector.at)?;
        let lookback_ms = self.lookback_ms();
        let (before_ms, after_ms) = match matrix.selector.extension {
            None => (0, 0),
            Some(RangeExtension::Anchored) => (lookback_ms, 0),
            Some(RangeExtension::Smoothed) => (lookback_ms, lookback_ms),
        };
        Ok(Windows { before_ms, after_ms, ..Windows::new(grid, shift, width_ms) })
    }

    /// Evaluation times of a subquery (`None` if there are none), and the windows over them.
    pub(crate) fn subquery_grid(
        &self,
        subquery: &Subquery,
        grid: Grid,
    ) -> Result<(Option<Grid>, Windows), Error> {
        let width_ms = duration::positive_ms(self.query, &subquery.range)?;
        let step_ms = match &subquery.step {
            Some(step) => duration::positive_ms(self.query, step)?,
            None => self.options.subquery_step_ms.max(1),
        };
        let shift = self.shift(&subquery.offset, subquery.at)?;
        let windows = Windows::new(grid, shift, width_ms);
        // Steps lie on multiples of the step, whatever the query's own times are.
        let before_first = windows.start(0);
        let first = before_first.div_euclid(step_ms).saturating_add(1).saturating_mul(step_ms);
        Ok((Grid::between(first, windows.end(grid.count - 1), step_ms), windows))
    }

    /// Time shift of `offset` and `@`.
    pub(crate) fn shift(&self, offset: &DurationExpr, at: Option<AtModifier>) -> Result<TimeShift, Error> {
        let fixed_ms = at.map(|at| match at {
            AtModifier::Time(time_ms) => time_ms,
            AtModifier::Start => self.query.start_ms,
            AtModifier::End => self.query.end_ms,
        });
        Ok(TimeShift { fixed_ms, offset_ms: duration::offset_ms(self.query, offset)? })
    }

    /// Windows of an instant selector.
    pub(crate) fn instant_windows(&self, selector: &VectorSelector, grid: Grid) -> Result<Windows, Error> {
        Ok(Windows::new(grid, self.shift(&selector.offset, selector.at)?, self.lookback_ms()))
    }
}
