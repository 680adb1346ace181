//! Samples that are not newer than their series: kept up to a limit, then written to blocks of their own.
//!
//! Holds: of equal times of a series the sample that came first is written; blocks of samples in order that cover the
//! same time have been begun before, so reading prefers them.

use chronolith_block::BlockError;
use chronolith_model::{Columns, TimeRange};

use super::Gather;
use crate::output::Output;
use crate::refs::NONE;

/// Late samples in memory: 24 bytes each.
pub(super) const LATE_MAX: usize = 2 << 20;

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct LateSample {
    pub(super) series: u32,
    pub(super) time: i64,
    pub(super) bits: u64,
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
        let mut samples = std::mem::take(&mut self.late);
        let all = samples.len();
        samples.retain(|sample| !self.dropped.contains(&sample.series));
        self.counts.dropped_series_samples += (all - samples.len()) as u64;
        if samples.is_empty() {
            return Ok(());
        }
        let positions = self.positions_of(samples.iter().map(|sample| sample.series));
        let position = |sample: &LateSample| positions[sample.series as usize];
        // Stable: of equal times the one that came first stays in front.
        samples.sort_by_cached_key(|sample| {
            (self.output.range_of(sample.time).start, position(sample), sample.time)
        });
        let counts = &mut self.counts;
        samples.dedup_by(|next, kept| {
            let same = (next.series, next.time) == (kept.series, kept.time);
            if same {
                let repeated = next.bits == kept.bits;
                counts.repeated_samples += u64::from(repeated);
                counts.conflicting_samples += u64::from(!repeated);
            }
            same
        });
        let mut rest = samples.as_slice();
        while let Some(first) = rest.first() {
            let range = self.output.range_of(first.time);
            let count = rest.partition_point(|sample| self.output.range_of(sample.time).start <= range.start);
            let (of_range, behind) = rest.split_at(count);
            self.write_late(range, of_range, &positions)?;
            rest = behind;
        }
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

    fn write_late(
        &mut self,
        range: TimeRange,
        samples: &[LateSample],
        positions: &[u32],
    ) -> Result<(), BlockError> {
        if self.output.has_room(range) {
            self.output.begin(range)?;
        }
        let mut output = self.output.begin_beside();
        let mut columns = Columns::default();
        for of_series in samples.chunk_by(|a, b| a.series == b.series) {
            columns.clear();
            for sample in of_series {
                columns.push(sample.time, f64::from_bits(sample.bits));
            }
            output.put(of_series[0].series, range, &columns)?;
        }
        self.output.end_beside(&output);
        let written = self.finish_beside(output, positions)?;
        self.counts.late_samples += written;
        Ok(())
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
