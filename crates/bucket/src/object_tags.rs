//! ETags of the objects of a block, with which each answer is compared: bytes of another object of the same
//! length may have right checksums.
//!
//! Invariants: an answer whose ETag is the recorded one costs no request. With another one the head of the
//! object is asked: the answer is damage if that differs, too, else the object was copied or written again
//! since, and its ETag replaces the recorded one from then on.
//! Not here: where the recorded ETags come from (`cache::disk::FileVersions`).

use std::collections::BTreeMap;

use chronolith_block::source::BlockFile;
use chronolith_format::bucket::catalogue::etag_sum;
use parking_lot::Mutex;

use crate::{BucketError, RequestContext, Store};

/// ETags of the objects of one block.
#[derive(Default)]
pub(crate) struct ObjectTags {
    /// Sums of those in the catalogue or the listing.
    recorded: BTreeMap<BlockFile, u32>,
    /// Sums of those that heads had; `None` for a head without one.
    current: Mutex<BTreeMap<BlockFile, Option<u32>>>,
    /// Held while a head is asked: requests of one round wait for one answer.
    asking: tokio::sync::Mutex<()>,
}

impl ObjectTags {
    pub(crate) fn new(recorded: BTreeMap<BlockFile, u32>) -> ObjectTags {
        ObjectTags { recorded, ..ObjectTags::default() }
    }

    /// Returns false if an answer with this ETag needs the head of its object.
    pub(crate) fn is_known(&self, file: BlockFile, found: Option<&str>) -> bool {
        let found = found.map(etag_sum);
        let is_recorded = found.is_some() && self.recorded.get(&file).copied() == found;
        is_recorded || self.current.lock().get(&file) == Some(&found)
    }

    /// Compares the ETag of an answer from `key`, the object of `file`. Objects of a local directory are not
    /// compared: a copy of the directory has other ETags, and no answer comes from another file.
    ///
    /// # Errors
    /// [`BucketError::Corrupt`] if it comes from another object; as [`Store::head`].
    pub(crate) async fn check(
        &self,
        store: &Store,
        request: &RequestContext,
        file: BlockFile,
        key: &str,
        found: Option<&str>,
    ) -> Result<(), BucketError> {
        if store.is_local() || self.is_known(file, found) {
            return Ok(());
        }
        let _asking = self.asking.lock().await;
        if self.is_known(file, found) {
            return Ok(());
        }
        let head = store.head(request, key).await?;
        let current = head.etag.as_deref().map(etag_sum);
        if current != found.map(etag_sum) {
            let shown = |etag: Option<&str>| etag.unwrap_or("none").to_owned();
            let expected = shown(head.etag.as_deref());
            let found = shown(found);
            return Err(BucketError::Corrupt { key: key.to_owned(), what: "ETag", expected, found });
        }
        self.current.lock().insert(file, current);
        Ok(())
    }
}
