//! Restores histograms from a checkpoint, and removes histograms from the head.
//!
//! Invariant: the caller has checked files and windows; chunk contents are checked here.

use std::sync::Arc;

use chronolith_format::chunk::histogram::HistogramAppender;
use chronolith_model::{Histogram, TimeRange};

use super::super::{AppendContext, Stripe};
use super::SealedHistogramChunk;

/// Histograms of one series in a checkpoint.
pub(crate) struct HistogramParts {
    pub(crate) open: Option<HistogramAppender>,
    pub(crate) ooo: Vec<(i64, Arc<Histogram>)>,
    pub(crate) sealed: Vec<SealedHistogramChunk>,
}

impl Stripe {
    /// Adds histograms of a checkpoint to a series; its float chunks are restored already.
    pub(crate) fn restore_histograms(&mut self, cx: &AppendContext<'_>, id: u32, parts: HistogramParts) {
        for (time, histogram) in &parts.ooo {
            self.histograms.insert_ooo(id, *time, histogram);
        }
        let histograms = self.histograms.series_or_new(id);
        parts.sealed.into_iter().for_each(|node| histograms.sealed.insert(node));
        if let Some(open) = parts.open {
            histograms.window_end = TimeRange::window_of(open.times().0, cx.window_ms).end;
            histograms.open = Some(open);
        }
        self.histograms.recount(id);
        self.histograms.report(cx.histograms);
        self.settle_histograms(id, cx.window_ms);
        if self.histograms.get(id).is_some() {
            self.block_fast_path(id);
        }
    }

    /// Removes all histograms of a series; `visit` gets timestamp and count of each chunk, and the reference
    /// of sealed ones.
    pub(crate) fn discard_histograms(
        &mut self,
        id: u32,
        mut visit: impl FnMut(i64, u16, Option<crate::series::sealed::ChunkRef>),
    ) {
        self.histograms.take_ooo(id, TimeRange { start: i64::MIN, end: i64::MAX }).times.iter().for_each(
            |&time| {
                visit(time, 1, None);
            },
        );
        let Some(histograms) = self.histograms.by_series.remove(&id) else { return };
        self.histograms.open_bytes -= histograms.open_bytes;
        if let Some(open) = &histograms.open {
            visit(open.times().0, open.count(), None);
        }
        histograms.sealed.iter().for_each(|node| visit(node.min_time, node.count, Some(node.chunk_ref)));
    }
}
