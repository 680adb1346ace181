//! Operators of nodes with several readers: built at the first use, read at the others.
//!
//! Invariants: annotations of building a node are emitted at each of its uses, at the positions of that use.
//! Not here: finding nodes with several readers (`plan::sharing`), reading shared series (`share`).

use std::rc::Rc;

use super::{Built, OperatorBuilder, Sharing};
use crate::aggregate::hash_aggregate::AggregateInput;
use crate::error::Error;
use crate::plan::OccurrenceId;
use crate::plan::node::NodeKind;
use crate::scan::ScanReader;
use crate::select::InstantField;
use crate::share::{SharedPart, SharedReader, SharedUse, moved};
use crate::trace::Use;

impl<'q> OperatorBuilder<'q> {
    /// Number of uses of a vector that is shared.
    pub(super) fn repeated(&self, id: OccurrenceId) -> Option<(&Sharing<'q>, usize)> {
        let sharing = self.sharing.as_deref().filter(|_| self.plan.is_shareable(id))?;
        Some((sharing, sharing.uses.repeated(self.plan.occurrence(id).node)?))
    }

    /// Input of an aggregation: a shared subplan feeds its series to the aggregation as they are computed.
    /// A selector is read for `reader`.
    pub(super) fn aggregate_input(
        &self,
        id: OccurrenceId,
        reader: ScanReader<'_>,
    ) -> Result<AggregateInput<'q>, Error> {
        if let Some((sharing, uses)) = self.repeated(id) {
            let shared = self.shared_use(id, sharing, uses)?;
            // A sink would miss series.
            let has_begun = shared.part.has_begun();
            return Ok(if has_begun {
                AggregateInput::Alone(SharedReader::boxed(shared))
            } else {
                AggregateInput::Shared(shared)
            });
        }
        let node = self.plan.node(id);
        let properties = self.plan.properties(id);
        // Series that are merged by their labels need all of them.
        let reads_groups_only = node.repeat.is_none() && !properties.merges && !properties.collides;
        Ok(AggregateInput::Alone(match &node.kind {
            NodeKind::Latest(_, InstantField::Value) if node.repeat.is_none() => {
                let projection = reader.grouping.filter(|_| reads_groups_only);
                let reader = ScanReader { projection, ..reader };
                self.traced(id, |builder| builder.scan(id, reader))?.0
            }
            NodeKind::Rollup(rollup) if reads_groups_only => {
                let projection = reader.grouping;
                self.check_types(id)?;
                self.traced(id, |builder| builder.rollup(id, rollup, node.grid, projection))?.0
            }
            _ => self.vector(id)?,
        }))
    }

    /// A use of a node that several operators read. Further ones are marked in the report.
    pub(super) fn shared_use(
        &self,
        id: OccurrenceId,
        sharing: &Sharing<'q>,
        uses: usize,
    ) -> Result<SharedUse<'q>, Error> {
        let execution = self.execution;
        let (part, first) = self.part_of(id, sharing, uses)?;
        if first == id {
            return Ok(SharedUse { part, execution, positions: None, node: None });
        }
        let node = self.trace_node(id, Use::Again);
        if let Some(node) = &node {
            node.node().mark_shared(part.marked());
        }
        Ok(SharedUse { part, execution, positions: Some(self.plan.positions(first, id)), node })
    }

    /// The shared subplan of a node, built if this is its first use, and that first use. Annotations of
    /// building it are emitted.
    fn part_of(
        &self,
        id: OccurrenceId,
        sharing: &Sharing<'q>,
        uses: usize,
    ) -> Result<(Rc<SharedPart<'q>>, OccurrenceId), Error> {
        let annotations = &self.execution.annotations;
        let node = self.plan.occurrence(id).node;
        if let Some(Built { first, part }) = sharing.parts.borrow().get(&node) {
            let set = part.build_annotations();
            if !set.is_empty() {
                annotations.append(moved(set, Some(&self.plan.positions(*first, id))));
            }
            return Ok((part.clone(), *first));
        }
        let before = annotations.start_new();
        let built = self.traced(id, |builder| builder.untraced(id));
        let of_build = annotations.restore(before);
        annotations.append(of_build.clone());
        let (inner, trace_node) = built?;
        let mut parts = sharing.parts.borrow_mut();
        let number = parts.len() as u32 + 1;
        let part = SharedPart::new(self.execution, inner, of_build, number, uses, trace_node);
        parts.insert(node, Built { first: id, part: part.clone() });
        Ok((part, id))
    }
}
