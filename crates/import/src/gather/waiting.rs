//! What does not go to the blocks that are open: put in order, then written to blocks beside them.
//!
//! Holds: of equal times of a series the sample that came first is written; blocks of samples in order that cover the
//! same time have been begun before, so reading prefers them. Memory: that of the samples, and a number a series.
//! Not here: how many samples wait (`late`, `histograms`).

use chronolith_block::BlockError;
use chronolith_model::{Columns, TimeRange};

use super::Gather;
use crate::output::Output;

/// A sample of one kind.
pub(super) trait Waiting {
    fn series(&self) -> u32;
    fn time(&self) -> i64;
    /// Whether the other one, of the same series and time, has the same value.
    fn says_same(&self, other: &Self) -> bool;
    fn push(&self, out: &mut Columns);
    /// Writes the samples of one series, all of this kind.
    fn put(output: &mut Output, series: u32, range: TimeRange, samples: &Columns) -> Result<(), BlockError>;
}

impl Gather {
    /// Writes all of them; gives how many samples the blocks have.
    pub(super) fn write_waiting<W: Waiting>(&mut self, mut waiting: Vec<W>) -> Result<u64, BlockError> {
        let all = waiting.len();
        waiting.retain(|one| !self.dropped.contains(&one.series()));
        self.counts.dropped_series_samples += (all - waiting.len()) as u64;
        if waiting.is_empty() {
            return Ok(0);
        }
        let positions = self.positions_of(waiting.iter().map(Waiting::series));
        let position = |one: &W| positions[one.series() as usize];
        // Stable: of equal times the one that came first stays in front.
        waiting.sort_by_cached_key(|one| (self.output.range_of(one.time()).start, position(one), one.time()));
        let counts = &mut self.counts;
        waiting.dedup_by(|next, kept| {
            let same = (next.series(), next.time()) == (kept.series(), kept.time());
            if same {
                let repeated = next.says_same(kept);
                counts.repeated_samples += u64::from(repeated);
                counts.conflicting_samples += u64::from(!repeated);
            }
            same
        });
        let mut written = 0;
        let mut rest = waiting.as_slice();
        while let Some(first) = rest.first() {
            let range = self.output.range_of(first.time());
            let count = rest.partition_point(|one| self.output.range_of(one.time()).start <= range.start);
            let (of_range, behind) = rest.split_at(count);
            written += self.write_range(range, of_range, &positions)?;
            rest = behind;
        }
        Ok(written)
    }

    fn write_range<W: Waiting>(
        &mut self,
        range: TimeRange,
        samples: &[W],
        positions: &[u32],
    ) -> Result<u64, BlockError> {
        if self.output.has_room(range) {
            self.output.begin(range)?;
        }
        let mut output = self.output.begin_beside();
        let mut columns = Columns::default();
        for of_series in samples.chunk_by(|a, b| a.series() == b.series()) {
            columns.clear();
            of_series.iter().for_each(|one| one.push(&mut columns));
            W::put(&mut output, of_series[0].series(), range, &columns)?;
        }
        self.output.end_beside(&output);
        self.finish_beside(output, positions)
    }
}
