//! Fields and types of a rule file: a tree of YAML to groups and rules, as go-yaml decodes them.
//!
//! Invariants: all wrong types, unknown fields and duplicate keys are found; null is an absent field, and a
//! null in a list is no element. Texts name the types of Prometheus's sources, as promtool does.
//! Not here: meaning of the values (`check`).

use super::options::{FileOptions, UnknownFields};
use crate::faults::Faults;
use crate::yaml::{Node, Position};
use crate::yaml_fields::{Entry, Field, FieldReader, Text};

/// A group before it is checked.
pub(super) struct RawGroup {
    pub(super) position: Position,
    pub(super) name: String,
    pub(super) interval_ms: i64,
    pub(super) query_offset_ms: Option<i64>,
    pub(super) limit: i64,
    pub(super) labels: Vec<Entry>,
    pub(super) rules: Vec<RawRule>,
}

/// A rule before it is checked.
pub(super) struct RawRule {
    pub(super) position: Position,
    pub(super) record: Text,
    pub(super) alert: Text,
    pub(super) expr: Text,
    pub(super) hold_ms: i64,
    pub(super) keep_firing_ms: i64,
    pub(super) labels: Vec<Entry>,
    pub(super) annotations: Vec<Entry>,
}

/// Decodes the groups of a document; faults are added to `faults`.
pub(super) fn groups(root: &Node, options: &FileOptions<'_>, faults: &mut Faults) -> Vec<RawGroup> {
    let mut decoder = Decoder { options, reader: FieldReader { faults }, rule_count: 0 };
    let mut groups = Vec::new();
    for field in decoder.reader.fields(root, "rulefmt.RuleGroups") {
        if field.name == "groups" {
            groups = decoder.groups(&field.value);
        } else {
            decoder.unknown(&field, "rulefmt.RuleGroups");
        }
    }
    groups
}

/// Decodes a document that is one group; faults are added to `faults`.
pub(super) fn group(root: &Node, options: &FileOptions<'_>, faults: &mut Faults) -> RawGroup {
    Decoder { options, reader: FieldReader { faults }, rule_count: 0 }.group(root)
}

struct Decoder<'a> {
    options: &'a FileOptions<'a>,
    reader: FieldReader<'a>,
    rule_count: usize,
}

impl Decoder<'_> {
    fn groups(&mut self, node: &Node) -> Vec<RawGroup> {
        let mut groups = Vec::new();
        let groups_max = self.options.limits.groups_max;
        for item in self.reader.items(node, "[]rulefmt.RuleGroup") {
            if groups.len() == groups_max {
                self.reader.faults.add(item.position, format!("file has more than {groups_max} groups"));
                break;
            }
            groups.push(self.group(item));
        }
        groups
    }

    fn group(&mut self, node: &Node) -> RawGroup {
        const TYPE: &str = "rulefmt.RuleGroup";
        let mut group = RawGroup {
            position: node.position,
            name: String::new(),
            interval_ms: 0,
            query_offset_ms: None,
            limit: 0,
            labels: Vec::new(),
            rules: Vec::new(),
        };
        for field in self.reader.fields(node, TYPE) {
            let value = &field.value;
            match field.name.as_str() {
                "name" => group.name = self.reader.text(value).text,
                "interval" => group.interval_ms = self.reader.duration_ms(value).unwrap_or(0),
                "query_offset" => group.query_offset_ms = self.reader.duration_ms(value),
                "limit" => group.limit = self.reader.integer(value),
                "labels" => group.labels = self.reader.entries(value),
                "rules" => group.rules = self.rules(value),
                _ => self.unknown(&field, TYPE),
            }
        }
        group
    }

    fn rules(&mut self, node: &Node) -> Vec<RawRule> {
        let mut rules = Vec::new();
        let rules_max = self.options.limits.rules_max;
        for item in self.reader.items(node, "[]rulefmt.Rule") {
            if self.rule_count == rules_max {
                self.reader.faults.add(item.position, format!("file has more than {rules_max} rules"));
                break;
            }
            self.rule_count += 1;
            rules.push(self.rule(item));
        }
        rules
    }

    fn rule(&mut self, node: &Node) -> RawRule {
        const TYPE: &str = "rulefmt.Rule";
        let mut rule = RawRule {
            position: node.position,
            record: Text::default(),
            alert: Text::default(),
            expr: Text::default(),
            hold_ms: 0,
            keep_firing_ms: 0,
            labels: Vec::new(),
            annotations: Vec::new(),
        };
        for field in self.reader.fields(node, TYPE) {
            let value = &field.value;
            match field.name.as_str() {
                "record" => rule.record = self.reader.text(value),
                "alert" => rule.alert = self.reader.text(value),
                "expr" => rule.expr = self.reader.text(value),
                "for" => rule.hold_ms = self.reader.duration_ms(value).unwrap_or(0),
                "keep_firing_for" => rule.keep_firing_ms = self.reader.duration_ms(value).unwrap_or(0),
                "labels" => rule.labels = self.reader.entries(value),
                "annotations" => rule.annotations = self.reader.entries(value),
                _ => self.unknown(&field, TYPE),
            }
        }
        rule
    }

    fn unknown(&mut self, field: &Field, type_name: &str) {
        if self.options.unknown_fields == UnknownFields::Refuse {
            let message = format!("field {} not found in type {type_name}", field.name);
            self.reader.faults.add(field.position, message);
        }
    }
}
