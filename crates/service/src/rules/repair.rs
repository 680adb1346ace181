//! Rounds of recording rules that out-of-order samples may have changed, until they are repaired (ADR 0129).
//!
//! Invariants: a generation of the tenant's changes is taken before a round is evaluated, so a sample that
//! the round has not seen is reported later. The last round of a group is not repaired before the next one
//! has ended: the series that it has recorded are state of the group. Changes are kept as ranges, a bounded
//! number per rule. One repair runs at a time.
//! Not here: evaluation and writes (`evaluation::rules::repair`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_model::change::{ChangedRanges, Generation};
use chronolith_promql::engine::lookback::Lookback;
use chronolith_rules::group::Group;
use chronolith_rules::repair::{EvaluatedRounds, rounds_that_see, rule_hash};
use chronolith_rules::round::{StoredRecordingRule, StoredRounds};
use parking_lot::Mutex;

use super::group_id::GroupId;
use crate::counter::Counter;

/// Time without further changes before a repair begins.
const QUIET_NS: i64 = 10_000_000_000;
/// Longest time after a change before a repair begins.
const WAIT_MAX_NS: i64 = 60_000_000_000;
/// Rounds in which a rule failed that are remembered.
const FAILED_MAX: usize = 64;

/// Pending repairs of all tenants.
#[derive(Default)]
pub struct Repairs {
    state: Mutex<State>,
    /// Rounds that changes came too late for, or whose repair failed.
    pub given_up_rounds: Counter,
    /// Samples that repairs have replaced, added or removed.
    pub corrected_samples: Counter,
    /// Evaluations of rules by repairs; a query over several rounds counts once.
    pub evaluations: Counter,
    /// Time that repairs have taken, in nanoseconds.
    pub busy_ns: Counter,
}

#[derive(Default)]
struct State {
    tenants: BTreeMap<TenantId, TenantRepairs>,
    is_running: bool,
    /// Monotonic clock before which no repair begins.
    next_mono_ns: u64,
}

#[derive(Default)]
struct TenantRepairs {
    generation: Option<Generation>,
    groups: BTreeMap<GroupId, GroupRepairs>,
    /// Wall clock at the first and the last change since the last repair.
    waiting_since_ns: Option<i64>,
    changed_ns: i64,
}

/// A group with the rounds that it has evaluated.
#[derive(Clone)]
pub struct GroupRepairs {
    /// The group of the last round.
    pub group: Arc<Group>,
    /// One per rule.
    pub rules: Vec<RuleRepairs>,
    /// Rounds that have ended, by the time of their samples.
    pub rounds: EvaluatedRounds,
    running_ms: Option<i64>,
    /// Start of the rounds of an earlier process that are evaluated again, also if they are too old by now.
    pub restored_from_ms: i64,
    repaired_count: u64,
}

/// A rule with the rounds that are to be evaluated again.
#[derive(Clone, Default)]
pub struct RuleRepairs {
    /// Samples that decide a round; `None` if they are not known, and each round is a query of its own.
    pub lookback: Option<Lookback>,
    /// First round of the rule as it is.
    pub since_ms: i64,
    /// Times of rounds.
    pub pending: ChangedRanges,
    /// Rounds in which it failed.
    pub failed: VecDeque<i64>,
}

/// Wall clock, and age of the oldest round that is repaired.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RepairTimes {
    pub now_ns: i64,
    pub mono_ns: u64,
    pub window_ms: i64,
}

impl RepairTimes {
    /// Time of samples of the oldest round that is repaired.
    pub(crate) fn horizon_ms(&self) -> i64 {
        self.now_ns.div_euclid(1_000_000).saturating_sub(self.window_ms)
    }
}

/// Repair of a tenant that has been taken.
pub struct TakenRepair {
    /// The tenant.
    pub tenant: TenantId,
    /// All its groups.
    pub groups: Vec<(GroupId, GroupRepairs)>,
    /// Time of samples of the oldest round that is repaired.
    pub horizon_ms: i64,
}

/// Outcome of a repair for one group.
#[derive(Debug, Clone, Default)]
pub struct RepairedGroup {
    /// Rounds that are still to be evaluated again, per rule.
    pub left: Vec<ChangedRanges>,
    /// Rounds that were evaluated again.
    pub round_count: u64,
}

impl RuleRepairs {
    /// First and last time of rounds that see a change.
    pub(crate) fn rounds_that_see(&self, range: (i64, i64)) -> (i64, i64) {
        rounds_that_see(self.lookback, range.0, range.1)
    }
}

impl GroupRepairs {
    /// Bound of the rounds that may be repaired: the last one that has ended.
    #[must_use]
    pub fn end_ms(&self) -> i64 {
        self.rounds.last().unwrap_or(i64::MIN)
    }

    /// The last round that has begun.
    fn last_begun_ms(&self) -> i64 {
        self.running_ms.unwrap_or(i64::MIN).max(self.end_ms())
    }

    fn has_work(&self) -> bool {
        let end_ms = self.end_ms();
        let is_due = |range: &(i64, i64)| {
            range.0 < end_ms && self.rounds.within(range.0, range.1.min(end_ms - 1)).next().is_some()
        };
        self.rules.iter().any(|rule| rule.pending.as_slice().iter().any(is_due))
    }

    /// Takes the rounds of an earlier process over. All within the window before the last one are evaluated
    /// again: samples may have come in that it has not reacted to before it ended.
    fn restore(&mut self, stored: &StoredRounds, window_ms: i64) {
        self.rounds = EvaluatedRounds::from_runs(self.group.interval_ms, &stored.runs);
        let Some(last_ms) = self.rounds.last() else { return };
        self.restored_from_ms = last_ms.saturating_sub(window_ms);
        let mut since_ms: HashMap<u64, i64> = HashMap::new();
        for rule in &stored.rules {
            let since = since_ms.entry(rule.hash).or_insert(rule.since_ms);
            *since = rule.since_ms.max(*since);
        }
        let rules = self.group.rules().iter().zip(&mut self.rules);
        for (rule, repairs) in rules.filter(|(rule, _)| rule.alerting().is_none()) {
            let Some(&since_ms) = since_ms.get(&rule_hash(&self.group, rule)) else { continue };
            repairs.since_ms = since_ms;
            let first_ms = since_ms.max(self.restored_from_ms);
            if first_ms <= last_ms {
                repairs.pending.add(first_ms, last_ms);
            }
        }
    }

    fn stored(&self) -> StoredRounds {
        let mut rounds = self.rounds.clone();
        self.running_ms.into_iter().for_each(|time_ms| rounds.push(time_ms));
        let rules = self.group.rules().iter().zip(&self.rules);
        let recording = rules.filter(|(rule, _)| rule.alerting().is_none());
        StoredRounds {
            runs: rounds.runs().collect(),
            rules: recording
                .map(|(rule, repairs)| StoredRecordingRule {
                    hash: rule_hash(&self.group, rule),
                    since_ms: repairs.since_ms,
                })
                .collect(),
        }
    }

    /// Adds the rounds that see a change. Returns true if there are any, and the number of those that are too
    /// old.
    fn note_change(&mut self, range: (i64, i64), horizon_ms: i64) -> (bool, u64) {
        let begun_ms = self.last_begun_ms();
        let mut oldest_ms = i64::MAX;
        let mut is_seen = false;
        for idx in 0..self.rules.len() {
            if self.group.rules()[idx].alerting().is_none() {
                let rule = &self.rules[idx];
                oldest_ms = oldest_ms.min(rule.rounds_that_see(range).0.max(rule.since_ms));
                is_seen |= self.mark(idx, range, horizon_ms);
            }
        }
        (is_seen, self.rounds.within(oldest_ms, begun_ms.min(horizon_ms.saturating_sub(1))).count() as u64)
    }

    /// Adds the rounds of a rule that see a change. Returns true if there are any.
    fn mark(&mut self, rule_idx: usize, range: (i64, i64), horizon_ms: i64) -> bool {
        let begun_ms = self.last_begun_ms();
        let rule = &mut self.rules[rule_idx];
        let seen = rule.rounds_that_see(range);
        let last = seen.1.min(begun_ms);
        let first = seen.0.max(rule.since_ms).max(horizon_ms);
        let is_evaluated = self.rounds.within(first, last).next().is_some()
            || self.running_ms.is_some_and(|time_ms| first <= time_ms && time_ms <= last);
        if is_evaluated {
            rule.pending.add(first, last);
        }
        is_evaluated
    }

    /// Rounds that wait and have become too old.
    fn outdated_count(&self, horizon_ms: i64) -> u64 {
        let end_ms = horizon_ms.min(self.restored_from_ms);
        let mut pending = ChangedRanges::EMPTY;
        self.rules.iter().for_each(|rule| pending.add_all(&rule.pending));
        let ranges = pending.as_slice().iter().filter(|range| range.0 < end_ms);
        ranges.map(|range| self.rounds.within(range.0, range.1.min(end_ms - 1)).count() as u64).sum()
    }

    /// Continues with a group that was read again: rules that did not change keep their rounds.
    fn replace(&mut self, group: &Arc<Group>, lookbacks: Vec<Option<Lookback>>, time_ms: i64) {
        let before = std::mem::replace(&mut self.group, group.clone());
        let is_same_schedule = before.interval_ms == group.interval_ms
            && before.query_offset_ms == group.query_offset_ms
            && before.key == group.key;
        if !is_same_schedule {
            self.rounds = EvaluatedRounds::new(group.interval_ms);
        }
        let mut old_rules = std::mem::take(&mut self.rules);
        let kept = group.kept_rules(&before);
        self.rules = new_rules(lookbacks, time_ms);
        for ((rule, found), new) in group.rules().iter().zip(kept).zip(&mut self.rules) {
            let Some(idx) = found.filter(|_| is_same_schedule && before.limit == group.limit) else {
                continue;
            };
            if before.rules()[idx].query == rule.query {
                *new = RuleRepairs { lookback: new.lookback, ..std::mem::take(&mut old_rules[idx]) };
            }
        }
    }
}

fn new_rules(lookbacks: Vec<Option<Lookback>>, since_ms: i64) -> Vec<RuleRepairs> {
    let rule = |lookback| RuleRepairs { lookback, since_ms, ..RuleRepairs::default() };
    lookbacks.into_iter().map(rule).collect()
}

impl Repairs {
    /// Takes the changes of a tenant since the last call: `changes` gets the generation of that call, and
    /// returns the one now and the ranges between them.
    pub(crate) fn note_changes(
        &self,
        tenant: &TenantId,
        times: RepairTimes,
        changes: impl FnOnce(Option<&Generation>) -> (Generation, ChangedRanges),
    ) {
        let mut state = self.state.lock();
        let repairs = state.tenants.entry(tenant.clone()).or_default();
        let (generation, changed) = changes(repairs.generation.as_ref());
        repairs.generation = Some(generation);
        for range in changed.as_slice() {
            for group in repairs.groups.values_mut() {
                let (is_seen, old_count) = group.note_change(*range, times.horizon_ms());
                self.given_up_rounds.add(old_count);
                if is_seen {
                    repairs.changed_ns = times.now_ns;
                    repairs.waiting_since_ns.get_or_insert(times.now_ns);
                }
            }
        }
    }

    /// Records a change of the input of one rule by a backfill, whose writes are no changes for rules. Rounds
    /// before the window stay as they are. Without effect for a group that is not the one of the last round.
    pub(crate) fn note_change_of_input(
        &self,
        id: &GroupId,
        group: &Arc<Group>,
        rule_idx: usize,
        range: (i64, i64),
        times: RepairTimes,
    ) {
        let mut state = self.state.lock();
        let Some(repairs) = state.tenants.get_mut(&id.tenant) else { return };
        let known = repairs.groups.get_mut(id).filter(|known| Arc::ptr_eq(&known.group, group));
        if known.is_some_and(|known| known.mark(rule_idx, range, times.horizon_ms())) {
            repairs.changed_ns = times.now_ns;
            repairs.waiting_since_ns.get_or_insert(times.now_ns);
        }
    }

    /// Tenants whose changes are to be taken.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        let state = self.state.lock();
        state.tenants.iter().filter(|(_, one)| !one.groups.is_empty()).map(|(id, _)| id.clone()).collect()
    }

    /// Records that a round begins, after the changes before it have been taken. `lookbacks` returns one per
    /// rule, and is called for a group that is new or has changed, `stored` for one that is new.
    pub(crate) fn begin_round(
        &self,
        id: &GroupId,
        group: &Arc<Group>,
        time_ms: i64,
        times: RepairTimes,
        lookbacks: impl FnOnce() -> Vec<Option<Lookback>>,
        stored: impl FnOnce() -> Option<StoredRounds>,
    ) {
        let mut state = self.state.lock();
        let repairs = state.tenants.entry(id.tenant.clone()).or_default();
        match repairs.groups.get_mut(id) {
            Some(known) => {
                if !Arc::ptr_eq(&known.group, group) {
                    known.replace(group, lookbacks(), time_ms);
                }
                known.running_ms = Some(time_ms);
            }
            None => {
                let mut known = GroupRepairs {
                    group: group.clone(),
                    rules: new_rules(lookbacks(), time_ms),
                    rounds: EvaluatedRounds::new(group.interval_ms),
                    running_ms: Some(time_ms),
                    restored_from_ms: i64::MAX,
                    repaired_count: 0,
                };
                if let Some(stored) = stored() {
                    known.restore(&stored, times.window_ms);
                    repairs.changed_ns = times.now_ns;
                    repairs.waiting_since_ns.get_or_insert(times.now_ns);
                }
                repairs.groups.insert(id.clone(), known);
            }
        }
    }

    /// Records the end of the round that runs; `failed` has an entry per rule. `None`: it did not end.
    pub(crate) fn end_round(&self, id: &GroupId, failed: Option<&[bool]>) {
        let mut state = self.state.lock();
        let Some(known) = state.tenants.get_mut(&id.tenant).and_then(|one| one.groups.get_mut(id)) else {
            return;
        };
        let Some((time_ms, failed)) = known.running_ms.take().zip(failed) else { return };
        known.rounds.push(time_ms);
        for (rule, _) in known.rules.iter_mut().zip(failed).filter(|(_, is_failed)| **is_failed) {
            rule.failed.push_back(time_ms);
            if rule.failed.len() > FAILED_MAX {
                rule.failed.pop_front();
            }
        }
    }

    /// Forgets the groups for which `is_known` returns false.
    pub(crate) fn retain(&self, is_known: impl Fn(&GroupId) -> bool) {
        for tenant in self.state.lock().tenants.values_mut() {
            tenant.groups.retain(|id, _| is_known(id));
        }
    }

    /// Takes the repair of the tenant that has waited longest, if no other one runs.
    pub(crate) fn take(&self, times: RepairTimes) -> Option<TakenRepair> {
        let mut state = self.state.lock();
        if state.is_running || times.mono_ns < state.next_mono_ns {
            return None;
        }
        let is_due = |one: &TenantRepairs| {
            let since_ns = one.waiting_since_ns?;
            let is_quiet = times.now_ns.saturating_sub(one.changed_ns) >= QUIET_NS;
            let is_old = times.now_ns.saturating_sub(since_ns) >= WAIT_MAX_NS;
            ((is_quiet || is_old) && one.groups.values().any(GroupRepairs::has_work)).then_some(since_ns)
        };
        let due = state.tenants.iter().filter_map(|(id, one)| Some((is_due(one)?, id.clone()))).min();
        let (_, tenant) = due?;
        let repairs = state.tenants.get_mut(&tenant)?;
        repairs.waiting_since_ns = None;
        let outdated = repairs.groups.values().map(|group| group.outdated_count(times.horizon_ms()));
        self.given_up_rounds.add(outdated.sum());
        let groups = repairs.groups.iter().map(|(id, group)| (id.clone(), group.clone())).collect();
        for rule in repairs.groups.values_mut().flat_map(|group| &mut group.rules) {
            rule.pending = ChangedRanges::EMPTY;
        }
        state.is_running = true;
        Some(TakenRepair { tenant, groups, horizon_ms: times.horizon_ms() })
    }

    /// Ends a repair. `next_mono_ns` is the monotonic clock before which the next one does not begin.
    pub(crate) fn finish(
        &self,
        taken: &TakenRepair,
        repaired: &[RepairedGroup],
        now_ns: i64,
        next_mono_ns: u64,
    ) {
        let mut state = self.state.lock();
        state.is_running = false;
        state.next_mono_ns = next_mono_ns;
        let Some(repairs) = state.tenants.get_mut(&taken.tenant) else { return };
        for ((id, before), RepairedGroup { left, round_count }) in taken.groups.iter().zip(repaired) {
            let known = repairs.groups.get_mut(id);
            let Some(known) = known.filter(|known| Arc::ptr_eq(&known.group, &before.group)) else {
                continue;
            };
            known.repaired_count += round_count;
            let begun_ms = known.last_begun_ms();
            for (rule, left) in known.rules.iter_mut().zip(left) {
                for &(first_ms, last_ms) in left.as_slice() {
                    if first_ms <= begun_ms {
                        rule.pending.add(first_ms, last_ms.min(begun_ms));
                        repairs.waiting_since_ns.get_or_insert(now_ns);
                    }
                }
            }
        }
    }

    /// Rounds of a group as its state has them, with the running one; empty if nothing is repaired.
    pub(crate) fn stored_rounds(&self, id: &GroupId) -> StoredRounds {
        let state = self.state.lock();
        let known = state.tenants.get(&id.tenant).and_then(|one| one.groups.get(id));
        known.map(GroupRepairs::stored).unwrap_or_default()
    }

    /// Rounds of a group that have been repaired.
    pub(crate) fn repaired_count(&self, id: &GroupId) -> u64 {
        let state = self.state.lock();
        let known = state.tenants.get(&id.tenant).and_then(|one| one.groups.get(id));
        known.map_or(0, |known| known.repaired_count)
    }

    /// Rules with rounds that wait for a repair.
    #[must_use]
    pub fn pending_rule_count(&self) -> usize {
        let state = self.state.lock();
        let rules = state.tenants.values().flat_map(|one| one.groups.values()).flat_map(|group| &group.rules);
        rules.filter(|rule| rule.pending != ChangedRanges::EMPTY).count()
    }
}
