//! Cursors over label values of several sources.
//!
//! Invariants: a value of one source is a value of all together; what has left the head since the start is
//! found in blocks.
//! Not here: the searches of a head and of a block (`head`, `block`).

use std::sync::Arc;

use chronolith_block::BlockValues;
use chronolith_head::{HeadReader, HeadValues};
use chronolith_model::query::{LabelValueCursor, Repeated, SoleLabelValues};
use chronolith_model::{QueryError, ReadContext, StoreId, TimeRange};

use super::failure::FailurePolicy;
use crate::blocks::BlockStore;

/// Least of the values of several searches.
#[derive(Default)]
struct Least {
    value: String,
    has_value: bool,
}

impl Least {
    fn clear(&mut self) {
        self.has_value = false;
    }

    fn add(&mut self, value: Option<&str>) {
        let Some(value) = value else { return };
        if !self.has_value || value < self.value.as_str() {
            value.clone_into(&mut self.value);
            self.has_value = true;
        }
    }

    fn get(&self) -> Option<&str> {
        self.has_value.then_some(self.value.as_str())
    }
}

/// Cursor over the values of a tenant in the head and in local blocks.
pub(super) struct StoreValues {
    blocks: Arc<BlockStore>,
    tenant: StoreId,
    name: String,
    range: TimeRange,
    ctx: ReadContext,
    of_head: Option<Repeated<HeadValues>>,
    of_blocks: Vec<Repeated<BlockValues>>,
    least: Least,
}

impl StoreValues {
    /// The head is searched before the list of blocks is taken: a series is in one of them.
    pub(super) fn new(
        head: &HeadReader,
        blocks: Arc<BlockStore>,
        store: &StoreId,
        search: &SoleLabelValues<'_>,
        ctx: &ReadContext,
    ) -> Result<StoreValues, QueryError> {
        let of_head = HeadValues::new(head, store, search, ctx)?.map(Repeated::new);
        let mut values = StoreValues {
            blocks,
            tenant: store.clone(),
            name: search.name.to_owned(),
            range: search.range,
            ctx: ctx.clone(),
            of_head,
            of_blocks: Vec::new(),
            least: Least::default(),
        };
        values.list_blocks()?;
        Ok(values)
    }

    fn list_blocks(&mut self) -> Result<(), QueryError> {
        let search = SoleLabelValues { name: &self.name, range: self.range };
        let ctx = &self.ctx;
        self.of_blocks = self.blocks.fold_in_range(&self.tenant, self.range, Vec::new, |all, block| {
            all.extend(block.sole_label_values(&search, ctx).map(Repeated::new));
            Ok(())
        })?;
        Ok(())
    }
}

impl LabelValueCursor for StoreValues {
    fn seek(&mut self, start: &str) -> Result<Option<&str>, QueryError> {
        self.least.clear();
        if let Some(of_head) = &mut self.of_head {
            self.least.add(of_head.seek(start)?);
            if of_head.source.take_removed() {
                self.list_blocks()?;
            }
        }
        for of_block in &mut self.of_blocks {
            self.least.add(of_block.seek(start)?);
        }
        Ok(self.least.get())
    }
}

/// Cursor over the values of parts, each with what its failure means.
pub(super) struct PartValues {
    parts: Vec<(Box<dyn LabelValueCursor>, FailurePolicy)>,
    ctx: ReadContext,
    least: Least,
}

impl PartValues {
    pub(super) fn new(
        parts: Vec<(Box<dyn LabelValueCursor>, FailurePolicy)>,
        ctx: &ReadContext,
    ) -> PartValues {
        PartValues { parts, ctx: ctx.clone(), least: Least::default() }
    }
}

impl LabelValueCursor for PartValues {
    fn seek(&mut self, start: &str) -> Result<Option<&str>, QueryError> {
        self.least.clear();
        for (values, failure) in &mut self.parts {
            self.least.add(failure.or_warn(values.seek(start), || None, &self.ctx)?);
        }
        Ok(self.least.get())
    }
}
