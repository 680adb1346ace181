//! Blocks from the samples of a head: blocks of in-order samples stay open until the end, blocks of
//! out-of-order samples are completed one by one.
//!
//! Invariants: the block of in-order samples is begun first, so that it has the smaller ULID and reads prefer
//! its samples; a block is announced before it appears.
//! Not here: chunks and indices (`block_set`).

use chronolith_block::BlockError;
use chronolith_format::block::meta::Ulid;
use chronolith_model::{Columns, TimeRange};

use super::block_set::{BlockSet, FinishedBlocks, LabelOrder};

/// Receives the ULIDs of blocks before the blocks appear.
pub(crate) type Announce = Box<dyn FnMut(&[Ulid]) -> Result<(), BlockError>>;

/// All blocks of one head.
pub(crate) struct HeadBlocks {
    in_order: BlockSet,
    announce: Announce,
    /// Blocks that are complete.
    finished: Vec<Ulid>,
}

impl HeadBlocks {
    pub(crate) fn new(in_order: BlockSet, announce: Announce) -> HeadBlocks {
        HeadBlocks { in_order, announce, finished: Vec::new() }
    }

    /// Samples of a full float chunk.
    pub(crate) fn chunk_samples(&self) -> u16 {
        self.in_order.chunk_samples()
    }

    /// Range of the block that holds `time`.
    pub(crate) fn range_of(&self, time: i64) -> TimeRange {
        self.in_order.range_of(time)
    }

    /// Returns true if the block of in-order samples of `range` is open or may be begun.
    pub(crate) fn has_room(&self, range: TimeRange) -> bool {
        self.in_order.has_room(range)
    }

    /// Writes in-order samples of one series, all in `range`.
    pub(crate) fn append_in_order(
        &mut self,
        series: u32,
        range: TimeRange,
        samples: &Columns,
    ) -> Result<(), BlockError> {
        self.in_order.append(series, range, samples)
    }

    /// Begins a block of out-of-order samples of `range`.
    pub(crate) fn begin_out_of_order(&mut self, range: TimeRange) -> Result<BlockSet, BlockError> {
        if self.in_order.has_room(range) {
            self.in_order.begin(range)?;
        }
        Ok(self.in_order.empty_successor())
    }

    /// Completes a block of out-of-order samples.
    pub(crate) fn finish_out_of_order(
        &mut self,
        mut blocks: BlockSet,
        order: &LabelOrder<'_>,
    ) -> Result<FinishedBlocks, BlockError> {
        self.in_order.continue_after(&blocks);
        (self.announce)(&blocks.ulids())?;
        let finished = blocks.finish(order)?;
        self.finished.extend_from_slice(&finished.ulids);
        Ok(finished)
    }

    /// Completes the blocks of in-order samples; returns their counts and the ULIDs of all blocks.
    pub(crate) fn finish(
        mut self,
        order: &LabelOrder<'_>,
    ) -> Result<(FinishedBlocks, Vec<Ulid>), BlockError> {
        (self.announce)(&self.in_order.ulids())?;
        let finished = self.in_order.finish(order)?;
        self.finished.extend_from_slice(&finished.ulids);
        Ok((finished, self.finished))
    }
}
