//! Meaning of a rule file: names, labels, expressions and templates, with Prometheus's texts.
//!
//! Invariant: groups that are returned together with a fault are incomplete, and are not used.
//! Not here: YAML and types of fields (`decode`).

use std::collections::{BTreeMap, HashSet};

use chronolith_model::METRIC_NAME;
use chronolith_promql::ast::{Expr, ExprKind, NumberLiteral, Span};
use chronolith_promql::parser::parse_expr;

use super::decode::{RawGroup, RawRule};
use super::group_entry::GroupEntry;
use super::options::FileOptions;
use crate::faults::{Faults, quoted};
use crate::rule::{Alerting, Rule, RuleKind};
use crate::yaml::Position;
use crate::yaml_fields::{Entry, Text};

/// Checks all groups; faults are added to `faults`.
pub(super) fn check(
    groups: Vec<RawGroup>,
    options: &FileOptions<'_>,
    faults: &mut Faults,
) -> Vec<GroupEntry> {
    let mut names = HashSet::new();
    let mut checked = Vec::with_capacity(groups.len());
    for group in groups {
        if group.name.is_empty() {
            faults.add(group.position, "Groupname must not be empty");
        }
        if !names.insert(group.name.clone()) {
            let message = format!("groupname: \"{}\" is repeated in the same file", group.name);
            faults.add(group.position, message);
        }
        check_labels(&group.labels, |position, message| faults.add(position, message));
        let labels = map_of(&group.labels);
        let mut rules = Vec::with_capacity(group.rules.len());
        for (rule_idx, raw) in group.rules.into_iter().enumerate() {
            let mut checker = RuleChecker { group: &group.name, rule_idx, raw: &raw, faults };
            let expr = checker.check(options);
            rules.push(rule_of(raw, expr, &labels, options));
        }
        checked.push(GroupEntry {
            name: group.name,
            position: group.position,
            interval_ms: Some(group.interval_ms).filter(|&interval_ms| interval_ms != 0),
            query_offset_ms: group.query_offset_ms,
            limit: usize::try_from(group.limit).ok().filter(|&limit| limit > 0),
            rules,
        });
    }
    checked
}

fn map_of(entries: &[Entry]) -> BTreeMap<String, String> {
    entries.iter().map(|entry| (entry.name.clone(), entry.value.clone())).collect()
}

fn rule_of(
    raw: RawRule,
    expr: Expr,
    group_labels: &BTreeMap<String, String>,
    options: &FileOptions<'_>,
) -> Rule {
    let mut labels = group_labels.clone();
    labels.extend(map_of(&raw.labels));
    let kind = if raw.alert.text.is_empty() {
        RuleKind::Recording
    } else {
        let annotations = map_of(&raw.annotations);
        RuleKind::Alerting(Alerting { hold_ms: raw.hold_ms, keep_firing_ms: raw.keep_firing_ms, annotations })
    };
    let name = raw.name().to_owned();
    let query = expr.to_string();
    // Lists, logs and messages have the printed text, so positions are those in it.
    let expr = parse_expr(&query, options.parser).unwrap_or(expr);
    Rule { name, query, expr, labels, kind, position: raw.position }
}

impl RawRule {
    /// The name that errors show: of the alert, otherwise of the recorded metric.
    fn name(&self) -> &str {
        if self.alert.text.is_empty() { &self.record.text } else { &self.alert.text }
    }

    /// Position of a field, or of the rule without it.
    fn position_of(&self, field: &Text) -> Position {
        field.position.unwrap_or(self.position)
    }
}

/// Adds faults of the names of labels.
fn check_labels(labels: &[Entry], mut add: impl FnMut(Position, String)) {
    for label in labels {
        if label.name.is_empty() || label.name == METRIC_NAME {
            add(label.position, format!("invalid label name: {}", label.name));
        }
    }
}

/// Checks one rule.
struct RuleChecker<'a> {
    group: &'a str,
    rule_idx: usize,
    raw: &'a RawRule,
    faults: &'a mut Faults,
}

impl RuleChecker<'_> {
    fn add(&mut self, position: Position, message: &str) {
        let group = quoted(self.group);
        let name = quoted(self.raw.name());
        let number = self.rule_idx + 1;
        self.faults.add(position, format!("group {group}, rule {number}, {name}: {message}"));
    }

    fn check(&mut self, options: &FileOptions<'_>) -> Expr {
        let raw = self.raw;
        let has_record = !raw.record.text.is_empty();
        let has_alert = !raw.alert.text.is_empty();
        if has_record && has_alert {
            let message = "only one of 'record' and 'alert' must be set";
            self.add(raw.position_of(&raw.record), message);
        }
        if !has_record && !has_alert {
            let position = raw.record.position.or(raw.alert.position).unwrap_or(raw.position);
            self.add(position, "one of 'record' or 'alert' must be set");
        }
        let expr = self.expr(options);
        if has_record {
            self.check_recording();
        }
        let mut found = Vec::new();
        check_labels(&raw.labels, |position, message| found.push((position, message)));
        for annotation in raw.annotations.iter().filter(|annotation| annotation.name.is_empty()) {
            found.push((annotation.position, "invalid annotation name: ".to_owned()));
        }
        found.into_iter().for_each(|(position, message)| self.add(position, &message));
        if has_alert {
            self.check_templates("label", &raw.labels, options);
            self.check_templates("annotation", &raw.annotations, options);
        }
        expr
    }

    /// The parsed expression, or any other one after a fault.
    fn expr(&mut self, options: &FileOptions<'_>) -> Expr {
        let field = &self.raw.expr;
        let position = self.raw.position_of(field);
        if field.text.is_empty() {
            self.add(position, "field 'expr' must be set in rule");
        } else {
            match parse_expr(&field.text, options.parser) {
                Ok(expr) => return expr,
                Err(error) => self.add(position, &format!("could not parse expression: {error}")),
            }
        }
        let zero = NumberLiteral { value: 0.0, is_duration: false };
        Expr { kind: ExprKind::Number(zero), span: Span::default() }
    }

    fn check_recording(&mut self) {
        let raw = self.raw;
        let name = &raw.record.text;
        let position = raw.position_of(&raw.record);
        if !raw.annotations.is_empty() {
            self.add(position, "invalid field 'annotations' in recording rule");
        }
        if raw.hold_ms != 0 {
            self.add(position, "invalid field 'for' in recording rule");
        }
        if raw.keep_firing_ms != 0 {
            self.add(position, "invalid field 'keep_firing_for' in recording rule");
        }
        // Every other UTF-8 text is a name.
        if name.contains(['{', '}']) {
            let message = "braces present in the recording rule name; should it be in expr?";
            self.add(position, &format!("{message}: {name}"));
        }
    }

    fn check_templates(&mut self, what: &str, entries: &[Entry], options: &FileOptions<'_>) {
        for entry in entries {
            if let Err(why) = options.templates.check(&self.raw.alert.text, &entry.value) {
                self.add(entry.position, &format!("{what} {}: {why}", quoted(&entry.name)));
            }
        }
    }
}
