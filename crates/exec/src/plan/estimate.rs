//! Estimate of a plan's cost from what the source knows before anything is read, and the selections of a plan
//! for estimates that a language makes.
//!
//! Invariants: series are the matches of selections that operators keep; unknown numbers (an aggregation by
//! labels, operators between vectors, filters) count as none.
//! Not here: limits with which an estimate is compared, which are the language's.

use chronolith_base::hash::HashMap;
use chronolith_model::query::ReadEstimate;
use chronolith_model::{Matcher, Queryable, ReadContext, Selector, TimeRange};

use super::node::{NodeId, NodeKind};
use super::{OccurrenceId, Plan, subtree};
use crate::arith::{BinaryOp, ElementOp};
use crate::error::Error;
use crate::grid::{Grid, Windows};
use crate::samples::SampleParts;

/// A selection with the windows that are evaluated.
#[derive(Debug, Clone, Copy)]
pub struct PlannedSelection<'p> {
    /// The matchers, sorted.
    pub matchers: &'p [Matcher],
    /// Windows of the selection over the computed steps.
    pub windows: Windows,
    /// Times of samples that may be read, by the limits of the query and of subqueries; its steps need not
    /// reach as far.
    pub range: TimeRange,
    /// Parts of samples that operators above need.
    pub parts: SampleParts,
    /// True if all samples of a window are read; false if it is the latest one.
    pub reads_windows: bool,
    /// False within a subquery that has no steps.
    pub is_computed: bool,
    /// True if a fixed time decides, whatever the steps further out are.
    is_fixed: bool,
}

impl PlannedSelection<'_> {
    /// Widens the range from the steps of a subquery to its windows.
    fn widen(&mut self, windows: &Windows, inner: Option<Grid>) {
        self.is_computed &= inner.is_some();
        if self.is_fixed {
            return;
        }
        self.is_fixed = windows.shift.fixed_ms.is_some();
        // Without steps, the selection has been planned for the end of the first window.
        let first_ms = inner.map_or(windows.end(0), |grid| grid.start_ms);
        let TimeRange { start, end } = self.range;
        let start = start.saturating_sub(first_ms.saturating_sub(windows.start(0)));
        self.range =
            TimeRange { start: start.max(TimeRange::ALL.start), end: end.saturating_add(tail_ms(windows)) };
    }
}

/// Time from the last step to the end of the query.
fn tail_ms(windows: &Windows) -> i64 {
    let grid = &windows.grid;
    if windows.shift.fixed_ms.is_some() { 0 } else { grid.end_ms.saturating_sub(grid.time(grid.count - 1)) }
}

impl Plan {
    /// Returns one selection per occurrence, in order of evaluation, without those that functions make by
    /// themselves while they run.
    #[must_use]
    pub fn selections(&self) -> Vec<PlannedSelection<'_>> {
        let mut found = Vec::new();
        // Inputs come before what they are inputs of.
        for (id, one) in (0_u32..).zip(&self.occurrences) {
            let (node, _) = &self.nodes[one.node.0 as usize];
            if let Some(selection) = node.kind.selection() {
                let windows = selection.windows(node.grid);
                let TimeRange { start, end } = windows.read_range();
                let tail_ms = tail_ms(&windows);
                let selection = PlannedSelection {
                    matchers: selection.matchers(),
                    windows,
                    range: TimeRange { start, end: end.saturating_add(tail_ms) },
                    parts: selection.parts(),
                    reads_windows: !matches!(node.kind, NodeKind::Latest(..)),
                    is_computed: true,
                    is_fixed: windows.shift.fixed_ms.is_some(),
                };
                found.push((id, selection));
            }
            if let NodeKind::Subquery(windows, inner) = &node.kind {
                let windows = Windows { grid: node.grid, ..*windows };
                for (_, inside) in found.iter_mut().rev().take_while(|(id, _)| *id >= one.first) {
                    inside.widen(&windows, *inner);
                }
            }
        }
        found.into_iter().map(|(_, selection)| selection).collect()
    }

    /// Returns true if a function selects series by itself while it runs.
    #[must_use]
    pub fn has_hidden_selection(&self) -> bool {
        let selects = |kind: &NodeKind| matches!(kind, NodeKind::Function(one) if one.selection.is_some());
        self.nodes.iter().any(|(node, _)| selects(&node.kind))
    }

    /// Series that the query `root` yields, and samples that are read for it. If `shares`, equal nodes are
    /// read once.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn estimate(
        &self,
        root: OccurrenceId,
        source: &dyn Queryable,
        ctx: &ReadContext,
        shares: bool,
    ) -> Result<ReadEstimate, Error> {
        let mut known: HashMap<NodeId, u64> = HashMap::default();
        let first = self.occurrence(root).first;
        let mut all: Vec<ReadEstimate> = Vec::with_capacity(subtree(self, root).len());
        // Inputs come before what they are inputs of.
        for one in subtree(self, root) {
            let (node, _) = &self.nodes[one.node.0 as usize];
            let shareable = shares && !one.label.is_empty() && node.kind.is_vector();
            if let Some(series) = known.get(&one.node).filter(|_| shareable) {
                all.push(ReadEstimate { series: *series, samples: 0 });
                continue;
            }
            let need = match node.kind.selection() {
                Some(selection) => {
                    let range = selection.windows(node.grid).read_range();
                    let selector = Selector { matchers: selection.matchers(), range };
                    source.estimate(&selector, ctx)?.unwrap_or_default()
                }
                None => {
                    let inputs: Vec<_> = one.inputs.iter().map(|id| all[(id.0 - first) as usize]).collect();
                    of_operator(&node.kind, &inputs)
                }
            };
            if shareable {
                known.insert(one.node, need.series);
            }
            all.push(need);
        }
        Ok(all.pop().unwrap_or_default())
    }
}

fn of_operator(kind: &NodeKind, inputs: &[ReadEstimate]) -> ReadEstimate {
    let most = inputs.iter().map(|input| input.series).max().unwrap_or(0);
    let samples = inputs.iter().fold(0_u64, |sum, input| sum.saturating_add(input.samples));
    let series = match kind {
        // The subquery is not computed.
        NodeKind::Subquery(_, None) => return ReadEstimate::default(),
        NodeKind::VectorScalar(ElementOp::FilterLeft(_) | ElementOp::FilterRight(_), _) => 0,
        NodeKind::Aggregate(_, labels) if labels.is_one() => most.min(1),
        // Scalars have no series.
        NodeKind::Subquery(..)
        | NodeKind::Rollup(_)
        | NodeKind::Map(_)
        | NodeKind::VectorScalar(..)
        | NodeKind::Set(BinaryOp::Or, _) => most,
        NodeKind::Function(function) if function.keeps_series => most,
        _ => 0,
    };
    ReadEstimate { series, samples }
}
