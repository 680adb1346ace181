//! Search of a path with globs in sorted paths: a walk over the tree that the nodes of the paths are.
//!
//! A node without globs is one search; of a node with globs each child is one, and a branch that does not
//! match is skipped as a whole. So the cost is that of the children of matching nodes, whatever the number of
//! paths is.
//!
//! Invariants: nodes are visited in the order of the paths within a parent, a leaf and a branch of the same
//! name apart; the search position only moves forward within a parent.
//! Not here: matching of one node (`glob`), where the paths come from.

use super::glob::Element;
use crate::error::EvalError;

/// Nodes of a pattern at most, each a level of recursion.
const ELEMENTS_MAX: usize = 512;
/// Paths per read of the first read at a new position, and of reads that go on.
const BATCH_FIRST: usize = 2;
const BATCH_MAX: usize = 1024;

/// Paths in ascending order of their bytes.
pub trait SortedPaths {
    /// Returns the paths from `start` on, at most `limit`; fewer only at the end.
    /// # Errors
    /// As the store.
    fn paths_from(&self, start: &str, limit: usize) -> Result<Vec<String>, EvalError>;
}

/// Receiver of nodes: path, and true for a leaf.
pub type Visit<'a> = dyn FnMut(&str, bool) -> Result<(), EvalError> + 'a;

/// Calls `visit` with each node that matches `pattern`. A path may be visited as a leaf and as a branch.
///
/// # Errors
/// As the paths and `visit`; [`EvalError::Parameter`] for a pattern of more than 512 nodes.
pub fn walk(paths: &dyn SortedPaths, pattern: &str, visit: &mut Visit<'_>) -> Result<(), EvalError> {
    let elements: Vec<Element> = super::glob::elements(pattern).into_iter().map(Element::new).collect();
    if elements.len() > ELEMENTS_MAX {
        return Err(EvalError::Parameter(format!("path with more than {ELEMENTS_MAX} nodes")));
    }
    let mut walk = Walk { cursor: Cursor::new(paths), elements: &elements, visit };
    walk.level("", 0)
}

struct Walk<'a> {
    cursor: Cursor<'a>,
    elements: &'a [Element],
    visit: &'a mut Visit<'a>,
}

impl Walk<'_> {
    /// Visits the matches among the children of the branch `parent`, which is empty or ends with a dot.
    fn level(&mut self, parent: &str, depth: usize) -> Result<(), EvalError> {
        let elements = self.elements;
        let Some(element) = elements.get(depth) else { return Ok(()) };
        match element.literals() {
            Some(names) => names.iter().try_for_each(|name| self.child(parent, name, depth)),
            None => self.children(parent, element, depth),
        }
    }

    /// Visits the child of a name, as leaf and as branch.
    fn child(&mut self, parent: &str, name: &str, depth: usize) -> Result<(), EvalError> {
        let path = format!("{parent}{name}");
        let is_last = depth + 1 == self.elements.len();
        let Some(found) = self.cursor.seek(&path)?.filter(|found| found.starts_with(&path)) else {
            return Ok(());
        };
        if is_last && found == path {
            (self.visit)(&path, true)?;
        }
        let branch = format!("{path}.");
        if !self.cursor.seek(&branch)?.is_some_and(|found| found.starts_with(&branch)) {
            return Ok(());
        }
        if is_last { (self.visit)(&path, false) } else { self.level(&branch, depth + 1) }
    }

    /// Visits the children that match an element with globs.
    fn children(&mut self, parent: &str, element: &Element, depth: usize) -> Result<(), EvalError> {
        let is_last = depth + 1 == self.elements.len();
        let bound = format!("{parent}{}", element.prefix());
        let mut start = bound.clone();
        loop {
            let Some(found) = self.cursor.seek(&start)?.filter(|found| found.starts_with(&bound)) else {
                return Ok(());
            };
            let rest = found.get(parent.len()..).unwrap_or("");
            let name = rest.split('.').next().unwrap_or("").to_owned();
            let is_branch = name.len() < rest.len();
            let path = format!("{parent}{name}");
            let is_match = (is_last || is_branch) && element.matches(&name);
            if is_match && is_last {
                (self.visit)(&path, !is_branch)?;
            } else if is_match {
                self.level(&format!("{path}."), depth + 1)?;
            }
            // After all paths of the branch: a slash is the byte after a dot.
            start = if is_branch { format!("{path}/") } else { format!("{path}\0") };
        }
    }
}

/// Position in the sorted paths, with those read ahead.
struct Cursor<'a> {
    paths: &'a dyn SortedPaths,
    /// Start of the batch, which has all paths between it and its last path.
    start: String,
    batch: Vec<String>,
    /// The batch reaches the end of all paths.
    is_end: bool,
    limit: usize,
    /// Searches that the batch has answered.
    hit_count: usize,
}

impl<'a> Cursor<'a> {
    fn new(paths: &'a dyn SortedPaths) -> Cursor<'a> {
        let batch = Vec::new();
        Cursor { paths, start: String::new(), batch, is_end: false, limit: 0, hit_count: 0 }
    }

    /// Returns the first path from `start` on.
    fn seek(&mut self, start: &str) -> Result<Option<&str>, EvalError> {
        let idx = self.batch.partition_point(|path| path.as_str() < start);
        let is_inside = self.start.as_str() <= start && (idx < self.batch.len() || self.is_end);
        if is_inside && self.limit > 0 {
            self.hit_count += 1;
            return Ok(self.batch.get(idx).map(String::as_str));
        }
        // Larger reads pay only while most of a batch is used.
        let is_sequential = self.hit_count * 2 >= self.batch.len() && self.limit > 0;
        self.limit = if is_sequential { (self.limit * 4).min(BATCH_MAX) } else { BATCH_FIRST };
        self.batch = self.paths.paths_from(start, self.limit)?;
        self.is_end = self.batch.len() < self.limit;
        self.hit_count = 0;
        start.clone_into(&mut self.start);
        Ok(self.batch.first().map(String::as_str))
    }
}

#[cfg(test)]
mod tests;
