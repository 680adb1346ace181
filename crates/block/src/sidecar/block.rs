//! A block that is read by its sidecar.
//!
//! Invariant: an answer equals the answer by the block's index, or is an error; after damage of the sidecar
//! [`SidecarBlock::damage`] is set, and a reader of the index answers.
//! Not here: requests, that other reader (`bucket`).

use std::sync::Arc;

use chronolith_format::bucket::sidecar::SidecarHead;
use chronolith_model::query::{Opened, Read, SeriesBatches, Source, Wanted, visit_listed};
use chronolith_model::{Matcher, QueryError, ReadContext, SeriesRead, TimeRange};

use super::contents::{SharedContents, SidecarContents};
use super::labels;
use super::selection::SidecarSelection;
use crate::source::ByteSource;

/// A block that is read by its sidecar.
pub struct SidecarBlock {
    contents: SharedContents,
}

impl SidecarBlock {
    /// The block that covers `range` and whose sidecar has this head; `source` reads its files, the sidecar
    /// among them. Reads nothing.
    #[must_use]
    pub fn new(head: SidecarHead, range: TimeRange, source: Box<dyn ByteSource>) -> SidecarBlock {
        SidecarBlock { contents: Arc::new(SidecarContents::new(head, range, source)) }
    }

    /// As [`SidecarBlock::new`]; postings lists are read wherever a matcher has some.
    #[cfg(test)]
    pub(crate) fn by_lists(head: SidecarHead, range: TimeRange, source: Box<dyn ByteSource>) -> SidecarBlock {
        let costs = super::contents::ListCosts { direct_bytes_max: 0, direct_metric_bytes_max: 0, weight: 0 };
        SidecarBlock { contents: Arc::new(SidecarContents::new(head, range, source).with_costs(costs)) }
    }

    /// The series that all `matchers` select, with chunks in `range`, for a driver that reads the waves.
    #[must_use]
    pub fn select_waves(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        ctx: &ReadContext,
    ) -> SidecarSelection {
        SidecarSelection::new(&self.contents, matchers, range, ctx)
    }

    /// Returns false if the parts in memory prove that no series has the label; true otherwise.
    #[must_use]
    pub fn may_have_label_name(&self, name: &str) -> bool {
        self.contents.offsets().is_none_or(|offsets| offsets.value_count(name) > 0)
    }

    /// The first damage of the sidecar that was found.
    #[must_use]
    pub fn damage(&self) -> Option<&str> {
        self.contents.damage()
    }

    /// Memory of the head and of the parts that were read.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.contents.heap_bytes()
    }
}

impl Source for SidecarBlock {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let Read { request, wanted } = read;
        let selector = request.selector();
        Ok(match wanted {
            Wanted::Series => {
                ctx.check()?;
                let selection = self.select_waves(selector.matchers, selector.range, ctx);
                let batches = SidecarBatches { contents: self.contents.clone(), selection };
                Opened::Series(request.filter(Box::new(batches)))
            }
            Wanted::Estimate => Opened::Estimate(None),
            Wanted::LabelNames => {
                Opened::listed(labels::label_names(&self.contents, &selector, request.limit, ctx)?)
            }
            Wanted::LabelValues { name } => {
                Opened::listed(labels::label_values(&self.contents, &name, &selector, request.limit, ctx)?)
            }
            Wanted::EachLabelValue { name, prefix } => visit_listed(self, request, name, prefix, ctx)?,
            Wanted::SoleLabelValues { .. } => Opened::Cursor(None),
        })
    }
}

/// Selected series, batch by batch; each wave is read when it is due.
struct SidecarBatches {
    contents: SharedContents,
    selection: SidecarSelection,
}

impl SeriesBatches for SidecarBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let series_count_before = out.len();
        while out.len() == series_count_before {
            let Some(wave) = self.selection.next_wave() else { return Ok(false) };
            let bytes = self.contents.read(&*wave, self.selection.budget());
            drop(wave);
            self.selection.push(bytes, out)?;
        }
        Ok(!self.selection.is_done())
    }
}
