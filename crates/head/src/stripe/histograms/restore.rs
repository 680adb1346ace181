//! Histograms to and from a checkpoint, and out of the head.
//! Holds: what is restored has been checked by the caller as far as files and windows go; here what chunks say.

use std::sync::Arc;

use chronolith_format::histogram::HistogramAppender;
use chronolith_model::{Histogram, TimeRange};

use super::super::{Stripe, StripeWorld};
use super::HistogramNode;

/// What a checkpoint has of the histograms of one series.
pub(crate) struct HistogramParts {
    pub(crate) open: Option<HistogramAppender>,
    pub(crate) late: Vec<(i64, Arc<Histogram>)>,
    pub(crate) sealed: Vec<HistogramNode>,
}

impl Stripe {
    /// Adds histograms of a checkpoint to a series; its float chunks are restored before.
    pub(crate) fn restore_histograms(&mut self, world: &StripeWorld<'_>, id: u32, parts: HistogramParts) {
        for (time, histogram) in &parts.late {
            self.histograms.put_late(id, *time, histogram);
        }
        let track = self.histograms.track_or_new(id);
        parts.sealed.into_iter().for_each(|node| track.sealed.insert(node));
        if let Some(open) = parts.open {
            track.window_end = TimeRange::window_of(open.times().0, world.window_ms).end;
            track.open = Some(open);
        }
        self.histograms.recount(id);
        self.histograms.tell(world.histograms);
        self.settle_histograms(id, world.window_ms);
        if self.histograms.get(id).is_some() {
            self.bar_floats(id);
        }
    }

    /// Takes all histograms out of a series; `visit` gets time and count of each stretch, and the place of sealed ones.
    pub(crate) fn discard_histograms(
        &mut self,
        id: u32,
        mut visit: impl FnMut(i64, u16, Option<crate::sealed::SealedPlace>),
    ) {
        self.histograms.take_late(id, TimeRange { start: i64::MIN, end: i64::MAX }).times.iter().for_each(
            |&time| {
                visit(time, 1, None);
            },
        );
        let Some(track) = self.histograms.tracks.remove(&id) else { return };
        self.histograms.open_bytes -= track.open_bytes;
        if let Some(open) = &track.open {
            visit(open.times().0, open.count(), None);
        }
        track.sealed.iter().for_each(|node| visit(node.min_time, node.count, Some(node.place)));
    }
}
