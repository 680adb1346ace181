//! Samples that are not newer than their series: kept up to a limit, then written to blocks of their own.
//!
//! Not here: the order in which they are written, and of which two the first counts (`waiting`).

use chronolith_block::BlockError;
use chronolith_model::{Columns, TimeRange};

use super::Gather;
use super::waiting::Waiting;
use crate::output::Output;
use crate::refs::NONE;

/// Late samples in memory: 32 bytes each.
pub(super) const LATE_MAX: usize = 2 << 20;

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct LateSample {
    pub(super) series: u32,
    pub(super) time: i64,
    pub(super) bits: u64,
    /// 0 if nobody knows.
    pub(super) start_ms: i64,
}

impl Waiting for LateSample {
    fn series(&self) -> u32 {
        self.series
    }

    fn time(&self) -> i64 {
        self.time
    }

    fn says_same(&self, other: &LateSample) -> bool {
        self.bits == other.bits
    }

    fn push(&self, out: &mut Columns) {
        out.push(self.time, f64::from_bits(self.bits));
        if self.start_ms != 0 {
            out.set_start_time(self.start_ms);
        }
    }

    fn put(output: &mut Output, series: u32, range: TimeRange, samples: &Columns) -> Result<(), BlockError> {
        output.put(series, range, samples)
    }
}

impl Gather {
    pub(super) fn bound_late(&mut self) {
        if self.late.len() >= LATE_MAX {
            let flushed = self.flush_late();
            self.fail(flushed);
        }
    }

    /// Writes all late samples.
    pub(super) fn flush_late(&mut self) -> Result<(), BlockError> {
        let samples = std::mem::take(&mut self.late);
        self.counts.late_samples += self.write_waiting(samples)?;
        Ok(())
    }

    /// Place of each of `series` by labels.
    pub(super) fn positions_of(&mut self, series: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut positions = vec![NONE; self.table.len()];
        let mut order = Vec::new();
        for series in series {
            let position = &mut positions[series as usize];
            if *position == NONE {
                *position = 0;
                order.push(series);
            }
        }
        self.table.sort(&self.table.dictionary().ranks(), &mut order);
        for (position, &series) in (0u32..).zip(&order) {
            positions[series as usize] = position;
        }
        self.late_series.extend(order);
        positions
    }

    /// Completes blocks beside the others; gives how many samples they have.
    pub(super) fn finish_beside(&mut self, mut output: Output, positions: &[u32]) -> Result<u64, BlockError> {
        (self.announce)(&output.ulids())?;
        let ranks = self.table.dictionary().ranks();
        let tombstones = &self.tombstones;
        let deleted = |series: u32| tombstones.get(u64::from(series)).to_vec();
        let finished = output.finish(&self.table, &ranks, positions, &deleted)?;
        self.counts.samples += finished.samples;
        self.blocks.extend(finished.blocks);
        Ok(finished.samples)
    }
}
