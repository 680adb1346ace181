//! Recovery from damage: what a query read is read once more past the cache, then by the index.
//!
//! Invariants: damage of cached bytes or of a transfer fails no query that can read sound bytes; a query
//! reads a block at most twice by each of its readers.
//! Not here: chunks that are decoded after they were handed out (`crate::select`).

use std::sync::Arc;

use chronolith_model::QueryError;

use crate::block::{BucketBlock, OpenedBlock};

/// State of one query and block.
#[derive(Default)]
pub(crate) struct Recovery {
    /// The bytes of the current reader were read past the cache.
    has_reread: bool,
}

impl Recovery {
    /// Returns true if the query may open the block again and succeed after `error`, which a reader returned.
    pub(crate) fn may_retry(
        &mut self,
        block: &BucketBlock,
        opened: &Arc<OpenedBlock>,
        error: &QueryError,
    ) -> bool {
        let damage = opened.reader.sidecar_damage();
        let files = &opened.files;
        if files.has_lost_sidecar() || (damage.is_some() && files.has_local_sidecar()) {
            if damage.is_some() {
                block.forget();
            }
            // The query goes on by the index.
            block.lose_local_sidecar(opened);
            return true;
        }
        if damage.is_none() && !matches!(error, QueryError::Corrupt { .. }) {
            return false;
        }
        match (damage, self.has_reread) {
            // Cached bytes may be damaged: all of the block are dropped, as others may be damaged too.
            (_, false) => block.forget(),
            (Some(damage), true) => block.refuse_sidecar(damage),
            (None, true) => return false,
        }
        // Ranges read by a header of another block, or from a listing that lacked an object, are read again.
        block.close(opened);
        self.has_reread = !self.has_reread;
        true
    }
}
