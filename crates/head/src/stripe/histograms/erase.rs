//! Deleting: the samples of a time range leave a series, of both kinds.
//! Holds: as for floats (`stripe::erase`).

use chronolith_model::TimeRange;

use super::super::erase::Erased;
use super::super::{Stripe, StripeWorld};
use super::HistogramNode;
use super::seal::sealed_samples;
use crate::windows::WindowTally;

impl Stripe {
    /// Removes the samples of series `id` in `range`.
    pub(crate) fn erase(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) -> Erased {
        let floats = self.erase_floats(world, windows, id, range);
        let histogram_count = self.erase_histograms(world, windows, id, range);
        Erased {
            sample_count: floats.sample_count + histogram_count,
            has_changed: floats.has_changed || histogram_count > 0,
        }
    }

    /// Removes the histograms in `range`; gives how many that were.
    pub(super) fn erase_histograms(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) -> u64 {
        if !self.has_histograms_in(id, range) {
            return 0;
        }
        // Replaced ones meet what they replace, so that nothing comes back from below.
        self.seal_open_histograms(world, windows, id);
        self.seal_late_histograms(world, windows, id, TimeRange { start: i64::MIN, end: i64::MAX });
        let Some(track) = self.histograms.get(id) else { return 0 };
        let touched: Vec<HistogramNode> = track.sealed.overlapping(range).copied().collect();
        let mut erased_count = 0;
        for node in touched {
            let is_whole = range.contains(node.min_time) && range.contains(node.max_time);
            let left = if is_whole { Some(Default::default()) } else { sealed_samples(world, &node) };
            let Some(mut left) = left else { continue };
            left.remove(left.places(range));
            let gone_count = usize::from(node.count) - left.len();
            if gone_count == 0 {
                continue;
            }
            erased_count += gone_count as u64;
            windows.add(node.min_time, -(gone_count as i64));
            self.unlink_histograms(world.store, id, &[node]);
            self.link_all(world, id, &left);
        }
        self.settle_histograms(id, world.window_ms);
        self.histograms.tell(world.histograms);
        erased_count
    }
}
