//! Deletions at an owner: the decision about their records, cuts that wait for one, and rounds that end what
//! a gateway has left.
//!
//! Invariants, by the rules of `model::cluster_deletion`: a record is applied if the mark of the partition
//! has its offset, with no cut of the store in the head; a cut after the mark of an open deletion is not
//! published.
//! Not here: the objects (`crate::deletions`), application of the record (`tsdb`), publication (`publish`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Env;
use chronolith_bucket::{BucketError, Folder, Store};
use chronolith_format::record::encode_event;
use chronolith_model::StoreId;
use chronolith_model::cluster_deletion::{is_applied, may_publish_cut};
use chronolith_model::log_position::LogPartition;
use chronolith_replicated_log::ReplicatedLog;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::owned::Owned;
use super::resume::stored_resume;
use super::status::DeletionStatus;
use super::step_error::{StepError, retry};
use super::windows::OwnerWindows;
use crate::deletions::{ClusterDeletion, DeletionState, Deletions, DeletionsSnapshot, Settled, record_of};
use crate::folder::store_folder;
use crate::options::READY_LAG;

/// Time between two reads of the list while no deletion is open, and while one is.
const POLL_NS: u64 = 10_000_000_000;
const POLL_OPEN_NS: u64 = 1_000_000_000;
/// Time after which an owner appends the record of a deletion again that its partition has not got.
const LOST_AFTER_NS: u64 = 30_000_000_000;
/// Age from which the owner of the first partition of a deletion ends it; each further one waits as long
/// again.
const SETTLE_AFTER_NS: u64 = 15_000_000_000;
/// Time between two attempts to end a deletion.
const SETTLE_PAUSE_NS: u64 = 5_000_000_000;
/// Time between two looks for deletions that may leave the list.
const FORGET_PAUSE: Duration = Duration::from_secs(3600);

/// Time for the first read of the list.
const START_TIMEOUT: Duration = Duration::from_secs(3);

/// Decision about a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The record is the one of the mark.
    Apply,
    /// The mark has another offset, or the deletion has been done and forgotten.
    Repeat,
    /// No deletion has the number; the text says why.
    Unknown(String),
}

/// An open deletion as this process has seen it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    since_ns: u64,
    /// Time at which the record was appended again.
    sent_ns: Option<u64>,
    settled_ns: Option<u64>,
}

/// State between rounds.
#[derive(Default)]
struct Rounds {
    read_ns: Option<u64>,
    forgot_ns: u64,
    has_open: bool,
    /// Open deletions, by number.
    seen: BTreeMap<u64, Seen>,
}

/// Deletions of a partition.
pub(super) struct OwnerDeletions {
    objects: Deletions,
    bucket: Arc<Store>,
    log: Arc<dyn ReplicatedLog>,
    partition: LogPartition,
    env: Env,
    handle: Handle,
    rounds: Mutex<Rounds>,
}

impl OwnerDeletions {
    /// Requests run on the runtime of `handle`. Sends none.
    pub(super) fn new(
        bucket: &Arc<Store>,
        log: &Arc<dyn ReplicatedLog>,
        env: &Env,
        handle: &Handle,
        partition: LogPartition,
    ) -> OwnerDeletions {
        OwnerDeletions {
            objects: Deletions::new(bucket.clone(), env, handle.clone()),
            bucket: bucket.clone(),
            log: log.clone(),
            partition,
            env: env.clone(),
            handle: handle.clone(),
            rounds: Mutex::default(),
        }
    }

    /// Reads the list at the start of an owner, so that readers need the catalogues that they needed before
    /// it. Without an answer of the bucket the first round does so. Blocks the thread, a few seconds at most.
    pub(super) fn start(&self, owned: Owned<'_>) {
        match self.objects.read_within(START_TIMEOUT) {
            Ok(list) => self.require_catalogues(owned, &list),
            Err(error) => {
                tracing::warn!(partition = %self.partition, %error, "reading the list of deletions failed, it is tried again");
            }
        }
    }

    /// Decides about the record of deletion `number` at `offset`; creates the mark of the partition if there
    /// is none. `store` is the store of the record, if it is known here. Blocks the thread.
    ///
    /// # Errors
    /// [`StepError::Wait`] while the head has samples of cuts of the store, which leave it soon, and
    /// [`StepError::Retry`] if the bucket does not answer.
    pub(super) fn verdict(
        &self,
        number: Option<u64>,
        offset: u64,
        windows: &OwnerWindows,
        store: Option<&StoreId>,
    ) -> Result<Verdict, StepError> {
        let Some(number) = number else {
            return Ok(Verdict::Unknown("a deletion without a number, which no gateway writes".to_owned()));
        };
        self.rounds.lock().has_open = true;
        let list = self.objects.read().map_err(retry)?;
        let Some(deletion) = list.find(number) else {
            let last = list.last_number;
            return Ok(match number <= last {
                true => Verdict::Repeat,
                false => {
                    Verdict::Unknown(format!("deletion {number}, and the bucket has numbers up to {last}"))
                }
            });
        };
        if !deletion.has(self.partition) {
            return Ok(Verdict::Unknown(format!("deletion {number}, which has not {}", self.partition)));
        }
        if let (Some(store), DeletionState::Done { catalogue, .. }) = (store, &deletion.state) {
            windows.require_catalogue(store, *catalogue);
        }
        let marked = match deletion.mark_when_done(self.partition) {
            Some(marked) => Some(marked),
            None => self.objects.mark_of(number, self.partition).map_err(retry)?,
        };
        if marked.is_some_and(|marked| !is_applied(marked, offset)) {
            return Ok(Verdict::Repeat);
        }
        if let Some(store) = store
            && let Some(cut) = windows.oldest_held(store)
        {
            // The deletion would change samples that were cut, in some owners and not in others.
            windows.leave_early(store);
            return Err(StepError::Wait(format!(
                "deletion {number} at offset {offset} waits until the samples of the cut at {cut} have left"
            )));
        }
        match marked {
            Some(_) => Ok(Verdict::Apply),
            None => self.create_mark(number, offset).map_err(retry),
        }
    }

    fn create_mark(&self, number: u64, offset: u64) -> Result<Verdict, BucketError> {
        let marked = self.objects.mark(number, self.partition.at(offset))?;
        // The mark of a deletion that was done and forgotten meanwhile is none.
        let list = self.objects.read()?;
        let is_mark = list.find(number).is_some_and(|deletion| {
            deletion.mark_when_done(self.partition).is_none_or(|of_list| of_list == offset)
        });
        Ok(if is_mark && is_applied(marked, offset) { Verdict::Apply } else { Verdict::Repeat })
    }

    /// Returns the number of the open deletion for which the cut at `cut` of the store in `folder` waits.
    /// Blocks the thread.
    ///
    /// # Errors
    /// As other requests: the cut waits.
    pub(super) fn waits_for(&self, folder: &Folder, cut: u64) -> Result<Option<u64>, BucketError> {
        let list = self.objects.read()?;
        let of_store = |one: &&ClusterDeletion| {
            one.topic == self.partition.topic && store_folder(&one.tenant, one.store) == *folder
        };
        for deletion in list.open().filter(of_store) {
            // A partition that was added meanwhile has samples after the deletion alone.
            let marked = match deletion.has(self.partition) {
                true => self.objects.mark_of(deletion.number, self.partition)?,
                false => Some(0),
            };
            if !may_publish_cut(marked, cut) {
                return Ok(Some(deletion.number));
            }
        }
        Ok(None)
    }

    /// Follows the list, and ends deletions that their gateway has left. To be called again and again by the
    /// thread that publishes; blocks it.
    ///
    /// # Errors
    /// The reason why the list was not read, or a deletion not ended; a later call repeats it.
    pub(super) fn step(&self, owned: Owned<'_>) -> Result<(), String> {
        let now_ns = self.env.clock.mono_ns();
        let mut rounds = self.rounds.lock();
        let pause_ns = if rounds.has_open { POLL_OPEN_NS } else { POLL_NS };
        if rounds.read_ns.is_some_and(|read_ns| now_ns.saturating_sub(read_ns) < pause_ns) {
            return Ok(());
        }
        drop(rounds);
        let list = self.objects.read().map_err(|error| format!("reading the list of deletions: {error}"))?;
        self.require_catalogues(owned, &list);
        rounds = self.rounds.lock();
        rounds.read_ns = Some(now_ns);
        rounds.has_open = list.open().next().is_some();
        rounds.seen.retain(|number, _| list.find(*number).is_some_and(ClusterDeletion::is_open));
        for deletion in list.open() {
            let new = Seen { since_ns: now_ns, sent_ns: None, settled_ns: None };
            rounds.seen.entry(deletion.number).or_insert(new);
        }
        drop(rounds);
        owned.status.note_deletions(DeletionStatus::of(&list));
        let mut failure = None;
        for deletion in list.open().filter(|one| one.has(self.partition)) {
            if let Err(error) = self.advance(owned, deletion, now_ns) {
                failure = Some(format!("deletion {} goes on later: {error}", deletion.number));
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None => self.forget_if_due(&list, now_ns).map_err(|error| error.to_string()),
        }
    }

    /// Makes readers refresh catalogues that have no tombstones of deletions that are done.
    fn require_catalogues(&self, owned: Owned<'_>, list: &DeletionsSnapshot) {
        for deletion in list.deletions.iter().filter(|one| one.has(self.partition)) {
            if let DeletionState::Done { catalogue, .. } = deletion.state
                && let Some(store) = store_of(owned, deletion)
            {
                owned.windows.require_catalogue(&store, catalogue);
            }
        }
    }

    /// Appends the record of an open deletion again if it was lost, and ends the deletion if it is old.
    fn advance(&self, owned: Owned<'_>, deletion: &ClusterDeletion, now_ns: u64) -> Result<(), String> {
        let number = deletion.number;
        let Some(seen) = self.rounds.lock().seen.get(&number).copied() else { return Ok(()) };
        let age_ns = now_ns.saturating_sub(seen.since_ns);
        let is_near_end = owned.status.is_near_end(READY_LAG);
        let is_lost = age_ns >= LOST_AFTER_NS
            && seen.sent_ns.is_none_or(|sent_ns| now_ns.saturating_sub(sent_ns) >= LOST_AFTER_NS);
        if is_lost && is_near_end {
            self.note_seen(number, |seen| seen.sent_ns = Some(now_ns));
            if self.objects.mark_of(number, self.partition).map_err(text)?.is_none() {
                self.send(deletion, owned.status.log_time_ms());
            }
        }
        let rank = deletion.partitions.iter().position(|number| *number == self.partition.number);
        let wait_ns = SETTLE_AFTER_NS.saturating_mul(rank.unwrap_or(0) as u64 + 1);
        let is_due = seen.settled_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= SETTLE_PAUSE_NS);
        if age_ns < wait_ns || !is_due {
            return Ok(());
        }
        self.note_seen(number, |seen| seen.settled_ns = Some(now_ns));
        if let Settled::Done { catalogue, series_count, block_count } =
            self.objects.settle(deletion).map_err(text)?
        {
            tracing::info!(
                number,
                series_count,
                block_count,
                catalogue,
                "ended a deletion that its gateway has left"
            );
            if let Some(store) = store_of(owned, deletion) {
                owned.windows.require_catalogue(&store, catalogue);
            }
        }
        Ok(())
    }

    fn note_seen(&self, number: u64, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.rounds.lock().seen.get_mut(&number) {
            change(seen);
        }
    }

    fn send(&self, deletion: &ClusterDeletion, log_ms: Option<i64>) {
        let arrival_ms = log_ms.unwrap_or(deletion.created_ms);
        let Some(record) = record_of(deletion, arrival_ms) else { return };
        let mut bytes = Vec::new();
        let number = deletion.number;
        let encoded = encode_event(&record, &mut bytes).map_err(text);
        // No caller waits for the acknowledgement: the record is seen when it is read.
        let sent = encoded.and_then(|()| {
            self.log.append(self.partition.number, Bytes::from(bytes)).map(drop).map_err(text)
        });
        match sent {
            Ok(()) => {
                tracing::info!(number, partition = %self.partition, "appended the record of a deletion that its gateway has left")
            }
            Err(error) => {
                tracing::warn!(number, partition = %self.partition, error, "appending the record of a deletion failed, it is tried again");
            }
        }
    }

    fn forget_if_due(&self, list: &DeletionsSnapshot, now_ns: u64) -> Result<(), BucketError> {
        let pause_ns = u64::try_from(FORGET_PAUSE.as_nanos()).unwrap_or(u64::MAX);
        let mut rounds = self.rounds.lock();
        if list.deletions.is_empty() || now_ns.saturating_sub(rounds.forgot_ns) < pause_ns {
            return Ok(());
        }
        rounds.forgot_ns = now_ns;
        drop(rounds);
        let resume_of = |number| stored_resume(&self.bucket, &self.env, &self.handle, number);
        let count = self.objects.forget_old(self.partition.topic, &resume_of)?;
        if count > 0 {
            tracing::info!(count, "removed deletions from the list that were done long ago");
        }
        Ok(())
    }
}

fn store_of(owned: Owned<'_>, deletion: &ClusterDeletion) -> Option<StoreId> {
    owned.tsdb.cuts().store_of(&deletion.tenant, deletion.store)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
