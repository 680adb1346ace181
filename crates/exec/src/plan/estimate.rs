//! Estimate of a plan's cost from what the source knows before anything is read.
//!
//! Invariants: series are those that selections match, as far as operators keep them; unknown numbers (an
//! aggregation by labels, operators between vectors, filters) count as none.
//! Not here: limits with which an estimate is compared, which are the language's.

use chronolith_base::hash::HashMap;
use chronolith_model::query::ReadEstimate;
use chronolith_model::{Queryable, ReadContext, Selector};

use super::Plan;
use super::node::{NodeId, NodeKind};
use crate::arith::{BinaryOp, ElementOp};
use crate::error::Error;

impl Plan {
    /// Series that the query yields, and samples that are read for it. If `shares`, equal nodes are read
    /// once.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn estimate(
        &self,
        source: &dyn Queryable,
        ctx: &ReadContext,
        shares: bool,
    ) -> Result<ReadEstimate, Error> {
        let mut known: HashMap<NodeId, u64> = HashMap::default();
        let mut all: Vec<ReadEstimate> = Vec::with_capacity(self.occurrences.len());
        // Inputs come before what they are inputs of.
        for one in &self.occurrences {
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
                    let inputs: Vec<_> = one.inputs.iter().map(|id| all[id.0 as usize]).collect();
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
        // It is not computed.
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
