//! Fill, transformations and limits over the merged part of a group, with their memory, deadline and
//! cancellation.
//!
//! Invariants: points that stay until the group is joined are taken from `memory`; temporary buffers have a
//! reservation of their own.

use super::accumulate::Points;
use super::allowance::{Allowance, row_bytes};
use super::error::RowError;
use super::execution::RowExecution;

/// Memory of one group of a call.
pub(crate) struct Finish<'f> {
    pub(crate) execution: &'f RowExecution,
    pub(crate) memory: &'f mut Allowance,
}

impl Finish<'_> {
    /// Without the points that have no value.
    pub(crate) fn without_nulls(&mut self, points: Points) -> Result<Points, RowError> {
        if points.values.present.is_some() {
            let row = size_of::<u32>() + size_of::<i64>() + row_bytes(points.values.values.column_type());
            self.memory.take(points.times.len().saturating_mul(row))?;
        }
        Ok(points.without_nulls())
    }
}
