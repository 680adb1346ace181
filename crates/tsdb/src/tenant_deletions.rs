//! Deletion of whole tenants: the tenants that are being deleted, with a marker on disk for each, and their
//! progress.
//!
//! Invariants: the marker of a tenant is durable before its deletion begins, and goes when nothing of the
//! tenant is left, so a start after a crash goes on with the deletion. No write of the tenant is accepted
//! while it is marked, and one that was accepted before has ended when [`TenantDeletions::begin`] returns.
//! Not here: the steps of a deletion (`admin::tenant_deletion`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::Env;
use chronolith_base::disk::make_dir;
use chronolith_head::WriteError;
use chronolith_model::TenantId;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::options::OpenError;

/// Directory of markers in the data directory: an empty file per tenant, with its name.
const DIR: &str = "tenant-deletions";
/// Deletions whose end is remembered.
const DONE_COUNT_MAX: usize = 1000;

/// State of the deletion of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeletionState {
    /// The tenant is marked, and its data is being removed.
    Running(DeletionProgress),
    /// Nothing of the tenant was left at the end of the deletion. Known until the next start.
    Done(DeletionProgress),
}

/// Progress of the deletion of a tenant since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeletionProgress {
    /// Wall clock time of the request, or of the start of the process, ms since 1970.
    pub started_ms: i64,
    /// Wall clock time of the end; `None` before.
    pub ended_ms: Option<i64>,
    /// The running step, or the last one.
    pub step: DeletionStep,
    /// Removed blocks of the local disk.
    pub block_count: u64,
    /// Samples that were removed from the head.
    pub head_sample_count: u64,
    /// Removed objects of the bucket.
    pub object_count: u64,
    /// Error of the last attempt; the next attempt begins again.
    pub error: Option<String>,
}

/// Step of a deletion, in their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeletionStep {
    /// Waits for the work before it.
    #[default]
    Waiting,
    /// Objects of the bucket.
    Bucket,
    /// Databases, users and the Graphite store in the database catalogue.
    Databases,
    /// Samples in the head and the WAL.
    Head,
    /// Blocks of the local disk.
    Blocks,
    /// Metadata, exemplars, events and meta tags.
    Metadata,
}

impl DeletionStep {
    /// Returns the name in responses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DeletionStep::Waiting => "waiting",
            DeletionStep::Bucket => "bucket",
            DeletionStep::Databases => "databases",
            DeletionStep::Head => "head",
            DeletionStep::Blocks => "blocks",
            DeletionStep::Metadata => "metadata",
        }
    }
}

/// Tenants that are being deleted, see [`crate::Tsdb::tenant_deletions`].
pub(crate) struct TenantDeletions {
    env: Env,
    dir: PathBuf,
    /// Marked tenants. Locked for reading over each write, never together with `progress`.
    marked: RwLock<BTreeSet<TenantId>>,
    progress: Mutex<BTreeMap<TenantId, DeletionProgress>>,
    /// Held until a marker is durable: a second request for the same tenant waits for the first.
    beginning: Mutex<()>,
    done_count: AtomicU64,
    failure_count: AtomicU64,
}

/// Right to write: no deletion of the tenant begins while it is held.
pub(crate) struct WritePermit<'a> {
    _marked: RwLockReadGuard<'a, BTreeSet<TenantId>>,
}

impl TenantDeletions {
    /// Reads the markers of the data directory.
    ///
    /// # Errors
    /// [`OpenError::Io`].
    pub(crate) fn open(env: &Env, data_dir: &Path) -> Result<TenantDeletions, OpenError> {
        let dir = data_dir.join(DIR);
        let entries = match env.disk.list(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(OpenError::Io { path: dir, error }),
            Ok(entries) => entries,
        };
        let marked: BTreeSet<TenantId> =
            entries.iter().filter_map(|entry| TenantId::new(&entry.name).ok()).collect();
        let started_ms = env.clock.now_ms();
        let of_one = |tenant: &TenantId| {
            (tenant.clone(), DeletionProgress { started_ms, ..DeletionProgress::default() })
        };
        let progress = marked.iter().map(of_one).collect();
        Ok(TenantDeletions {
            env: env.clone(),
            dir,
            marked: RwLock::new(marked),
            progress: Mutex::new(progress),
            beginning: Mutex::new(()),
            done_count: AtomicU64::new(0),
            failure_count: AtomicU64::new(0),
        })
    }

    /// Marks a tenant and returns when the mark is durable; a marked tenant stays so. Waits for the writes
    /// that run.
    ///
    /// # Errors
    /// As the disk reports; the tenant is not marked then, unless the next start finds the marker.
    pub(crate) fn begin(&self, tenant: &TenantId) -> io::Result<()> {
        let _alone = self.beginning.lock();
        if !self.marked.write().insert(tenant.clone()) {
            return Ok(());
        }
        let progress =
            DeletionProgress { started_ms: self.env.clock.now_ms(), ..DeletionProgress::default() };
        self.progress.lock().insert(tenant.clone(), progress);
        let written = self.write_marker(tenant);
        if written.is_err() {
            self.progress.lock().remove(tenant);
            self.marked.write().remove(tenant);
        }
        written
    }

    fn write_marker(&self, tenant: &TenantId) -> io::Result<()> {
        make_dir(&*self.env.disk, &self.dir)?;
        self.env.disk.create(&self.dir.join(tenant.as_str()))?.sync_data()?;
        self.env.disk.sync_dir(&self.dir)
    }

    /// Removes the mark of a tenant of which nothing is left.
    ///
    /// # Errors
    /// As the disk reports; the tenant stays marked.
    pub(crate) fn finish(&self, tenant: &TenantId) -> io::Result<()> {
        match self.env.disk.remove_file(&self.dir.join(tenant.as_str())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => self.env.disk.sync_dir(&self.dir)?,
        }
        let mut progress = self.progress.lock();
        if let Some(of_tenant) = progress.get_mut(tenant) {
            of_tenant.ended_ms = Some(self.env.clock.now_ms());
            of_tenant.error = None;
        }
        while progress.values().filter(|one| one.ended_ms.is_some()).count() > DONE_COUNT_MAX {
            let ended = progress.iter().filter(|(_, one)| one.ended_ms.is_some());
            let Some(oldest) = ended.min_by_key(|(_, one)| one.ended_ms).map(|(name, _)| name.clone()) else {
                break;
            };
            progress.remove(&oldest);
        }
        drop(progress);
        self.marked.write().remove(tenant);
        self.done_count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Changes the progress of a tenant.
    pub(crate) fn update(&self, tenant: &TenantId, change: impl FnOnce(&mut DeletionProgress)) {
        if let Some(progress) = self.progress.lock().get_mut(tenant) {
            change(progress);
        }
    }

    /// Counts and records a failed attempt.
    pub(crate) fn fail(&self, tenant: &TenantId, error: String) {
        self.failure_count.fetch_add(1, Ordering::Relaxed);
        self.update(tenant, |progress| progress.error = Some(error));
    }

    /// Number of tenants deleted since the start.
    pub(crate) fn done_count(&self) -> u64 {
        self.done_count.load(Ordering::Relaxed)
    }

    /// Number of failed attempts since the start.
    pub(crate) fn failure_count(&self) -> u64 {
        self.failure_count.load(Ordering::Relaxed)
    }

    /// Returns the marked tenants.
    pub(crate) fn marked(&self) -> Vec<TenantId> {
        self.marked.read().iter().cloned().collect()
    }

    /// Returns the state of the deletion of a tenant; `None` if there was none since the start.
    pub(crate) fn state_of(&self, tenant: &TenantId) -> Option<DeletionState> {
        let progress = self.progress.lock().get(tenant)?.clone();
        Some(match progress.ended_ms {
            None => DeletionState::Running(progress),
            Some(_) => DeletionState::Done(progress),
        })
    }

    /// Returns the right to write to `tenant`.
    ///
    /// # Errors
    /// [`WriteError::TenantDeleted`].
    pub(crate) fn admit(&self, tenant: &TenantId) -> Result<WritePermit<'_>, WriteError> {
        self.admit_store(|| Some(tenant.clone()))
    }

    /// Returns the right to write to a store; `owner_of` is called if any tenant is marked.
    ///
    /// # Errors
    /// [`WriteError::TenantDeleted`].
    pub(crate) fn admit_store(
        &self,
        owner_of: impl FnOnce() -> Option<TenantId>,
    ) -> Result<WritePermit<'_>, WriteError> {
        let marked = self.marked.read();
        if !marked.is_empty()
            && let Some(owner) = owner_of()
            && marked.contains(&owner)
        {
            return Err(WriteError::TenantDeleted { tenant: owner.as_str().to_owned() });
        }
        Ok(WritePermit { _marked: marked })
    }
}

#[cfg(test)]
mod tests;
