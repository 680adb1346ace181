//! JSON of groups, rules and alerts, byte for byte as Prometheus prints it.
//!
//! Invariants: texts of rules are escaped as by Go's `encoding/json`, HTML included, labels and annotations
//! as by Prometheus's own encoder. Times are UTC, where Prometheus has the time zone of its process.

use std::collections::BTreeMap;

use chronolith_base::utc::rfc3339_ns;
use chronolith_model::{Labels, ReadContext};
use chronolith_rules::alert::{Alert, AlertState};
use chronolith_rules::rule::{Alerting, Rule};
use chronolith_rules::status::{Health, LastRound, RoundCounts, RuleStatus};

use super::filter::{ListedGroup, Shown};
use crate::http::error::ApiError;
use crate::http::printer::Printer;
use crate::json;

/// Go's zero time: the last evaluation before the first one.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// Appends the groups of a page.
pub(super) fn put_groups(
    printer: &mut Printer,
    groups: &[ListedGroup<'_>],
    shown: Shown,
    ctx: &ReadContext,
) -> Result<(), ApiError> {
    printer.out.extend_from_slice(b"{\"groups\":[");
    for (idx, listed) in groups.iter().enumerate() {
        if idx > 0 {
            printer.out.push(b',');
        }
        put_group(printer, listed, shown, ctx)?;
    }
    printer.out.push(b']');
    Ok(())
}

/// Closes the list of groups, with the token of the next page.
pub(super) fn close_groups(printer: &mut Printer, next_token: Option<&str>) {
    if let Some(token) = next_token {
        put_text(&mut printer.out, ",\"groupNextToken\":", token);
    }
    printer.out.push(b'}');
}

fn put_group(
    printer: &mut Printer,
    listed: &ListedGroup<'_>,
    shown: Shown,
    ctx: &ReadContext,
) -> Result<(), ApiError> {
    let status = listed.status;
    let group = &status.group;
    put_text(&mut printer.out, "{\"name\":", &group.key.name);
    put_text(&mut printer.out, ",\"file\":", &group.key.file);
    printer.out.extend_from_slice(b",\"rules\":[");
    let rules = group.rules().iter().zip(&status.rules).enumerate();
    let mut wanted = listed.rules.iter().peekable();
    let mut is_first = true;
    for (_, (rule, rule_status)) in rules.filter(|(idx, _)| wanted.next_if_eq(&idx).is_some()) {
        if !is_first {
            printer.out.push(b',');
        }
        is_first = false;
        match rule.alerting() {
            Some(alerting) => put_alerting(printer, rule, alerting, rule_status, shown, ctx)?,
            None => put_recording(&mut printer.out, rule, rule_status, shown),
        }
        printer.settle(ctx)?;
    }
    let out = &mut printer.out;
    put_number(out, "],\"interval\":", seconds_of_ms(group.interval_ms));
    json::put_display(out, format_args!(",\"limit\":{}", group.limit.unwrap_or(0)));
    put_number(
        out,
        ",\"evaluationTime\":",
        status.last_round.map_or(0.0, |round| seconds(round.duration_ns)),
    );
    put_time(out, ",\"lastEvaluation\":", status.last_round.map(|LastRound { started_ns, .. }| started_ns));
    if shown.counts {
        let RoundCounts { missed, caught_up, lost, repaired, .. } = status.rounds;
        let missed_and_caught_up = format_args!(",\"missedRounds\":{missed},\"caughtUpRounds\":{caught_up}");
        json::put_display(out, missed_and_caught_up);
        json::put_display(out, format_args!(",\"lostRounds\":{lost},\"repairedRounds\":{repaired}"));
    }
    out.push(b'}');
    Ok(())
}

fn put_alerting(
    printer: &mut Printer,
    rule: &Rule,
    alerting: &Alerting,
    status: &RuleStatus,
    shown: Shown,
    ctx: &ReadContext,
) -> Result<(), ApiError> {
    let out = &mut printer.out;
    put_text(out, "{\"state\":", state_of(status));
    put_text(out, ",\"name\":", &rule.name);
    put_text(out, ",\"query\":", &rule.query);
    put_number(out, ",\"duration\":", seconds_of_ms(alerting.hold_ms));
    put_number(out, ",\"keepFiringFor\":", seconds_of_ms(alerting.keep_firing_ms));
    put_map(out, ",\"labels\":", &rule.labels);
    put_map(out, ",\"annotations\":", &alerting.annotations);
    out.extend_from_slice(b",\"alerts\":");
    if shown.alerts {
        put_alerts(printer, status.alerts.active(), ctx)?;
    } else {
        out.extend_from_slice(b"null");
    }
    put_evaluation(&mut printer.out, status, shown);
    printer.out.extend_from_slice(b",\"type\":\"alerting\"}");
    Ok(())
}

/// State of an alerting rule: the highest of its alerts, `unknown` before its first evaluation.
fn state_of(status: &RuleStatus) -> &'static str {
    match status.alerts.state() {
        AlertState::Inactive if status.evaluated_ns.is_none() => "unknown",
        state => state.as_str(),
    }
}

fn put_recording(out: &mut Vec<u8>, rule: &Rule, status: &RuleStatus, shown: Shown) {
    put_text(out, "{\"name\":", &rule.name);
    put_text(out, ",\"query\":", &rule.query);
    put_map(out, ",\"labels\":", &rule.labels);
    put_evaluation(out, status, shown);
    out.extend_from_slice(b",\"type\":\"recording\"}");
}

fn put_evaluation(out: &mut Vec<u8>, status: &RuleStatus, shown: Shown) {
    put_text(out, ",\"health\":", status.health.as_str());
    if let Health::Err(error) = &status.health {
        put_text(out, ",\"lastError\":", error);
    }
    put_number(out, ",\"evaluationTime\":", seconds(status.duration_ns));
    put_time(out, ",\"lastEvaluation\":", status.evaluated_ns);
    if shown.counts {
        json::put_display(out, format_args!(",\"samples\":{}", status.sample_count));
    }
}

/// Appends a list of alerts.
pub(super) fn put_alerts<'a>(
    printer: &mut Printer,
    alerts: impl Iterator<Item = (&'a Labels, &'a Alert)>,
    ctx: &ReadContext,
) -> Result<(), ApiError> {
    printer.out.push(b'[');
    for (idx, (labels, alert)) in alerts.enumerate() {
        let out = &mut printer.out;
        if idx > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"labels\":");
        json::put_labels(out, labels);
        put_map(out, ",\"annotations\":", &alert.annotations);
        put_text(out, ",\"state\":", alert.state.as_str());
        put_time(out, ",\"activeAt\":", Some(alert.active_at_ns));
        if let Some(since_ns) = alert.keep_firing_since_ns {
            put_time(out, ",\"keepFiringSince\":", Some(since_ns));
        }
        out.extend_from_slice(b",\"value\":\"");
        json::put_float_exponent(out, alert.value);
        out.extend_from_slice(b"\"}");
        printer.settle(ctx)?;
    }
    printer.out.push(b']');
    Ok(())
}

/// Appends a name and a text as Go's `encoding/json` escapes it.
fn put_text(out: &mut Vec<u8>, name: &str, text: &str) {
    out.extend_from_slice(name.as_bytes());
    json::put_html_string(out, text);
}

fn put_map(out: &mut Vec<u8>, name: &str, map: &BTreeMap<String, String>) {
    out.extend_from_slice(name.as_bytes());
    json::put_pairs(out, map.iter().map(|(name, value)| (name.as_str(), value.as_str())));
}

fn put_number(out: &mut Vec<u8>, name: &str, number: f64) {
    out.extend_from_slice(name.as_bytes());
    json::put_json_float(out, number);
}

fn put_time(out: &mut Vec<u8>, name: &str, time_ns: Option<i64>) {
    let text = time_ns.map_or_else(|| ZERO_TIME.to_owned(), rfc3339_ns);
    json::put_display(out, format_args!("{name}\"{text}\""));
}

/// Seconds of a duration, rounded as Go's `Duration.Seconds` rounds them.
fn seconds(duration_ns: u64) -> f64 {
    (duration_ns / 1_000_000_000) as f64 + (duration_ns % 1_000_000_000) as f64 / 1e9
}

fn seconds_of_ms(duration_ms: i64) -> f64 {
    (duration_ms / 1000) as f64 + (duration_ms % 1000) as f64 / 1e3
}
