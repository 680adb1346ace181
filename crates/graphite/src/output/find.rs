//! Lists of nodes: treejson, completer, json, nodelist.
//!
//! Invariant: nodes are sorted by name before they are written; branches come before leaves in a tree.
//! Not here: pickle and MessagePack of nodes, which have their own files.

use super::json::push_string;
use crate::storage::Node;

/// Position of a node `*`, which stands for all others, in a list of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WildcardNode {
    /// First, or last for a completer, if there is more than one node.
    Shown,
    /// Not at all.
    Hidden,
}

/// The pattern that a completer searches for: `..` and the end match anything.
#[must_use]
pub fn completer_pattern(query: &str) -> String {
    let pattern = query.replace("..", "*.");
    if pattern.ends_with('*') { pattern } else { pattern + "*" }
}

fn base_path(query: &str) -> &str {
    query.rfind('.').and_then(|at| query.get(..=at)).unwrap_or("")
}

/// Nodes by name, as all formats begin.
pub fn sort_by_name(nodes: &mut [Node]) {
    nodes.sort_by(|a, b| a.name().cmp(b.name()));
}

fn push_tree_node(out: &mut String, text: &str, id: &str, is_leaf: bool) {
    if !out.ends_with('[') {
        out.push_str(", ");
    }
    out.push_str("{\"text\": ");
    push_string(out, text);
    out.push_str(", \"id\": ");
    push_string(out, id);
    let (branch, leaf) = if is_leaf { (0, 1) } else { (1, 0) };
    out.push_str(&format!(", \"allowChildren\": {branch}, \"expandable\": {branch}, \"leaf\": {leaf}}}"));
}

/// A name without `%xx` and `+`, for display.
fn unquoted(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after
            .get(..2)
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or(&[]);
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Appends `format=treejson`; of nodes with one name the first counts.
pub fn render_tree(query: &str, nodes: &[Node], wildcard: WildcardNode, out: &mut String) {
    let base = base_path(query);
    out.push('[');
    if nodes.len() > 1 && wildcard == WildcardNode::Shown {
        push_tree_node(out, "*", &format!("{base}*"), nodes.iter().all(|node| node.is_leaf));
    }
    let mut seen = chronolith_base::hash::HashSet::default();
    let unique: Vec<&Node> = nodes.iter().filter(|node| seen.insert(node.name())).collect();
    for is_leaf in [false, true] {
        for node in unique.iter().filter(|node| node.is_leaf == is_leaf) {
            push_tree_node(out, &unquoted(node.name()), &format!("{base}{}", node.name()), is_leaf);
        }
    }
    out.push(']');
}

/// Appends `format=completer`.
pub fn render_completer(nodes: &[Node], wildcard: WildcardNode, out: &mut String) {
    out.push_str("{\"metrics\": [");
    for (idx, node) in nodes.iter().enumerate() {
        out.push_str(if idx > 0 { ", {\"path\": " } else { "{\"path\": " });
        push_string(out, &if node.is_leaf { node.path.clone() } else { format!("{}.", node.path) });
        out.push_str(", \"name\": ");
        push_string(out, node.name());
        out.push_str(&format!(", \"is_leaf\": \"{}\"}}", u8::from(node.is_leaf)));
    }
    if nodes.len() > 1 && wildcard == WildcardNode::Shown {
        out.push_str(", {\"name\": \"*\"}");
    }
    out.push_str("]}");
}

/// Appends `format=json`, sorted by path.
pub fn render_json(nodes: &[Node], out: &mut String) {
    let mut sorted: Vec<&Node> = nodes.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    out.push('[');
    for (idx, node) in sorted.into_iter().enumerate() {
        out.push_str(if idx > 0 { ", {\"path\": " } else { "{\"path\": " });
        push_string(out, &node.path);
        out.push_str(&format!(", \"is_leaf\": {}", node.is_leaf));
        if node.is_leaf {
            let intervals: Vec<String> = node
                .intervals
                .iter()
                .map(|(start, end)| format!("{{\"start\": {start}, \"end\": {end}}}"))
                .collect();
            out.push_str(&format!(", \"intervals\": [{}]", intervals.join(", ")));
        }
        out.push('}');
    }
    out.push(']');
}

/// Appends `format=nodelist`: the different elements at `position`, the last one if it is negative.
pub fn render_node_list(nodes: &[Node], position: i64, out: &mut String) {
    let element = |path: &str| {
        let elements: Vec<&str> = path.split('.').collect();
        let len = i64::try_from(elements.len()).unwrap_or(0);
        let idx = if position < 0 { position + len } else { position };
        usize::try_from(idx).ok().and_then(|idx| elements.get(idx)).map(|element| (*element).to_owned())
    };
    let mut elements: Vec<String> = nodes.iter().filter_map(|node| element(&node.path)).collect();
    elements.sort();
    elements.dedup();
    out.push_str("{\"nodes\": [");
    for (idx, element) in elements.iter().enumerate() {
        if idx > 0 {
            out.push_str(", ");
        }
        push_string(out, element);
    }
    out.push_str("]}");
}
