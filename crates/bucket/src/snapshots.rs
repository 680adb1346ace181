//! Numbered snapshots: the catalogue of blocks of a folder, and the databases of a tenant. Each is created on
//! top of the newest one.
//!
//! Invariants: a snapshot is created by create-if-absent with the number after the newest one and never
//! changed, so two writers cannot overwrite each other's update; old snapshots are removed in ascending
//! order, so the numbers that remain have no gap and the newest one is followed by an absent one.
//! Not here: bytes of a snapshot (`format::bucket`), which blocks to record (`upload`).

mod cleanup;
mod reader;
mod state;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Env;
use chronolith_format::bucket::catalogue::Snapshot;
use chronolith_format::bucket::{NumberedSnapshot, SnapshotNames, Stamp};

pub use self::reader::{Latest, SnapshotReader};
pub use self::state::SnapshotState;

use self::reader::Found;
use crate::store::CreateOutcome;
use crate::{BucketError, RequestContext, Store};

/// Longest time of one update. Far below the age at which snapshots are removed, so that the number after
/// the newest snapshot cannot have been used and removed meanwhile.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Time for writing the hint.
const HINT_TIMEOUT: Duration = Duration::from_secs(2);
/// Lost snapshots after which as many are created.
const LOST_COUNT_MAX: u64 = 64;
/// Bounds of the random pause after another writer was first.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Updates the snapshots of one kind in a bucket.
pub struct Snapshots<S = Snapshot> {
    reader: SnapshotReader<S>,
    env: Env,
}

/// Decision of a change on the snapshot it was applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The changed snapshot becomes the next one.
    Write,
    /// Nothing is written.
    Keep,
}

/// Result of an update.
#[derive(Debug, Clone)]
pub struct Updated<S = Snapshot> {
    /// Snapshot after the update; `None` if there is none and nothing was to be changed.
    pub snapshot: Option<Arc<S>>,
    /// True if this update created it.
    pub is_written: bool,
}

impl Snapshots {
    /// Updates of the block catalogues in `store`. Sends no request.
    #[must_use]
    pub fn new(store: Arc<Store>, env: &Env) -> Snapshots {
        Snapshots::of_kind(store, env)
    }
}

impl<S: NumberedSnapshot> Snapshots<S> {
    /// Updates of the snapshots of one kind in `store`. Sends no request.
    #[must_use]
    pub fn of_kind(store: Arc<Store>, env: &Env) -> Snapshots<S> {
        Snapshots { reader: SnapshotReader::of_kind(store, env.clock.clone()), env: env.clone() }
    }

    /// As [`Snapshots::of_kind`], of the series with these names. Sends no request.
    #[must_use]
    pub fn of_series(store: Arc<Store>, env: &Env, names: SnapshotNames) -> Snapshots<S> {
        let reader = SnapshotReader::of_series(store, env.clock.clone(), names);
        Snapshots { reader, env: env.clone() }
    }

    /// The newest snapshots.
    #[must_use]
    pub fn reader(&self) -> &SnapshotReader<S> {
        &self.reader
    }

    /// Applies `change` to the newest snapshot, an empty one if the folder of `request` has none, and creates
    /// the next one. If another writer was first, `change` is applied again to what that one wrote.
    ///
    /// Cost: [`SnapshotReader::read_latest`], creation, hint: six requests; at every 16th number
    /// also the removal of old ones.
    ///
    /// # Errors
    /// [`BucketError::Corrupt`] if the newest snapshot is damaged or of a later version, as an update of an
    /// older one would lose blocks. After [`BucketError::Unavailable`] and [`BucketError::Deadline`] the
    /// update may be written: repeat it with a `change` that keeps a snapshot in which it is done.
    pub async fn update(
        &self,
        request: &RequestContext,
        mut change: impl FnMut(&mut S) -> Change,
    ) -> Result<Updated<S>, BucketError> {
        let request = &self.bounded(request, UPDATE_TIMEOUT);
        let mut found = self.reader.find(request).await?;
        let mut lost_races = 0;
        loop {
            let base = found.newest(&self.reader, &request.folder)?;
            let mut next = base.as_deref().cloned().unwrap_or_else(S::empty);
            if change(&mut next) == Change::Keep {
                return Ok(Updated { snapshot: base, is_written: false });
            }
            let number = found.newest_number + 1;
            let (body, snapshot) = self.encoded(request, next, number)?;
            let other = match self.create(request, number, body).await? {
                CreateOutcome::Created => return Ok(self.written(request, snapshot).await),
                CreateOutcome::Exists(other) => match self.reader.decode(request, &other.bytes, number) {
                    Ok(other) => Some(Arc::new(other)),
                    Err(_) => self.reader.load(request, number).await?.into_snapshot(),
                },
            };
            // The answer to the creation was lost, and the object damaged on its way when it was read back.
            if other.as_ref().is_some_and(|other| other.stamp().writer == snapshot.stamp().writer) {
                return Ok(self.written(request, snapshot).await);
            }
            found = Found { newest_number: number, snapshot: other };
            lost_races += 1;
            self.pause(request, lost_races).await?;
            found = self.reader.newest_after(request, found).await?;
        }
    }

    /// Creates the snapshots that follow the ones of `state`, all with the content of `next`, and names the
    /// last one in the hint. Returns the last one.
    ///
    /// # Errors
    /// [`BucketError::Refused`] if another process created one meanwhile, or too many are lost; as
    /// [`Snapshots::update`].
    pub async fn continue_after(
        &self,
        request: &RequestContext,
        state: &SnapshotState<S>,
        next: &S,
    ) -> Result<Updated<S>, BucketError> {
        let numbers = state.next_numbers();
        let refused = |detail: String| {
            let what = format!("repair of {}", state.newest_key);
            BucketError::Refused { what, detail }
        };
        if numbers.end() - numbers.start() >= LOST_COUNT_MAX {
            let lost = numbers.end() - numbers.start();
            return Err(refused(format!(
                "{lost} snapshots before it are lost, expected at most {LOST_COUNT_MAX}"
            )));
        }
        let mut written = None;
        for number in numbers {
            let (body, snapshot) = self.encoded(request, next.clone(), number)?;
            match self.create(request, number, body).await? {
                CreateOutcome::Created => written = Some(snapshot),
                CreateOutcome::Exists(_) => {
                    let detail =
                        format!("another process has created snapshot {number}; run the command again");
                    return Err(refused(detail));
                }
            }
        }
        match written {
            Some(snapshot) => Ok(self.written(request, snapshot).await),
            None => Ok(Updated { snapshot: None, is_written: false }),
        }
    }

    /// Names snapshot `number` in the hint.
    ///
    /// # Errors
    /// As other requests.
    pub async fn repair_hint(&self, request: &RequestContext, number: u64) -> Result<(), BucketError> {
        let body = self.reader.names.encode_hint(number).into();
        self.reader.store.put(request, &self.reader.hint_key(&request.folder), body).await
    }

    /// Ends an update that created `snapshot`.
    async fn written(&self, request: &RequestContext, snapshot: S) -> Updated<S> {
        let number = snapshot.stamp().number;
        self.write_hint(request, number).await;
        self.reader.remove_old(request, number).await;
        Updated { snapshot: Some(Arc::new(snapshot)), is_written: true }
    }

    /// The request, ending after `timeout` at the latest.
    fn bounded(&self, request: &RequestContext, timeout: Duration) -> RequestContext {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let latest_ns = self.env.clock.mono_ns().saturating_add(timeout_ns);
        RequestContext { deadline_ns: request.deadline_ns.min(latest_ns), ..request.clone() }
    }

    /// Body of the next snapshot, and what it decodes to.
    fn encoded(&self, request: &RequestContext, mut next: S, number: u64) -> Result<(Bytes, S), BucketError> {
        let mut stamp = Stamp { number, ..next.stamp() };
        self.env.rng.fill(&mut stamp.writer);
        stamp.created_ms = stamp.created_ms.max(self.env.clock.now_ms());
        next.set_stamp(stamp);
        let refused = |detail: String| {
            let what = format!("update of {}", self.reader.key(&request.folder, number));
            BucketError::Refused { what, detail }
        };
        let mut body = Vec::new();
        let folder = self.reader.folder_key(&request.folder);
        next.encode_object(&folder, &mut body).map_err(|error| refused(error.to_string()))?;
        // Readers have limits that a writer could exceed: then no process could read the tenant any more.
        let decoded = self.reader.decode(request, &body, number);
        let decoded = decoded.map_err(|error| refused(error.to_string()))?;
        Ok((body.into(), decoded))
    }

    /// Creates snapshot `number`, until it is known who created it or the deadline passes.
    async fn create(
        &self,
        request: &RequestContext,
        number: u64,
        body: Bytes,
    ) -> Result<CreateOutcome, BucketError> {
        let key = self.reader.key(&request.folder, number);
        let mut attempts = 0;
        loop {
            match self.reader.store.create(request, &key, body.clone()).await {
                Err(BucketError::Unavailable { .. }) => {
                    attempts += 1;
                    self.pause(request, attempts).await?;
                }
                settled => return settled,
            }
        }
    }

    /// Waits a random time that grows with the number of attempts.
    async fn pause(&self, request: &RequestContext, attempts: u32) -> Result<(), BucketError> {
        let limit = PAUSE_FIRST.saturating_mul(1 << attempts.min(16)).min(PAUSE_MAX);
        let limit_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        let pause = Duration::from_micros(self.env.rng.below(limit_us.max(1)));
        if request.remaining(&*self.env.clock) <= pause {
            let what = format!("update of the {} of {}", S::WHAT, request.folder);
            return Err(BucketError::Deadline { what });
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Records the number of the newest snapshot. A failure costs readers a listing.
    async fn write_hint(&self, request: &RequestContext, number: u64) {
        let object = self.reader.hint_key(&request.folder);
        let body = Bytes::from(self.reader.names.encode_hint(number));
        let request = self.bounded(request, HINT_TIMEOUT);
        if let Err(error) = self.reader.store.put(&request, &object, body).await {
            tracing::debug!(%error, "writing the number of the newest snapshot failed");
        }
    }
}

#[cfg(test)]
impl Snapshots {
    /// Removes snapshots from this age on.
    pub(crate) fn keep_for(&mut self, kept_age: Duration) {
        self.reader.kept_age = kept_age;
    }
}
