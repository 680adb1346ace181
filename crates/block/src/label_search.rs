//! Search in the sorted values of a label, among series that have no other label.
//!
//! Invariant: a value is returned if a series of the block has it and no other label.
//! Not here: the table of values (`format::block::index`), values of selected series (`label_queries`).

use std::sync::Arc;

use chronolith_model::query::{LabelValueSearch, SoleLabelValues};
use chronolith_model::{Matcher, QueryError, ReadContext};

use crate::contents::BlockContents;
use crate::label_queries::for_each_series;
use crate::postings::select_refs;

/// Search in the values of a label in a block. Cost: finding a value in the table of values.
pub struct BlockValues {
    contents: Arc<BlockContents>,
    name: String,
    ctx: ReadContext,
    /// Series may have other labels.
    has_other_names: bool,
}

impl BlockValues {
    /// Returns the cursor; `None` if the block does not overlap the range.
    pub(crate) fn new(
        contents: &Arc<BlockContents>,
        search: &SoleLabelValues<'_>,
        ctx: &ReadContext,
    ) -> Option<BlockValues> {
        if search.name.is_empty() || !search.range.overlaps(contents.range()) {
            return None;
        }
        Some(BlockValues {
            contents: contents.clone(),
            name: search.name.to_owned(),
            ctx: ctx.clone(),
            has_other_names: contents.header().label_names().nth(1).is_some(),
        })
    }

    /// Returns true if a series has this value and no other label.
    fn is_sole(&self, value: &str) -> Result<bool, QueryError> {
        if !self.has_other_names {
            return Ok(true);
        }
        let matchers = [Matcher::equal(self.name.as_str(), value)];
        let refs = select_refs(&self.contents, &matchers, &self.ctx.budget)?;
        let mut found = false;
        for_each_series(&self.contents, refs, &self.ctx, &mut |entry| {
            found |= entry.pairs().nth(1).is_none();
        })?;
        Ok(found)
    }
}

impl LabelValueSearch for BlockValues {
    fn search(&mut self, start: &str, found: &mut String) -> Result<bool, QueryError> {
        let mut has_found = Ok(false);
        let visited = self.contents.header().for_each_value_from(&self.name, start, &mut |value| {
            has_found = self.is_sole(value);
            if matches!(has_found, Ok(true)) {
                value.clone_into(found);
            }
            matches!(has_found, Ok(false))
        });
        visited.map_err(|e| self.contents.index_error(&e))?;
        has_found
    }
}
