//! Fields of a mapping, taken one by one; fields that are left are unknown.
//!
//! Invariant: texts of faults name fields and positions, never a value, unless the reader of the field says
//! that it is no secret.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use chronolith_model::duration::parse_prometheus_duration_ms;

use crate::yaml::{Node, NodeKind, Position};

/// A fault of the file.
#[derive(Debug)]
pub(super) struct Fault {
    position: Position,
    message: String,
}

impl Fault {
    pub(super) fn new(position: Position, message: impl Into<String>) -> Fault {
        Fault { position, message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position, self.message)
    }
}

/// A key with its value.
pub(super) struct Field {
    pub(super) name: String,
    /// Position of the key.
    pub(super) position: Position,
    pub(super) value: Rc<Node>,
}

/// A text with its position.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) position: Position,
}

impl Text {
    /// A duration in milliseconds.
    pub(super) fn duration_ms(&self) -> Result<u64, Fault> {
        let parsed = parse_prometheus_duration_ms(&self.text);
        parsed.map(i64::unsigned_abs).map_err(|error| Fault::new(self.position, error.to_string()))
    }
}

/// Fields of one mapping.
pub(super) struct Fields {
    section: String,
    fields: Vec<Field>,
}

impl Fields {
    /// The fields of `node`; null has none. Mappings of `<<` add the fields that the mapping itself lacks.
    pub(super) fn of(node: &Node, section: &str) -> Result<Fields, Fault> {
        let mut fields = Fields { section: section.to_owned(), fields: Vec::new() };
        match &node.kind {
            NodeKind::Mapping(pairs) => fields.add(pairs, false, &mut HashMap::new())?,
            _ if node.is_null() => {}
            _ => return Err(Fault::new(node.position, format!("`{section}` is no mapping"))),
        }
        Ok(fields)
    }

    /// Adds the fields of a mapping, then of the mappings that it merges. `known` has the index of each one.
    fn add(
        &mut self,
        pairs: &[(Rc<Node>, Rc<Node>)],
        is_merge: bool,
        known: &mut HashMap<String, usize>,
    ) -> Result<(), Fault> {
        let own_count = self.fields.len();
        for (key, value) in pairs.iter().filter(|(key, _)| !key.is_merge()) {
            let Some(name) = key.scalar_text() else {
                return Err(Fault::new(key.position, format!("a key of `{}` is no text", self.section)));
            };
            match known.get(name).copied() {
                None => {
                    let name = name.to_owned();
                    known.insert(name.clone(), self.fields.len());
                    self.fields.push(Field { name, position: key.position, value: value.clone() });
                }
                Some(idx) if is_merge && idx < own_count => {}
                Some(_) => {
                    let message = format!("field `{name}` of `{}` is set twice", self.section);
                    return Err(Fault::new(key.position, message));
                }
            }
        }
        for (key, value) in pairs.iter().filter(|(key, _)| key.is_merge()) {
            let mappings: &[Rc<Node>] = match &value.kind {
                NodeKind::Sequence(items) => items,
                _ => std::slice::from_ref(value),
            };
            for mapping in mappings {
                let NodeKind::Mapping(pairs) = &mapping.kind else {
                    return Err(Fault::new(key.position, "`<<` merges something else than mappings"));
                };
                self.add(pairs, true, known)?;
            }
        }
        Ok(())
    }

    /// All fields, for mappings with keys of the user.
    pub(super) fn into_all(self) -> Vec<Field> {
        self.fields
    }

    /// Takes a field; `None` without it, or if it is null.
    pub(super) fn take(&mut self, name: &str) -> Option<Field> {
        let idx = self.fields.iter().position(|field| field.name == name)?;
        Some(self.fields.remove(idx)).filter(|field| !field.value.is_null())
    }

    /// Takes a text; the empty text for null.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<Text>, Fault> {
        let Some(idx) = self.fields.iter().position(|field| field.name == name) else { return Ok(None) };
        let field = self.fields.remove(idx);
        text(&field.value, name).map(Some)
    }

    /// Takes a text; `None` for null.
    pub(super) fn value(&mut self, name: &str) -> Result<Option<Text>, Fault> {
        self.take(name).map(|field| text(&field.value, name)).transpose()
    }

    /// Takes a text that is not empty.
    pub(super) fn filled_text(&mut self, name: &str) -> Result<Option<Text>, Fault> {
        Ok(self.text(name)?.filter(|text| !text.text.is_empty()))
    }

    /// Takes a list of texts.
    pub(super) fn texts(&mut self, name: &str) -> Result<Option<Vec<Text>>, Fault> {
        let Some(field) = self.take(name) else { return Ok(None) };
        items(&field.value, name)?
            .into_iter()
            .map(|item| text(item, name))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// Takes a switch.
    pub(super) fn switch(&mut self, name: &str) -> Result<Option<bool>, Fault> {
        let Some(field) = self.take(name) else { return Ok(None) };
        match field.value.scalar_text() {
            Some("true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y") => {
                Ok(Some(true))
            }
            Some("false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N") => {
                Ok(Some(false))
            }
            _ => Err(Fault::new(field.value.position, format!("`{name}` is neither true nor false"))),
        }
    }

    /// Refuses a field that Prometheus has and this server lacks.
    pub(super) fn refuse(&mut self, name: &str, why: &str) -> Result<(), Fault> {
        match self.take(name) {
            None => Ok(()),
            Some(field) => Err(Fault::new(field.position, format!("`{name}` is not supported: {why}"))),
        }
    }

    /// Position of a field that has not been taken.
    pub(super) fn position_of(&self, name: &str) -> Option<Position> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.position)
    }

    /// Returns the first field that has not been taken and whose name ends so.
    pub(super) fn find_suffix(&self, suffix: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name.ends_with(suffix))
    }

    /// Ends the mapping.
    pub(super) fn end(self) -> Result<(), Fault> {
        match self.fields.first() {
            None => Ok(()),
            Some(field) => {
                let message = format!("unknown field `{}` in `{}`", field.name, self.section);
                Err(Fault::new(field.position, message))
            }
        }
    }
}

/// Items of a list; null has none.
pub(super) fn items<'a>(node: &'a Node, section: &str) -> Result<Vec<&'a Node>, Fault> {
    match &node.kind {
        NodeKind::Sequence(items) => Ok(items.iter().map(|item| &**item).collect()),
        _ if node.is_null() => Ok(Vec::new()),
        _ => Err(Fault::new(node.position, format!("`{section}` is no list"))),
    }
}

/// The text of a scalar, as written; the empty text for null.
pub(super) fn text(node: &Node, section: &str) -> Result<Text, Fault> {
    let position = node.position;
    if node.is_null() {
        return Ok(Text { text: String::new(), position });
    }
    match node.scalar_text() {
        Some(text) => Ok(Text { text: text.to_owned(), position }),
        None => Err(Fault::new(position, format!("`{section}` is no text"))),
    }
}
