//! Maintenance of the blocks of a tenant in the bucket: removal of replaced blocks, retention, leftovers,
//! download for a compaction.
//!
//! Invariants: the catalogue decides. A block is removed only while the newest snapshot marks it and does not
//! list it, and a marked block is not published again, so no upload that runs meanwhile can lose objects.
//! Each step may end at any request, and may be repeated by any process at any time. A tenant without a
//! catalogue, or with a damaged one, is left as it is.
//! Not here: when a step runs and for which tenants (`tsdb`), who compacts (`lease`).

pub mod download;
pub mod leftovers;
pub mod removal;
pub mod retention;

use std::sync::Arc;
use std::time::Duration;

use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{DeletionMark, Snapshot};

use crate::layout::BlockKeys;
use crate::snapshots::{Change, Snapshots};
use crate::store::list::{ListOptions, ListedObject};
use crate::{BucketError, RequestContext, Store};

pub(crate) const META: &str = "meta.json";

/// Bucket, tenant and time of one run of maintenance.
#[derive(Clone, Copy)]
pub struct MaintenanceRun<'a> {
    /// The bucket.
    pub store: &'a Store,
    /// Catalogue snapshots of the bucket.
    pub snapshots: &'a Snapshots,
    /// Tenant and deadline. A run must end long before a mark of the same age is dropped, so its deadline is
    /// some minutes away at most.
    pub request: &'a RequestContext,
    /// Time by which blocks expire and marks are due, in milliseconds since 1970: the clock's time, or
    /// an earlier one if the clock is not trusted.
    pub now_ms: i64,
}

impl MaintenanceRun<'_> {
    /// The newest snapshot; `None` if the tenant has no catalogue.
    ///
    /// # Errors
    /// [`BucketError::Corrupt`] if it is damaged: an older one does not show which blocks are in use.
    pub async fn catalogue(&self) -> Result<Option<Arc<Snapshot>>, BucketError> {
        Ok(self.snapshots.update(self.request, |_| Change::Keep).await?.snapshot)
    }

    /// Objects of a block, `meta.json` first.
    async fn objects_of(&self, ulid: Ulid) -> Result<Vec<ListedObject>, BucketError> {
        let folder = self.folder(ulid);
        let mut options = ListOptions { prefix: folder.clone(), ..ListOptions::default() };
        let mut objects = Vec::new();
        loop {
            let page = self.store.list(self.request, &options).await?;
            objects.extend(page.objects);
            options.after = page.next_after;
            if options.after.is_none() {
                break;
            }
        }
        let meta = format!("{folder}/{META}");
        objects.sort_by_key(|object| object.key != meta);
        Ok(objects)
    }

    /// Keys of the blocks of the folder.
    fn keys(&self) -> BlockKeys {
        self.store.layout().block_keys(&self.request.folder)
    }

    fn folder(&self, ulid: Ulid) -> String {
        self.keys().of_block(ulid)
    }
}

/// Marks blocks, unless the snapshot lists or marks them. Returns those that were marked.
fn mark(snapshot: &mut Snapshot, ulids: &[Ulid], now_ms: i64) -> Vec<Ulid> {
    let is_known = |ulid: &Ulid| {
        snapshot.blocks.iter().any(|block| block.ulid == *ulid)
            || snapshot.deletion_marks.iter().any(|mark| mark.ulid == *ulid)
    };
    let marked: Vec<Ulid> = ulids.iter().copied().filter(|ulid| !is_known(ulid)).collect();
    let marks = marked.iter().map(|&ulid| DeletionMark { ulid, marked_ms: now_ms });
    snapshot.deletion_marks.extend(marks);
    marked
}

fn as_ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
