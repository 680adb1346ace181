//! Rules of a group that are evaluated together in a pass: equal parts of their expressions once (ADR 0130).
//!
//! Invariant: changes are taken over after the last rule of a component, so that all of its rules read the
//! series as they were before it.
//! Not here: which units may be evaluated together (`pass`), what can be computed once
//! (`chronolith_promql::engine::batch`).

use std::sync::Arc;

use chronolith_promql::Query;
use chronolith_promql::engine::batch::{BatchPlan, Compute};
use chronolith_promql::engine::trace::Trace;
use chronolith_rules::rule::Rule;

use super::{CountedValue, Ended, Pass, RoundChanges, begin_counted, results_of, series_max};
use crate::evaluation::rules::component::{Component, RuleCall, query_over};
use crate::evaluation::run::further_query;

/// Rounds of units with one rule each.
struct SharedRounds<'r> {
    units: Vec<usize>,
    rules: Vec<&'r Rule>,
    queries: Vec<Query<'r>>,
    times: &'r [i64],
    due: &'r [i64],
}

impl Pass<'_> {
    /// Evaluates the rounds at `times` of units that have parts in common, and removes these units from
    /// `left`; a rule that fails stays there.
    pub(super) fn run_shared(
        &mut self,
        units: &[usize],
        times: &[i64],
        due: &[i64],
        left: &mut Vec<usize>,
    ) -> Result<(), Ended> {
        let (Some(&unit), Some(&first), Some(&last)) = (units.first(), times.first(), times.last()) else {
            return Ok(());
        };
        let group = self.units.groups[self.units.order.units[unit].group_idx].clone();
        let rules: Vec<&Rule> = units
            .iter()
            .flat_map(|unit| &self.units.order.units[*unit].rules)
            .map(|&idx| &group.rules()[idx])
            .collect();
        assert_eq!(rules.len(), units.len(), "units of one rule");
        let queries = rules.iter().map(|rule| query_over(rule, first, last, group.interval_ms)).collect();
        let rounds = SharedRounds { units: units.to_vec(), rules, queries, times, due };
        let plan = self.service.queries.engine.plan_batch(&rounds.queries);
        for component in plan.components() {
            self.check()?;
            let mut compared = Vec::new();
            let ended = self.compare_component(&plan, component, &rounds, &mut compared);
            for (unit, changes) in compared {
                self.take_changes(unit, times, changes);
                left.retain(|waiting| *waiting != unit);
            }
            ended?;
        }
        Ok(())
    }

    /// Adds the changes of the units of a component whose rules do not fail.
    fn compare_component(
        &self,
        plan: &BatchPlan,
        component: &[usize],
        rounds: &SharedRounds<'_>,
        compared: &mut Vec<(usize, RoundChanges)>,
    ) -> Result<(), Ended> {
        let call = |_| RuleCall {
            ctx: further_query(self.service, &self.admitted),
            trace: Arc::new(Trace::new()),
            source: Arc::new(self.view(&[], i64::MAX)),
        };
        let calls: Vec<RuleCall> = component.iter().map(call).collect();
        let component = Component { plan, members: component, queries: &rounds.queries, calls: &calls };
        component.run(self.service, &mut |idx, call, compute| {
            let changes = self.compare_shared(rounds, idx, call, compute)?;
            compared.extend(changes.map(|changes| (rounds.units[idx], changes)));
            Ok(())
        })
    }

    /// Changes of the rounds of one unit; `None` if its rule fails, and is to be evaluated by itself.
    fn compare_shared(
        &self,
        rounds: &SharedRounds<'_>,
        idx: usize,
        call: &RuleCall,
        compute: &mut Compute<'_>,
    ) -> Result<Option<RoundChanges>, Ended> {
        let SharedRounds { units, rules, queries, times, due } = rounds;
        let counters = &self.service.rules.engine.counters;
        let computed = {
            let _running =
                begin_counted(self.service, &self.taken.tenant, &queries[idx], &call.ctx, &call.trace);
            compute()
        };
        let value = computed.and_then(Result::ok).map(|result| result.value);
        let Some(value) = value.and_then(|value| CountedValue::new(&self.admitted, value).ok()) else {
            if call.ctx.check().is_err() {
                return Err(Ended);
            }
            counters.repeated_evaluations.add(1);
            return Ok(None);
        };
        counters.shared_evaluations.add(1);
        let unit = units[idx];
        let group = &self.units.groups[self.units.order.units[unit].group_idx];
        let series_max = series_max(self.service, &self.taken.tenant);
        let results = results_of(series_max, rules[idx], group, value, times);
        self.compare_rounds(unit, times, due, vec![results]).map(Some)
    }
}
