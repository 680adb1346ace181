//! Checks of a backfill before anything is evaluated: rules, range, limits, position.
//!
//! Invariant: the rounds of a backfill are at or before now, and before the last round of the server for a
//! group that is loaded under its file and name: that round belongs to the state of the group.
//! Not here: rule files of the server (`files`).

use std::collections::BTreeSet;
use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_rules::backfill::{BackfillPlan, RoundTimes};
use chronolith_rules::file::{self, FileLimits, FileOptions, UnknownFields};
use chronolith_rules::group::{Group, Origin};
use chronolith_rules::prometheus_templates::PrometheusTemplates;

use super::progress::Position;
use crate::evaluation::rules::files::check_limits;
use crate::evaluation::rules::repair::lookback_of;
use crate::limits::RULE_BACKFILL_ROUNDS_MAX;
use crate::query::context::parser_options;
use crate::rules::backfills::RunningBackfill;
use crate::rules::group_id::GroupId;
use crate::service::Service;

/// Effect of a backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackfillMode {
    /// Stores what differs.
    Write,
    /// Counts what would be stored. A rule that reads results of this backfill reads the stored ones.
    DryRun,
}

/// A backfill as it is asked for.
#[derive(Debug, Clone)]
pub struct BackfillRequest {
    /// Tenant whose series the rules read and write.
    pub tenant: TenantId,
    /// Groups of all files.
    pub groups: Vec<Group>,
    /// First and last time of samples, in milliseconds.
    pub range: (i64, i64),
    /// Names of the groups that are evaluated; empty for all.
    pub group_names: Vec<String>,
    /// Effect.
    pub mode: BackfillMode,
    /// Position of an interrupted backfill.
    pub resume: Option<String>,
}

/// Reason that a backfill does not begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackfillRefusal {
    /// The request is wrong.
    #[error("{0}")]
    Invalid(String),
    /// Another backfill of the tenant runs.
    #[error("a backfill of this tenant runs already")]
    Busy,
}

impl From<String> for BackfillRefusal {
    fn from(why: String) -> BackfillRefusal {
        BackfillRefusal::Invalid(why)
    }
}

/// A backfill that can run.
pub struct Backfill<'a> {
    pub(super) tenant: TenantId,
    pub(super) plan: BackfillPlan,
    /// By group of the plan.
    pub(super) rounds: Vec<Option<RoundTimes>>,
    pub(super) hash: u64,
    pub(super) position: Position,
    pub(super) mode: BackfillMode,
    skipped_alerts: Vec<String>,
    range: (i64, i64),
    _running: RunningBackfill<'a>,
}

impl Backfill<'_> {
    /// Groups with a recording rule.
    #[must_use]
    pub fn group_count(&self) -> usize {
        self.plan.groups().len()
    }

    /// Recording rules.
    #[must_use]
    pub fn rule_count(&self) -> usize {
        self.plan.order().units.iter().map(|unit| unit.rules.len()).sum()
    }

    /// Names of alerting rules, which have no history.
    #[must_use]
    pub fn skipped_alerts(&self) -> &[String] {
        &self.skipped_alerts
    }

    /// Stages.
    #[must_use]
    pub fn stage_count(&self) -> usize {
        self.plan.stages().len()
    }

    /// First and last time of samples, as they were asked for.
    #[must_use]
    pub fn range(&self) -> (i64, i64) {
        self.range
    }

    /// Returns true if the numbers of a dry run may differ from what a run writes: rules read the results of
    /// others, or their own.
    #[must_use]
    pub fn is_estimate(&self) -> bool {
        self.mode == BackfillMode::DryRun && self.plan.has_dependent_rules()
    }

    /// Rounds of all rules.
    #[must_use]
    pub fn round_count(&self) -> u64 {
        (0..self.plan.order().units.len()).map(|unit| self.rounds_of(unit, i64::MAX)).sum()
    }

    /// Rounds of the rules of a unit before a time.
    pub(super) fn rounds_of(&self, unit: usize, end_ms: i64) -> u64 {
        let unit = &self.plan.order().units[unit];
        let Some(rounds) = self.rounds[unit.group_idx] else { return 0 };
        let left = rounds.since(end_ms).map_or(0, |left| left.count());
        (rounds.count() - left) as u64 * unit.rules.len() as u64
    }
}

/// Reads rule files that a client has sent; each with the name that decides the times of its groups.
///
/// # Errors
/// All faults, with file, line and column.
pub fn read_groups(service: &Service, files: &[(String, Vec<u8>)]) -> Result<Vec<Group>, String> {
    let templates = PrometheusTemplates::default();
    let options = FileOptions {
        parser: parser_options(service.options.features),
        unknown_fields: UnknownFields::Refuse,
        templates: &templates,
        limits: FileLimits::default(),
    };
    let mut names = BTreeSet::new();
    let mut groups = Vec::new();
    let mut faults = Vec::new();
    for (name, bytes) in files {
        if !names.insert(name) {
            return Err(format!("file {name:?} is there twice"));
        }
        match file::parse(name, bytes, &options) {
            Ok(parsed) => {
                let defaults = service.options.rules.defaults;
                groups.extend(parsed.groups.into_iter().map(|entry| Group::new(name, entry, defaults)));
            }
            Err(errors) => faults.extend(errors.iter().map(ToString::to_string)),
        }
    }
    if faults.is_empty() { Ok(groups) } else { Err(faults.join("; ")) }
}

/// Checks a backfill and begins it: the tenant has no other one until the result is dropped.
///
/// # Errors
/// [`BackfillRefusal`].
pub fn prepare(service: &Service, request: BackfillRequest) -> Result<Backfill<'_>, BackfillRefusal> {
    let BackfillRequest { tenant, groups, range, group_names, mode, resume } = request;
    check_range(service, &tenant, range)?;
    let groups = named(groups, &group_names)?;
    let limits = service.limits_of(&tenant).queries.rules;
    check_limits(&groups, 0, &limits)?;
    let rules = || groups.iter().flat_map(Group::rules);
    let alerts = rules().filter(|rule| rule.alerting().is_some());
    let skipped_alerts: Vec<String> = alerts.map(|rule| rule.name.clone()).collect();
    if rules().count() == skipped_alerts.len() {
        return Err("there is no recording rule".to_owned().into());
    }
    let has_recording = |group: &Group| group.rules().iter().any(|rule| rule.alerting().is_none());
    let groups: Vec<Arc<Group>> = groups.into_iter().filter(has_recording).map(Arc::new).collect();
    let plan = BackfillPlan::of(groups, |group, rule| lookback_of(service, group, rule, range.0).is_some());
    let rounds = plan.groups().iter().map(|group| rounds_of(service, &tenant, group, range)).collect();
    let hash = plan.hash(range);
    let position = resume.map_or(Ok(Position::START), |token| Position::parse(&token, hash))?;
    let running = service.rules.backfills.begin(&tenant).ok_or(BackfillRefusal::Busy)?;
    let backfill =
        Backfill { tenant, plan, rounds, hash, position, mode, skipped_alerts, range, _running: running };
    let round_count = backfill.round_count();
    if round_count > RULE_BACKFILL_ROUNDS_MAX {
        let rule_count = backfill.rule_count();
        return Err(BackfillRefusal::Invalid(format!(
            "{rule_count} rules have {round_count} rounds in this range, and a backfill may have \
             {RULE_BACKFILL_ROUNDS_MAX}: divide the range or the rules"
        )));
    }
    Ok(backfill)
}

/// # Errors
/// The text for the client.
fn check_range(service: &Service, tenant: &TenantId, range: (i64, i64)) -> Result<(), String> {
    let (start_ms, end_ms) = range;
    let now_ms = service.env.clock.now_ms();
    if start_ms >= end_ms {
        return Err("start has to be before end".to_owned());
    }
    if end_ms > now_ms {
        return Err(format!("end is {} ms in the future: there are no rounds yet", end_ms - now_ms));
    }
    let limits = service.limits_of(tenant);
    for (age_ms, what) in [
        (limits.retention_ms, "the retention of the tenant: its samples would be removed"),
        (limits.queries.lookback_ms, "the time that queries of the tenant may read"),
    ] {
        let oldest_ms = now_ms.saturating_sub(age_ms);
        if age_ms > 0 && start_ms < oldest_ms {
            let seconds = (oldest_ms as f64 / 1000.0).ceil();
            return Err(format!("start is before {what}; the earliest start is {seconds}"));
        }
    }
    Ok(())
}

/// The groups with these names; all without any.
///
/// # Errors
/// A name that no group has.
fn named(groups: Vec<Group>, names: &[String]) -> Result<Vec<Group>, String> {
    if let Some(unknown) = names.iter().find(|name| groups.iter().all(|group| group.key.name != **name)) {
        return Err(format!("there is no group {unknown:?}"));
    }
    let is_named = |group: &Group| names.is_empty() || names.contains(&group.key.name);
    Ok(groups.into_iter().filter(is_named).collect())
}

/// Rounds of a group in `range` that the backfill evaluates.
fn rounds_of(service: &Service, tenant: &TenantId, group: &Group, range: (i64, i64)) -> Option<RoundTimes> {
    let now_ms = service.env.clock.now_ms();
    let mut end_ms = range.1.min(now_ms.saturating_sub(group.query_offset_ms));
    for origin in [Origin::Files, Origin::Configured] {
        let id = GroupId { tenant: tenant.clone(), origin, key: group.key.clone() };
        let status = service.rules.engine.status_of(&id);
        if let Some((status, last)) = status.as_ref().and_then(|status| Some((status, status.last_round?))) {
            let last_ms = last.time_ns.div_euclid(1_000_000).saturating_sub(status.group.query_offset_ms);
            end_ms = end_ms.min(last_ms.saturating_sub(1));
        }
    }
    RoundTimes::of(group, range.0, end_ms)
}
