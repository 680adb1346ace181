//! Database catalogue: the databases of InfluxDB clients in memory, and their file in two copies.
//!
//! Invariants: a change is durable in both copies before [`DatabaseStore::change`] returns, and visible after
//! that; one that failed is in neither copy, or undone; readers see whole versions; one change is made at a
//! time.
//! Not here: the bytes of the file (`format::databases`), rules of changes (`model::databases`), removal of
//! the data of dropped stores (`maintenance`).

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_base::disk::ReplaceError;
use chronolith_base::hash::{FixedState, HashSet};
use chronolith_bucket::Folder;
use chronolith_format::bucket::databases::DatabasesSnapshot;
use chronolith_format::databases::CatalogFile;
use chronolith_format::record::RecordStore;
use chronolith_head::StoreOwners;
use chronolith_model::databases::{
    Adopted, BucketDatabases, BucketStoreId, CatalogChange, CatalogError, DatabaseCatalog, Followed,
};
use chronolith_model::{BlockEncoding, DatabaseLimits, DuplicatePolicy, StoreId, TenantId, TenantLimits};
use parking_lot::{Mutex, RwLock};

use crate::options::OpenError;

/// Names of the two copies in the data directory.
pub(crate) const FILE_NAMES: [&str; 2] = ["databases", "databases.mirror"];

/// Dropped stores of a tenant whose ids are remembered; of more, the ones in the newest copy of the bucket.
const DROPPED_IDS_MAX: usize = 100_000;

/// Bytes of labels of a series: the protocol limits the length of keys.
const LABEL_BYTES_MAX: usize = 64 << 10;
/// Labels of a series.
const LABEL_COUNT_MAX: usize = 1024;

/// Returns the limits that all stores of databases and of Graphite clients have, from the limits of their
/// owner; series, shard groups and retention depend on the policy.
#[must_use]
pub fn limits_of_policies(of_owner: TenantLimits) -> TenantLimits {
    TenantLimits {
        label_count_max: LABEL_COUNT_MAX,
        label_name_bytes_max: LABEL_BYTES_MAX,
        label_value_bytes_max: LABEL_BYTES_MAX,
        future_ms_max: 0,
        bucket_retention_ms: 0,
        out_of_order_ms: 0,
        duplicates: DuplicatePolicy::LastWins,
        block_encoding: BlockEncoding::Dense,
        ..of_owner
    }
}

/// A store of a retention policy: its owner, and the limits that the catalogue sets.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StorePolicy {
    owner: TenantId,
    duration_ns: i64,
    shard_group_ns: i64,
    bucket_id: Option<BucketStoreId>,
}

/// One version of the catalogue.
struct Version {
    file: CatalogFile,
    catalog: Arc<DatabaseCatalog>,
    policies: HashMap<StoreId, StorePolicy, FixedState>,
}

/// The catalogue in memory, and its file.
pub(crate) struct DatabaseStore {
    env: Env,
    data_dir: PathBuf,
    current: RwLock<Version>,
    /// Held over a change.
    changing: Mutex<()>,
    /// Copies of the bucket that the catalogue has followed, by tenant.
    followed: RwLock<BTreeMap<TenantId, FollowedCopy>>,
}

/// A copy of the bucket that the catalogue has followed.
#[derive(Default)]
struct FollowedCopy {
    /// Number of its snapshot.
    number: u64,
    /// Stores that were dropped.
    dropped: HashSet<BucketStoreId>,
}

impl Version {
    fn new(file: CatalogFile) -> Version {
        let policies = file.catalog.policies().map(|(owner, policy)| {
            let of_store = StorePolicy {
                owner: owner.clone(),
                duration_ns: policy.duration_ns,
                shard_group_ns: policy.shard_group_ns,
                bucket_id: policy.bucket_id,
            };
            (policy.store.clone(), of_store)
        });
        let policies = policies.collect();
        Version { catalog: Arc::new(file.catalog.clone()), policies, file }
    }
}

impl DatabaseStore {
    /// Reads the copies of the file; an empty catalogue if there is none. `notes` and `repaired` name damage.
    ///
    /// # Errors
    /// [`OpenError`] if the disk fails, or if no copy can be read although one exists: the stores of all
    /// databases would be without names.
    pub(crate) fn open(
        env: &Env,
        data_dir: &Path,
        repaired: &mut Vec<String>,
    ) -> Result<DatabaseStore, OpenError> {
        let mut found: Vec<(PathBuf, Result<CatalogFile, String>)> = Vec::new();
        for name in FILE_NAMES {
            let path = data_dir.join(name);
            match env.disk.read(&path) {
                Ok(bytes) => {
                    let read = CatalogFile::decode(&bytes).map_err(|error| error.to_string());
                    found.push((path, read));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(OpenError::Io { path, error }),
            }
        }
        let newest = found.iter().filter_map(|(_, read)| read.as_ref().ok()).max_by_key(|file| file.sequence);
        let Some(newest) = newest.cloned() else {
            return match found.into_iter().find_map(|(path, read)| Some((path, read.err()?))) {
                Some((path, what)) => Err(OpenError::Corrupt { path, what }),
                None => Ok(DatabaseStore::new(env, data_dir, Version::new(CatalogFile::default()))),
            };
        };
        let store = DatabaseStore::new(env, data_dir, Version::new(newest.clone()));
        let is_whole =
            found.iter().filter(|(_, read)| read.as_ref() == Ok(&newest)).count() == FILE_NAMES.len();
        if !is_whole {
            for (path, read) in &found {
                if let Err(error) = read {
                    repaired.push(format!("{}: {error}; its other copy is read", path.display()));
                }
            }
            store.write(&newest).map_err(|failed| OpenError::Io {
                path: data_dir.join(FILE_NAMES[0]),
                error: failed.error,
            })?;
        }
        Ok(store)
    }

    fn new(env: &Env, data_dir: &Path, version: Version) -> DatabaseStore {
        DatabaseStore {
            env: env.clone(),
            data_dir: data_dir.to_owned(),
            current: RwLock::new(version),
            changing: Mutex::new(()),
            followed: RwLock::default(),
        }
    }

    /// Returns the current version.
    pub(crate) fn catalog(&self) -> Arc<DatabaseCatalog> {
        self.current.read().catalog.clone()
    }

    /// Applies a change to the catalogue of `tenant` and returns when it is durable. Cost: two files of the
    /// size of the whole catalogue, each synced.
    ///
    /// # Errors
    /// [`CatalogError`]: nothing changed, now or after a restart, unless the text says that it may have.
    pub(crate) fn change(&self, tenant: &TenantId, change: &CatalogChange) -> Result<(), CatalogError> {
        let _alone = self.changing.lock();
        let mut next = self.current.read().file.clone();
        if next.catalog.apply(tenant, change)? {
            self.publish(next)?;
        }
        Ok(())
    }

    /// Drops the databases, users and the Graphite store of `tenant`, whose objects in the bucket are removed
    /// already.
    ///
    /// # Errors
    /// [`CatalogError::Storage`]; nothing is dropped then, unless the text says that it may be.
    pub(crate) fn remove_tenant(&self, tenant: &TenantId) -> Result<(), CatalogError> {
        let _alone = self.changing.lock();
        let mut next = self.current.read().file.clone();
        let removed = next.catalog.tenants.remove(tenant);
        let drop_count = next.catalog.bucket_drops.len();
        next.catalog.bucket_drops.retain(|drop| drop.owner != *tenant);
        if removed.is_none() && next.catalog.bucket_drops.len() == drop_count {
            return Ok(());
        }
        let policies = removed.iter().flat_map(|own| own.policies());
        next.catalog.dropped.extend(policies.map(|policy| policy.store.clone()));
        self.publish(next)
    }

    /// Forgets dropped stores whose data is removed.
    ///
    /// # Errors
    /// [`CatalogError::Storage`]; they stay.
    pub(crate) fn forget_dropped(&self, removed: &[StoreId]) -> Result<(), CatalogError> {
        let _alone = self.changing.lock();
        let mut next = self.current.read().file.clone();
        next.catalog.dropped.retain(|store| !removed.contains(store));
        self.publish(next)
    }

    /// Assigns an id in the bucket to each store of `owner` without one. Returns the changed catalogue.
    ///
    /// # Errors
    /// [`CatalogError::Storage`]; no store has a new id then.
    pub(crate) fn assign_bucket_ids(&self, owner: &TenantId) -> Result<Arc<DatabaseCatalog>, CatalogError> {
        let _alone = self.changing.lock();
        let mut next = self.current.read().file.clone();
        let new_id = || {
            let mut bytes = [0; 16];
            self.env.rng.fill(&mut bytes);
            BucketStoreId::from_bytes(bytes)
        };
        if next.catalog.assign_bucket_ids(owner, new_id) {
            self.publish(next)?;
        }
        Ok(self.catalog())
    }

    /// Takes over databases of the bucket that `owner` does not have, by the rules of
    /// [`DatabaseCatalog::adopt`].
    ///
    /// # Errors
    /// [`CatalogError::Storage`]; nothing is taken over then.
    pub(crate) fn adopt(&self, owner: &TenantId, copy: &BucketDatabases) -> Result<Adopted, CatalogError> {
        let _alone = self.changing.lock();
        let before = self.catalog();
        let mut next = self.current.read().file.clone();
        let adopted = next.catalog.adopt(owner, copy);
        if next.catalog != *before {
            self.publish(next)?;
        }
        Ok(adopted)
    }

    /// Makes the databases of `owner` equal to `copy`, which the bucket has, by the rules of
    /// [`DatabaseCatalog::follow`]; a copy that is older than the one before changes nothing.
    ///
    /// # Errors
    /// [`CatalogError::Storage`]; nothing is changed then.
    pub(crate) fn follow(
        &self,
        owner: &TenantId,
        copy: &DatabasesSnapshot,
    ) -> Result<Followed, CatalogError> {
        let _alone = self.changing.lock();
        let number = copy.stamp.number;
        if self.followed.read().get(owner).is_some_and(|followed| followed.number >= number) {
            return Ok(Followed::default());
        }
        let before = self.catalog();
        let mut next = self.current.read().file.clone();
        let followed = next.catalog.follow(owner, &copy.content);
        if next.catalog != *before {
            self.publish(next)?;
        }
        let live: HashSet<BucketStoreId> = copy.content.ids().collect();
        let own = before.of(owner).into_iter().flat_map(|own| own.policies());
        let gone = own.filter_map(|policy| policy.bucket_id).filter(|id| !live.contains(id));
        let gone: Vec<BucketStoreId> = gone.collect();
        let mut all = self.followed.write();
        let state = all.entry(owner.clone()).or_default();
        state.number = number;
        if state.dropped.len() >= DROPPED_IDS_MAX {
            state.dropped.clear();
        }
        state.dropped.extend(copy.content.dropped.iter().map(|dropped| dropped.id).chain(gone));
        Ok(followed)
    }

    /// Returns true if the store with `id` was dropped, as a copy of the bucket has it that was followed.
    pub(crate) fn is_dropped(&self, owner: &TenantId, id: BucketStoreId) -> bool {
        self.followed.read().get(owner).is_some_and(|followed| followed.dropped.contains(&id))
    }

    /// Forgets dropped stores that the bucket does not name any more.
    ///
    /// # Errors
    /// [`CatalogError::Storage`]; they stay.
    pub(crate) fn forget_bucket_drops(&self, ids: &[BucketStoreId]) -> Result<(), CatalogError> {
        let _alone = self.changing.lock();
        let mut next = self.current.read().file.clone();
        next.catalog.bucket_drops.retain(|drop| !ids.contains(&drop.id));
        self.publish(next)
    }

    /// Makes `next` durable, then visible. The caller holds the lock of changes.
    fn publish(&self, mut next: CatalogFile) -> Result<(), CatalogError> {
        assert!(self.changing.is_locked(), "one change is made at a time");
        // A change of an earlier version would undo those since then.
        let current_sequence = self.current.read().file.sequence;
        assert_eq!(next.sequence, current_sequence, "a change begins with the current version");
        next.sequence += 1;
        match self.write(&next) {
            Ok(()) => {
                *self.current.write() = Version::new(next);
                Ok(())
            }
            Err(failed) => {
                let what = format!("writing the database catalogue failed: {}", failed.error);
                let is_undone = !failed.is_in_doubt || self.undo(next.sequence).is_ok();
                let effect = if is_undone { "" } else { "; the change may take effect at the next start" };
                Err(CatalogError::Storage(format!("{what}{effect}")))
            }
        }
    }

    /// Writes the current version again, as one after `sequence`, which may be on disk.
    fn undo(&self, sequence: u64) -> Result<(), ReplaceError> {
        let mut current = self.current.read().file.clone();
        current.sequence = sequence + 1;
        // The next change comes after both, whether this write succeeds or not.
        self.current.write().file.sequence = current.sequence;
        self.write(&current)
    }

    fn write(&self, file: &CatalogFile) -> Result<(), ReplaceError> {
        let mut bytes = Vec::new();
        file.encode(&mut bytes);
        self.env.disk.replace_all(&FILE_NAMES.map(|name| self.data_dir.join(name)), &bytes)
    }

    /// Returns the bytes of a file with the databases of `tenants` alone; `None` if they have none.
    pub(crate) fn file_of(&self, tenants: &[TenantId]) -> Option<Vec<u8>> {
        let mut file = self.current.read().file.clone();
        file.catalog.tenants.retain(|tenant, _| tenants.contains(tenant));
        if file.catalog.tenants.is_empty() {
            return None;
        }
        file.catalog.dropped.clear();
        file.catalog.bucket_drops.clear();
        let mut bytes = Vec::new();
        file.encode(&mut bytes);
        Some(bytes)
    }

    /// Returns the owner of a store of the catalogue.
    pub(crate) fn owner_of(&self, store: &StoreId) -> Option<TenantId> {
        self.current.read().policies.get(store).map(|policy| policy.owner.clone())
    }

    /// Returns the store of `owner` that has `id` in the bucket.
    pub(crate) fn store_with_id(&self, owner: &TenantId, id: BucketStoreId) -> Option<StoreId> {
        let catalog = self.catalog();
        let mut policies = catalog.of(owner)?.policies();
        policies.find(|policy| policy.bucket_id == Some(id)).map(|policy| policy.store.clone())
    }

    /// Returns the store of `owner` that records name.
    pub(crate) fn store_of_record(&self, owner: &TenantId, store: RecordStore) -> Option<StoreId> {
        match store {
            RecordStore::Default => Some(StoreId::from(owner)),
            RecordStore::Database(id) | RecordStore::Graphite(id) => self.store_with_id(owner, id),
        }
    }

    /// Returns true if the bucket may know a store of `owner`: the databases of the bucket were read before.
    pub(crate) fn has_bucket_ids(&self, owner: &TenantId) -> bool {
        let current = self.current.read();
        let mut policies = current.catalog.of(owner).into_iter().flat_map(|own| own.policies());
        policies.any(|policy| policy.bucket_id.is_some())
            || current.catalog.bucket_drops.iter().any(|drop| drop.owner == *owner)
    }

    /// Returns the folder in the bucket of a store; `None` without an id in the bucket.
    pub(crate) fn folder_of(&self, store: &StoreId) -> Option<Folder> {
        let current = self.current.read();
        let policy = current.policies.get(store)?;
        Some(Folder::of_store(&policy.owner, policy.bucket_id?))
    }

    /// Returns the limits of a store, from its owner's, which `limits_of` returns; `None` if it is not in the
    /// catalogue.
    pub(crate) fn limits_of(
        &self,
        store: &StoreId,
        limits_of: impl FnOnce(&TenantId) -> TenantLimits,
    ) -> Option<TenantLimits> {
        let current = self.current.read();
        let policy = current.policies.get(store)?;
        let duration_ms = policy.duration_ns / 1_000_000;
        let of_owner = limits_of(&policy.owner);
        let series_max = match of_owner.databases.series_max {
            0 => of_owner.series_max,
            own => own.min(of_owner.series_max),
        };
        let shared = limits_of_policies(of_owner);
        Some(TenantLimits {
            series_max,
            databases: DatabaseLimits {
                shard_group_ms: policy.shard_group_ns / 1_000_000,
                ..shared.databases
            },
            retention_ms: duration_ms,
            ..shared
        })
    }

    /// Returns true if a retention policy has a duration.
    pub(crate) fn has_retention(&self) -> bool {
        self.current.read().policies.values().any(|policy| policy.duration_ns > 0)
    }
}

/// Owners of stores by the catalogue.
pub(crate) struct CatalogOwners(pub(crate) Arc<DatabaseStore>);

impl StoreOwners for CatalogOwners {
    fn owner_of(&self, store: &StoreId) -> Option<TenantId> {
        self.0.owner_of(store)
    }
}

/// The catalogue of a data directory that no server has open, for tools. The caller has the lock of the
/// directory.
pub struct CatalogEditor(DatabaseStore);

impl CatalogEditor {
    /// Reads the catalogue; an empty one if there is none. Damage of one copy is repaired and returned as
    /// text.
    ///
    /// # Errors
    /// [`OpenError`] if the disk fails or both copies are damaged.
    pub fn open(env: &Env, data_dir: &Path) -> Result<(CatalogEditor, Vec<String>), OpenError> {
        let mut repaired = Vec::new();
        let store = DatabaseStore::open(env, data_dir, &mut repaired)?;
        Ok((CatalogEditor(store), repaired))
    }

    /// Returns the catalogue.
    #[must_use]
    pub fn catalog(&self) -> Arc<DatabaseCatalog> {
        self.0.catalog()
    }

    /// Applies a change to the catalogue of `tenant` and returns when it is durable.
    ///
    /// # Errors
    /// [`CatalogError`]: nothing changed.
    pub fn change(&self, tenant: &TenantId, change: &CatalogChange) -> Result<(), CatalogError> {
        self.0.change(tenant, change)
    }
}

#[cfg(test)]
mod tests;
