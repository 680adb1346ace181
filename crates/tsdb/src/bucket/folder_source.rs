//! Blocks that the bucket has of one store, without expired ones.
//!
//! Not here: reads of the blocks (`query`), stores and their folders (`storage`, `query::remote`).

use std::sync::Arc;

use chronolith_bucket::{BlockCatalog, BucketBlock, Folder};
use chronolith_model::{DuplicatePolicy, QueryError, ReadContext, TimeRange};

/// Blocks that the bucket has of one store.
#[derive(Clone)]
pub(crate) struct FolderSource {
    pub(crate) catalog: Arc<BlockCatalog>,
    pub(crate) folder: Folder,
    /// Time, in the unit of the store, at which expired samples end: blocks that end before are left out, as
    /// retention removes them locally. `i64::MIN` without a retention.
    pub(crate) expired_end: i64,
}

impl FolderSource {
    /// As [`BlockCatalog::blocks_in`], without expired blocks.
    pub(crate) fn blocks_in(
        &self,
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Vec<Arc<BucketBlock>>, QueryError> {
        let mut blocks = self.catalog.blocks_in(&self.folder, range, ctx)?;
        blocks.retain(|block| block.range().end > self.expired_end);
        Ok(blocks)
    }

    /// Number of the catalogue that the blocks were read from; 0 before it was read, and without one.
    pub(crate) fn catalogue_number(&self) -> u64 {
        self.catalog.catalogue_number(&self.folder)
    }

    /// Returns true if owners may no longer have samples of blocks that the list lacks, as
    /// [`BlockCatalog::is_older_than_seam`].
    pub(crate) fn is_older_than_seam(&self) -> bool {
        self.catalog.is_older_than_seam(&self.folder)
    }

    /// Reads the newest catalogue. Blocks the thread; must not be called from a task of the runtime.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] if the bucket does not answer; as [`ReadContext::begin_wait`].
    pub(crate) fn refresh(&self, ctx: &ReadContext) -> Result<(), QueryError> {
        ctx.begin_wait()?;
        self.catalog.refresh_waiting(&self.folder, ctx)
    }

    /// Policy for several samples with one timestamp, from the catalogue.
    pub(crate) fn duplicates(&self) -> DuplicatePolicy {
        self.catalog.duplicates(&self.folder)
    }
}
