//! Repair of the recording rules of a tenant: rounds that out-of-order samples may have changed are evaluated
//! again, a rule after the rules that it reads, and what differs is corrected (ADR 0129).
//!
//! Invariants: a repair evaluates over its own corrections and writes them at its end; a round whose
//! evaluation fails keeps its samples. Consecutive rounds are one range query, unless a rule reads results
//! that it has not seen at their time, its own among them.
//! Not here: which rounds wait (`rules::repair`), alerts: their states and series are not repaired.

mod commit;
mod pass;

use chronolith_model::change::ChangeWatch as _;
use chronolith_model::{StoreId, TenantId};
use chronolith_promql::engine::Query;
use chronolith_promql::engine::lookback::{Lookback, cache_plan};
use chronolith_rules::group::Group;
use chronolith_rules::round::{ActiveGroup, RoundReport};
use chronolith_rules::rule::Rule;

use self::pass::Pass;
use super::environment::{now_ns, state_files};
use crate::rules::group_id::GroupId;
use crate::rules::repair::{RepairTimes, RepairedGroup, TakenRepair};
use crate::service::Service;

/// Longest run of a repair; rounds that are left wait for the next one.
const RUN_MAX_NS: u64 = 5_000_000_000;

/// A round that runs; it counts as not evaluated unless it is ended.
pub(super) struct RunningRound<'a> {
    service: &'a Service,
    id: &'a GroupId,
}

impl<'a> RunningRound<'a> {
    /// Records the changes before the round, and its begin; `None` if nothing is repaired.
    pub(super) fn begin(
        service: &'a Service,
        id: &'a GroupId,
        active: &ActiveGroup,
        time_ns: i64,
    ) -> Option<RunningRound<'a>> {
        if !is_on(service) {
            return None;
        }
        let group = active.shared_group();
        let time_ms = active.sample_time_ms(time_ns);
        // Before the round is known: it sees these changes, and later ones are reported by the next call.
        note_changes(service, &id.tenant);
        let stored = || Some(state_files(service).load(id)?.rounds);
        let lookbacks = || lookbacks(service, &group, time_ms);
        service.rules.repairs.begin_round(id, &group, time_ms, times(service), lookbacks, stored);
        Some(RunningRound { service, id })
    }

    pub(super) fn end(self, report: &RoundReport) {
        let failed: Vec<bool> = report.rules.iter().map(|rule| rule.error.is_some()).collect();
        self.service.rules.repairs.end_round(self.id, Some(&failed));
    }
}

impl Drop for RunningRound<'_> {
    fn drop(&mut self) {
        // Without effect after the end.
        self.service.rules.repairs.end_round(self.id, None);
    }
}

/// Returns true if rounds are repaired: a process of a cluster does not know which samples came in.
fn is_on(service: &Service) -> bool {
    service.options.rules.repair_window_ms > 0 && service.lifecycle.roles.roles().is_all()
}

/// Samples that decide the rounds of each rule.
fn lookbacks(service: &Service, group: &Group, time_ms: i64) -> Vec<Option<Lookback>> {
    group.rules().iter().map(|rule| lookback_of(service, group, rule, time_ms)).collect()
}

/// Samples that decide a round of a rule; `None` if a round does not depend on its time alone.
pub(super) fn lookback_of(service: &Service, group: &Group, rule: &Rule, time_ms: i64) -> Option<Lookback> {
    let step_ms = group.interval_ms;
    let query = Query {
        text: &rule.query,
        expr: &rule.expr,
        start_ms: time_ms,
        end_ms: time_ms.saturating_add(step_ms),
        step_ms,
        lookback_ms: None,
    };
    cache_plan(&query, service.queries.engine.options()).map(|plan| plan.lookback)
}

pub(super) fn times(service: &Service) -> RepairTimes {
    RepairTimes {
        now_ns: now_ns(service),
        mono_ns: service.env.clock.mono_ns(),
        window_ms: service.options.rules.repair_window_ms,
    }
}

/// Takes the changes of a tenant since the last call.
fn note_changes(service: &Service, tenant: &TenantId) {
    let Ok(store) = service.lifecycle.store() else { return };
    let id = StoreId::from(tenant);
    service.rules.repairs.note_changes(tenant, times(service), |last| {
        let now = store.generation(&id);
        let changed = last.map(|last| store.written_to_rules_since(&id, last)).unwrap_or_default();
        (now, changed)
    });
}

/// Takes the repair that is due. The caller runs it on a thread of its own.
pub(super) fn take_repair(service: &Service) -> Option<TakenRepair> {
    if !is_on(service) {
        return None;
    }
    let repairs = &service.rules.repairs;
    repairs.retain(|id| service.rules.engine.status_of(id).is_some());
    repairs.tenants().iter().for_each(|tenant| note_changes(service, tenant));
    repairs.take(times(service))
}

/// Runs a repair on this thread.
pub(super) fn run_repair(service: &Service, taken: &TakenRepair) {
    let mut ending = RepairEnding::new(service, taken);
    let pass = Pass::begin(service, taken, ending.started_ns.saturating_add(RUN_MAX_NS));
    let Some(mut pass) = pass else { return };
    pass.run();
    if service.rules.engine.is_stopping() {
        // The next start marks these rounds again.
        return;
    }
    match commit::write(service, &taken.tenant, pass.written()) {
        Ok(count) => service.rules.repairs.corrected_samples.add(count),
        Err(error) => {
            tracing::warn!(tenant = %taken.tenant, error, "corrections of recording rules not stored");
            return;
        }
    }
    ending.repaired = pass.outcome();
}

/// Ends a repair, also after a panic: rounds that were not repaired wait for the next one.
pub(super) struct RepairEnding<'a> {
    service: &'a Service,
    taken: &'a TakenRepair,
    started_ns: u64,
    repaired: Vec<RepairedGroup>,
}

impl<'a> RepairEnding<'a> {
    pub(super) fn new(service: &'a Service, taken: &'a TakenRepair) -> RepairEnding<'a> {
        let left = |group: &crate::rules::repair::GroupRepairs| RepairedGroup {
            left: group.rules.iter().map(|rule| rule.pending).collect(),
            round_count: 0,
        };
        let repaired = taken.groups.iter().map(|(_, group)| left(group)).collect();
        RepairEnding { service, taken, started_ns: service.env.clock.mono_ns(), repaired }
    }
}

impl Drop for RepairEnding<'_> {
    fn drop(&mut self) {
        let RepairEnding { service, taken, started_ns, .. } = *self;
        let repairs = &service.rules.repairs;
        let ended_ns = service.env.clock.mono_ns();
        let busy_ns = ended_ns.saturating_sub(started_ns);
        repairs.busy_ns.add(busy_ns);
        // The pause makes the work this share of the time.
        let percent = u64::from(service.options.rules.repair_cpu_percent.clamp(1, 100));
        let pause_ns = busy_ns.saturating_mul(100 - percent) / percent;
        repairs.finish(taken, &self.repaired, now_ns(service), ended_ns.saturating_add(pause_ns));
        for ((id, _), repaired) in taken.groups.iter().zip(&self.repaired) {
            if repaired.round_count > 0 {
                service.rules.engine.note_repaired(id, repairs.repaired_count(id));
            }
        }
    }
}
