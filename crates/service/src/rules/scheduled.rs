//! A group in the schedule: rounds that are made up after a start, rounds at their times, and the wait after
//! its removal until its series are marked as stale.
//!
//! Invariants: a group has one round at a time; after a start, rounds of the outage come first, oldest first,
//! as long as they catch up.
//! Not here: evaluation (`evaluation::rules`), waiting and permits (`engine`).

use std::sync::Arc;

use chronolith_rules::group::{Group, Origin};
use chronolith_rules::round::{ActiveGroup, Notifications, StoredGroup};
use chronolith_rules::schedule::{NS_PER_MS, Schedule};
use chronolith_rules::status::{GroupStatus, RuleStatus};

/// Shortest time after a start in which missed rounds are made up, however short the outage was.
const CATCH_UP_TIME_MIN_NS: i64 = 60_000 * NS_PER_MS;
/// Intervals after its removal in which a group may come back before its series are marked as stale.
const REMOVAL_INTERVALS: i64 = 2;

/// A group with its place in time.
pub(super) struct Scheduled {
    group: Arc<Group>,
    schedule: Schedule,
    /// `None` while a round has it.
    active: Option<ActiveGroup>,
    /// False until the state of an earlier process, or of a round that broke, has been read.
    pub(super) is_restored: bool,
    /// True if all groups have begun again since work on this one began: its end does, too.
    pub(super) is_outdated: bool,
    /// Rounds after this time are evaluated at their own time.
    after_ns: i64,
    /// Rounds that are missing since an outage; `None` = none are.
    catch_up: Option<CatchUpWindow>,
    /// Rounds that are never evaluated, until the next round counts them.
    lost_count: u64,
    /// A round broke, and might do so again: none is made up.
    has_broken: bool,
    /// Wall clock at the removal.
    removed_ns: Option<i64>,
    /// Status that the last round has put.
    pub(super) status: Arc<GroupStatus>,
}

/// Time of a start, and bounds of the outage before it.
#[derive(Debug, Clone, Copy)]
pub struct RestoreTimes {
    /// Wall clock at the start.
    pub now_ns: i64,
    /// Age of the oldest round that is made up.
    pub horizon_ns: i64,
    /// Longest outage over which pending alerts continue.
    pub outage_tolerance_ns: i64,
}

/// Bounds of the rounds that are made up.
#[derive(Debug, Clone, Copy)]
struct CatchUpWindow {
    /// No round is older.
    oldest_ns: i64,
    /// Wall clock from which on rounds that are still missing are given up.
    end_ns: i64,
}

/// Work on a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Evaluate a round.
    Round(RoundPlan),
    /// Mark the series of a removed group as stale at its removal.
    MarkStale {
        /// Wall clock at the removal.
        removed_ns: i64,
    },
}

/// A round and its circumstances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundPlan {
    /// Time of the round, in nanoseconds since 1970.
    pub time_ns: i64,
    /// True if the server was down at its time.
    pub is_caught_up: bool,
    /// Notifications of its alerts.
    pub notifications: Notifications,
    /// Rounds before it that are never evaluated: the one before took too long.
    pub missed_count: u64,
    /// Rounds before it that are never evaluated: they are older than the horizon of catching up.
    pub lost_count: u64,
}

impl Scheduled {
    /// A group that is new in this process at `now_ns`.
    pub(super) fn new(group: Arc<Group>, origin: Origin, now_ns: i64) -> Scheduled {
        Scheduled {
            schedule: Schedule::of(&group),
            active: Some(ActiveGroup::new(group.clone())),
            status: Arc::new(GroupStatus::new(group.clone(), origin)),
            group,
            is_restored: false,
            is_outdated: false,
            after_ns: now_ns,
            catch_up: None,
            lost_count: 0,
            has_broken: false,
            removed_ns: None,
        }
    }

    /// The group as it was loaded last.
    pub(super) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Returns true if the group is among the loaded ones.
    pub(super) fn is_loaded(&self) -> bool {
        self.removed_ns.is_none()
    }

    /// The state between two rounds; `None` while a round runs.
    pub(super) fn idle(&mut self) -> Option<&mut ActiveGroup> {
        self.active.as_mut()
    }

    /// Replaces the group, or takes it up again. An equal one changes nothing; rules that did not change keep
    /// their state.
    pub(super) fn replace(&mut self, group: Arc<Group>, now_ns: i64) {
        if self.removed_ns.take().is_some() {
            self.after_ns = now_ns;
        }
        if *self.group == *group {
            return;
        }
        self.schedule = Schedule::of(&group);
        self.status = Arc::new(GroupStatus {
            last_round: self.status.last_round,
            rounds: self.status.rounds,
            evaluations: self.status.evaluations,
            rules: kept_statuses(&group, &self.status),
            group: group.clone(),
            origin: self.status.origin,
        });
        self.group = group;
        if let Some(active) = self.active.take() {
            self.put_back(active);
        }
    }

    /// Removes the group at `now_ns`.
    pub(super) fn remove(&mut self, now_ns: i64) {
        self.removed_ns.get_or_insert(now_ns);
    }

    /// Takes the state of an earlier process over, if there is one. Rounds that are missing since then are
    /// made up, unless a round of this process broke.
    pub(super) fn restore(&mut self, stored: Option<&StoredGroup>, times: RestoreTimes) {
        self.is_restored = true;
        let RestoreTimes { now_ns, horizon_ns, outage_tolerance_ns } = times;
        let Some((stored, active)) = stored.zip(self.active.as_mut()) else { return };
        active.restore(stored, now_ns, outage_tolerance_ns);
        let alerts = |idx| Arc::new(active.alerts(idx).cloned().unwrap_or_default());
        let rules = self.status.rules.iter().enumerate();
        let rules = rules.map(|(idx, rule)| RuleStatus { alerts: alerts(idx), ..rule.clone() }).collect();
        self.status = Arc::new(GroupStatus { rules, ..GroupStatus::clone(&self.status) });
        let Some(last_ns) = active.last_round_ns().filter(|_| !self.has_broken) else { return };
        self.lost_count = self.schedule.catch_up(last_ns, now_ns, horizon_ns).lost_count;
        let outage_ns = now_ns.saturating_sub(last_ns).min(horizon_ns);
        self.catch_up = Some(CatchUpWindow {
            oldest_ns: now_ns.saturating_sub(horizon_ns),
            end_ns: now_ns.saturating_add(outage_ns.max(CATCH_UP_TIME_MIN_NS)),
        });
    }

    /// Begins again at `now_ns` after a round that broke: its state is read again.
    pub(super) fn reset(&mut self, now_ns: i64) {
        self.active = Some(ActiveGroup::new(self.group.clone()));
        self.is_restored = false;
        self.after_ns = now_ns;
        self.catch_up = None;
        self.has_broken = true;
    }

    /// Takes the state after a round. A group that was replaced meanwhile continues it.
    pub(super) fn put_back(&mut self, active: ActiveGroup) {
        let is_current = Arc::ptr_eq(&active.shared_group(), &self.group);
        self.active = Some(match is_current {
            true => active,
            false => ActiveGroup::continue_from(self.group.clone(), active),
        });
    }

    /// Takes the state for work that [`Scheduled::due`] has returned.
    pub(super) fn take(&mut self) -> Option<ActiveGroup> {
        self.lost_count = 0;
        self.active.take()
    }

    /// Work that is due at `now_ns`; `None` while a round runs and before its time.
    pub(super) fn due(&mut self, now_ns: i64) -> Option<Work> {
        let last_ns = self.active.as_ref()?.last_round_ns();
        if let Some(removed_ns) = self.removed_ns {
            return (now_ns >= self.stale_ns(removed_ns)).then_some(Work::MarkStale { removed_ns });
        }
        if let (Some(last_ns), Some(window)) = (last_ns, self.catch_up) {
            match self.missed_round(last_ns, now_ns, window) {
                Some(plan) => return Some(Work::Round(plan)),
                None => self.catch_up = None,
            }
        }
        let due = self.schedule.due(self.base_ns(last_ns), now_ns)?;
        Some(Work::Round(RoundPlan {
            time_ns: due.time_ns,
            is_caught_up: false,
            notifications: Notifications::Send,
            missed_count: due.missed_count,
            lost_count: self.lost_count,
        }))
    }

    /// Time of the next work after `now_ns`; `None` while a round runs.
    pub(super) fn next_ns(&self, now_ns: i64) -> Option<i64> {
        let last_ns = self.active.as_ref()?.last_round_ns();
        let next_ns = match self.removed_ns {
            Some(removed_ns) => self.stale_ns(removed_ns),
            None => self.schedule.first_after(self.base_ns(last_ns)),
        };
        (next_ns > now_ns).then_some(next_ns)
    }

    /// Time after which rounds are evaluated at their own time.
    fn base_ns(&self, last_ns: Option<i64>) -> i64 {
        last_ns.map_or(self.after_ns, |last_ns| last_ns.max(self.after_ns))
    }

    fn stale_ns(&self, removed_ns: i64) -> i64 {
        removed_ns.saturating_add(self.schedule.interval_ns().saturating_mul(REMOVAL_INTERVALS))
    }

    /// The oldest round that is missing and not too old. Rounds that are due by now are among them, so that
    /// none is missing between the outage and the first round at its own time.
    fn missed_round(&mut self, last_ns: i64, now_ns: i64, window: CatchUpWindow) -> Option<RoundPlan> {
        if now_ns > window.end_ns {
            // The rounds that are still missing count as missed.
            self.after_ns = last_ns;
            return None;
        }
        let mut rounds = self.schedule.catch_up(last_ns, now_ns, now_ns.saturating_sub(window.oldest_ns));
        let Some(time_ns) = rounds.next() else {
            self.after_ns = self.after_ns.max(now_ns);
            return None;
        };
        let is_newest = rounds.next().is_none();
        let notifications = if is_newest { Notifications::Send } else { Notifications::Hold };
        let lost_count = self.lost_count;
        Some(RoundPlan { time_ns, is_caught_up: true, notifications, missed_count: 0, lost_count })
    }
}

/// Statuses of the rules that a group keeps over a reload.
fn kept_statuses(group: &Group, before: &GroupStatus) -> Vec<RuleStatus> {
    let kept = group.kept_rules(&before.group).into_iter();
    kept.map(|idx| idx.and_then(|idx| before.rules.get(idx).cloned()).unwrap_or_default()).collect()
}
