//! Blocks that are being written at once, one per window of time.
//!
//! Invariants: a series is complete in all windows before the next one begins; no block is visible before
//! `finish`, which announces it first.
//! Not here: the points and their order (`influx`, `whisper`), the files of a block (`block`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_block::{BlockError, BlockSource, BlockWriter, publish};
use chronolith_format::block::meta::Ulid;
use chronolith_model::{Labels, TimeRange, TimeUnit, WordKind};

use super::head_blocks::Announce;

/// Width of a recent window: ranges of blocks are whole multiples of it.
const WINDOW_MS: i64 = 2 * 3_600_000;

/// Division of time into the ranges of blocks.
pub(crate) trait BlockWindows {
    /// Unit of the times.
    const UNIT: TimeUnit;

    /// Window of a point.
    fn of(&self, time: i64) -> TimeRange;
}

/// Value of a point that a block can hold: a word or a text.
pub(crate) trait BlockValue: Sized {
    /// Adds points to the series that the writer is at.
    fn write(writer: &mut BlockWriter, times: &[i64], values: &[Self]) -> Result<(), BlockError>;
}

impl BlockValue for f64 {
    fn write(writer: &mut BlockWriter, times: &[i64], values: &[f64]) -> Result<(), BlockError> {
        writer.push_floats(times, values, &[])
    }
}

impl BlockValue for Arc<[u8]> {
    fn write(writer: &mut BlockWriter, times: &[i64], values: &[Arc<[u8]>]) -> Result<(), BlockError> {
        writer.push_texts(times, values)
    }
}

/// A block that is being written.
struct OpenWindow {
    range: TimeRange,
    writer: BlockWriter,
    /// First and last time of its points.
    first: i64,
    last: i64,
    /// Points were added since the last end of a series.
    is_touched: bool,
}

/// Blocks that are complete and durable.
#[derive(Debug, Default)]
pub(crate) struct WrittenBlocks {
    pub(crate) ulids: Vec<Ulid>,
    pub(crate) sample_count: u64,
}

/// Open blocks by start of their window.
pub(crate) struct WindowBlocks<'a, W> {
    env: &'a Env,
    blocks_dir: PathBuf,
    windows: W,
    /// Newest block of the directory, open ones included.
    newest: Option<Ulid>,
    open: BTreeMap<i64, OpenWindow>,
    written: WrittenBlocks,
    announce: Announce,
}

impl<'a, W: BlockWindows> WindowBlocks<'a, W> {
    /// `newest` is the newest block of the directory.
    pub(crate) fn new(
        env: &'a Env,
        blocks_dir: PathBuf,
        windows: W,
        newest: Option<Ulid>,
        announce: Announce,
    ) -> WindowBlocks<'a, W> {
        let open = BTreeMap::new();
        let written = WrittenBlocks::default();
        WindowBlocks { env, blocks_dir, windows, newest, open, written, announce }
    }

    /// Adds points of the current series, ascending and after those that were added.
    pub(crate) fn push<V: BlockValue>(
        &mut self,
        kind: WordKind,
        mut times: &[i64],
        mut values: &[V],
    ) -> Result<(), BlockError> {
        while let Some(&first) = times.first() {
            let range = self.windows.of(first);
            let count = times.partition_point(|&time| time < range.end);
            let (of_window, rest) = times.split_at(count);
            let (values_of_window, values_rest) = values.split_at(count);
            let last = of_window.last().copied().unwrap_or(first);
            let window = self.window(range)?;
            window.is_touched = true;
            window.first = window.first.min(first);
            window.last = window.last.max(last);
            window.writer.set_kind(kind);
            V::write(&mut window.writer, of_window, values_of_window)?;
            (times, values) = (rest, values_rest);
        }
        Ok(())
    }

    fn window(&mut self, range: TimeRange) -> Result<&mut OpenWindow, BlockError> {
        match self.open.entry(range.start) {
            std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let writer = BlockWriter::create_after(self.env, &self.blocks_dir, self.newest)?;
                let writer = writer.with_unit(W::UNIT);
                self.newest = Some(writer.ulid());
                let first = i64::MAX;
                let last = i64::MIN;
                Ok(entry.insert(OpenWindow { range, writer, first, last, is_touched: false }))
            }
        }
    }

    /// Ends the current series.
    pub(crate) fn end_series(&mut self, labels: &Labels) -> Result<(), BlockError> {
        for window in self.open.values_mut().filter(|window| window.is_touched) {
            window.is_touched = false;
            window.writer.end_series(labels)?;
        }
        Ok(())
    }

    /// Completes the open blocks.
    pub(crate) fn finish(&mut self) -> Result<(), BlockError> {
        let mut complete = Vec::new();
        for window in std::mem::take(&mut self.open).into_values() {
            // The whole hours that the points take: shards of an hour would overlap in their day.
            let width = W::UNIT.from_ms(WINDOW_MS);
            let start = TimeRange::window_of(window.first, width).start.max(window.range.start);
            let end = TimeRange::window_of(window.last, width).end.min(window.range.end);
            let range = TimeRange::new(start, end);
            complete.extend(window.writer.write(range)?.map(|block| (block, BlockSource::head(range))));
        }
        let ulids: Vec<Ulid> = complete.iter().map(|(block, _)| block.ulid()).collect();
        if !ulids.is_empty() {
            (self.announce)(&ulids)?;
        }
        for meta in publish(complete) {
            let meta = meta?;
            self.written.sample_count += meta.stats.num_samples;
            self.written.ulids.push(meta.ulid);
        }
        Ok(())
    }

    /// Blocks that were completed.
    pub(crate) fn into_written(self) -> WrittenBlocks {
        self.written
    }
}
