//! Operators of nodes with several readers: built at the first use, read at the others.
//!
//! Invariants: annotations of building a node are emitted at each of its uses, at the positions of that use. A
//! use whose series were dropped is built alone.
//! Not here: which nodes have several readers (`plan::sharing`), reading shared series (`share`).

use std::rc::Rc;

use super::{Built, OperatorBuilder, Sharing};
use crate::aggregate::hash_aggregate::AggregateInput;
use crate::error::Error;
use crate::grouping::Grouping;
use crate::operator::{BoxOperator, Traced};
use crate::plan::OccurrenceId;
use crate::plan::node::NodeKind;
use crate::select::InstantField;
use crate::share::{BuildAlone, SharedPart, SharedReader, moved};
use crate::trace::{NodeHandle, Use};

impl<'q> OperatorBuilder<'q> {
    /// Number of uses of a vector that is shared.
    pub(super) fn repeated(&self, id: OccurrenceId) -> Option<(&Sharing<'q>, usize)> {
        let sharing = self.sharing.as_ref().filter(|_| self.plan.is_shareable(id))?;
        Some((sharing, sharing.uses.repeated(self.plan.occurrence(id).node)?))
    }

    /// Input of an aggregation: a shared subplan feeds its series to the aggregation as they are computed.
    /// `counted_by` is the grouping of an aggregation that uses nothing but the presence of its input.
    pub(super) fn aggregate_input(
        &self,
        id: OccurrenceId,
        counted_by: Option<&Grouping<'_>>,
    ) -> Result<AggregateInput<'q>, Error> {
        let Some((sharing, uses)) = self.repeated(id) else {
            let reads_presence = matches!(self.plan.kind(id), NodeKind::Latest(_, InstantField::Value))
                && self.plan.node(id).repeat.is_none();
            return Ok(AggregateInput::Alone(match counted_by.filter(|_| reads_presence) {
                None => self.vector(id)?,
                counted_by => self.traced(id, |builder| builder.scan(id, counted_by))?.0,
            }));
        };
        let node = self.plan.occurrence(id).node;
        if sharing.parts.borrow().get(&node).is_some_and(|built| built.part.has_begun()) {
            return Ok(AggregateInput::Alone(self.shared_vector(id, sharing, uses)?));
        }
        let (part, first) = self.part_of(id, sharing, uses)?;
        let positions = (first != id).then(|| self.plan.positions(first, id));
        let node = if first == id { None } else { self.node_of_again(id, &part) };
        Ok(AggregateInput::Shared { part, positions, node, alone: self.build_alone(id) })
    }

    pub(super) fn shared_vector(
        &self,
        id: OccurrenceId,
        sharing: &Sharing<'q>,
        uses: usize,
    ) -> Result<BoxOperator<'q>, Error> {
        let (part, first) = self.part_of(id, sharing, uses)?;
        let positions = (first != id).then(|| self.plan.positions(first, id));
        let reader = Box::new(SharedReader::new(part.clone(), positions, self.build_alone(id)));
        if first == id {
            return Ok(reader);
        }
        Ok(Traced::boxed(reader, self.node_of_again(id, &part)))
    }

    /// The node of a further use, marked in the report.
    fn node_of_again(&self, id: OccurrenceId, part: &SharedPart<'q>) -> Option<NodeHandle<'q>> {
        let handle = self.trace_node(id, Use::Again)?;
        handle.node().mark_shared(part.marked());
        Some(handle)
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
        self.execution.record_shared();
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

    fn build_alone(&self, id: OccurrenceId) -> BuildAlone<'q> {
        let OperatorBuilder { plan, execution, language, .. } = *self;
        Box::new(move || OperatorBuilder { plan, execution, language, sharing: None }.untraced(id))
    }
}
