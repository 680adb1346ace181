//! Execution of a row plan: stores, context, limits and counts that its operators share.
//! Invariants: series and points of all operators of a query count against one limit each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::Reservation;
use chronolith_model::{Queryable, ReadContext, TimeRange};

use super::allowance::Allowance;
use super::error::RowError;
use super::plan::RowPlan;
use super::range::{intersection, readable_range};

/// Limits of a query; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowLimits {
    /// Series that are selected; all fields of one set of tags are one.
    pub series_max: u64,
    /// Points that are read from stores.
    pub points_max: u64,
    /// Windows of a plan whose range has a start.
    pub buckets_max: u64,
}

/// Stores, context and limits of a query.
#[derive(Clone)]
pub struct RowEnvironment {
    /// Stores by the index in [`super::plan::Source::Measurement`].
    pub stores: Vec<Arc<dyn Queryable>>,
    /// Deadline, cancellation, memory budget, threads.
    pub ctx: ReadContext,
    /// Limits.
    pub limits: RowLimits,
    /// Seed of random samples.
    pub seed: u64,
}

/// State that all operators of a query share.
pub(crate) struct RowExecution {
    pub(crate) environment: RowEnvironment,
    /// Times for which series are read.
    readable: TimeRange,
    series: AtomicU64,
    points: AtomicU64,
}

impl RowExecution {
    /// Execution of the outermost plan of a query; nothing is read yet.
    pub(crate) fn new(environment: RowEnvironment, outermost: &RowPlan) -> RowExecution {
        let readable = readable_range(outermost);
        RowExecution { environment, readable, series: AtomicU64::new(0), points: AtomicU64::new(0) }
    }

    /// Times of a range for which series are read.
    pub(crate) fn readable(&self, range: TimeRange) -> TimeRange {
        intersection(range, self.readable)
    }

    /// Checks deadline and cancellation.
    pub(crate) fn check(&self) -> Result<(), RowError> {
        Ok(self.environment.ctx.check()?)
    }

    /// Reserves memory of the query until the reservation is dropped.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Reservation, RowError> {
        Ok(self.environment.ctx.budget.reserve(bytes as u64)?)
    }

    /// Memory of an operator; nothing is reserved yet.
    pub(crate) fn allowance(&self) -> Result<Allowance, RowError> {
        Ok(Allowance::new(self.reserve(0)?))
    }

    /// Checks deadline and cancellation, and counts points that were read.
    pub(crate) fn count_points(&self, count: usize) -> Result<(), RowError> {
        self.environment.ctx.check()?;
        let count = count as u64;
        let found = self.points.fetch_add(count, Ordering::Relaxed) + count;
        match self.environment.limits.points_max {
            limit if limit != 0 && found > limit => Err(RowError::PointLimit { found, limit }),
            _ => Ok(()),
        }
    }

    /// Counts series that were selected.
    pub(crate) fn count_series(&self, count: usize) -> Result<(), RowError> {
        let count = count as u64;
        let found = self.series.fetch_add(count, Ordering::Relaxed) + count;
        match self.environment.limits.series_max {
            limit if limit != 0 && found > limit => Err(RowError::SeriesLimit { found, limit }),
            _ => Ok(()),
        }
    }
}
