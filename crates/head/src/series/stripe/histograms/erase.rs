//! Deletes the samples of a time range from a series, of both kinds.
//!
//! Invariant: as for floats (`stripe::erase`).

use chronolith_model::TimeRange;

use super::super::erase::Erased;
use super::super::{AppendContext, Stripe};
use super::SealedHistogramChunk;
use super::seal::sealed_samples;

impl Stripe {
    /// Removes the samples of series `id` in `range`.
    pub(crate) fn erase(&mut self, cx: &mut AppendContext<'_>, id: u32, range: TimeRange) -> Erased {
        let floats = self.erase_floats(cx, id, range);
        let histogram_count = self.erase_histograms(cx, id, range);
        Erased {
            sample_count: floats.sample_count + histogram_count,
            has_changed: floats.has_changed || histogram_count > 0,
        }
    }

    /// Removes the histograms in `range`; returns their number.
    pub(super) fn erase_histograms(&mut self, cx: &mut AppendContext<'_>, id: u32, range: TimeRange) -> u64 {
        if !self.has_histograms_in(id, range) {
            return 0;
        }
        // Merges replacements into the chunks that they replace, so that no replaced value becomes visible
        // again.
        self.seal_open_histograms(cx, id);
        self.merge_out_of_order_histograms(cx, id, TimeRange { start: i64::MIN, end: i64::MAX });
        let Some(histograms) = self.histograms.get(id) else { return 0 };
        let touched: Vec<SealedHistogramChunk> = histograms.sealed.overlapping(range).copied().collect();
        let mut erased_count = 0;
        for node in touched {
            let is_whole = range.contains(node.min_time) && range.contains(node.max_time);
            let left = if is_whole { Some(Default::default()) } else { sealed_samples(cx, &node) };
            let Some(mut left) = left else { continue };
            left.remove(left.indices_in(range));
            let gone_count = usize::from(node.count) - left.len();
            if gone_count == 0 {
                continue;
            }
            erased_count += gone_count as u64;
            cx.windows.add(node.min_time, -(gone_count as i64));
            self.unlink_histograms(cx.store, id, &[node]);
            self.link_all(cx, id, &left);
        }
        self.settle_histograms(id, cx.window_ms);
        self.histograms.report(cx.histograms);
        erased_count
    }
}
