//! States of groups of a process that evaluates rules under a lease, between rounds and the bucket.
//!
//! Invariants: all states are of one term: a round of an earlier term changes none. A state is in the bucket,
//! or counts as changed.
//! Not here: objects in the bucket (`cluster::rule_lease`), times of stores (`evaluation::rules`).

use std::collections::{BTreeMap, BTreeSet};

use chronolith_model::TenantId;
use chronolith_rules::group::{GroupKey, Origin};
use chronolith_rules::round::{StateFile, StoredGroup};
use parking_lot::Mutex;

use super::group_id::GroupId;
use super::round_permit::RoundPermit;

/// States of all groups.
#[derive(Default)]
pub struct LeasedStates(Mutex<States>);

#[derive(Default)]
struct States {
    groups: BTreeMap<GroupId, StoredGroup>,
    /// True from the takeover to the end of a term.
    has_term: bool,
    is_changed: bool,
    /// Monotonic clock when states were last taken; `None` before the first round of a term.
    taken_ns: Option<u64>,
}

impl LeasedStates {
    /// State of a group; `None` if there is none.
    pub(super) fn of(&self, id: &GroupId) -> Option<StoredGroup> {
        self.0.lock().groups.get(id).cloned()
    }

    /// Replaces the state of a group after a round of `permit`.
    ///
    /// # Errors
    /// The text for the group: the term of the round is over.
    pub(super) fn save(&self, id: &GroupId, state: StoredGroup, permit: &RoundPermit) -> Result<(), String> {
        // The lock is held: states of the next term come before the check, or after the state.
        let mut states = self.0.lock();
        permit.check().map_err(|over| over.to_string())?;
        states.groups.insert(id.clone(), state);
        states.is_changed = true;
        Ok(())
    }

    /// Takes the states of the term before over. A file of a tenant whose name is not valid is left out.
    pub(crate) fn replace(&self, files: Vec<StateFile>) {
        let of_file = |StateFile { tenant, state }: StateFile| {
            let key = GroupKey { file: state.file.clone(), name: state.name.clone() };
            let id = GroupId { tenant: TenantId::new(&tenant).ok()?, origin: Origin::Files, key };
            Some((id, state))
        };
        let groups = files.into_iter().filter_map(of_file).collect();
        *self.0.lock() = States { groups, has_term: true, is_changed: true, taken_ns: None };
    }

    /// Returns true if the states are of a term that has not been ended.
    pub(crate) fn has_term(&self) -> bool {
        self.0.lock().has_term
    }

    /// Forgets the states, which another process goes on with.
    pub(crate) fn end_term(&self) {
        *self.0.lock() = States::default();
    }

    /// Takes changed states for the bucket, at `now_ns` of the monotonic clock, `pause_ns` after the last
    /// time; at once for the first round of a term. `None` if there is nothing to store.
    pub(crate) fn take_changed(&self, now_ns: u64, pause_ns: u64) -> Option<Vec<StateFile>> {
        let mut states = self.0.lock();
        let is_due = states.taken_ns.is_none_or(|taken_ns| now_ns.saturating_sub(taken_ns) >= pause_ns);
        if !states.is_changed || !is_due {
            return None;
        }
        states.is_changed = false;
        states.taken_ns = Some(now_ns);
        let file = |(id, state): (&GroupId, &StoredGroup)| StateFile {
            tenant: id.tenant.as_str().to_owned(),
            state: state.clone(),
        };
        Some(states.groups.iter().map(file).collect())
    }

    /// Records that states which were taken are not in the bucket.
    pub(crate) fn note_not_stored(&self) {
        self.0.lock().is_changed = true;
    }

    /// Removes states of groups that are not among `known` and whose last round is before `oldest_ns`.
    pub(super) fn remove_forgotten(&self, known: &BTreeSet<&GroupId>, oldest_ns: i64) {
        let mut states = self.0.lock();
        let is_recent = |state: &StoredGroup| state.last_round_ns.is_some_and(|last_ns| last_ns >= oldest_ns);
        states.groups.retain(|id, state| known.contains(id) || is_recent(state));
    }

    /// Removes the state of a group that is gone.
    pub(super) fn remove(&self, id: &GroupId) {
        let mut states = self.0.lock();
        states.is_changed |= states.groups.remove(id).is_some();
    }

    /// Removes the states of a tenant.
    pub(super) fn remove_tenant(&self, tenant: &TenantId) {
        let mut states = self.0.lock();
        states.groups.retain(|id, _| id.tenant != *tenant);
        states.is_changed = true;
    }
}
