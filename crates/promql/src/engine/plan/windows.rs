//! Windows of selectors, and evaluation times of subqueries.

use chronolith_exec::error::Error;
use chronolith_exec::grid::{Grid, TimeShift, Windows};

use super::Lowering;
use crate::ast::{AtModifier, DurationExpr, MatrixSelector, RangeExtension, Subquery, VectorSelector};
use crate::engine::duration;

impl Lowering<'_> {
    /// Lookback of instant selectors.
    pub(super) fn lookback_ms(&self) -> i64 {
        self.query.lookback_ms.unwrap_or(self.options.lookback_ms)
    }

    /// Windows of an instant selector.
    pub(super) fn instant_windows(
        &mut self,
        selector: &VectorSelector,
        grid: Grid,
    ) -> Result<Windows, Error> {
        Ok(Windows::new(grid, self.selector_shift(selector)?, self.lookback_ms()))
    }

    /// Windows of a range selector.
    pub(super) fn range_windows(&mut self, matrix: &MatrixSelector, grid: Grid) -> Result<Windows, Error> {
        let width_ms = self.positive_ms(&matrix.range)?;
        let shift = self.selector_shift(&matrix.selector)?;
        let lookback_ms = self.lookback_ms();
        let (before_ms, after_ms) = match matrix.selector.extension {
            None => (0, 0),
            Some(RangeExtension::Anchored) => (lookback_ms, 0),
            Some(RangeExtension::Smoothed) => (lookback_ms, lookback_ms),
        };
        Ok(Windows { before_ms, after_ms, ..Windows::new(grid, shift, width_ms) })
    }

    /// Evaluation times of a subquery (`None` if there are none), and the windows over them.
    pub(super) fn subquery_grid(
        &mut self,
        subquery: &Subquery,
        grid: Grid,
    ) -> Result<(Option<Grid>, Windows), Error> {
        let shift = self.shift(&subquery.offset, subquery.at)?;
        let step_ms = match &subquery.step {
            Some(step) => self.positive_ms(step)?,
            None => self.options.subquery_step_ms.max(1),
        };
        let windows = Windows::new(grid, shift, self.positive_ms(&subquery.range)?);
        // Steps lie on multiples of the step, whatever the query's own times are.
        let before_first = windows.start(0);
        let first = before_first.div_euclid(step_ms).saturating_add(1).saturating_mul(step_ms);
        Ok((Grid::between(first, windows.end(grid.count - 1), step_ms), windows))
    }

    /// Time shift of a selector.
    pub(super) fn selector_shift(&mut self, selector: &VectorSelector) -> Result<TimeShift, Error> {
        // The values at the ends of an extended range may come from samples far outside.
        if selector.extension.is_some() {
            self.plan.set_depends_on_range();
        }
        self.shift(&selector.offset, selector.at)
    }

    /// Time shift of `offset` and `@`.
    fn shift(&mut self, offset: &DurationExpr, at: Option<AtModifier>) -> Result<TimeShift, Error> {
        self.note_computed(offset);
        let fixed_ms = at.map(|at| match at {
            AtModifier::Time(time_ms) => time_ms,
            AtModifier::Start => self.query.start_ms,
            AtModifier::End => self.query.end_ms,
        });
        Ok(TimeShift { fixed_ms, offset_ms: duration::offset_ms(self.query, offset)? })
    }

    fn positive_ms(&mut self, duration: &DurationExpr) -> Result<i64, Error> {
        self.note_computed(duration);
        duration::positive_ms(self.query, duration)
    }

    /// Notes that a computed duration may depend on the range or step of the query.
    fn note_computed(&mut self, duration: &DurationExpr) {
        if matches!(duration, DurationExpr::Computed(..)) {
            self.plan.set_depends_on_range();
        }
    }
}
