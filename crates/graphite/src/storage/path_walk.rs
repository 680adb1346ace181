//! Search of a path with globs in sorted paths: a walk over the tree that the nodes of the paths are.
//!
//! A node without globs is one search; of a node with globs each child is one, and a branch that does not
//! match is skipped as a whole. So the cost grows with the children of matching nodes, not with the number of
//! paths. From `**` on, all paths of the branch are compared.
//!
//! Invariants: nodes are visited in the order of the paths within a parent, a leaf and a branch of the same
//! name apart; the search position only moves forward within a parent.
//! Not here: matching of one node (`glob`), source of the paths.

use super::glob::{Element, Part, matches_parts};
use crate::error::EvalError;

/// Nodes of a pattern at most, each a level of recursion.
const ELEMENTS_MAX: usize = 512;

/// Position in paths that ascend by their bytes.
pub trait SortedPaths {
    /// Returns the first path that is at least `start`; `None` if there is none. Mostly `start` ascends from
    /// call to call.
    ///
    /// # Errors
    /// As the store.
    fn seek(&mut self, start: &str) -> Result<Option<&str>, EvalError>;
}

/// Receiver of nodes: path, and true for a leaf.
pub type Visit<'a> = dyn FnMut(&str, bool) -> Result<(), EvalError> + 'a;

/// Calls `visit` with each node that matches `pattern`. A path may be visited as a leaf and as a branch.
///
/// # Errors
/// As the paths and `visit`; [`EvalError::Parameter`] for a pattern of more than 512 nodes.
pub fn walk(paths: &mut dyn SortedPaths, pattern: &str, visit: &mut Visit<'_>) -> Result<(), EvalError> {
    let elements = super::glob::parts(pattern);
    if elements.len() > ELEMENTS_MAX {
        return Err(EvalError::Parameter(format!("path with more than {ELEMENTS_MAX} nodes")));
    }
    Walk { paths, elements: &elements, visit }.level(&mut String::new(), 0)
}

struct Walk<'a> {
    paths: &'a mut dyn SortedPaths,
    elements: &'a [Part],
    visit: &'a mut Visit<'a>,
}

/// Relation of the remaining paths to a position.
enum Next {
    /// A path equals the position.
    Equal,
    /// A path is below the branch of the position.
    Below,
    /// A longer name, whose path is before the paths of the branch.
    LongerName,
    /// All remaining paths are after the branch.
    After,
}

impl Walk<'_> {
    /// Visits the matches among the children of the branch `path`, which is empty or ends with a dot, and is
    /// the same afterwards.
    fn level(&mut self, path: &mut String, depth: usize) -> Result<(), EvalError> {
        assert!(path.is_empty() || path.ends_with('.'), "a level lies below a branch");
        let elements = self.elements;
        let element = match elements.get(depth) {
            None => return Ok(()),
            Some(Part::AnyDepth) => return self.subtree(path, elements.get(depth..).unwrap_or(&[])),
            Some(Part::Element(element)) => element,
        };
        let Some(names) = element.literals() else { return self.children(path, element, depth) };
        let parent_len = path.len();
        for name in names {
            path.push_str(name);
            self.child(path, depth)?;
            path.truncate(parent_len);
        }
        Ok(())
    }

    /// Visits the leaves and branches below `path` whose names match.
    fn subtree(&mut self, path: &str, parts: &[Part]) -> Result<(), EvalError> {
        let mut last = String::new();
        let mut start = path.to_owned();
        loop {
            let Some(found) = self.paths.seek(&start)?.filter(|found| found.starts_with(path)) else {
                return Ok(());
            };
            let found = found.to_owned();
            let names: Vec<&str> = found.get(path.len()..).unwrap_or("").split('.').collect();
            let mut len = path.len();
            for (idx, name) in names.iter().enumerate() {
                len += name.len();
                let is_leaf = idx + 1 == names.len();
                let node = found.get(..len).unwrap_or("");
                len += 1;
                // Paths below a branch follow one another.
                let is_visited = last.get(..len) == found.get(..len) && !is_leaf;
                if !is_visited && matches_parts(parts, names.get(..=idx).unwrap_or(&[])) {
                    (self.visit)(node, is_leaf)?;
                }
            }
            start.clone_from(&found);
            start.push('\0');
            last = found;
        }
    }

    /// Visits the node `path`, as leaf and as branch.
    fn child(&mut self, path: &mut String, depth: usize) -> Result<(), EvalError> {
        let is_last = depth + 1 == self.elements.len();
        let mut next = self.next(path)?;
        if is_last && matches!(next, Next::Equal) {
            (self.visit)(path, true)?;
        }
        let len = path.len();
        path.push('.');
        if matches!(next, Next::Equal | Next::LongerName) {
            next = self.next(path)?;
        }
        let is_branch = matches!(next, Next::Equal | Next::Below);
        if is_branch && !is_last {
            self.level(path, depth + 1)?;
        }
        path.truncate(len);
        if is_branch && is_last { (self.visit)(path, false) } else { Ok(()) }
    }

    fn next(&mut self, path: &str) -> Result<Next, EvalError> {
        let rest = self.paths.seek(path)?.and_then(|found| found.strip_prefix(path));
        Ok(match rest.map(str::as_bytes) {
            Some([]) => Next::Equal,
            Some(_) if path.ends_with('.') => Next::Below,
            Some([b'.', ..]) => Next::Below,
            Some([byte, ..]) if *byte < b'.' => Next::LongerName,
            _ => Next::After,
        })
    }

    /// Visits the children that match an element with globs.
    fn children(&mut self, path: &mut String, element: &Element, depth: usize) -> Result<(), EvalError> {
        let is_last = depth + 1 == self.elements.len();
        let parent_len = path.len();
        let bound = format!("{path}{}", element.prefix());
        let mut start = bound.clone();
        loop {
            let Some(found) = self.paths.seek(&start)?.filter(|found| found.starts_with(&bound)) else {
                return Ok(());
            };
            let rest = found.get(parent_len..).unwrap_or("");
            let name = rest.split('.').next().unwrap_or("");
            let is_branch = name.len() < rest.len();
            let is_match = (is_last || is_branch) && element.matches(name);
            path.push_str(name);
            start.clone_from(path);
            // After all paths of the branch: a slash is the byte after a dot.
            start.push(if is_branch { '/' } else { '\0' });
            if is_match && is_last {
                (self.visit)(path, !is_branch)?;
            } else if is_match {
                path.push('.');
                self.level(path, depth + 1)?;
            }
            path.truncate(parent_len);
        }
    }
}

#[cfg(test)]
mod tests;
