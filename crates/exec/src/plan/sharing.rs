//! Common subexpressions of a plan: nodes that several operators read.
//!
//! Invariants: a use is counted per operator that reads the node; operators below a node that is read again
//! do not count again, since the node is shared as a whole. Only labelled vectors are shared: scalars and
//! ranges are computed for each reader.

use chronolith_base::hash::{HashMap, HashSet};
use chronolith_model::Matcher;

use super::Plan;
use super::node::{NodeId, NodeKind};

/// Uses of the nodes of a plan.
#[derive(Debug, Default)]
pub(super) struct UseCounts {
    by_node: HashMap<NodeId, usize>,
    by_matchers: HashMap<Vec<Matcher>, usize>,
}

impl Plan {
    /// Returns true if some node or selection is computed once for several readers, where that is allowed.
    #[must_use]
    pub fn has_shared(&self) -> bool {
        let counts = UseCounts::of(self);
        counts.by_node.values().chain(counts.by_matchers.values()).any(|uses| *uses > 1)
    }
}

impl UseCounts {
    /// Counts the uses of all nodes; no counts if there is only one selection, as in most queries.
    pub(super) fn of(plan: &Plan) -> UseCounts {
        let mut counts = UseCounts::default();
        let selects = |node: NodeId| plan.nodes[node.0 as usize].0.kind.selection().is_some();
        if plan.occurrences.iter().filter(|one| selects(one.node)).count() < 2 {
            return counts;
        }
        let mut left = vec![plan.root()];
        while let Some(id) = left.pop() {
            if plan.is_shareable(id) {
                let uses = counts.by_node.entry(plan.occurrence(id).node).or_default();
                *uses += 1;
                if *uses > 1 {
                    continue;
                }
            }
            let kind = plan.kind(id);
            if let Some(selection) = kind.selection() {
                *counts.by_matchers.entry(selection.matchers().to_vec()).or_default() += 1;
            }
            if !matches!(kind, NodeKind::Subquery(_, None)) {
                left.extend(plan.inputs(id));
            }
        }
        counts
    }

    /// Number of uses, if there are several.
    pub(super) fn repeated(&self, node: NodeId) -> Option<usize> {
        self.by_node.get(&node).copied().filter(|uses| *uses > 1)
    }

    /// Matchers by which more than one selection is made.
    pub(super) fn repeated_selections(&self) -> HashSet<Vec<Matcher>> {
        let repeated = self.by_matchers.iter().filter(|(_, uses)| **uses > 1);
        repeated.map(|(matchers, _)| matchers.clone()).collect()
    }
}
