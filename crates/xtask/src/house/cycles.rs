//! Import cycles: strongly connected components of the import graph with more than one file.
//!
//! Invariants: a cycle is within one module if one file of it is that module and all others lie in the
//! module's folder: parts of a module may import each other. All files descend from the crate root, so a
//! cycle with the root is within one module only if it has two files.

use super::imports::Edges;

/// Files that import each other, directly or through others; paths relative to `src/`, sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cycle {
    pub(crate) files: Vec<String>,
    pub(super) is_within_module: bool,
}

/// All cycles, the largest first.
pub(super) fn find(paths: &[&str], edges: &Edges) -> Vec<Cycle> {
    let mut cycles = Vec::new();
    for members in components(paths.len(), edges) {
        let mut files: Vec<&str> = members.iter().map(|member| paths[*member]).collect();
        files.sort_unstable();
        cycles.push(Cycle {
            is_within_module: is_within_module(&files),
            files: files.into_iter().map(str::to_owned).collect(),
        });
    }
    cycles.sort_by(|a, b| b.files.len().cmp(&a.files.len()).then_with(|| a.files.cmp(&b.files)));
    cycles
}

/// Strongly connected components with more than one of the nodes `0..node_count`, each ascending.
pub(super) fn components(node_count: usize, edges: &Edges) -> Vec<Vec<usize>> {
    let reached: Vec<Vec<bool>> = (0..node_count).map(|from| reach(from, node_count, edges)).collect();
    let mut components = Vec::new();
    let mut is_taken = vec![false; node_count];
    for first in 0..node_count {
        let members: Vec<usize> =
            (first..node_count).filter(|other| reached[first][*other] && reached[*other][first]).collect();
        if is_taken[first] || members.len() < 2 {
            continue;
        }
        members.iter().for_each(|member| is_taken[*member] = true);
        components.push(members);
    }
    components
}

/// Returns for each node whether a path of one or more edges leads to it from the node `from`.
fn reach(from: usize, node_count: usize, edges: &Edges) -> Vec<bool> {
    let mut is_reached = vec![false; node_count];
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for (_, to) in edges.range((node, 0)..=(node, usize::MAX)) {
            if !std::mem::replace(&mut is_reached[*to], true) {
                open.push(*to);
            }
        }
    }
    is_reached
}

fn is_within_module(files: &[&str]) -> bool {
    files.iter().any(|head| match module_folder(head) {
        None => files.len() == 2,
        Some(folder) => files.iter().all(|file| file == head || file.starts_with(&folder)),
    })
}

/// Folder of the child modules of the module `path`; none for a crate root.
fn module_folder(path: &str) -> Option<String> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let is_root = ["lib", "main"].contains(&stem);
    (!is_root).then(|| format!("{}/", stem.strip_suffix("/mod").unwrap_or(stem)))
}
