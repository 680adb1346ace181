//! Publication of cuts: blocks of the cut windows go to the bucket, then the samples leave the head, then the
//! offset to resume from moves.
//!
//! Invariants: the cuts of a store are published in their order; samples leave the head only once the
//! catalogue has had their cut for [`OwnerOptions::seam`], so that a reader with an older catalogue still
//! finds them, or earlier if a deletion waits, as readers are then asked for a newer one; a cut after the
//! record of an open deletion waits for its end; the offset is stored after the cuts that it passes.
//! Not here: the rules (`model::cut`), windows and samples of cuts (`windows`, `tsdb`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Env;
use chronolith_bucket::upload::{PublishedCut, catalogue_for_cuts, publish_cut};
use chronolith_bucket::{BucketError, Folder, Purpose, RequestContext, Store, Uploader};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BucketBlock, Snapshot};
use chronolith_model::cut::{block_name_hash, may_publish};
use chronolith_model::log_position::{LogPartition, Position};
use chronolith_model::{StoreId, TimeRange};
use chronolith_tsdb::{CutBlock, CutWindow};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::deletions::OwnerDeletions;
use super::options::OwnerOptions;
use super::owned::Owned;
use super::resume::{Stored, StoredResume};
use super::windows::Held;

/// Longest time of the upload of a block.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(3600);
/// Longest time of reading and updating a catalogue.
const CATALOGUE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time between two stores of the offset to resume from while no cut is published or leaves.
const RESUME_INTERVAL_NS: u64 = 60_000_000_000;

/// Offset that the bucket has.
struct ResumeState {
    stored: u64,
    stored_ns: u64,
}

/// Publication of the cuts of a partition.
pub(super) struct Publication {
    uploader: Uploader,
    handle: Handle,
    env: Env,
    partition: LogPartition,
    stored_resume: StoredResume,
    resume: Mutex<ResumeState>,
    /// Name of this process in names of blocks.
    writer: Mutex<[u8; 16]>,
    options: OwnerOptions,
    deletions: Arc<OwnerDeletions>,
}

/// Result of an attempt to publish a cut.
enum Outcome {
    /// The catalogue has it.
    Settled,
    /// Number of the deletion for which the cut waits.
    Waits(u64),
}

impl Publication {
    pub(super) fn new(
        bucket: &Arc<Store>,
        env: &Env,
        handle: &Handle,
        stored_resume: StoredResume,
        options: OwnerOptions,
        deletions: Arc<OwnerDeletions>,
    ) -> Publication {
        let partition = stored_resume.partition();
        let mut writer = [0; 16];
        env.rng.fill(&mut writer);
        Publication {
            uploader: Uploader::new(bucket.clone(), env, handle.clone()),
            handle: handle.clone(),
            env: env.clone(),
            partition,
            stored_resume,
            resume: Mutex::new(ResumeState { stored: 0, stored_ns: 0 }),
            writer: Mutex::new(writer),
            options,
            deletions,
        }
    }

    /// Publishes the oldest cut of each store, drops samples that may leave, and stores the offset to resume
    /// from. Returns true if there is more to publish. Blocks the thread.
    ///
    /// # Errors
    /// The last reason for which something was not done; a later call repeats it.
    pub(super) fn step(&self, owned: Owned<'_>, next: Position) -> Result<bool, String> {
        let mut failure = self.deletions.step(owned).err();
        let mut is_any = false;
        let mut waits_for = None;
        for (store, held) in owned.windows.next_to_publish() {
            match self.publish(owned, &store, &held) {
                Ok(Outcome::Settled) => is_any = true,
                Ok(Outcome::Waits(number)) => waits_for = Some(number),
                Err(error) => {
                    let cut = held.cut;
                    failure =
                        Some(format!("publishing the cut at offset {cut} of {store:?} failed: {error}"));
                }
            }
        }
        let dropped = self.drop_settled(owned, next);
        // Published samples hold the offset back until they have left.
        let has_moved = is_any || *dropped.as_ref().unwrap_or(&false);
        let resumed = self.store_resume(owned, has_moved);
        owned.status.note_windows(owned.windows.counts(), waits_for);
        match failure.or(dropped.err()).or(resumed.err()) {
            Some(error) => Err(error),
            None => Ok(is_any),
        }
    }

    /// Publishes a cut of a store, which settles it, unless a deletion holds it back.
    fn publish(&self, owned: Owned<'_>, store: &StoreId, held: &Held) -> Result<Outcome, String> {
        let Some(folder) = owned.tsdb.cuts().folder_of(store) else {
            tracing::info!(
                ?store,
                cut = held.cut,
                "left out the cut windows of a store that no longer exists"
            );
            owned.windows.settle(store, held.cut, 0);
            return Ok(Outcome::Settled);
        };
        let publisher = self.uploader.publisher();
        let request = self.request(&folder, CATALOGUE_TIMEOUT);
        let catalogue = self.wait(catalogue_for_cuts(publisher, &request))?;
        if !may_publish(catalogue.cut_of(self.partition), held.cut) {
            owned.windows.settle(store, held.cut, catalogue.number);
            return Ok(Outcome::Settled);
        }
        if let Some(number) = self.deletions.waits_for(&folder, held.cut).map_err(text)? {
            return Ok(Outcome::Waits(number));
        }
        let mut records = Vec::new();
        for window in &held.taken {
            let ulid = self.block_name(&folder, held, window.range(), &catalogue);
            records.extend(self.upload(owned, &folder, window, ulid)?);
        }
        let cut = self.partition.at(held.cut);
        let request = self.request(&folder, CATALOGUE_TIMEOUT);
        let published = self.wait(publish_cut(publisher, &request, cut, &records))?;
        let catalogue = match published {
            PublishedCut::Live(catalogue) => {
                let blocks = records.len();
                tracing::info!(%folder, cut = held.cut, blocks, snapshot = catalogue.number, "published the blocks of a cut");
                owned.status.note_published(blocks);
                catalogue
            }
            PublishedCut::Superseded(catalogue) => {
                tracing::info!(%folder, cut = held.cut, "another owner has published the windows of a cut");
                catalogue
            }
            PublishedCut::NameTaken => {
                self.env.rng.fill(&mut *self.writer.lock());
                return Err(
                    "its blocks waited for long and are being removed, they get other names".to_owned()
                );
            }
        };
        owned.windows.settle(store, held.cut, catalogue.number);
        Ok(Outcome::Settled)
    }

    /// Writes and uploads the block of a window; `None` if it has no samples.
    fn upload(
        &self,
        owned: Owned<'_>,
        folder: &Folder,
        window: &CutWindow,
        ulid: Ulid,
    ) -> Result<Option<BucketBlock>, String> {
        let cuts = owned.tsdb.cuts();
        let Some(CutBlock { dir, sidecar }) = cuts.write(window, ulid).map_err(text)? else {
            return Ok(None);
        };
        let request = self.request(folder, UPLOAD_TIMEOUT);
        let uploaded = self.wait(self.uploader.upload(&request, &dir, Some(sidecar)));
        if let Err(error) = cuts.remove_files() {
            tracing::warn!(%error, "removing the local files of a block of a cut failed");
        }
        uploaded.map(Some)
    }

    /// Name of the block of a window: later than the blocks of earlier cuts, since the order of names decides
    /// between values of one timestamp.
    fn block_name(&self, folder: &Folder, held: &Held, window: TimeRange, catalogue: &Snapshot) -> Ulid {
        let overlapping = catalogue.blocks.iter().filter(|block| block.range.overlaps(window));
        let sources = overlapping.flat_map(|block| &block.ancestry.sources);
        let newest_ms = sources.map(|source| source.time_ms()).max();
        let time_ms = newest_ms.map_or(held.time_ms, |newest_ms| held.time_ms.max(newest_ms + 1));
        let folder = folder.to_string();
        let writer = *self.writer.lock();
        Ulid::new(time_ms, block_name_hash(self.partition, held.cut, &folder, window.start, &writer))
    }

    /// Drops the samples of cuts whose catalogue every reader has, from head and checkpoint. Returns true if
    /// there were any.
    fn drop_settled(&self, owned: Owned<'_>, next: Position) -> Result<bool, String> {
        let seam_ns = u64::try_from(self.options.seam.as_nanos()).unwrap_or(u64::MAX);
        let (taken, is_any) = owned.windows.take_settled(seam_ns);
        match is_any {
            true => {
                owned.tsdb.cuts().drop_windows(taken).map_err(text)?;
                owned.windows.forget_dropped(next)?;
            }
            false => owned.windows.write_if_old(next)?,
        }
        Ok(is_any)
    }

    /// Stores the offset to resume from, if it has moved.
    fn store_resume(&self, owned: Owned<'_>, has_moved: bool) -> Result<(), String> {
        let offset = owned.windows.resume();
        let mut state = self.resume.lock();
        let now_ns = self.env.clock.mono_ns();
        let is_due =
            has_moved || state.stored_ns == 0 || now_ns.saturating_sub(state.stored_ns) >= RESUME_INTERVAL_NS;
        if !is_due || offset <= state.stored {
            return Ok(());
        }
        let failed = |error| format!("storing the offset to resume from failed: {error}");
        let mut stored = self.stored_resume.store(offset, None).map_err(failed)?;
        if let Stored::OtherTopic(other) = stored
            && self.options.accepts(&(other.offset..other.offset + 1))
        {
            stored = self.stored_resume.store(offset, Some(other)).map_err(failed)?;
        }
        match stored {
            Stored::Done => (state.stored, state.stored_ns) = (offset, now_ns.max(1)),
            Stored::OtherTopic(other) => {
                return Err(format!(
                    "the bucket has the offset {} of {}",
                    other.offset,
                    other.log_partition()
                ));
            }
        }
        Ok(())
    }

    fn wait<T>(&self, work: impl Future<Output = Result<T, BucketError>>) -> Result<T, String> {
        self.handle.block_on(work).map_err(text)
    }

    fn request(&self, folder: &Folder, timeout: Duration) -> RequestContext {
        RequestContext::with_timeout(&*self.env.clock, folder, timeout, Purpose::Upload)
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
