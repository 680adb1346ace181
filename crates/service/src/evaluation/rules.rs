//! Evaluation of rules: rounds that are due, as calls of the server itself, and rule files.
//!
//! Invariant: rounds begin only while their results can be written, in a cluster while this process has the
//! lease of rules, and while their tenant is not being deleted.
//! Not here: the schedule (`rules::engine`), threads (`server`).

pub mod backfill;
mod batch;
pub mod batch_evaluation;
mod component;
pub mod due_round;
mod environment;
pub mod files;
pub mod lease;
mod recording;
mod repair;
#[cfg(test)]
mod tests;
mod view;

use std::io;
use std::time::Duration;

use chronolith_model::TenantId;
use chronolith_rules::schedule::NS_PER_MS;

use self::due_round::{DueRound, DueWork};
use self::environment::{now_ns, state_files};
use self::repair::take_repair;
use crate::rules::engine::RunningRounds;
use crate::rules::round_permit::RoundPermit;
use crate::rules::scheduled::RestoreTimes;
use crate::service::Service;

/// Takes the rounds that are due and have permits. The caller runs each on a thread of its own.
#[must_use]
pub fn take_due(service: &Service) -> Vec<DueRound> {
    let engine = &service.rules.engine;
    let Some(permit) = RoundPermit::new(&service.lifecycle) else { return Vec::new() };
    if engine.is_stopping() {
        return Vec::new();
    }
    let is_deleted = |tenant: &TenantId| {
        service.lifecycle.opened().is_some_and(|store| store.tenant_deletions().is_running(tenant))
    };
    let may_run = |tenant: &TenantId, running| has_permit(service, tenant, running) && !is_deleted(tenant);
    let taken = engine.take_due(state_files(service), restore_times(service), may_run);
    let rounds = taken.into_iter().map(|taken| DueWork::Group(taken, permit.clone()));
    rounds.chain(take_repair(service).map(DueWork::Repair)).map(DueRound).collect()
}

/// Reads the states of all groups before the store is taken into use, so that a server that is ready lists
/// the alerts that fire.
pub fn restore(service: &Service) {
    if !service.lifecycle.is_read_only() {
        service.rules.engine.restore(state_files(service), restore_times(service));
    }
}

fn restore_times(service: &Service) -> RestoreTimes {
    let options = &service.options.rules;
    RestoreTimes {
        now_ns: now_ns(service),
        horizon_ns: options.catch_up_ms.saturating_mul(NS_PER_MS),
        outage_tolerance_ns: options.outage_tolerance_ms.saturating_mul(NS_PER_MS),
    }
}

/// Removes the configured groups of a tenant that is marked as deleted, and all states of its groups. Returns
/// false while a round of the tenant runs; the call may be repeated.
///
/// # Errors
/// As the disk reports.
pub fn delete_tenant(service: &Service, tenant: &TenantId) -> io::Result<bool> {
    service.rules.configured.delete_tenant(tenant).map_err(io::Error::other)?;
    service.rules.engine.delete_tenant(tenant, state_files(service), now_ns(service))
}

/// Waits until a round ends, groups change, or the next round is due, at most `longest`. Returns true without
/// a wait if groups have changed, or a round has become due, since rounds were last taken.
pub fn wait(service: &Service, longest: Duration) -> bool {
    service.rules.engine.wait(now_ns(service), longest)
}

/// Returns true if a further round of a tenant may run.
fn has_permit(service: &Service, tenant: &TenantId, running: RunningRounds) -> bool {
    let class = &service.admission.rules;
    let limit = service.limits_of(tenant).queries.concurrency_max;
    running.all < class.queue.permit_count() && running.of_tenant < class.share_of(tenant, limit).permit_count
}
