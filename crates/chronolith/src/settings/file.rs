//! The configuration file: YAML, nested or with dots, flattened to keys with their line numbers.
//! Not here: the list of keys.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, Spanned};

/// One setting of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Parts joined by dots.
    pub(super) key: String,
    /// As text; lists are joined by commas.
    pub(super) value: String,
    pub(super) line: u64,
}

/// All settings in order. An error is `line: what`.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, String> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Vec::new());
    }
    let node: Node = serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        format!("{line}: {}", fault(&error))
    })?;
    let Node::Map(pairs) = node else {
        return Err("1: expected a mapping of settings".to_owned());
    };
    let mut entries = Vec::new();
    flatten("", pairs, &mut entries)?;
    Ok(entries)
}

/// Describes the fault in terms of the settings file: the YAML library's texts speak of the library's
/// options.
fn fault(error: &Error) -> String {
    match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("{key:?} is set twice"),
        Error::DuplicateMappingKey { key: None, .. } => "a setting is set twice".to_owned(),
        // From the visitor below.
        Error::Message { msg, .. } => msg.clone(),
        Error::Eof { .. } => "unexpected end of file within a value".to_owned(),
        Error::MultipleDocuments { .. } => "expected one YAML document, found several".to_owned(),
        _ => "not valid YAML: check the indentation, colons, brackets and quotes up to here".to_owned(),
    }
}

fn flatten(prefix: &str, pairs: Vec<(Spanned<String>, Node)>, out: &mut Vec<Entry>) -> Result<(), String> {
    for (name, node) in pairs {
        let line = name.referenced.line();
        let key = if prefix.is_empty() { name.value } else { format!("{prefix}.{}", name.value) };
        match node {
            Node::Map(inner) => flatten(&key, inner, out)?,
            Node::Scalar(value) => out.push(Entry { key, value, line }),
            Node::List(items) => {
                let texts: Option<Vec<String>> = items.into_iter().map(Node::into_scalar).collect();
                let texts = texts.ok_or_else(|| format!("{line}: {key}: expected a list of plain values"))?;
                out.push(Entry { key, value: texts.join(","), line });
            }
        }
    }
    Ok(())
}

/// A YAML value, numbers and switches as text.
enum Node {
    Map(Vec<(Spanned<String>, Node)>),
    List(Vec<Node>),
    Scalar(String),
}

impl Node {
    fn into_scalar(self) -> Option<String> {
        match self {
            Node::Scalar(text) => Some(text),
            Node::Map(_) | Node::List(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a setting")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_owned()))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Node, E> {
        Err(E::custom("a setting has no value"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = pairs.next_key::<Spanned<String>>()? {
            if key.value.is_empty() {
                return Err(A::Error::custom("a setting has an empty name"));
            }
            map.push((key, pairs.next_value()?));
        }
        Ok(Node::Map(map))
    }
}
