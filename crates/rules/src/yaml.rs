//! YAML documents as trees of nodes with positions, so that all errors of a file can be reported at once.
//!
//! Invariants: depth, nodes and bytes of a tree are bounded before they are allocated; an alias shares the
//! nodes of its anchor, and the bytes of all aliases together are bounded too.
//! Not here: fields and types of a file (`file`). Positions and texts of values equal the ones of go-yaml 3.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use granit_parser::{Event, Marker, Parser, ScalarStyle};

/// Nesting of lists and mappings; rule files need seven levels.
const DEPTH_MAX: usize = 32;

/// Line and column, both from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
}

impl Position {
    fn of(marker: Marker) -> Position {
        Position { line: marker.line(), column: marker.col() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Bounds of a document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Nodes as written.
    pub(super) nodes_max: usize,
    /// Bytes of all scalars; an aliased one counts once per use.
    pub(super) bytes_max: usize,
}

/// A node and its position.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) position: Position,
    pub(super) kind: NodeKind,
    /// Bytes of all scalars below, aliases included, and one per node.
    weight: usize,
    /// Levels below, aliases included: walks over the tree, and its drop, need a bounded stack.
    depth: usize,
}

/// Kind of a node.
#[derive(Debug)]
pub(super) enum NodeKind {
    Scalar(Scalar),
    Sequence(Vec<Rc<Node>>),
    /// Keys and values in the order of the file.
    Mapping(Vec<(Rc<Node>, Rc<Node>)>),
}

/// A scalar as written.
#[derive(Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Never a number, a bool or null: quoted, a block, or tagged as a string.
    is_string: bool,
    /// Suffix of an explicit tag, `!!int` as `int`.
    tag: Option<String>,
}

/// First fault of a document that cannot be read as YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct YamlError {
    pub(super) position: Position,
    pub(super) message: String,
}

impl Node {
    /// Returns true for null in any form.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar(scalar) if scalar.tag_name() == "!!null")
    }

    /// Returns true for the key `<<`, which merges the mappings of its value.
    pub(super) fn is_merge(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar(scalar) if scalar.tag_name() == "!!merge")
    }

    /// Text of a scalar.
    pub(super) fn scalar_text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// The tag and the start of the value, as go-yaml prints them: "!!str `abc`", "!!map".
    pub(super) fn describe(&self) -> String {
        match &self.kind {
            NodeKind::Sequence(_) => "!!seq".to_owned(),
            NodeKind::Mapping(_) => "!!map".to_owned(),
            NodeKind::Scalar(scalar) => {
                let text = &scalar.text;
                if text.len() <= 10 {
                    return format!("{} `{text}`", scalar.tag_name());
                }
                // The cut is within a character only where bytes are printed.
                let mut end = 7;
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                format!("{} `{}...`", scalar.tag_name(), text.get(..end).unwrap_or_default())
            }
        }
    }
}

impl Scalar {
    /// The tag that go-yaml resolves a scalar to.
    fn tag_name(&self) -> &'static str {
        if self.is_string {
            return "!!str";
        }
        if self.tag.as_deref() == Some("null") {
            return "!!null";
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => "!!null",
            "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => "!!bool",
            "<<" => "!!merge",
            _ if self.integer().is_some() => "!!int",
            _ if self.float().is_some() => "!!float",
            _ => "!!str",
        }
    }

    /// The integer that a plain scalar stands for: decimal, `0x`, `0o`, `0` (octal), `0b`, underscores.
    pub(super) fn integer(&self) -> Option<i64> {
        if self.is_string {
            return None;
        }
        let plain = self.text.replace('_', "");
        let (sign, digits) = match plain.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", plain.strip_prefix('+').unwrap_or(&plain)),
        };
        let based = |prefix: &str, radix: u32| {
            let digits = digits.strip_prefix(prefix)?;
            digits.starts_with(|c: char| c.is_ascii_hexdigit()).then_some((digits, radix))
        };
        let lower = [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2), ("0", 8)];
        let (digits, radix) = lower.into_iter().find_map(|(p, r)| based(p, r)).unwrap_or((digits, 10));
        let begins = digits.starts_with(|c: char| c.is_ascii_hexdigit());
        begins.then(|| i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()).flatten()
    }

    /// The bool that a plain scalar stands for in YAML 1.1, which promtool's test files are read as.
    pub(super) fn boolean(&self) -> Option<bool> {
        match self.text.as_str() {
            _ if self.is_string => None,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
                Some(false)
            }
            _ => None,
        }
    }

    /// The float that a plain scalar stands for; infinities and NaN begin with a dot.
    pub(super) fn float(&self) -> Option<f64> {
        match self.text.as_str() {
            _ if self.is_string => return None,
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Some(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => return Some(f64::NEG_INFINITY),
            ".nan" | ".NaN" | ".NAN" => return Some(f64::NAN),
            _ => {}
        }
        let first = self.text.trim_start_matches(['+', '-']).chars().next();
        let is_number = first.is_some_and(|c| c.is_ascii_digit() || c == '.');
        let chars_fit = self.text.chars().all(|c| c.is_ascii_digit() || "+-.eE_".contains(c));
        (is_number && chars_fit).then(|| self.text.replace('_', "").parse().ok()).flatten()
    }
}

/// Reads the first document of a text; `None` if there is none, true if others follow.
///
/// # Errors
/// [`YamlError`] for a text that is no YAML, or exceeds a bound.
pub(super) fn parse(text: &str, bounds: Bounds) -> Result<(Option<Rc<Node>>, bool), YamlError> {
    let mut builder = Builder::new(bounds);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| YamlError {
            position: Position::of(*error.marker()),
            message: error.info().to_string(),
        })?;
        if builder.is_done() {
            match event {
                Event::DocumentStart(..) => return Ok((builder.root, true)),
                _ => continue,
            }
        }
        builder.take(event, Position::of(span.start))?;
    }
    Ok((builder.root, false))
}

/// A list or a mapping while it is read.
struct Open {
    position: Position,
    anchor: usize,
    is_mapping: bool,
    children: Vec<Rc<Node>>,
}

/// Builds the tree of the first document.
struct Builder {
    bounds: Bounds,
    node_count: usize,
    /// Weight of all nodes so far, aliases included.
    weight: usize,
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
    ended: bool,
}

impl Builder {
    fn new(bounds: Bounds) -> Builder {
        let anchors = HashMap::new();
        Builder { bounds, node_count: 0, weight: 0, open: Vec::new(), anchors, root: None, ended: false }
    }

    /// Returns true if the first document has ended.
    fn is_done(&self) -> bool {
        self.ended
    }

    fn take(&mut self, event: Event<'_>, position: Position) -> Result<(), YamlError> {
        match event {
            Event::DocumentEnd => self.ended = true,
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(YamlError { position, message: "anchor contains itself".to_owned() });
                };
                self.grow(node.weight, position)?;
                self.check_depth(node.depth, position)?;
                self.attach(node);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|tag| tag.suffix().to_owned()).filter(|tag| !tag.is_empty());
                let is_string = match &tag {
                    Some(tag) => tag == "str",
                    None => style != ScalarStyle::Plain,
                };
                let scalar = Scalar { text: text.into_owned(), is_string, tag };
                let weight = scalar.text.len() + 1;
                self.count(position)?;
                self.grow(weight, position)?;
                self.close(Node { position, kind: NodeKind::Scalar(scalar), weight, depth: 0 }, anchor);
            }
            Event::SequenceStart(_, anchor, _) => self.begin(position, anchor, false)?,
            Event::MappingStart(_, anchor, _) => self.begin(position, anchor, true)?,
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, position: Position) -> Result<(), YamlError> {
        self.node_count += 1;
        if self.node_count <= self.bounds.nodes_max {
            return Ok(());
        }
        let message = format!("more than {} values", self.bounds.nodes_max);
        Err(YamlError { position, message })
    }

    /// Counts bytes, so that aliases of aliases end here and not when they are expanded.
    fn grow(&mut self, weight: usize, position: Position) -> Result<(), YamlError> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight <= self.bounds.bytes_max {
            return Ok(());
        }
        let message = format!("values and aliases have more than {} bytes", self.bounds.bytes_max);
        Err(YamlError { position, message })
    }

    fn begin(&mut self, position: Position, anchor: usize, is_mapping: bool) -> Result<(), YamlError> {
        self.count(position)?;
        self.grow(1, position)?;
        self.check_depth(1, position)?;
        self.open.push(Open { position, anchor, is_mapping, children: Vec::new() });
        Ok(())
    }

    /// Checks the levels of a node that is about to be attached.
    fn check_depth(&self, depth: usize, position: Position) -> Result<(), YamlError> {
        if self.open.len() + depth <= DEPTH_MAX {
            return Ok(());
        }
        let message = format!("lists and mappings nested deeper than {DEPTH_MAX} levels");
        Err(YamlError { position, message })
    }

    fn end(&mut self) {
        let Some(open) = self.open.pop() else { return };
        let weight = open.children.iter().fold(1usize, |sum, child| sum.saturating_add(child.weight));
        let depth = 1 + open.children.iter().map(|child| child.depth).max().unwrap_or(0);
        let kind = if open.is_mapping {
            let mut pairs = Vec::with_capacity(open.children.len() / 2);
            let mut children = open.children.into_iter();
            while let (Some(key), Some(value)) = (children.next(), children.next()) {
                pairs.push((key, value));
            }
            NodeKind::Mapping(pairs)
        } else {
            NodeKind::Sequence(open.children)
        };
        self.close(Node { position: open.position, kind, weight, depth }, open.anchor);
    }

    fn close(&mut self, node: Node, anchor: usize) {
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.attach(node);
    }

    fn attach(&mut self, node: Rc<Node>) {
        match self.open.last_mut() {
            Some(open) => open.children.push(node),
            None => self.root = Some(node),
        }
    }
}
