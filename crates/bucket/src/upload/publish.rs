//! Record of uploaded blocks in the catalogue: one update adds blocks and drops those that they replace.
//!
//! Invariants: blocks that were written together appear together, in the snapshot in which the blocks that
//! they replace disappear ([`BucketBlock::replaces`]); a compaction whose inputs were replaced by others is
//! dropped; a block that was replaced does not come back.
//! Not here: upload of the files.

use std::collections::BTreeSet;
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BucketBlock, DeletionMark, Snapshot};

use super::counters::UploadCounters;
use crate::snapshots::{Change, Snapshots};
use crate::{BucketError, RequestContext, Store};

/// Result of recording blocks in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// All blocks are in the catalogue, of which this is the newest snapshot. `None` if nothing was to be
    /// recorded and the tenant has no catalogue.
    Recorded(Option<Arc<Snapshot>>),
    /// Nothing was recorded: these inputs were replaced by other blocks.
    InputsGone(Vec<Ulid>),
    /// Nothing was recorded: these blocks wait for their removal, or others of the catalogue were made of
    /// them.
    Superseded(Vec<Ulid>),
}

/// Records blocks in catalogues.
pub struct Publisher {
    pub(super) store: Arc<Store>,
    pub(super) snapshots: Snapshots,
    env: Env,
    pub(super) counters: Arc<UploadCounters>,
}

impl Publisher {
    pub(super) fn new(store: Arc<Store>, env: &Env, counters: Arc<UploadCounters>) -> Publisher {
        let snapshots = Snapshots::new(store.clone(), env);
        Publisher { store, snapshots, env: env.clone(), counters }
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.env.clock.now_ms()
    }

    /// Catalogues of the bucket.
    #[must_use]
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// Adds the blocks of `records` to the catalogue of the tenant of `request`, and in the same snapshot
    /// drops those that they replace, which get a deletion mark. `records` are all blocks that were made of
    /// the same sources. A block that is in the catalogue gets its new record: deletions come later.
    /// Repeating it changes nothing.
    ///
    /// # Errors
    /// As [`crate::snapshots::Snapshots::update`].
    pub async fn publish(
        &self,
        request: &RequestContext,
        records: &[BucketBlock],
    ) -> Result<Published, BucketError> {
        self.enter(request, records, &[], |snapshot| decide(snapshot, records)).await
    }

    /// Replaces `inputs` by `outputs`, which were made of them, in one snapshot. Unlike with
    /// [`Publisher::publish`], the catalogue must have all inputs with these records: samples may have been
    /// deleted since the outputs were made. Without outputs, the inputs leave. Repeating it changes nothing.
    ///
    /// # Errors
    /// As [`crate::snapshots::Snapshots::update`].
    pub async fn replace(
        &self,
        request: &RequestContext,
        inputs: &[BucketBlock],
        outputs: &[BucketBlock],
    ) -> Result<Published, BucketError> {
        assert!(!inputs.is_empty(), "a replacement has inputs");
        self.enter(request, outputs, inputs, |snapshot| decide_replacement(snapshot, inputs, outputs)).await
    }

    /// Adds `records` and drops what they replace, and `inputs`, if `decide` finds that in order.
    async fn enter(
        &self,
        request: &RequestContext,
        records: &[BucketBlock],
        inputs: &[BucketBlock],
        decide: impl Fn(&Snapshot) -> Decision,
    ) -> Result<Published, BucketError> {
        let outputs: BTreeSet<Ulid> = records.iter().map(|record| record.ulid).collect();
        assert_eq!(outputs.len(), records.len(), "a block is recorded once");
        // A block that does would be listed and marked for its removal.
        assert!(inputs.iter().all(|input| !outputs.contains(&input.ulid)), "no block replaces itself");
        let now_ms = self.env.clock.now_ms();
        let mut decision = Decision::Done;
        let updated = self.snapshots.update(request, |snapshot| {
            decision = decide(snapshot);
            if decision != Decision::Add {
                return Change::Keep;
            }
            apply(snapshot, records, inputs, now_ms);
            Change::Write
        });
        let updated = updated.await?;
        let dropped = match decision {
            Decision::Add | Decision::Done => {
                if updated.is_written {
                    self.counters.add_published(records.len());
                }
                return Ok(Published::Recorded(updated.snapshot));
            }
            Decision::InputsGone(inputs) => {
                tracing::info!(folder = %request.folder, ?inputs, "compacted blocks are not recorded: their inputs were replaced by others");
                Published::InputsGone(inputs)
            }
            Decision::Superseded(blocks) => {
                tracing::info!(folder = %request.folder, ?blocks, "blocks are not recorded: the catalogue has blocks made of them");
                Published::Superseded(blocks)
            }
        };
        self.counters.add_dropped(records.len());
        Ok(dropped)
    }
}

/// Reaction to blocks that are to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Decision {
    Add,
    /// All is as it would be.
    Done,
    InputsGone(Vec<Ulid>),
    Superseded(Vec<Ulid>),
}

fn decide(snapshot: &Snapshot, records: &[BucketBlock]) -> Decision {
    let live = |ulid: Ulid| snapshot.blocks.iter().find(|block| block.ulid == ulid);
    let is_marked = |ulid: Ulid| snapshot.deletion_marks.iter().any(|mark| mark.ulid == ulid);
    let new: Vec<&BucketBlock> = records.iter().filter(|record| live(record.ulid).is_none()).collect();
    let is_superseded = |record: &BucketBlock| {
        is_marked(record.ulid) || snapshot.blocks.iter().any(|block| block.replaces(record))
    };
    let superseded = new.iter().filter(|record| is_superseded(record)).map(|record| record.ulid);
    let superseded: Vec<Ulid> = superseded.collect();
    if !superseded.is_empty() {
        return Decision::Superseded(superseded);
    }
    let inputs: BTreeSet<Ulid> = new.iter().flat_map(|record| record.ancestry.parents.clone()).collect();
    let gone = inputs.into_iter().filter(|input| live(*input).is_none() && is_marked(*input));
    let gone: Vec<Ulid> = gone.collect();
    if !gone.is_empty() {
        return Decision::InputsGone(gone);
    }
    let is_current = |record: &BucketBlock| {
        let upload_time = |block: &BucketBlock| BucketBlock { uploaded_ms: 0, ..block.clone() };
        live(record.ulid).is_some_and(|block| upload_time(block) == upload_time(record))
    };
    let is_done = records.iter().all(is_current) && replaced_by(snapshot, records).next().is_none();
    if is_done { Decision::Done } else { Decision::Add }
}

/// Reaction to blocks that are to replace `inputs`.
fn decide_replacement(snapshot: &Snapshot, inputs: &[BucketBlock], outputs: &[BucketBlock]) -> Decision {
    let live = |ulid: Ulid| snapshot.blocks.iter().find(|block| block.ulid == ulid);
    let has_inputs = inputs.iter().any(|input| live(input.ulid).is_some());
    if !has_inputs && outputs.iter().all(|output| live(output.ulid).is_some()) {
        return Decision::Done;
    }
    let gone = inputs.iter().filter(|input| live(input.ulid) != Some(*input)).map(|input| input.ulid);
    let gone: Vec<Ulid> = gone.collect();
    if gone.is_empty() { Decision::Add } else { Decision::InputsGone(gone) }
}

/// Blocks of the catalogue whose samples are in `records`.
fn replaced_by<'a>(snapshot: &'a Snapshot, records: &'a [BucketBlock]) -> impl Iterator<Item = Ulid> + 'a {
    let is_replaced = |block: &&BucketBlock| records.iter().any(|record| record.replaces(block));
    snapshot.blocks.iter().filter(is_replaced).map(|block| block.ulid)
}

fn apply(snapshot: &mut Snapshot, records: &[BucketBlock], inputs: &[BucketBlock], now_ms: i64) {
    let inputs = inputs.iter().map(|input| input.ulid);
    let replaced: BTreeSet<Ulid> = replaced_by(snapshot, records).chain(inputs).collect();
    let is_gone = |ulid: Ulid| replaced.contains(&ulid) || records.iter().any(|record| record.ulid == ulid);
    snapshot.blocks.retain(|block| !is_gone(block.ulid));
    snapshot.blocks.extend(records.iter().cloned());
    for ulid in replaced {
        if !snapshot.deletion_marks.iter().any(|mark| mark.ulid == ulid) {
            snapshot.deletion_marks.push(DeletionMark { ulid, marked_ms: now_ms });
        }
    }
}
