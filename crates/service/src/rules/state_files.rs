//! Files with the states of groups, below `rules/` of the data directory. A process of a cluster has them in
//! memory.
//!
//! Invariants: a file is replaced as a whole, and has the state before or after a round at any crash; a file
//! that cannot be read is renamed to `.damaged`, never used or removed.
//! Not here: bytes of a file (`format::rules`), stores of states in the bucket (`evaluation::rules`).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::Disk;
use chronolith_base::disk::make_dir;
use chronolith_model::TenantId;
use chronolith_rules::group::{GroupKey, Origin};
use chronolith_rules::round::{StateFile, StateStore, StoredGroup, StoredRounds};
use chronolith_rules::schedule;

use super::counters::RuleCounters;
use super::group_id::GroupId;
use super::leased_states::LeasedStates;
use super::round_permit::RoundPermit;

/// Directory of all states within the data directory.
const DIR: &str = "rules";
/// Ending of a file with a state.
const EXTENSION: &str = "state";

/// Files of all groups.
#[derive(Clone, Copy)]
pub struct StateFiles<'a> {
    /// Disk of the data directory.
    pub disk: &'a dyn Disk,
    /// The data directory.
    pub data_dir: &'a Path,
    /// Counters of files that fail.
    pub counters: &'a RuleCounters,
    /// States in memory, in place of files; `None` on a server of its own.
    pub leased: Option<&'a LeasedStates>,
}

/// File of one group, for its rounds.
pub struct GroupFile<'a> {
    /// Files of all groups.
    pub files: StateFiles<'a>,
    /// The group.
    pub id: &'a GroupId,
    /// Rounds that were evaluated, with the running one.
    pub rounds: StoredRounds,
    /// Right to evaluate the round.
    pub permit: &'a RoundPermit,
}

impl StateFiles<'_> {
    fn dir(&self, id: &GroupId) -> PathBuf {
        self.data_dir.join(DIR).join(id.origin.as_str()).join(id.tenant.as_str())
    }

    fn path(&self, id: &GroupId) -> PathBuf {
        self.dir(id).join(format!("{:016x}.{EXTENSION}", schedule::hash(&id.key)))
    }

    /// Reads the state of a group; `None` if there is none. A file that cannot be read is counted and logged.
    pub(crate) fn load(&self, id: &GroupId) -> Option<StoredGroup> {
        if let Some(leased) = self.leased {
            return leased.of(id);
        }
        let path = self.path(id);
        if !self.disk.exists(&path) {
            return None;
        }
        let why = match self.disk.read(&path) {
            Ok(bytes) => match StateFile::decode(&bytes) {
                Ok(file) => return is_of(&file, id).then_some(file.state),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        self.counters.damaged_states.add(1);
        let damaged = path.with_extension("state.damaged");
        let renamed = self.disk.rename(&path, &damaged).err().map(|error| error.to_string());
        let file = damaged.display();
        tracing::error!(%file, why, rename_error = renamed, "state of a rule group not used, it starts anew");
        None
    }

    fn save(&self, id: &GroupId, state: &StoredGroup) -> io::Result<()> {
        let dir = self.dir(id);
        if !self.disk.exists(&dir) {
            make_dir(self.disk, &dir)?;
        }
        let file = StateFile { tenant: id.tenant.as_str().to_owned(), state: state.clone() };
        self.disk.write_atomic(&self.path(id), &file.encode())
    }

    /// Removes states of groups that are not among `known` and whose last round is before `oldest_ns`: the
    /// groups were removed while the server was down.
    pub(crate) fn remove_forgotten<'i>(&self, known: impl Iterator<Item = &'i GroupId>, oldest_ns: i64) {
        if let Some(leased) = self.leased {
            return leased.remove_forgotten(&known.collect(), oldest_ns);
        }
        let known: BTreeSet<PathBuf> = known.map(|id| self.path(id)).collect();
        for path in self.all_paths().into_iter().filter(|path| !known.contains(path)) {
            let file = self.disk.read(&path).ok().and_then(|bytes| StateFile::decode(&bytes).ok());
            let Some(StateFile { tenant, state }) = file else { continue };
            if state.last_round_ns.is_some_and(|last_ns| last_ns >= oldest_ns) {
                continue;
            }
            tracing::info!(
                tenant,
                file = state.file,
                group = state.name,
                "state of a removed rule group removed"
            );
            if let Err(error) = self.disk.remove_file(&path) {
                tracing::warn!(file = %path.display(), %error, "state of a removed rule group not removed");
            }
        }
    }

    /// Removes all files of a tenant, its configured groups included, durably.
    pub(super) fn remove_tenant(&self, tenant: &TenantId) -> io::Result<()> {
        if let Some(leased) = self.leased {
            leased.remove_tenant(tenant);
            return Ok(());
        }
        for origin in [Origin::Files, Origin::Configured] {
            let dir = self.data_dir.join(DIR).join(origin.as_str());
            if !self.disk.exists(&dir.join(tenant.as_str())) {
                continue;
            }
            self.disk.remove_dir_all(&dir.join(tenant.as_str()))?;
            self.disk.sync_dir(&dir)?;
        }
        Ok(())
    }

    /// Paths of all states.
    fn all_paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for origin in [Origin::Files, Origin::Configured] {
            let dir = self.data_dir.join(DIR).join(origin.as_str());
            for tenant in self.disk.list(&dir).unwrap_or_default() {
                let dir = dir.join(tenant.name);
                let files = self.disk.list(&dir).unwrap_or_default().into_iter();
                let paths_of_dir = files.map(|file| dir.join(file.name));
                paths
                    .extend(paths_of_dir.filter(|path| path.extension().is_some_and(|ext| ext == EXTENSION)));
            }
        }
        paths
    }

    /// Removes the state of a group that is gone.
    pub(crate) fn remove(&self, id: &GroupId) {
        if let Some(leased) = self.leased {
            return leased.remove(id);
        }
        let path = self.path(id);
        let removed = self.disk.remove_file(&path).and_then(|()| match path.parent() {
            Some(dir) => self.disk.sync_dir(dir),
            None => Ok(()),
        });
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %path.display(), %error, "state of a removed rule group not removed");
        }
    }
}

/// Returns true if a file has the state of this group: another one may have the same hash.
fn is_of(file: &StateFile, id: &GroupId) -> bool {
    let GroupKey { file: of_file, name } = &id.key;
    file.tenant == id.tenant.as_str() && file.state.file == *of_file && file.state.name == *name
}

impl StateStore for GroupFile<'_> {
    fn save(&mut self, state: StoredGroup) -> Result<(), String> {
        if state.recordings.is_none() {
            self.files.counters.states_without_series.add(1);
        }
        let state = StoredGroup { rounds: self.rounds.clone(), ..state };
        if let Some(leased) = self.files.leased {
            return leased.save(self.id, state, self.permit);
        }
        self.files.save(self.id, &state).map_err(|error| {
            self.files.counters.state_write_failures.add(1);
            format!("storing the state of the rule group: {error}")
        })
    }
}
