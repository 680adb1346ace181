//! Deleting: the floats of a time range leave a series, wherever they are.
//!
//! Holds: what is left reads as if the deleted samples had never come; one of the same time that comes later is
//! stored like any other. A damaged chunk that lies in the range only in part stays as it is.
//! Not here: which series, the log (`delete`), histograms (`stripe::histograms`).

use chronolith_format::xor::{self, SAMPLES_PER_CHUNK, XorState};
use chronolith_model::{Columns, TimeRange};

use super::free::SeriesWindow;
use super::seal::join;
use super::{NONE, SealedNode, Stripe, StripeWorld};
use crate::chain::Chain;
use crate::source::overlaps;
use crate::windows::WindowTally;

/// What a deletion did to one series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Erased {
    /// Samples that are gone.
    pub(crate) sample_count: u64,
    /// Whether anything has changed, a remembered last sample included.
    pub(crate) has_changed: bool,
}

impl Stripe {
    /// Removes the floats of series `id` in `range`.
    pub(super) fn erase_floats(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) -> Erased {
        let Some(hot) = self.hot(id).filter(|hot| hot.xor.count() > 0) else { return Erased::default() };
        let forgets_last = range.contains(hot.xor.time());
        if !forgets_last && !overlaps(self, hot, range) {
            return Erased::default();
        }
        if hot.late != NONE {
            // Replaced values meet what they replace, so that nothing comes back from below.
            self.seal_late(world, windows, id, TimeRange { start: i64::MIN, end: i64::MAX });
        }
        let sample_count =
            self.erase_open(world, windows, id, range) + self.erase_sealed(world, windows, id, range);
        let has_changed = sample_count > 0 || forgets_last;
        // Replaced values may have become part of the open chunk, which has its old name and count.
        self.decoded.clear();
        if has_changed {
            self.free.clear();
            self.settle_last(world, id);
        }
        Erased { sample_count, has_changed }
    }

    /// Encodes what is left of the open chunk and the late samples within it.
    fn erase_open(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) -> u64 {
        let Some(hot) = self.hot(id).filter(|hot| !hot.open.is_none()).cloned() else { return 0 };
        if !range.overlaps_inclusive(hot.open_min, hot.xor.time()) {
            return 0;
        }
        let late = self.take_late(id, TimeRange { start: hot.open_min, end: i64::MAX });
        let mut samples = Columns::default();
        self.chunk.clear();
        self.chains.copy(hot.open, &hot.xor, &mut self.chunk);
        // The process wrote these bytes itself.
        let decoded = xor::decode(&self.chunk, TimeRange::ALL, &mut samples);
        debug_assert!(decoded.is_ok(), "open chunks decode");
        let stored_count = samples.len() + late.len();
        join(&mut samples, &late);
        self.free.note_merge(SeriesWindow::of(world, id, hot.open_min));
        let before_count = samples.len();
        keep_outside(&mut samples, range);
        windows.add(hot.open_min, samples.len() as i64 - stored_count as i64);
        self.chains.free(hot.open);
        let (mut open, mut state, mut open_min) = (Chain::NONE, hot.xor, hot.open_min);
        if samples.len() >= SAMPLES_PER_CHUNK {
            self.push_sealed(world, id, &samples);
        } else if let Some(&first) = samples.times.first() {
            let chunk = xor::encode_whole(&samples.times, &samples.values);
            state = XorState::resume(&chunk).expect("the chunk was just encoded");
            (open, open_min) = (self.chains.store(&chunk), first);
        }
        if let Some(hot) = self.hot_mut(id) {
            (hot.open, hot.xor, hot.open_min) = (open, state, open_min);
        }
        (before_count - samples.len()) as u64
    }

    /// Drops sealed chunks that lie in the range, encodes those that reach into it again.
    fn erase_sealed(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) -> u64 {
        let Some(start) = self.hot(id).map(|hot| hot.sealed) else { return 0 };
        let touched: Vec<SealedNode> = self
            .nodes
            .list(start)
            .filter(|n| range.overlaps_inclusive(n.min_time, n.max_time()))
            .copied()
            .collect();
        let (mut erased_count, mut gone) = (0, Vec::new());
        let mut cut: Vec<Columns> = Vec::new();
        for node in touched {
            let mut samples = Columns::default();
            let is_whole = range.contains(node.min_time) && range.contains(node.max_time());
            if !is_whole && !self.decode_sealed(world, &node, &mut samples) {
                continue;
            }
            keep_outside(&mut samples, range);
            let gone_count = usize::from(node.count) - samples.len();
            if gone_count == 0 {
                continue;
            }
            erased_count += gone_count as u64;
            windows.add(node.min_time, -(gone_count as i64));
            gone.push(node.place);
            if !samples.is_empty() {
                cut.push(samples);
            }
        }
        gone.sort_unstable();
        if !gone.is_empty() {
            self.unlink_sealed(world, id, |node| gone.binary_search(&node.place).is_ok());
        }
        cut.iter().for_each(|samples| self.push_sealed(world, id, samples));
        erased_count
    }

    /// Finds the last sample of a series without open chunk anew.
    fn settle_last(&mut self, world: &StripeWorld<'_>, id: u32) {
        let Some(hot) = self.hot(id).filter(|hot| hot.open.is_none()) else { return };
        let newest = self.nodes.list(hot.sealed).max_by_key(|n| n.max_time()).copied();
        let mut state = XorState::new();
        if let Some(node) = newest {
            let mut samples = Columns::default();
            // Without the value any further sample of this time is a conflict, which is right for a damaged one.
            self.decode_sealed(world, &node, &mut samples);
            let value = samples.values.last().map_or(f64::NAN, |v| *v);
            state = XorState::ended(node.max_time(), value.to_bits());
        }
        if let Some(hot) = self.hot_mut(id) {
            hot.xor = state;
        }
    }
}

fn keep_outside(samples: &mut Columns, range: TimeRange) {
    let start = samples.times.partition_point(|&t| t < range.start);
    let end = samples.times.partition_point(|&t| t < range.end).max(start);
    samples.times.drain(start..end);
    samples.values.drain(start..end);
}
