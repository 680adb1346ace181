//! The newest snapshot of a folder: hint, then number by number, else a listing.
//!
//! Invariants: a snapshot counts as the newest one only if it exists after the next number was found absent.
//! As snapshots are removed in ascending order, the next number was then never created. If the newest one is
//! damaged, or one that the hint proves is missing, that is an error: an older one lacks blocks or databases,
//! and answers from it would be short in silence.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Clock, DecodeError};
use chronolith_format::bucket::catalogue::Snapshot;
use chronolith_format::bucket::{Hint, NumberedSnapshot, SnapshotKey, SnapshotNames};

use crate::external_labels::ExternalLabels;
use crate::folder::Folder;
use crate::layout::BucketLayout;
use crate::store::list::{ListOptions, ListedObject};
use crate::store::read::ReadRange;
use crate::{BucketError, RequestContext, Store};

/// Object next to the snapshots with the number of a recent one.
const HINT: &str = "latest";
/// Age below which snapshots are kept: a process that has not polled for this long lists again.
const KEPT_AGE: Duration = Duration::from_secs(60 * 60);
/// Reads of a snapshot that cannot be decoded: bytes may be damaged on their way.
const DECODE_ATTEMPTS: u32 = 3;
/// Snapshots that are read one after the other before a listing is cheaper.
const STEPS_MAX: usize = 16;
/// Listings in which the newest snapshot is removed, or followed by [`STEPS_MAX`] others, before it is read.
const LISTINGS_MAX: usize = 4;

/// Reads the snapshots of one kind in a bucket.
pub struct SnapshotReader<S = Snapshot> {
    pub(super) store: Arc<Store>,
    pub(super) clock: Arc<dyn Clock>,
    /// Age from which a snapshot may be removed. After a quarter of it, a process that has not polled checks
    /// that the snapshot it knows is still there.
    pub(super) kept_age: Duration,
    layout: BucketLayout,
    pub(super) names: SnapshotNames,
    kind: PhantomData<fn() -> S>,
}

/// The newest snapshot of a folder at one moment.
#[derive(Debug, Clone)]
pub struct Latest<S = Snapshot> {
    /// The snapshot.
    pub snapshot: Arc<S>,
    /// Monotonic time at which no newer one was there, ns.
    confirmed_ns: u64,
}

/// Newest snapshot of a folder.
pub(super) struct Found<S> {
    /// Number of the newest one; 0 if there is none.
    pub(super) newest_number: u64,
    /// The newest one; `None` if it is damaged, or if there is none.
    pub(super) snapshot: Option<Arc<S>>,
}

impl<S: NumberedSnapshot> Found<S> {
    /// Returns the newest snapshot of `folder`; `None` if there is none.
    ///
    /// # Errors
    /// [`BucketError::Corrupt`] if it is damaged: an older one lacks blocks or databases.
    pub(super) fn newest(
        &self,
        reader: &SnapshotReader<S>,
        folder: &Folder,
    ) -> Result<Option<Arc<S>>, BucketError> {
        match &self.snapshot {
            None if self.newest_number > 0 => {
                Err(reader.unreadable(folder, self.newest_number, "damage, or a later version"))
            }
            snapshot => Ok(snapshot.clone()),
        }
    }
}

/// Object `latest` of a folder.
pub(super) enum StoredHint {
    Absent,
    Damaged,
    Read(Hint),
}

/// Result of reading one snapshot.
pub(super) enum Loaded<S> {
    Decoded(Arc<S>),
    /// The snapshot is there and cannot be used.
    Damaged,
    Absent,
}

impl<S> Loaded<S> {
    pub(super) fn into_snapshot(self) -> Option<Arc<S>> {
        match self {
            Loaded::Decoded(snapshot) => Some(snapshot),
            Loaded::Damaged | Loaded::Absent => None,
        }
    }
}

impl SnapshotReader {
    /// A reader of the block catalogues in `store`. Sends no request.
    #[must_use]
    pub fn new(store: Arc<Store>, clock: Arc<dyn Clock>) -> SnapshotReader {
        SnapshotReader::of_kind(store, clock)
    }

    /// A reader of the block catalogue of the writer with these external labels. Sends no request.
    pub(crate) fn of_writer(&self, writer: ExternalLabels) -> SnapshotReader {
        let layout = BucketLayout::Thanos { writer: Some(writer) };
        SnapshotReader { layout, ..SnapshotReader::new(self.store.clone(), self.clock.clone()) }
    }
}

impl<S: NumberedSnapshot> SnapshotReader<S> {
    /// A reader of the snapshots of one kind in `store`. Sends no request.
    #[must_use]
    pub fn of_kind(store: Arc<Store>, clock: Arc<dyn Clock>) -> SnapshotReader<S> {
        SnapshotReader::of_series(store, clock, S::names())
    }

    /// A reader of the snapshots of one kind with these names. Sends no request.
    #[must_use]
    pub fn of_series(store: Arc<Store>, clock: Arc<dyn Clock>, names: SnapshotNames) -> SnapshotReader<S> {
        let layout = store.layout().clone();
        SnapshotReader { store, clock, kept_age: KEPT_AGE, layout, names, kind: PhantomData }
    }

    /// Returns the newest snapshot in the folder of `request`; `None` if there is none.
    ///
    /// Cost: hint, the absent snapshot after the newest one, the newest one with the head of the absent one;
    /// without a hint, a listing.
    ///
    /// # Errors
    /// [`BucketError::Corrupt`] if the newest one is damaged or missing; as other requests.
    pub async fn read_latest(&self, request: &RequestContext) -> Result<Option<Latest<S>>, BucketError> {
        let confirmed_ns = self.clock.mono_ns();
        let newest = self.find(request).await?.newest(self, &request.folder)?;
        Ok(newest.map(|snapshot| Latest { snapshot, confirmed_ns }))
    }

    /// As [`SnapshotReader::read_latest`], from a snapshot that is known.
    ///
    /// Cost: one request, which finds nothing, if there is no newer snapshot.
    ///
    /// # Errors
    /// As other requests.
    pub async fn poll(
        &self,
        request: &RequestContext,
        known: &Latest<S>,
    ) -> Result<Option<Latest<S>>, BucketError> {
        let start_ns = self.clock.mono_ns();
        let known_age = Duration::from_nanos(start_ns.saturating_sub(known.confirmed_ns));
        let newest_number = known.snapshot.stamp().number;
        let mut found = Found { newest_number, snapshot: Some(known.snapshot.clone()) };
        let is_end = self.step(request, &mut found).await?;
        let is_confirmed =
            known_age < self.kept_age / 4 || self.is_newest(request, found.newest_number).await?;
        if is_end && is_confirmed {
            let newest = found.newest(self, &request.folder)?;
            return Ok(newest.map(|snapshot| Latest { snapshot, confirmed_ns: start_ns }));
        }
        self.read_latest(request).await
    }

    /// The error for a newest snapshot that cannot be used.
    fn unreadable(&self, folder: &Folder, number: u64, found: &str) -> BucketError {
        BucketError::Corrupt {
            key: self.key(folder, number),
            what: S::WHAT,
            expected: "the newest one, which this version can read".to_owned(),
            found: found.to_owned(),
        }
    }

    pub(super) async fn find(&self, request: &RequestContext) -> Result<Found<S>, BucketError> {
        let hint = self.hint(request).await?;
        if let StoredHint::Read(Hint::Checked(number) | Hint::Unchecked(number)) = hint
            && let Some(found) = self.newest_from(request, number).await?
        {
            return Ok(found);
        }
        let found = self.find_listed(request).await?;
        // Writers create the snapshot before they name it in the hint, and never remove the newest one.
        let proven = match hint {
            StoredHint::Absent => 0,
            StoredHint::Damaged => 1,
            StoredHint::Read(Hint::Unchecked(number)) => number.min(1),
            StoredHint::Read(Hint::Checked(number)) => number,
        };
        if found.newest_number < proven {
            return Err(self.unreadable(&request.folder, proven, "no such object"));
        }
        Ok(found)
    }

    /// Newest snapshot, from one that was just read.
    pub(super) async fn newest_after(
        &self,
        request: &RequestContext,
        mut found: Found<S>,
    ) -> Result<Found<S>, BucketError> {
        if self.step(request, &mut found).await? { Ok(found) } else { self.find(request).await }
    }

    async fn find_listed(&self, request: &RequestContext) -> Result<Found<S>, BucketError> {
        for _ in 0..LISTINGS_MAX {
            let mut listed = self.listed(request).await?;
            if listed.is_empty() {
                // A damaged listing must not look like a folder without snapshots.
                listed = self.listed_by_directory(request).await?;
            }
            let Some((number, _)) = listed.last() else {
                return Ok(Found { newest_number: 0, snapshot: None });
            };
            if let Some(found) = self.newest_from(request, *number).await? {
                return Ok(found);
            }
        }
        Err(BucketError::Unavailable {
            what: format!("reading the newest {} of {}", S::WHAT, request.folder),
            attempts: LISTINGS_MAX as u32,
            last: "it changes faster than it can be read".to_owned(),
        })
    }

    /// Newest snapshot, from snapshot `number` on; `None` if that is absent, or too many are later.
    async fn newest_from(
        &self,
        request: &RequestContext,
        number: u64,
    ) -> Result<Option<Found<S>>, BucketError> {
        let Some(next) = number.checked_add(1) else { return Ok(None) };
        // The next one first: that the other one exists afterwards proves that it is the newest.
        match self.load(request, next).await? {
            Loaded::Absent => {
                // A cache on the way may answer reads as of an earlier time, at which it was absent.
                let is_there = self.exists(request, next);
                let (loaded, is_there) =
                    futures_util::future::try_join(self.load(request, number), is_there).await?;
                Ok(match loaded {
                    _ if is_there => None,
                    Loaded::Absent => None,
                    loaded => Some(Found { newest_number: number, snapshot: loaded.into_snapshot() }),
                })
            }
            loaded => {
                let mut found = Found { newest_number: next, snapshot: loaded.into_snapshot() };
                let is_end = self.step(request, &mut found).await?;
                let is_newest = is_end && self.is_newest(request, found.newest_number).await?;
                Ok(is_newest.then_some(found))
            }
        }
    }

    /// Reads the snapshots after `found`. Returns true if there are no more.
    async fn step(&self, request: &RequestContext, found: &mut Found<S>) -> Result<bool, BucketError> {
        for _ in 0..STEPS_MAX {
            let Some(number) = found.newest_number.checked_add(1) else { return Ok(true) };
            match self.load(request, number).await? {
                Loaded::Absent => return Ok(true),
                loaded => *found = Found { newest_number: number, snapshot: loaded.into_snapshot() },
            }
        }
        Ok(false)
    }

    pub(super) async fn load(&self, request: &RequestContext, number: u64) -> Result<Loaded<S>, BucketError> {
        let key = self.key(&request.folder, number);
        for attempt in 1.. {
            let damage = match self.store.read(request, &key, ReadRange::Whole, None).await {
                Ok(read) => match self.decode(request, &read.bytes, number) {
                    Ok(snapshot) => return Ok(Loaded::Decoded(Arc::new(snapshot))),
                    Err(error) => error.to_string(),
                },
                Err(BucketError::NotFound { .. }) => return Ok(Loaded::Absent),
                Err(error @ BucketError::Corrupt { .. }) => error.to_string(),
                Err(error) => return Err(error),
            };
            if attempt == DECODE_ATTEMPTS {
                tracing::warn!(%key, %damage, "snapshot is damaged");
                break;
            }
        }
        Ok(Loaded::Damaged)
    }

    /// Returns true if snapshot `number` is there and the next one is not.
    async fn is_newest(&self, request: &RequestContext, number: u64) -> Result<bool, BucketError> {
        let next = number.saturating_add(1);
        let exist = futures_util::future::try_join(self.exists(request, number), self.exists(request, next));
        Ok(exist.await? == (true, false))
    }

    async fn exists(&self, request: &RequestContext, number: u64) -> Result<bool, BucketError> {
        match self.store.head(request, &self.key(&request.folder, number)).await {
            Ok(_) => Ok(true),
            Err(BucketError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The hint, whose number may be out of date.
    pub(super) async fn hint(&self, request: &RequestContext) -> Result<StoredHint, BucketError> {
        let object = self.hint_key(&request.folder);
        for _ in 0..DECODE_ATTEMPTS {
            match self.store.read(request, &object, ReadRange::Whole, None).await {
                Ok(read) => {
                    if let Some(hint) = self.names.decode_hint(&read.bytes) {
                        return Ok(StoredHint::Read(hint));
                    }
                }
                Err(BucketError::NotFound { .. }) => return Ok(StoredHint::Absent),
                Err(BucketError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        tracing::warn!(key = object, "the number of the newest snapshot is damaged, listing the snapshots");
        Ok(StoredHint::Damaged)
    }

    /// Decodes snapshot `number` of the folder of `request`.
    pub(super) fn decode(
        &self,
        request: &RequestContext,
        bytes: &[u8],
        number: u64,
    ) -> Result<S, DecodeError> {
        S::decode_object(bytes, SnapshotKey { folder: &self.folder_key(&request.folder), number })
    }

    /// Key of a folder, to which its snapshots are bound.
    pub(super) fn folder_key(&self, folder: &Folder) -> String {
        self.layout.folder_key(folder)
    }

    /// Key of a snapshot.
    pub(super) fn key(&self, folder: &Folder, number: u64) -> String {
        format!("{}/{}", self.folder_key(folder), self.names.name_of(number))
    }

    /// Key of the hint.
    pub(super) fn hint_key(&self, folder: &Folder) -> String {
        format!("{}/{}{HINT}", self.layout.folder_key(folder), self.names.folder())
    }

    /// As [`SnapshotReader::listed`], by a listing with a delimiter.
    pub(super) async fn listed_by_directory(
        &self,
        request: &RequestContext,
    ) -> Result<Vec<(u64, ListedObject)>, BucketError> {
        let folder = format!("{}/", self.folder_key(&request.folder));
        let prefix = format!("{folder}{}", self.names.folder().trim_end_matches('/'));
        let options = ListOptions { prefix, is_delimited: true, ..ListOptions::default() };
        let page = self.store.list(request, &options).await?;
        let numbered = page.objects.into_iter().filter_map(|object| {
            let number = self.names.number_in(object.key.strip_prefix(&folder)?)?;
            Some((number, object))
        });
        Ok(numbered.collect())
    }

    /// All snapshots, ascending by number.
    pub(crate) async fn listed(
        &self,
        request: &RequestContext,
    ) -> Result<Vec<(u64, ListedObject)>, BucketError> {
        let folder = format!("{}/", self.layout.folder_key(&request.folder));
        let prefix = format!("{folder}{}", self.names.folder().trim_end_matches('/'));
        let mut options = ListOptions { prefix, ..ListOptions::default() };
        let mut listed = Vec::new();
        loop {
            let page = self.store.list(request, &options).await?;
            listed.extend(page.objects.into_iter().filter_map(|object| {
                let number = self.names.number_in(object.key.strip_prefix(&folder)?)?;
                Some((number, object))
            }));
            match page.next_after {
                Some(after) => options.after = Some(after),
                None => return Ok(listed),
            }
        }
    }
}
