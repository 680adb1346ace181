//! Rules of a group that are evaluated together in a pass: equal parts of their expressions once (ADR 0130).
//!
//! Invariant: changes are taken over after the last rule of a component, so that all of its rules read the
//! series as they were before it.
//! Not here: which units may be evaluated together (`pass`), what can be computed once
//! (`chronolith_promql::engine::batch`).

use std::ops::ControlFlow;
use std::sync::Arc;

use chronolith_promql::Query;
use chronolith_promql::engine::batch::{BatchPlan, Compute, Member};
use chronolith_promql::engine::trace::Trace;
use chronolith_rules::rule::Rule;

use super::{Ended, Pass, RoundChanges, listed, query_of, results_of};
use crate::evaluation::call_context::CallContext;
use crate::evaluation::rules::view::RepairView;
use crate::evaluation::run::further_query;

/// Rounds of units with one rule each.
struct SharedRounds<'r> {
    units: Vec<usize>,
    rules: Vec<&'r Rule>,
    queries: Vec<Query<'r>>,
    times: &'r [i64],
    due: &'r [i64],
}

/// Context, counts and source of an expression.
struct SharedCall {
    ctx: CallContext,
    trace: Arc<Trace>,
    source: RepairView,
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
        let queries = rules.iter().map(|rule| query_of(rule, &group, first, last)).collect();
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
        let call = |_| SharedCall {
            ctx: further_query(self.service, &self.admitted),
            trace: Arc::new(Trace::new()),
            source: self.view(&[], i64::MAX),
        };
        let calls: Vec<SharedCall> = component.iter().map(call).collect();
        let interrupts = &self.service.rules.engine.interrupts;
        // A query may read a part that belongs to another one, so a stop cancels each of them.
        let _listed: Vec<_> = calls.iter().map(|call| interrupts.enter(call.ctx.cancel_flag())).collect();
        let members = component.iter().zip(&calls).map(|(idx, SharedCall { ctx, trace, source })| Member {
            query: &rounds.queries[*idx],
            source,
            ctx,
            trace,
        });
        let members: Vec<Member<'_>> = members.collect();
        let end = self.service.queries.engine.run_component(plan, component, &members, &mut |at, compute| {
            let idx = component[at];
            match self.compare_shared(rounds, idx, &calls[at], compute) {
                Ok(changes) => {
                    compared.extend(changes.map(|changes| (rounds.units[idx], changes)));
                    ControlFlow::Continue(())
                }
                Err(ended) => ControlFlow::Break(ended),
            }
        });
        match end {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(ended) => Err(ended),
        }
    }

    /// Changes of the rounds of one unit; `None` if its rule fails, and is to be evaluated by itself.
    fn compare_shared(
        &self,
        rounds: &SharedRounds<'_>,
        idx: usize,
        call: &SharedCall,
        compute: &mut Compute<'_>,
    ) -> Result<Option<RoundChanges>, Ended> {
        let SharedRounds { units, rules, queries, times, due } = rounds;
        let counters = &self.service.rules.engine.counters;
        let computed = {
            let _running = listed(self.service, &self.taken.tenant, &queries[idx], &call.ctx, &call.trace);
            compute()
        };
        let value = match computed {
            Some(Ok(result)) => result.value,
            Some(Err(_)) | None if call.ctx.check().is_err() => return Err(Ended),
            Some(Err(_)) | None => {
                counters.repeated_evaluations.add(1);
                return Ok(None);
            }
        };
        counters.shared_evaluations.add(1);
        let unit = units[idx];
        let group = &self.units.groups[self.units.order.units[unit].group_idx];
        let results = results_of(self.service, &self.taken.tenant, rules[idx], group, value, times);
        self.compare_rounds(unit, times, due, vec![results]).map(Some)
    }
}
