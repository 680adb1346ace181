//! Import cycles by folder: sibling modules that import each other, whatever files of theirs do so. The
//! siblings are the modules of the crate root, and the child modules of each of those.
//!
//! Invariants: a module with its folder is one node, so imports within it count only one level deeper.
//! Not here: the file of the parent module (`lib.rs`, or `http.rs` among the modules of `http/`), which uses
//! its children and is used by them; cycles of files, which are in `cycles`.

use std::collections::BTreeMap;

use super::cycles;
use super::imports::Edges;

/// Sibling modules that import each other, directly or through other siblings; names sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderCycle {
    /// Module whose children they are; empty for the crate root.
    pub(crate) parent: String,
    pub(crate) modules: Vec<String>,
}

/// All cycles of both levels, the largest first.
pub(super) fn find(paths: &[&str], edges: &Edges) -> Vec<FolderCycle> {
    let mut found = cycles_below("", paths, edges);
    let mut parents: Vec<&str> = paths.iter().filter_map(|path| child_of("", path)).collect();
    parents.sort_unstable();
    parents.dedup();
    for parent in parents {
        found.extend(cycles_below(parent, paths, edges));
    }
    found.sort_by(|a, b| b.modules.len().cmp(&a.modules.len()).then_with(|| a.parent.cmp(&b.parent)));
    found
}

/// Cycles between the child modules of `parent`.
fn cycles_below(parent: &str, paths: &[&str], edges: &Edges) -> Vec<FolderCycle> {
    let children: Vec<Option<&str>> = paths.iter().map(|path| child_of(parent, path)).collect();
    let mut nodes: BTreeMap<&str, usize> = children.iter().flatten().map(|name| (*name, 0)).collect();
    nodes.values_mut().enumerate().for_each(|(idx, node)| *node = idx);
    let node_of = |file: usize| children[file].map(|name| nodes[name]);
    let node_edges = edges.iter().filter_map(|(from, to)| {
        let edge = (node_of(*from)?, node_of(*to)?);
        (edge.0 != edge.1).then_some(edge)
    });
    let names: Vec<&str> = nodes.keys().copied().collect();
    let components = cycles::components(names.len(), &node_edges.collect());
    let cycle = |members: Vec<usize>| FolderCycle {
        parent: parent.to_owned(),
        modules: members.into_iter().map(|member| names[member].to_owned()).collect(),
    };
    components.into_iter().map(cycle).collect()
}

/// Name of the child module of `parent` that the file `path` belongs to; none if it lies outside of the
/// folder of `parent`, or is a crate root.
fn child_of<'a>(parent: &str, path: &'a str) -> Option<&'a str> {
    let rest = if parent.is_empty() { path } else { path.strip_prefix(parent)?.strip_prefix('/')? };
    let first = rest.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "main", "mod"].contains(&name)).then_some(name)
}
