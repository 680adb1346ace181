//! Metrics of rules, with Prometheus's names. Bound: `rules.groups-max` groups per tenant.

use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_rules::status::{GroupStatus, LastRound};
use chronolith_service::Service;
use chronolith_service::metrics::definition::{Metric, Samples};
use chronolith_service::rules::backfills::Backfills;
use chronolith_service::rules::engine::RuleEngine;
use chronolith_service::rules::repair::Repairs;

/// Labels of the metrics of one group; `rule_group` is file and name, as in Prometheus. A group of a file and
/// one of the API may have both in common.
const GROUP_LABELS: &[&str] = &["tenant", "rule_group", "origin"];

/// Groups of all tenants at one moment.
pub(crate) struct RuleGroups(Vec<RuleGroup>);

/// A group with the value of its label.
struct RuleGroup {
    tenant: TenantId,
    rule_group: String,
    status: Arc<GroupStatus>,
}

impl RuleGroups {
    /// Lists the groups. Cost: one copy of names per group.
    pub(crate) fn read(service: &Service) -> RuleGroups {
        let of_one = |(tenant, status): (TenantId, Arc<GroupStatus>)| {
            let key = &status.group.key;
            RuleGroup { tenant, rule_group: format!("{};{}", key.file, key.name), status }
        };
        RuleGroups(service.rules.all().into_iter().map(of_one).collect())
    }
}

pub(crate) static RULE_GROUPS: &[Metric<RuleGroups>] = &[
    Metric::counters(
        "chronolith_rule_group_iterations_total",
        GROUP_LABELS,
        "Rounds of a group whose time has come: evaluated and missed ones.",
        |groups, samples| {
            of_groups(groups, samples, |group| (group.rounds.evaluated + group.rounds.missed) as f64);
        },
    ),
    Metric::counters(
        "chronolith_rule_group_iterations_missed_total",
        GROUP_LABELS,
        "Rounds of a group that were not evaluated, as the round before took too long.",
        |groups, samples| of_groups(groups, samples, |group| group.rounds.missed as f64),
    ),
    Metric::counters(
        "chronolith_rule_group_iterations_caught_up_total",
        GROUP_LABELS,
        "Rounds of a group that were evaluated after a start, for times at which the server was down.",
        |groups, samples| of_groups(groups, samples, |group| group.rounds.caught_up as f64),
    ),
    Metric::counters(
        "chronolith_rule_group_iterations_lost_total",
        GROUP_LABELS,
        "Rounds of a group that were older than rules.catch-up after a start, and are never evaluated.",
        |groups, samples| of_groups(groups, samples, |group| group.rounds.lost as f64),
    ),
    Metric::counters(
        "chronolith_rule_group_iterations_repaired_total",
        GROUP_LABELS,
        "Rounds of a group that were evaluated again, as out-of-order samples came in that they had not seen.",
        |groups, samples| of_groups(groups, samples, |group| group.rounds.repaired as f64),
    ),
    Metric::gauges(
        "chronolith_rule_group_interval_seconds",
        GROUP_LABELS,
        "Interval of a group.",
        |groups, samples| {
            of_groups(groups, samples, |group| group.group.interval_ms as f64 / 1e3);
        },
    ),
    Metric::gauges(
        "chronolith_rule_group_last_duration_seconds",
        GROUP_LABELS,
        "Duration of the last round of a group.",
        |groups, samples| of_last_round(groups, samples, |round| round.duration_ns as f64 / 1e9),
    ),
    Metric::gauges(
        "chronolith_rule_group_last_evaluation_timestamp_seconds",
        GROUP_LABELS,
        "Start of the last round of a group, since 1970.",
        |groups, samples| of_last_round(groups, samples, |round| round.started_ns as f64 / 1e9),
    ),
    Metric::gauges(
        "chronolith_rule_group_last_evaluation_samples",
        GROUP_LABELS,
        "Samples of the results of the last round of a group.",
        |groups, samples| {
            of_groups(groups, samples, |group| group.rules.iter().map(|rule| rule.sample_count as f64).sum());
        },
    ),
    Metric::gauges("chronolith_rule_group_rules", GROUP_LABELS, "Rules of a group.", |groups, samples| {
        of_groups(groups, samples, |group| group.group.rules().len() as f64);
    }),
    Metric::counters(
        "chronolith_rule_evaluations_total",
        GROUP_LABELS,
        "Evaluations of the rules of a group.",
        |groups, samples| of_groups(groups, samples, |group| group.evaluations.all as f64),
    ),
    Metric::counters(
        "chronolith_rule_evaluation_failures_total",
        GROUP_LABELS,
        "Evaluations of the rules of a group that failed.",
        |groups, samples| of_groups(groups, samples, |group| group.evaluations.failed as f64),
    ),
];

pub(crate) static RULE_REPAIRS: &[Metric<Repairs>] = &[
    Metric::counter(
        "chronolith_rule_repair_rounds_given_up_total",
        "Rounds of rule groups that samples came in for which are older than rules.repair-window, and rounds whose repair failed.",
        |repairs| repairs.given_up_rounds.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_repair_evaluations_total",
        "Queries of repairs; one over several rounds counts once.",
        |repairs| repairs.evaluations.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_repair_corrected_samples_total",
        "Recorded samples that repairs have replaced, added or removed.",
        |repairs| repairs.corrected_samples.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_repair_seconds_total",
        "Time that repairs have taken, bounded by rules.repair-cpu.",
        |repairs| repairs.busy_ns.as_f64() / 1e9,
    ),
    Metric::gauge(
        "chronolith_rule_repair_rules_pending",
        "Recording rules with rounds that are to be evaluated again.",
        |repairs| repairs.pending_rule_count() as f64,
    ),
];

pub(crate) static RULE_BACKFILLS: &[Metric<Backfills>] = &[
    Metric::counter(
        "chronolith_rule_backfill_rounds_total",
        "Rounds of rules that backfills have evaluated.",
        |backfills| backfills.rounds.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_backfill_rounds_failed_total",
        "Rounds of rules that failed in a backfill, and changed nothing.",
        |backfills| backfills.failed_rounds.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_backfill_evaluations_total",
        "Queries of backfills; one over several rounds counts once.",
        |backfills| backfills.evaluations.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_backfill_changed_samples_total",
        "Samples that backfills have added, replaced or removed.",
        |backfills| backfills.changed_samples.as_f64(),
    ),
];

pub(crate) static RULES: &[Metric<RuleEngine>] = &[
    Metric::histograms(
        "chronolith_rule_group_duration_seconds",
        &[],
        "Durations of rounds of rule groups.",
        |engine, samples| samples.push_histogram(&[], &engine.counters.rounds),
    ),
    Metric::histograms(
        "chronolith_rule_evaluation_duration_seconds",
        &[],
        "Durations of the evaluation of rules.",
        |engine, samples| samples.push_histogram(&[], &engine.counters.evaluations),
    ),
    Metric::gauge("chronolith_rule_rounds_running", "Rounds of rule groups that run.", |engine| {
        engine.running_count() as f64
    }),
    Metric::counter(
        "chronolith_rule_rounds_broken_total",
        "Rounds that ended early, by a stop of the server or a panic.",
        |engine| engine.counters.broken_rounds.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_evaluations_shared_total",
        "Evaluations of rules together with others of their batch that read the same samples.",
        |engine| engine.counters.shared_evaluations.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_evaluations_repeated_total",
        "Evaluations of rules that were repeated alone, as a limit, a failed read or a kill ended them together.",
        |engine| engine.counters.repeated_evaluations.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_rejected_samples_total",
        "Samples of rules that the store refused.",
        |engine| engine.counters.rejected_samples.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_state_write_failures_total",
        "States of rule groups that could not be stored after a round.",
        |engine| engine.counters.state_write_failures.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_states_without_series_total",
        "States of rule groups that were stored without the series of recording rules, as a group has more than \
         10000: those that end during a restart get no staleness marker.",
        |engine| engine.counters.states_without_series.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_state_damaged_files_total",
        "Files with the state of a rule group that could not be read at the start.",
        |engine| engine.counters.damaged_states.as_f64(),
    ),
    Metric::gauge(
        "chronolith_rules_last_reload_successful",
        "1 if all rule files could be used when they were last read, 0 if the groups before stay.",
        |engine| f64::from(u8::from(engine.counters.is_reload_ok())),
    ),
    Metric::gauge(
        "chronolith_rules_last_reload_success_timestamp_seconds",
        "When the rule files in use were read, since 1970.",
        |engine| engine.counters.reloaded_ms() as f64 / 1e3,
    ),
];

fn of_groups(groups: &RuleGroups, samples: &mut Samples, value: impl Fn(&GroupStatus) -> f64) {
    for group in &groups.0 {
        group.push(samples, value(&group.status));
    }
}

/// As [`of_groups`], of groups that have had a round.
fn of_last_round(groups: &RuleGroups, samples: &mut Samples, value: impl Fn(&LastRound) -> f64) {
    for group in &groups.0 {
        if let Some(round) = &group.status.last_round {
            group.push(samples, value(round));
        }
    }
}

impl RuleGroup {
    fn push(&self, samples: &mut Samples, value: f64) {
        samples.push(&[self.tenant.as_str(), &self.rule_group, self.status.origin.as_str()], value);
    }
}
