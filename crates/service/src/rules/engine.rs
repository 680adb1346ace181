//! Schedule of the rule groups of all tenants and of continuous queries: which work is due, within the
//! permits of its class, and the states of groups between rounds.
//!
//! Invariants: a group has one round at a time, and no more rounds run than there are permits, of a tenant no
//! more than its part; rounds that are due go before those that are made up, older ones before newer ones.
//! Continuous queries run one at a time.
//! Not here: threads (`server::serve`), evaluation (`evaluation`), times of one group (`scheduled`), windows
//! of continuous queries (`influxql`).

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use chronolith_model::TenantId;
use chronolith_rules::group::{Group, Origin};
use chronolith_rules::round::ActiveGroup;
use chronolith_rules::status::GroupStatus;
use parking_lot::{Condvar, Mutex};

use super::counters::RuleCounters;
use super::group_id::GroupId;
use super::interrupts::Interrupts;
use super::scheduled::{RestoreTimes, Scheduled, Work};
use super::state_files::StateFiles;
use super::statuses::GroupStatuses;

/// Rounds that run, for the decision whether a further one may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningRounds {
    /// Rounds of all tenants.
    pub all: usize,
    /// Rounds of one tenant.
    pub of_tenant: usize,
}

/// Work with the state of its group.
pub struct TakenWork {
    /// The group.
    pub id: GroupId,
    /// The work.
    pub work: Work,
    /// State after the last round.
    pub active: ActiveGroup,
}

/// Time from the end of a run of continuous queries to the next one: late points have to be looked for.
const QUERY_PAUSE_NS: u64 = 1_000_000_000;

/// All groups and continuous queries in their schedule.
#[derive(Default)]
pub struct RuleEngine {
    state: Mutex<Schedules>,
    /// A round has ended, or groups have changed.
    changed: Condvar,
    pub(super) statuses: GroupStatuses,
    /// Queries of rounds and continuous queries that run.
    pub interrupts: Interrupts,
    /// Counters of all groups together.
    pub counters: RuleCounters,
}

#[derive(Default)]
struct Schedules {
    groups: BTreeMap<GroupId, Scheduled>,
    /// Rounds that run, by tenant.
    running: HashMap<TenantId, usize>,
    queries: QueryRuns,
    /// Something has changed since rounds were last taken.
    is_changed: bool,
    /// Wall clock when work was last taken; `None` after the wait that follows.
    taken_ns: Option<i64>,
    /// States of groups that are gone since an earlier process have been looked for.
    is_cleaned: bool,
}

/// Runs of continuous queries.
#[derive(Default)]
struct QueryRuns {
    is_running: bool,
    /// Wall clock at the end of the last run; 0 before the first.
    ended_ns: i64,
}

impl QueryRuns {
    /// Returns true if a run is due. A clock that was set back delays none.
    fn is_due(&self, now_ns: i64) -> bool {
        !self.is_running && now_ns.abs_diff(self.ended_ns) >= QUERY_PAUSE_NS
    }

    /// Time of the next run after `now_ns`; `None` while one runs, and once its time has come.
    fn next_ns(&self, now_ns: i64) -> Option<i64> {
        let next_ns = self.ended_ns.saturating_add_unsigned(QUERY_PAUSE_NS);
        (!self.is_running && next_ns > now_ns).then_some(next_ns)
    }
}

impl RuleEngine {
    /// Replaces all groups of an origin for a tenant at `now_ns`. Rules that did not change keep their state;
    /// the series of groups that are gone are marked as stale after two intervals, unless the groups come
    /// back. Limits are the caller's business.
    pub(crate) fn set_groups(&self, tenant: &TenantId, origin: Origin, groups: Vec<Group>, now_ns: i64) {
        let mut state = self.state.lock();
        let id = |group: &Group| GroupId { tenant: tenant.clone(), origin, key: group.key.clone() };
        let mut loaded: BTreeMap<GroupId, Arc<Group>> =
            groups.into_iter().map(|group| (id(&group), Arc::new(group))).collect();
        for (id, scheduled) in &mut state.groups {
            if id.tenant != *tenant || id.origin != origin {
                continue;
            }
            match loaded.remove(id) {
                Some(group) => {
                    scheduled.replace(group, now_ns);
                    self.statuses.put(tenant, scheduled.status.clone());
                }
                None => {
                    scheduled.remove(now_ns);
                    self.statuses.remove(id);
                }
            }
        }
        for (id, group) in loaded {
            let scheduled = Scheduled::new(group, origin, now_ns);
            self.statuses.put(tenant, scheduled.status.clone());
            state.groups.insert(id, scheduled);
        }
        state.is_changed = true;
        self.changed.notify_all();
    }

    /// Loaded groups of an origin for a tenant.
    pub(crate) fn loaded_count(&self, tenant: &TenantId, origin: Origin) -> usize {
        let state = self.state.lock();
        let of_origin = |(id, scheduled): &(&GroupId, &Scheduled)| {
            id.tenant == *tenant && id.origin == origin && scheduled.is_loaded()
        };
        state.groups.iter().filter(of_origin).count()
    }

    /// Reads the states of groups that are new, so that lists have their alerts before the first round.
    pub(crate) fn restore(&self, files: StateFiles<'_>, times: RestoreTimes) {
        self.state.lock().restore_new(files, times, &self.statuses);
    }

    /// Takes the work that is due at the time of `times` and for which `has_permit` returns true. The caller
    /// runs each on a thread of its own. Reads the states of groups that are new.
    pub(crate) fn take_due(
        &self,
        files: StateFiles<'_>,
        times: RestoreTimes,
        has_permit: impl Fn(&TenantId, RunningRounds) -> bool,
    ) -> Vec<TakenWork> {
        let mut state = self.state.lock();
        state.remove_forgotten(files, times);
        state.is_changed = false;
        state.taken_ns = Some(times.now_ns);
        state.restore_new(files, times, &self.statuses);
        let mut due = Vec::new();
        for (id, scheduled) in &mut state.groups {
            if let Some(work) = scheduled.due(times.now_ns) {
                due.push((order_of(work), id.clone(), work));
            }
        }
        due.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut taken = Vec::new();
        for (_, id, work) in due {
            if !has_permit(&id.tenant, state.running_rounds(&id.tenant)) {
                continue;
            }
            let Some(active) = state.groups.get_mut(&id).and_then(Scheduled::take) else { continue };
            *state.running.entry(id.tenant.clone()).or_default() += 1;
            taken.push(TakenWork { id, work, active });
        }
        taken
    }

    /// Takes the state after a round, with its status; `None` if the round broke.
    pub(crate) fn finish(&self, id: &GroupId, ended: Option<(ActiveGroup, GroupStatus)>, now_ns: i64) {
        let mut state = self.state.lock();
        state.end_round(&id.tenant);
        if let Some((active, _)) = &ended {
            state.forget_series_of(&id.tenant, active);
        }
        if state.is_outdated(id) {
            state.begin_again(id, now_ns, &self.statuses);
        } else if let Some(scheduled) = state.groups.get_mut(id) {
            match ended {
                None => {
                    self.counters.broken_rounds.add(1);
                    scheduled.reset(now_ns);
                }
                Some((active, status)) => {
                    // A reload has put another status meanwhile, which the next round replaces.
                    if scheduled.is_loaded() && Arc::ptr_eq(scheduled.group(), &status.group) {
                        scheduled.status = Arc::new(status);
                        self.statuses.put(&id.tenant, scheduled.status.clone());
                    }
                    scheduled.put_back(active);
                }
            }
        }
        state.is_changed = true;
        self.changed.notify_all();
    }

    /// Ends a round without an effect, since the term in which it had begun is over.
    pub(crate) fn give_up(&self, id: &GroupId, now_ns: i64) {
        let mut state = self.state.lock();
        state.end_round(&id.tenant);
        state.begin_again(id, now_ns, &self.statuses);
        state.is_changed = true;
        self.changed.notify_all();
    }

    /// Lets all groups begin again without state at `now_ns`: another process goes on with them, or this one
    /// with the states that another one has left. A group whose round runs follows at its end.
    pub(crate) fn begin_again(&self, now_ns: i64) {
        let mut state = self.state.lock();
        state.is_cleaned = false;
        let mut idle = Vec::new();
        for (id, scheduled) in &mut state.groups {
            match scheduled.idle() {
                Some(_) => idle.push(id.clone()),
                None => scheduled.is_outdated = true,
            }
        }
        idle.iter().for_each(|id| state.begin_again(id, now_ns, &self.statuses));
        state.is_changed = true;
        self.changed.notify_all();
    }

    /// Ends the work on a removed group, whose series are marked as stale; one that came back stays.
    pub(crate) fn finish_removed(&self, id: &GroupId, files: StateFiles<'_>, now_ns: i64) {
        let mut state = self.state.lock();
        state.end_round(&id.tenant);
        let is_gone = state.groups.get(id).is_some_and(|scheduled| !scheduled.is_loaded());
        if state.is_outdated(id) {
            state.begin_again(id, now_ns, &self.statuses);
        } else if is_gone {
            state.groups.remove(id);
            files.remove(id);
        } else if let Some(scheduled) = state.groups.get_mut(id) {
            scheduled.reset(now_ns);
        }
        state.is_changed = true;
        self.changed.notify_all();
    }

    /// Removes the states of a tenant, of which [`RuleEngine::take_due`] takes no rounds any more. Groups of
    /// rule files begin again at `now_ns` without state; series of removed groups are marked no more. Returns
    /// false while a round of the tenant runs: it would write its state again.
    ///
    /// # Errors
    /// As the disk reports; the call may be repeated.
    pub(crate) fn delete_tenant(
        &self,
        tenant: &TenantId,
        files: StateFiles<'_>,
        now_ns: i64,
    ) -> io::Result<bool> {
        let mut state = self.state.lock();
        if state.running.contains_key(tenant) {
            return Ok(false);
        }
        files.remove_tenant(tenant)?;
        let of_tenant: Vec<GroupId> =
            state.groups.keys().filter(|id| id.tenant == *tenant).cloned().collect();
        of_tenant.iter().for_each(|id| state.begin_again(id, now_ns, &self.statuses));
        Ok(true)
    }

    /// The status of a group that its next round continues.
    pub(crate) fn status_of(&self, id: &GroupId) -> Option<Arc<GroupStatus>> {
        self.state.lock().groups.get(id).map(|scheduled| scheduled.status.clone())
    }

    /// Puts the number of rounds of a group that have been repaired into its status.
    pub(crate) fn note_repaired(&self, id: &GroupId, repaired_count: u64) {
        let mut state = self.state.lock();
        let Some(scheduled) = state.groups.get_mut(id).filter(|one| one.is_loaded()) else { return };
        let mut status = GroupStatus::clone(&scheduled.status);
        status.rounds.repaired = repaired_count;
        scheduled.status = Arc::new(status);
        self.statuses.put(&id.tenant, scheduled.status.clone());
    }

    /// Takes the run of continuous queries if it is due. The caller runs it on a thread of its own, and ends
    /// it by [`RuleEngine::finish_queries`].
    pub(crate) fn take_queries(&self, now_ns: i64) -> bool {
        let mut state = self.state.lock();
        let is_due = state.queries.is_due(now_ns);
        state.queries.is_running |= is_due;
        is_due
    }

    /// Ends a run of continuous queries.
    pub(crate) fn finish_queries(&self, now_ns: i64) {
        self.state.lock().queries = QueryRuns { is_running: false, ended_ns: now_ns };
        self.changed.notify_all();
    }

    /// Ends the wait of the scheduler.
    pub(crate) fn wake(&self) {
        self.state.lock().is_changed = true;
        self.changed.notify_all();
    }

    /// Waits until work ends, groups change, or the next work is due, at most `longest`. Returns true
    /// without a wait if groups have changed, or work has become due, since work was last taken.
    pub(crate) fn wait(&self, now_ns: i64, longest: Duration) -> bool {
        let mut state = self.state.lock();
        // Each change ends one wait, so that a scheduler without a store to write to does not spin.
        if std::mem::take(&mut state.is_changed) {
            return true;
        }
        // Work may have become due between the time at which it was last taken and now.
        let since_ns = state.taken_ns.take().unwrap_or(now_ns);
        let rounds_ns = state.groups.values().filter_map(|scheduled| scheduled.next_ns(since_ns));
        let next_ns = rounds_ns.chain(state.queries.next_ns(since_ns)).min();
        if next_ns.is_some_and(|next_ns| next_ns <= now_ns) {
            return true;
        }
        let until_due = next_ns
            .map_or(longest, |next_ns| Duration::from_nanos(next_ns.saturating_sub(now_ns).unsigned_abs()));
        self.changed.wait_for(&mut state, until_due.min(longest));
        false
    }

    /// Interrupts all rounds and continuous queries, begins none, and waits until they have ended, at most
    /// `longest`. Returns true if none is left.
    pub fn stop(&self, longest: Duration) -> bool {
        self.interrupts.request();
        let mut state = self.state.lock();
        self.changed.notify_all();
        let is_running = |state: &mut Schedules| !state.running.is_empty() || state.queries.is_running;
        !self.changed.wait_while_for(&mut state, is_running, longest).timed_out()
    }

    /// Returns true once rounds and continuous queries are to end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.interrupts.is_requested()
    }

    /// Rounds that run.
    #[must_use]
    pub fn running_count(&self) -> usize {
        self.state.lock().running.values().sum()
    }
}

impl Schedules {
    /// Takes over the states of groups that are new, and shows them.
    fn restore_new(&mut self, files: StateFiles<'_>, times: RestoreTimes, statuses: &GroupStatuses) {
        for (id, scheduled) in self.groups.iter_mut().filter(|(_, scheduled)| !scheduled.is_restored) {
            scheduled.restore(files.load(id).as_ref(), times);
            if scheduled.is_loaded() {
                statuses.put(&id.tenant, scheduled.status.clone());
            }
        }
    }

    /// Removes old states of groups that were removed while the server was down, once.
    fn remove_forgotten(&mut self, files: StateFiles<'_>, times: RestoreTimes) {
        if !std::mem::replace(&mut self.is_cleaned, true) {
            let age_ns = times.horizon_ns.max(times.outage_tolerance_ns);
            files.remove_forgotten(self.groups.keys(), times.now_ns.saturating_sub(age_ns));
        }
    }

    fn running_rounds(&self, tenant: &TenantId) -> RunningRounds {
        let of_tenant = self.running.get(tenant).copied().unwrap_or(0);
        RunningRounds { all: self.running.values().sum(), of_tenant }
    }

    /// Returns true if all groups have begun again while work on this one ran.
    fn is_outdated(&self, id: &GroupId) -> bool {
        self.groups.get(id).is_some_and(|scheduled| scheduled.is_outdated)
    }

    /// Lets a group begin again without state; one that was removed is forgotten.
    fn begin_again(&mut self, id: &GroupId, now_ns: i64, statuses: &GroupStatuses) {
        let Some(scheduled) = self.groups.get_mut(id) else { return };
        if scheduled.is_loaded() {
            *scheduled = Scheduled::new(scheduled.group().clone(), id.origin, now_ns);
            statuses.put(&id.tenant, scheduled.status.clone());
        } else {
            self.groups.remove(id);
        }
    }

    fn end_round(&mut self, tenant: &TenantId) {
        if let Some(count) = self.running.get_mut(tenant) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(tenant);
            }
        }
    }

    /// Takes the series that a round has written from removed groups of the tenant: they go on.
    fn forget_series_of(&mut self, tenant: &TenantId, written: &ActiveGroup) {
        let removed =
            self.groups.iter_mut().filter(|(id, scheduled)| id.tenant == *tenant && !scheduled.is_loaded());
        for (_, scheduled) in removed {
            if let Some(active) = scheduled.idle() {
                active.forget_series_of(written);
            }
        }
    }
}

/// Due rounds first, then those that are made up, then marks of removed groups; by time within each.
fn order_of(work: Work) -> (u8, i64) {
    match work {
        Work::Round(plan) if !plan.is_caught_up => (0, plan.time_ns),
        Work::Round(plan) => (1, plan.time_ns),
        Work::MarkStale { removed_ns } => (2, removed_ns),
    }
}

#[cfg(test)]
mod tests;
