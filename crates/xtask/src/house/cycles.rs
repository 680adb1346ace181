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
    let reached: Vec<Vec<bool>> = (0..paths.len()).map(|from| reach(from, paths.len(), edges)).collect();
    let mut cycles = Vec::new();
    let mut is_taken = vec![false; paths.len()];
    for first in 0..paths.len() {
        let members: Vec<usize> =
            (first..paths.len()).filter(|other| reached[first][*other] && reached[*other][first]).collect();
        if is_taken[first] || members.len() < 2 {
            continue;
        }
        members.iter().for_each(|member| is_taken[*member] = true);
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

/// Returns for each file whether a path of one or more edges leads to it from the file `from`.
fn reach(from: usize, file_count: usize, edges: &Edges) -> Vec<bool> {
    let mut is_reached = vec![false; file_count];
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for (_, to) in edges.range((file, 0)..=(file, usize::MAX)) {
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
