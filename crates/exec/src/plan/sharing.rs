//! Common subexpressions of a plan: nodes that several operators read, within a query or in several queries
//! of one plan.
//!
//! Invariants: a use is counted per operator that reads the node; operators below a node that is read again
//! do not count again, since the node is shared as a whole. Only labelled vectors are shared: scalars and
//! ranges are computed for each reader.

use chronolith_base::hash::HashMap;
use chronolith_model::{Matcher, TimeRange};

use super::node::{NodeId, NodeKind};
use super::{Occurrence, OccurrenceId, Plan, subtree};
use crate::selection::RepeatedSelections;

/// Uses of the nodes of a plan.
#[derive(Debug, Default)]
pub(super) struct UseCounts {
    by_node: HashMap<NodeId, usize>,
    by_selection: HashMap<(Vec<Matcher>, TimeRange), usize>,
}

impl Plan {
    /// Returns true if some node or selection is computed once for several readers, where that is allowed.
    #[must_use]
    pub fn has_shared(&self) -> bool {
        let counts = UseCounts::of(self, &[self.root()]);
        counts.by_node.values().chain(counts.by_selection.values()).any(|uses| *uses > 1)
    }
}

/// Connected components of queries that have selections in common, directly or through others, of 2 to
/// `count_max` queries each. A query is given by its root, and returned by its index. Equal nodes have equal
/// selections, so that queries of different components have nothing to share.
#[must_use]
pub fn connected_components(plan: &Plan, roots: &[OccurrenceId], count_max: usize) -> Vec<Vec<usize>> {
    let mut components: Vec<Vec<usize>> = (0..roots.len()).map(|idx| vec![idx]).collect();
    let mut component_of: Vec<usize> = (0..roots.len()).collect();
    let mut last_user: HashMap<(&[Matcher], TimeRange), usize> = HashMap::default();
    for (idx, root) in roots.iter().enumerate() {
        for selection in subtree(plan, *root).iter().filter_map(|one| selection_of(plan, one)) {
            let Some(before) = last_user.insert(selection, idx) else { continue };
            let into = component_of[before];
            let from = component_of[idx];
            if into == from || components[into].len() + components[from].len() > count_max {
                continue;
            }
            let moved = std::mem::take(&mut components[from]);
            moved.iter().for_each(|idx| component_of[*idx] = into);
            components[into].extend(moved);
        }
    }
    components.retain(|component| component.len() > 1);
    components.iter_mut().for_each(|component| component.sort_unstable());
    components
}

/// Matchers of a selection, and the times that it reads.
fn selection_of<'p>(plan: &'p Plan, occurrence: &Occurrence) -> Option<(&'p [Matcher], TimeRange)> {
    let (node, _) = &plan.nodes[occurrence.node.0 as usize];
    let selection = node.kind.selection()?;
    Some((selection.matchers(), selection.windows(node.grid).read_range()))
}

impl UseCounts {
    /// Counts the uses of all nodes below these roots; no counts if there is only one selection, as in most
    /// queries.
    pub(super) fn of(plan: &Plan, roots: &[OccurrenceId]) -> UseCounts {
        let mut counts = UseCounts::default();
        let selects = |node: NodeId| plan.nodes[node.0 as usize].0.kind.selection().is_some();
        if plan.occurrences.iter().filter(|one| selects(one.node)).count() < 2 {
            return counts;
        }
        let mut left = roots.to_vec();
        while let Some(id) = left.pop() {
            if plan.is_shareable(id) {
                let uses = counts.by_node.entry(plan.occurrence(id).node).or_default();
                *uses += 1;
                if *uses > 1 {
                    continue;
                }
            }
            if let Some((matchers, range)) = selection_of(plan, plan.occurrence(id)) {
                *counts.by_selection.entry((matchers.to_vec(), range)).or_default() += 1;
            }
            if !matches!(plan.kind(id), NodeKind::Subquery(_, None)) {
                left.extend(plan.inputs(id));
            }
        }
        counts
    }

    /// Number of uses, if there are several.
    pub(super) fn repeated(&self, node: NodeId) -> Option<usize> {
        self.by_node.get(&node).copied().filter(|uses| *uses > 1)
    }

    /// Selections that are made more than once.
    pub(super) fn repeated_selections(&self) -> RepeatedSelections {
        let mut repeated = RepeatedSelections::default();
        for ((matchers, range), _) in self.by_selection.iter().filter(|(_, uses)| **uses > 1) {
            repeated.entry(matchers.clone()).or_default().push(*range);
        }
        repeated
    }
}
