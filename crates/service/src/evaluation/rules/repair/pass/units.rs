//! Rules of the groups of a repair as units, and the rounds of each unit.
//!
//! Invariant: rounds are those that were evaluated at their time.
//! Not here: which rounds are marked, queries, and the changes of a pass (`pass`).

use std::sync::Arc;

use chronolith_model::change::ChangedRanges;
use chronolith_rules::group::Group;
use chronolith_rules::group::repair_order::RepairOrder;
use chronolith_rules::repair::{Correction, Recorded, joined};
use chronolith_rules::round::RuleSample;
use chronolith_rules::rule::Rule;

use crate::counter::Counter;
use crate::rules::repair::{GroupRepairs, RuleRepairs, TakenRepair};

/// Rounds of one range query.
const ROUNDS_PER_QUERY_MAX: usize = 240;

/// Units of a repair with their groups.
pub(super) struct Units<'a> {
    taken: &'a TakenRepair,
    pub(super) groups: Vec<Arc<Group>>,
    pub(super) order: RepairOrder,
}

impl<'a> Units<'a> {
    pub(super) fn of(taken: &'a TakenRepair) -> Units<'a> {
        let groups: Vec<Arc<Group>> = taken.groups.iter().map(|(_, group)| group.group.clone()).collect();
        let order = RepairOrder::of(&groups);
        Units { taken, groups, order }
    }

    pub(super) fn group(&self, unit: usize) -> &GroupRepairs {
        &self.taken.groups[self.order.units[unit].group_idx].1
    }

    pub(super) fn rules(&self, unit: usize) -> impl Iterator<Item = (&Rule, &RuleRepairs)> {
        let group = self.group(unit);
        let rules = self.groups[self.order.units[unit].group_idx].rules();
        self.order.units[unit].rules.iter().map(|&idx| (&rules[idx], &group.rules[idx]))
    }

    /// Rounds of a unit in `marks` that may be repaired, after a time.
    pub(super) fn due(&self, unit: usize, marks: &ChangedRanges, after_ms: i64) -> Vec<i64> {
        let group = self.group(unit);
        let since_ms = self.rules(unit).map(|(_, rule)| rule.since_ms).max().unwrap_or(i64::MAX);
        let horizon_ms = self.taken.horizon_ms.min(group.restored_from_ms);
        let oldest_ms = since_ms.max(horizon_ms).max(after_ms.saturating_add(1));
        let newest_ms = group.end_ms().saturating_sub(1);
        let within = |range: &(i64, i64)| group.rounds.within(range.0.max(oldest_ms), range.1.min(newest_ms));
        marks.as_slice().iter().flat_map(within).collect()
    }

    /// Returns true if the rounds of a unit are evaluated one after the other.
    pub(super) fn is_stepped(&self, unit: usize) -> bool {
        !self.order.units[unit].later.is_empty() || self.rules(unit).any(|(_, rule)| rule.lookback.is_none())
    }

    /// Round of a group after another one, if it has ended.
    pub(super) fn next_round(&self, unit: usize, time_ms: i64) -> Option<i64> {
        self.group(unit).rounds.next(time_ms)
    }

    /// Consecutive rounds, each as many as one query evaluates.
    pub(super) fn chains(&self, unit: usize, times: &[i64]) -> Vec<Vec<i64>> {
        let rounds = &self.group(unit).rounds;
        let mut chains: Vec<Vec<i64>> = Vec::new();
        for &time_ms in times {
            match chains.last_mut() {
                Some(chain)
                    if chain.len() < ROUNDS_PER_QUERY_MAX
                        && chain.last().is_some_and(|&last| rounds.next(last) == Some(time_ms)) =>
                {
                    chain.push(time_ms);
                }
                _ => chains.push(vec![time_ms]),
            }
        }
        chains
    }

    /// The last round before in which the rules did not fail.
    pub(super) fn round_before(&self, unit: usize, recorded: &Recorded, time_ms: i64) -> Option<i64> {
        let rounds = &self.group(unit).rounds;
        let is_failed = |time_ms: i64| {
            !recorded.has_samples(time_ms) && self.rules(unit).any(|(_, rule)| rule.failed.contains(&time_ms))
        };
        let mut before = rounds.previous(time_ms);
        while let Some(time_ms) = before.filter(|&time_ms| is_failed(time_ms)) {
            before = rounds.previous(time_ms);
        }
        before
    }

    /// Difference between a round and the results of the rules that did not fail.
    pub(super) fn compare(
        &self,
        unit: usize,
        recorded: &mut Recorded,
        time_ms: i64,
        results: Vec<Vec<RuleSample>>,
        given_up_rounds: &Counter,
    ) -> Correction {
        let has_failed = results.len() < self.order.units[unit].rules.len();
        if has_failed {
            given_up_rounds.add(1);
        }
        let before_ms = self.round_before(unit, recorded, time_ms);
        let result = (!has_failed).then(|| joined(results));
        recorded.correct(time_ms, before_ms, result)
    }
}
