//! Fields of YAML mappings and their types, as go-yaml decodes them into structs.
//!
//! Invariants: all wrong types and duplicate keys are found; null is an absent field, and a null in a list is
//! no element. Texts name the types of Prometheus's sources, as promtool does.
//! Not here: names and meaning of the fields (`file::decode`, `unit_test::decode`).

use std::collections::HashSet;
use std::rc::Rc;

use chronolith_model::duration::parse_prometheus_duration_ms;

use crate::faults::{Faults, quoted};
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

/// A field of a mapping: the key, its position, and the value.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) position: Position,
    pub(super) value: Rc<Node>,
}

/// Decodes values and collects their faults.
pub(super) struct FieldReader<'a> {
    pub(super) faults: &'a mut Faults,
}

impl FieldReader<'_> {
    pub(super) fn mismatch(&mut self, node: &Node, type_name: &str) {
        self.faults.add(node.position, format!("cannot unmarshal {} into {type_name}", node.describe()));
    }

    /// Items of a list without nulls.
    pub(super) fn items<'n>(&mut self, node: &'n Node, type_name: &str) -> Vec<&'n Node> {
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
    pub(super) fn fields(&mut self, node: &Node, type_name: &str) -> Vec<Field> {
        let mut fields = Vec::new();
        match &node.kind {
            NodeKind::Mapping(pairs) => self.add_fields(pairs, &mut HashSet::new(), &mut fields),
            _ if node.is_null() => {}
            _ => self.mismatch(node, type_name),
        }
        fields
    }

    /// Entries of a mapping of texts.
    pub(super) fn entries(&mut self, node: &Node) -> Vec<Entry> {
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

    pub(super) fn text(&mut self, node: &Node) -> Text {
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

    pub(super) fn integer(&mut self, node: &Node) -> i64 {
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
    pub(super) fn duration_ms(&mut self, node: &Node) -> Option<i64> {
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
