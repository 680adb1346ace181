//! Logical plan of a query, or of several: a DAG of operators, which a language builds and of which operators
//! are made.
//!
//! Invariants: equal nodes are one node (hash consing), so that a node with several occurrences is a common
//! subexpression. Occurrences are a tree, in order of evaluation, and carry what nodes do not: positions in
//! the query and words for reports. Properties of a node are computed once, when it is added. A
//! step-invariant node is computed for one step and repeated. Queries are added one after the other; the last
//! occurrence of each is its root.
//! Not here: the operators (`plan::operators`), names of functions and texts, which are the language's.

pub mod estimate;
pub mod node;
pub mod operators;
pub mod properties;
pub mod sharing;

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use chronolith_base::hash::HashMap;

use crate::annotation::EvaluationOrder;
use crate::arith::BinaryOp;
use crate::error::Error;
use crate::grid::Grid;
use crate::position::{Origin, Position};
use crate::share::PositionMap;
use node::{Node, NodeId, NodeKind};
use properties::{NameRules, Names, Properties};

/// Number of an occurrence. Inputs have lower numbers than what they are inputs of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OccurrenceId(u32);

/// A node at one place of the query.
#[derive(Debug, Clone)]
pub struct Occurrence {
    node: NodeId,
    inputs: Vec<OccurrenceId>,
    /// Lowest number below it: its subtree is all numbers from there to its own.
    first: u32,
    positions: Vec<Position>,
    label: &'static str,
}

/// Range of samples around an evaluation time that decide the value, for caches of results: the value of a
/// step is a function of the samples within it, whatever the first and last step of the query are.
///
/// An error is not: two series with equal labels fail a query even in a step of a subquery that no step of
/// the query looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookback {
    /// Into the past; 0 or more.
    pub past_ms: i64,
    /// Into the future (negative offsets); 0 or more.
    pub future_ms: i64,
    /// The result over a range equals the joined results over its parts. If not, a query over the whole range
    /// may fail because of series with equal labels where none over a part does.
    pub joins: bool,
}

/// The plan of one query, or of several at the same times.
#[derive(Debug)]
pub struct Plan {
    nodes: Vec<(Arc<Node>, Properties)>,
    ids: HashMap<Arc<Node>, NodeId>,
    occurrences: Vec<Occurrence>,
    name_rules: NameRules,
    depends_on_range: bool,
}

impl Plan {
    /// Without nodes.
    #[must_use]
    pub fn new(name_rules: NameRules) -> Plan {
        Plan {
            nodes: Vec::new(),
            ids: HashMap::default(),
            occurrences: Vec::new(),
            name_rules,
            depends_on_range: false,
        }
    }

    /// Adds an occurrence of a node with inputs in order of evaluation. Its positions are the position of the
    /// expression, then the positions of its annotations, in the order of its kind. `label` is its word in
    /// reports; empty for a part of an operator, which is neither reported nor shared by itself.
    pub fn push(
        &mut self,
        kind: NodeKind,
        inputs: Vec<OccurrenceId>,
        mut grid: Grid,
        positions: Vec<Position>,
        label: &'static str,
    ) -> OccurrenceId {
        let windows = kind.windows();
        self.depends_on_range |= windows.is_some_and(|windows| {
            windows.shift.fixed_ms.is_some() || windows.before_ms != 0 || windows.after_ms != 0
        });
        let is_constant = matches!(kind, NodeKind::Constant(_));
        // The input of a subquery is on a grid of its own.
        let follows_inputs = !matches!(kind, NodeKind::Subquery(..));
        let varies =
            kind.depends_on_time() || follows_inputs && inputs.iter().any(|input| !self.is_invariant(*input));
        let mut repeat = None;
        if is_constant {
            grid = Grid::instant(0);
        } else if !varies && grid.start_ms != grid.end_ms {
            repeat = Some(grid.count);
            grid = Grid::instant(grid.start_ms);
            if follows_inputs {
                inputs.iter().for_each(|input| self.stop_repeating(*input));
            }
        }
        let nodes = inputs.iter().map(|input| self.occurrence(*input).node).collect();
        let node = self.intern(Node { kind, inputs: nodes, grid, repeat });
        let own = self.occurrences.len() as u32;
        let first = inputs.iter().map(|input| self.occurrence(*input).first).min().unwrap_or(own);
        self.occurrences.push(Occurrence { node, inputs, first, positions, label });
        OccurrenceId(own)
    }

    /// Adds an occurrence of a number.
    pub fn push_constant(&mut self, value: f64) -> OccurrenceId {
        self.push(NodeKind::Constant(value.to_bits()), Vec::new(), Grid::instant(0), Vec::new(), "")
    }

    /// Notes that a value depends on the first or last step, or on the distance of steps.
    pub fn set_depends_on_range(&mut self) {
        self.depends_on_range = true;
    }

    /// The last occurrence, which is the whole query that was added last.
    ///
    /// # Panics
    /// Nothing has been added.
    #[must_use]
    pub fn root(&self) -> OccurrenceId {
        assert!(!self.occurrences.is_empty(), "a plan has a node");
        OccurrenceId(self.occurrences.len() as u32 - 1)
    }

    /// Properties of the node of an occurrence.
    #[must_use]
    pub fn properties(&self, id: OccurrenceId) -> &Properties {
        &self.nodes[self.occurrence(id).node.0 as usize].1
    }

    /// Kind of the node of an occurrence.
    #[must_use]
    pub fn kind(&self, id: OccurrenceId) -> &NodeKind {
        &self.node(id).kind
    }

    /// Inputs of an occurrence, in order of evaluation.
    #[must_use]
    pub fn inputs(&self, id: OccurrenceId) -> &[OccurrenceId] {
        &self.occurrence(id).inputs
    }

    /// Input number `idx`, in order of evaluation.
    fn input(&self, id: OccurrenceId, idx: usize) -> Result<OccurrenceId, Error> {
        self.inputs(id).get(idx).copied().ok_or_else(|| malformed(self.kind(id)))
    }

    /// Bytes of the columns that the operators of an occurrence work with on `grid`, one each.
    #[must_use]
    pub fn columns_bytes(&self, id: OccurrenceId, grid: Grid) -> u64 {
        grid.column_bytes().saturating_mul(self.properties(id).depth as u64 + 1)
    }

    /// The lookback of the query; `None` if its steps are not independent of each other and of its range.
    #[must_use]
    pub fn lookback(&self) -> Option<Lookback> {
        // The earliest step of a union decides whether a name is removed at the end.
        let is_union = |node: &Node| matches!(node.kind, NodeKind::Set(BinaryOp::Or, _));
        let names_depend_on_range =
            self.name_rules.are_delayed && self.nodes.iter().any(|(node, _)| is_union(node));
        if self.depends_on_range || names_depend_on_range {
            return None;
        }
        let Properties { names, collides, needs, .. } = self.properties(self.root());
        let (past_ms, future_ms) = needs.map_or((0, 0), |needs| (needs.earliest_ms, needs.latest_ms));
        // The names that operators left in place are removed at the end.
        let may_be_equal = *collides || (self.name_rules.are_delayed && *names == Names::Many);
        Some(Lookback {
            past_ms: past_ms.saturating_neg().max(0),
            future_ms: future_ms.max(0),
            joins: !may_be_equal,
        })
    }

    /// Key that two plans share if they differ in nothing but positions, and first and last step. Neither
    /// plan may depend on these (see [`Plan::lookback`]), nor on the distance of steps.
    #[must_use]
    pub fn cache_key(&self) -> String {
        let mut key = String::new();
        for occurrence in &self.occurrences {
            let kind = self.nodes[occurrence.node.0 as usize].0.kind.without_range();
            let inputs = occurrence.inputs.iter().map(|input| input.0);
            // Writing to a String cannot fail.
            let _ = write!(key, "{kind:?}{:?}", inputs.collect::<Vec<_>>());
        }
        key
    }

    /// Order in which the parts of the query `root` are evaluated: of emitters at one position the last one
    /// counts.
    #[must_use]
    pub fn evaluation_order(&self, root: OccurrenceId) -> EvaluationOrder<'_> {
        let rank_all = move || -> HashMap<Position, usize> {
            let emitters = subtree(self, root).iter().map(|occurrence| occurrence.positions.first());
            let ranked = emitters.enumerate().filter_map(|(rank, emitter)| Some((*emitter?, rank + 1)));
            ranked.collect()
        };
        let ranks = OnceLock::new();
        Box::new(move |emitter| ranks.get_or_init(rank_all).get(&emitter).copied().unwrap_or(0))
    }

    fn occurrence(&self, id: OccurrenceId) -> &Occurrence {
        &self.occurrences[id.0 as usize]
    }

    fn node(&self, id: OccurrenceId) -> &Node {
        &self.nodes[self.occurrence(id).node.0 as usize].0
    }

    /// Returns true if equal occurrences are computed once.
    fn is_shareable(&self, id: OccurrenceId) -> bool {
        !self.occurrence(id).label.is_empty() && self.kind(id).is_vector()
    }

    /// Origin of annotations that point at position number `idx`; at the emitter if it has no such position.
    fn origin(&self, id: OccurrenceId, idx: usize) -> Origin {
        let positions = &self.occurrence(id).positions;
        let emitter = positions.first().copied().unwrap_or_default();
        Origin { position: positions.get(idx).copied().unwrap_or(emitter), emitter }
    }

    /// From positions in one occurrence of a node to those in another one.
    fn positions(&self, from: OccurrenceId, to: OccurrenceId) -> PositionMap {
        let below = |id| subtree(self, id).iter().flat_map(|occurrence| &occurrence.positions).copied();
        debug_assert_eq!(below(from).count(), below(to).count(), "equal nodes have equally many positions");
        below(from).zip(below(to)).collect()
    }

    fn is_invariant(&self, id: OccurrenceId) -> bool {
        let node = self.node(id);
        node.repeat.is_some() || matches!(node.kind, NodeKind::Constant(_))
    }

    /// Makes the node of a step-invariant occurrence yield its only step, for a step-invariant node above.
    fn stop_repeating(&mut self, id: OccurrenceId) {
        let node = self.node(id);
        if node.repeat.is_some() {
            let once = Node { repeat: None, ..node.clone() };
            self.occurrences[id.0 as usize].node = self.intern(once);
        }
    }

    fn intern(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.ids.get(&node) {
            return *id;
        }
        let inputs: Vec<&Properties> = node.inputs.iter().map(|id| &self.nodes[id.0 as usize].1).collect();
        let properties = Properties::of(&node.kind, &inputs, self.name_rules);
        let (id, node) = (NodeId(self.nodes.len() as u32), Arc::new(node));
        self.nodes.push((node.clone(), properties));
        self.ids.insert(node, id);
        id
    }
}

/// The occurrence and all below it, in order of evaluation.
fn subtree(plan: &Plan, id: OccurrenceId) -> &[Occurrence] {
    &plan.occurrences[plan.occurrence(id).first as usize..=id.0 as usize]
}

/// A language has built a node over inputs of other types.
fn malformed(kind: &NodeKind) -> Error {
    Error::Language(format!("malformed plan: {kind:?}"))
}

#[cfg(test)]
mod tests;
