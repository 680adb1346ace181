//! Fields and types of a rule file: a tree of YAML to groups and rules, as go-yaml decodes them.
//!
//! Invariants: all wrong types, unknown fields and duplicate keys are found; null is an absent field, and a
//! null in a list is no element. Texts name the types of Prometheus's sources, as promtool does.
//! Not here: meaning of the values (`check`).

use std::collections::HashSet;
use std::rc::Rc;

use chronolith_model::duration::parse_prometheus_duration_ms;

use super::faults::{Faults, quoted};
use super::options::{FileOptions, UnknownFields};
use crate::yaml::{Node, NodeKind, Position};

/// A text and its position; the empty text for an absent field.
#[derive(Default)]
pub(super) struct Text {
    pub(super) text: String,
    /// `None` for an absent field.
    pub(super) position: Option<Position>,
}

/// An entry of `labels` or `annotations`.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) position: Position,
}

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

/// A field of a mapping: the key, its position, and the value.
struct Field {
    name: String,
    position: Position,
    value: Rc<Node>,
}

/// Decodes the groups of a document; faults are added to `faults`.
pub(super) fn groups(root: &Node, options: &FileOptions<'_>, faults: &mut Faults) -> Vec<RawGroup> {
    let mut decoder = Decoder { options, faults, rule_count: 0 };
    let mut groups = Vec::new();
    for field in decoder.fields(root, "rulefmt.RuleGroups") {
        if field.name == "groups" {
            groups = decoder.groups(&field.value);
        } else {
            decoder.unknown(&field, "rulefmt.RuleGroups");
        }
    }
    groups
}

struct Decoder<'a> {
    options: &'a FileOptions<'a>,
    faults: &'a mut Faults,
    rule_count: usize,
}

impl Decoder<'_> {
    fn groups(&mut self, node: &Node) -> Vec<RawGroup> {
        let mut groups = Vec::new();
        let groups_max = self.options.limits.groups_max;
        for item in self.items(node, "[]rulefmt.RuleGroup") {
            if groups.len() == groups_max {
                self.faults.add(item.position, format!("file has more than {groups_max} groups"));
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
        for field in self.fields(node, TYPE) {
            let value = &field.value;
            match field.name.as_str() {
                "name" => group.name = self.text(value).text,
                "interval" => group.interval_ms = self.duration_ms(value).unwrap_or(0),
                "query_offset" => group.query_offset_ms = self.duration_ms(value),
                "limit" => group.limit = self.integer(value),
                "labels" => group.labels = self.entries(value),
                "rules" => group.rules = self.rules(value),
                _ => self.unknown(&field, TYPE),
            }
        }
        group
    }

    fn rules(&mut self, node: &Node) -> Vec<RawRule> {
        let mut rules = Vec::new();
        let rules_max = self.options.limits.rules_max;
        for item in self.items(node, "[]rulefmt.Rule") {
            if self.rule_count == rules_max {
                self.faults.add(item.position, format!("file has more than {rules_max} rules"));
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
        for field in self.fields(node, TYPE) {
            let value = &field.value;
            match field.name.as_str() {
                "record" => rule.record = self.text(value),
                "alert" => rule.alert = self.text(value),
                "expr" => rule.expr = self.text(value),
                "for" => rule.hold_ms = self.duration_ms(value).unwrap_or(0),
                "keep_firing_for" => rule.keep_firing_ms = self.duration_ms(value).unwrap_or(0),
                "labels" => rule.labels = self.entries(value),
                "annotations" => rule.annotations = self.entries(value),
                _ => self.unknown(&field, TYPE),
            }
        }
        rule
    }

    fn unknown(&mut self, field: &Field, type_name: &str) {
        if self.options.unknown_fields == UnknownFields::Refuse {
            let message = format!("field {} not found in type {type_name}", field.name);
            self.faults.add(field.position, message);
        }
    }

    fn mismatch(&mut self, node: &Node, type_name: &str) {
        self.faults.add(node.position, format!("cannot unmarshal {} into {type_name}", node.describe()));
    }

    /// Items of a list without nulls.
    fn items<'n>(&mut self, node: &'n Node, type_name: &str) -> Vec<&'n Node> {
        match &node.kind {
            NodeKind::Sequence(items) => {
                items.iter().map(|item| &**item).filter(|item| !item.is_null()).collect()
            }
            _ if node.is_null() => Vec::new(),
            _ => {
                self.mismatch(node, type_name);
                Vec::new()
            }
        }
    }

    /// Fields of a mapping, then the fields that merge keys (`<<`) add.
    fn fields(&mut self, node: &Node, type_name: &str) -> Vec<Field> {
        let mut fields = Vec::new();
        match &node.kind {
            NodeKind::Mapping(pairs) => self.add_fields(pairs, &mut HashSet::new(), &mut fields),
            _ if node.is_null() => {}
            _ => self.mismatch(node, type_name),
        }
        fields
    }

    /// Entries of a mapping of texts.
    fn entries(&mut self, node: &Node) -> Vec<Entry> {
        let fields = self.fields(node, "map[string]string");
        let entry = |field: Field| {
            let value = self.text(&field.value).text;
            Entry { name: field.name, value, position: field.position }
        };
        fields.into_iter().map(entry).collect()
    }

    /// Adds the fields of a mapping whose names are not taken, then the fields of its merge key. The depth
    /// of a document bounds the recursion.
    fn add_fields(
        &mut self,
        pairs: &[(Rc<Node>, Rc<Node>)],
        names: &mut HashSet<String>,
        fields: &mut Vec<Field>,
    ) {
        if self.has_duplicates(pairs) {
            return;
        }
        let mut merged = None;
        for (key, value) in pairs {
            if key.is_merge() {
                merged = Some(value);
            } else if !key.is_null() {
                let name = self.text(key).text;
                // A key that is no text has been reported.
                if names.insert(name.clone()) {
                    fields.push(Field { name, position: key.position, value: value.clone() });
                }
            }
        }
        let Some(merged) = merged else { return };
        let mappings: &[Rc<Node>] = match &merged.kind {
            NodeKind::Sequence(items) => items,
            _ => std::slice::from_ref(merged),
        };
        for mapping in mappings {
            match &mapping.kind {
                NodeKind::Mapping(pairs) => self.add_fields(pairs, names, fields),
                _ => {
                    let message = "yaml: map merge requires map or sequence of maps as the value";
                    self.faults.add(mapping.position, message);
                }
            }
        }
    }

    /// Returns true if a key occurs twice, after reporting each pair.
    fn has_duplicates(&mut self, pairs: &[(Rc<Node>, Rc<Node>)]) -> bool {
        let mut keys: Vec<(&str, Position)> =
            pairs.iter().filter_map(|(key, _)| Some((key.scalar_text()?, key.position))).collect();
        keys.sort_unstable();
        let mut found = false;
        for pair in keys.windows(2) {
            let [(first, before), (second, position)] = pair else { continue };
            if first == second {
                let line = before.line;
                let key = quoted(second);
                self.faults.add(*position, format!("mapping key {key} already defined at line {line}"));
                found = true;
            }
        }
        found
    }

    fn text(&mut self, node: &Node) -> Text {
        if node.is_null() {
            return Text { text: String::new(), position: Some(node.position) };
        }
        match node.scalar_text() {
            Some(text) => Text { text: text.to_owned(), position: Some(node.position) },
            None => {
                self.mismatch(node, "string");
                Text::default()
            }
        }
    }

    fn integer(&mut self, node: &Node) -> i64 {
        let NodeKind::Scalar(scalar) = &node.kind else {
            self.mismatch(node, "int");
            return 0;
        };
        if node.is_null() {
            return 0;
        }
        // Go cuts the fraction off.
        let float = || scalar.float().filter(|float| float.abs() < 2f64.powi(63)).map(|float| float as i64);
        scalar.integer().or_else(float).unwrap_or_else(|| {
            self.mismatch(node, "int");
            0
        })
    }

    /// A duration in milliseconds; `None` for null, and after a fault.
    fn duration_ms(&mut self, node: &Node) -> Option<i64> {
        if node.is_null() {
            return None;
        }
        let Some(text) = node.scalar_text() else {
            self.mismatch(node, "string");
            return None;
        };
        match parse_prometheus_duration_ms(text) {
            Ok(duration_ms) => Some(duration_ms),
            Err(error) => {
                self.faults.add(node.position, error.to_string());
                None
            }
        }
    }
}
