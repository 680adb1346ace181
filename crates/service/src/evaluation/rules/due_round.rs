//! One piece of work on a group: a round with its notifications, or the marks of a removed group.
//!
//! Invariants: the state of the group is given back however the work ends; alerts are sent after the state
//! has been stored, and while the permit of the round holds.
//! Not here: which work is due (`engine`), sending (the caller).

use std::sync::Arc;

use chronolith_model::Labels;
use chronolith_rules::group::{Group, GroupKey};
use chronolith_rules::notifier::{Alert, AlertEnd, generator_url};
use chronolith_rules::prometheus_templates::PrometheusTemplates;
use chronolith_rules::round::{
    ActiveGroup, Notification, Record as _, RoundContext, RoundReport, RoundSettings, RuleSample, SampleValue,
};
use chronolith_rules::schedule::NS_PER_MS;
use chronolith_rules::status::{GroupStatus, Health, LastRound, RuleStatus};

use super::batch_evaluation::{BatchEvaluation, Timing};
use super::environment::{now_ns, state_files};
use super::recording::RuleWriter;
use super::repair::{RepairEnding, RunningRound, run_repair};
use crate::access::Identity;
use crate::limits::RULE_ROUND_TIME_MIN_MS;
use crate::rules::engine::TakenWork;
use crate::rules::group_id::GroupId;
use crate::rules::repair::TakenRepair;
use crate::rules::round_permit::RoundPermit;
use crate::rules::scheduled::{RoundPlan, Work};
use crate::rules::state_files::GroupFile;
use crate::service::Service;

/// Work that is due: of the engine, or a repair.
pub struct DueRound(pub(super) DueWork);

/// Work of either kind.
pub(super) enum DueWork {
    /// A round, or the marks of a removed group.
    Group(TakenWork, RoundPermit),
    /// Rounds of a tenant that are evaluated again.
    Repair(TakenRepair),
}

/// Gives a group back to the engine, also after a panic.
struct GiveBack<'a> {
    service: &'a Service,
    id: &'a GroupId,
    ending: Ending,
}

/// End of the work on a group.
enum Ending {
    /// The work did not end: its state is read again.
    Broken,
    /// State and status after a round.
    Round(Box<(ActiveGroup, GroupStatus)>),
    /// The series of the removed group are marked as stale.
    Removed,
    /// The permit was over: another process goes on with the group.
    GivenUp,
}

impl<'a> GiveBack<'a> {
    fn new(service: &'a Service, id: &'a GroupId) -> GiveBack<'a> {
        GiveBack { service, id, ending: Ending::Broken }
    }
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        let GiveBack { service, id, .. } = *self;
        let engine = &service.rules.engine;
        let now_ns = now_ns(service);
        match std::mem::replace(&mut self.ending, Ending::Broken) {
            Ending::Broken => engine.finish(id, None, now_ns),
            Ending::Round(ended) => engine.finish(id, Some(*ended), now_ns),
            Ending::Removed => engine.finish_removed(id, state_files(service), now_ns),
            Ending::GivenUp => engine.give_up(id, now_ns),
        }
    }
}

/// A round that has been evaluated.
struct EndedRound {
    report: RoundReport,
    timings: Vec<Timing>,
    started_ns: i64,
    duration_ns: u64,
}

impl DueRound {
    /// Runs the work on this thread; `send` gets alerts that are due.
    pub fn run(self, service: &Service, settings: &RoundSettings, send: &dyn Fn(&[Arc<Alert>])) {
        let (taken, permit) = match self.0 {
            DueWork::Group(taken, permit) => (taken, permit),
            DueWork::Repair(taken) => return run_repair(service, &taken),
        };
        match taken.work {
            Work::Round(plan) => run_round(taken, plan, &permit, service, settings, send),
            Work::MarkStale { removed_ns } => mark_stale(taken, removed_ns, &permit, service),
        }
    }

    /// Gives the work up, as there is no thread for it. The group goes on with its next round.
    pub fn give_up(self, service: &Service) {
        match &self.0 {
            DueWork::Group(taken, _) => drop(GiveBack::new(service, &taken.id)),
            DueWork::Repair(taken) => drop(RepairEnding::new(service, taken)),
        }
    }
}

fn run_round(
    taken: TakenWork,
    plan: RoundPlan,
    permit: &RoundPermit,
    service: &Service,
    settings: &RoundSettings,
    send: &dyn Fn(&[Arc<Alert>]),
) {
    let TakenWork { id, mut active, .. } = taken;
    let mut give_back = GiveBack::new(service, &id);
    let Some(before) = service.rules.engine.status_of(&id) else { return };
    let running = RunningRound::begin(service, &id, &active, plan.time_ns);
    let Some(mut ended) = evaluate(service, &id, &mut active, plan, permit, settings) else { return };
    // Alerts of a process that was paused may be old ones by now.
    if permit.check().is_err() {
        permit.note_given_up();
        give_back.ending = Ending::GivenUp;
        return;
    }
    if let Some(running) = running {
        running.end(&ended.report);
    }
    let notifications = std::mem::take(&mut ended.report.notifications);
    let group = active.shared_group();
    let mut status = status_after(&before, &active, plan, &ended);
    status.rounds.repaired = service.rules.repairs.repaired_count(&id);
    count(service, &status, &ended);
    log_failures(&id, &group, &ended.report);
    give_back.ending = Ending::Round(Box::new((active, status)));
    drop(give_back);
    let alert = |notification| Arc::new(alert_of(&group, notification, &settings.external_url));
    let alerts: Vec<Arc<Alert>> = notifications.into_iter().map(alert).collect();
    if !alerts.is_empty() {
        send(&alerts);
    }
}

/// Marks the series of a removed group as stale at the time of its removal, as Prometheus does.
fn mark_stale(taken: TakenWork, removed_ns: i64, permit: &RoundPermit, service: &Service) {
    let TakenWork { id, active, .. } = taken;
    let mut give_back = GiveBack::new(service, &id);
    let time_ms = active.sample_time_ms(removed_ns);
    let identity = Identity::internal(&id.tenant);
    let marker = |labels: Labels| RuleSample { labels, time_ms, value: SampleValue::Stale };
    let markers: Vec<RuleSample> = active.into_series().into_iter().map(marker).collect();
    if !markers.is_empty()
        && let Err(error) = (RuleWriter { service, identity: &identity, permit }).record(&markers)
    {
        let GroupKey { file, name } = &id.key;
        tracing::warn!(file, group = name, error, "series of a removed rule group not marked as stale");
    }
    give_back.ending = if permit.check().is_ok() { Ending::Removed } else { Ending::GivenUp };
}

/// Evaluates a round; `None` if it was interrupted.
fn evaluate(
    service: &Service,
    id: &GroupId,
    active: &mut ActiveGroup,
    plan: RoundPlan,
    permit: &RoundPermit,
    settings: &RoundSettings,
) -> Option<EndedRound> {
    let engine = &service.rules.engine;
    let clock = &service.env.clock;
    let identity = permit.identity(&id.tenant);
    let started_ns = clock.now_ms().saturating_mul(NS_PER_MS);
    let start_mono_ns = clock.mono_ns();
    let time_max_ms = active.group().interval_ms.max(RULE_ROUND_TIME_MIN_MS);
    let mut evaluation = BatchEvaluation {
        service,
        identity: &identity,
        group: &id.key,
        interrupts: &engine.interrupts,
        time_max_ms,
        deadline_ns: start_mono_ns.saturating_add(time_max_ms.unsigned_abs().saturating_mul(1_000_000)),
        timings: Vec::new(),
        values_memory: Vec::new(),
    };
    let mut record = RuleWriter { service, identity: &identity, permit };
    let rounds = service.rules.repairs.stored_rounds(id);
    let mut state = GroupFile { files: state_files(service), id, rounds, permit };
    let mut ctx = RoundContext {
        evaluate: &mut evaluation,
        record: &mut record,
        state: &mut state,
        templates: &PrometheusTemplates::default(),
        settings,
    };
    let report = active.evaluate(plan.time_ns, plan.notifications, &mut ctx).ok()?;
    let timings = evaluation.timings;
    Some(EndedRound {
        report,
        timings,
        started_ns,
        duration_ns: clock.mono_ns().saturating_sub(start_mono_ns),
    })
}

/// Status of the group after a round.
fn status_after(
    before: &GroupStatus,
    active: &ActiveGroup,
    plan: RoundPlan,
    ended: &EndedRound,
) -> GroupStatus {
    let group = active.shared_group();
    let mut rules = vec![RuleStatus::default(); group.rules().len()];
    for (&rule_idx, timing) in group.batches().iter().flatten().zip(&ended.timings) {
        let report = &ended.report.rules[rule_idx];
        let health = report.error.clone().map_or(Health::Ok, Health::Err);
        let alerts = Arc::new(active.alerts(rule_idx).cloned().unwrap_or_default());
        rules[rule_idx] = RuleStatus {
            health,
            evaluated_ns: Some(timing.started_ns),
            duration_ns: timing.duration_ns,
            sample_count: report.sample_count,
            alerts,
        };
    }
    let mut rounds = before.rounds;
    if plan.is_caught_up {
        rounds.caught_up += 1;
    } else {
        rounds.evaluated += 1;
    }
    rounds.missed += plan.missed_count;
    rounds.lost += plan.lost_count;
    let mut evaluations = before.evaluations;
    evaluations.all += rules.len() as u64;
    evaluations.failed += ended.report.rules.iter().filter(|rule| rule.error.is_some()).count() as u64;
    let last_round = Some(LastRound {
        time_ns: plan.time_ns,
        started_ns: ended.started_ns,
        duration_ns: ended.duration_ns,
        is_caught_up: plan.is_caught_up,
    });
    GroupStatus { group, origin: before.origin, last_round, rules, rounds, evaluations }
}

fn count(service: &Service, status: &GroupStatus, ended: &EndedRound) {
    let counters = &service.rules.engine.counters;
    counters.rounds.observe_ns(ended.duration_ns);
    status.rules.iter().for_each(|rule| counters.evaluations.observe_ns(rule.duration_ns));
    let rejected = ended.report.rules.iter().map(|rule| rule.rejected_count as u64);
    counters.rejected_samples.add(rejected.sum());
}

fn log_failures(id: &GroupId, group: &Group, report: &RoundReport) {
    let GroupId { tenant, key, .. } = id;
    for (rule, outcome) in group.rules().iter().zip(&report.rules) {
        if let Some(error) = &outcome.error {
            tracing::warn!(%tenant, file = key.file, group = key.name, rule = rule.name, error, "rule failed");
        }
        if let Some(error) = &outcome.template_error {
            tracing::warn!(
                %tenant,
                file = key.file,
                group = key.name,
                rule = rule.name,
                error,
                "template of an alert failed"
            );
        }
    }
    if let Some(error) = &report.state_error {
        tracing::error!(%tenant, file = key.file, group = key.name, error, "state of a rule group not stored");
    }
}

/// An alert as Alertmanagers get it.
fn alert_of(group: &Group, notification: Notification, external_url: &str) -> Alert {
    let Notification { rule_idx, labels, alert, valid_until_ns } = notification;
    let ms = |ns: i64| ns.div_euclid(NS_PER_MS);
    let end = match alert.resolved_at_ns {
        Some(resolved_ns) => AlertEnd::ResolvedAtMs(ms(resolved_ns)),
        None => AlertEnd::ValidUntilMs(ms(valid_until_ns)),
    };
    let query = group.rules().get(rule_idx).map_or("", |rule| &rule.query);
    Alert {
        labels,
        annotations: Labels::from_pairs(alert.annotations.iter().map(|(k, v)| (k.as_str(), v.as_str()))),
        starts_at_ms: ms(alert.fired_at_ns.unwrap_or(alert.active_at_ns)),
        end,
        generator_url: generator_url(external_url, query),
    }
}
