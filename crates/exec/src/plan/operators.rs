//! Operators of a plan.
//!
//! Invariants: inputs are built, and scalars computed, in the order in which Prometheus reports their errors:
//! parameters before the vector or range. A node that several operators read is built once, unless its
//! series are no longer kept.
//! Not here: functions that only one language has ([`Language`]).

mod shared;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_model::query::ColumnType;

use super::node::{FunctionNode, MapFn, Node, NodeId, NodeKind, Params, RollupNode};
use super::sharing::UseCounts;
use super::{OccurrenceId, Plan, malformed};
use crate::aggregate::Aggregation;
use crate::aggregate::hash_aggregate::HashAggregate;
use crate::aggregate::topk::top_k;
use crate::annotation::Annotations;
use crate::arith::BinaryOp;
use crate::column::{StepScalar, StepSeries};
use crate::error::Error;
use crate::execution::Execution;
use crate::grid::{Grid, STEP_COUNT_MAX, Windows};
use crate::grouping::Grouping;
use crate::join::set::{Keep, SetFilter, SetUnion};
use crate::join::{ScalarSide, VectorScalar, vector_vector};
use crate::map::{ElementFn, absent, drop_name, map_values, to_scalar};
use crate::operator::{Blocking, BoxOperator, Repeat, Traced};
use crate::position::{Origin, Position};
use crate::scan::{Scan, ScanFn, ScanReader};
use crate::select::{InstantField, SeriesReader};
use crate::selection::Selections;
use crate::share::{SharedPart, SharedReader};
use crate::trace::{self, NodeHandle, Use};
use crate::typed::{self, TypedScan};
use crate::window::{CounterCheck, RangeCall, RangeFn, WindowSource, absent_over_time};

/// An operator, or why it cannot be built.
pub type OperatorResult<'q> = Result<BoxOperator<'q>, Error>;

/// Functions of the query language that the operators of a plan call.
pub trait Language {
    /// Applied to the series of functions of counters.
    fn counter_check(&self) -> CounterCheck;

    /// Text of the query at a position, for reports.
    fn text_at(&self, _position: Position) -> &str {
        ""
    }

    /// Notes an unusual parameter of an aggregation of this kind.
    fn check_param(&self, _: &NodeKind, _: &StepScalar, _: Origin, _: &Annotations<'_>) {}

    /// The operator of a function that only the language has.
    ///
    /// # Errors
    /// Errors of the inputs, and of arguments that are invalid.
    fn function<'q>(&'q self, call: FunctionCall<'_, 'q>) -> OperatorResult<'q> {
        Err(Error::Language(format!("unknown function {}", call.function.name)))
    }
}

/// Builds the operators of a plan.
pub struct OperatorBuilder<'q> {
    plan: &'q Plan,
    execution: &'q Execution<'q>,
    language: &'q dyn Language,
    /// `None` if every reader computes for itself.
    sharing: Option<Rc<Sharing<'q>>>,
}

/// Subplans with several readers.
struct Sharing<'q> {
    uses: UseCounts,
    parts: RefCell<HashMap<NodeId, Built<'q>>>,
}

struct Built<'q> {
    first: OccurrenceId,
    part: Rc<SharedPart<'q>>,
}

/// A function that only the language has, at one place of the query.
#[derive(Clone, Copy)]
pub struct FunctionCall<'b, 'q> {
    builder: &'b OperatorBuilder<'q>,
    id: OccurrenceId,
    /// Name and arguments of the function.
    pub function: &'q FunctionNode,
    /// Evaluation times.
    pub grid: Grid,
}

impl<'q> FunctionCall<'_, 'q> {
    /// State of the query.
    #[must_use]
    pub fn execution(&self) -> &'q Execution<'q> {
        self.builder.execution
    }

    /// Number of inputs.
    #[must_use]
    pub fn input_count(&self) -> usize {
        self.builder.plan.inputs(self.id).len()
    }

    /// Input number `idx`, which is a vector.
    ///
    /// # Errors
    /// As [`OperatorBuilder::vector`].
    pub fn vector(&self, idx: usize) -> OperatorResult<'q> {
        self.builder.vector(self.builder.plan.input(self.id, idx)?)
    }

    /// Input number `idx`, which is a scalar.
    ///
    /// # Errors
    /// As [`OperatorBuilder::scalar`].
    pub fn scalar(&self, idx: usize) -> Result<StepScalar, Error> {
        self.builder.scalar(self.builder.plan.input(self.id, idx)?)
    }

    /// Origin of annotations that point at position number `idx`.
    #[must_use]
    pub fn origin(&self, idx: usize) -> Origin {
        self.builder.plan.origin(self.id, idx)
    }
}

impl<'q> OperatorBuilder<'q> {
    /// Nodes with several readers are shared if the execution allows it. While samples are counted per step
    /// they are not: samples count for every use.
    #[must_use]
    pub fn new(
        plan: &'q Plan,
        execution: &'q Execution<'q>,
        language: &'q dyn Language,
    ) -> OperatorBuilder<'q> {
        builder_of_queries(plan, &[plan.root()], execution, language)
    }

    /// Returns true if equal nodes are computed once.
    #[must_use]
    pub fn shares(&self) -> bool {
        self.sharing.is_some()
    }

    /// Ends building, of all queries that are evaluated together: no subplan gets further readers.
    pub fn seal(&self) {
        let Some(sharing) = &self.sharing else { return };
        sharing.parts.borrow().values().for_each(|built| built.part.seal());
    }

    /// The operator of a vector.
    ///
    /// # Errors
    /// Errors of the source, of scalars, and those that the plan contains.
    pub fn vector(&self, id: OccurrenceId) -> OperatorResult<'q> {
        match self.repeated(id) {
            Some((sharing, uses)) => Ok(SharedReader::boxed(self.shared_use(id, sharing, uses)?)),
            None => Ok(self.traced(id, |builder| builder.untraced(id))?.0),
        }
    }

    /// The value of a scalar in every step.
    ///
    /// # Errors
    /// As [`OperatorBuilder::vector`]; vectors of which the scalar is made are computed.
    pub fn scalar(&self, id: OccurrenceId) -> Result<StepScalar, Error> {
        // Chains may be long, and a loop needs no stack.
        let (mut spine, mut base) = (Vec::new(), id);
        while let (NodeKind::Scalar(function), [left, _]) = (self.plan.kind(base), self.plan.inputs(base)) {
            spine.push((base, *function));
            base = *left;
        }
        let mut value = self.scalar_base(base)?;
        for (id, function) in spine.into_iter().rev() {
            let right = self.scalar(self.plan.input(id, 1)?)?;
            value = self.in_all_steps(id, value.combine(right, |a, b| function.apply(a, b)));
        }
        Ok(value)
    }

    fn scalar_base(&self, id: OccurrenceId) -> Result<StepScalar, Error> {
        let node = self.plan.node(id);
        let value = match node.kind {
            NodeKind::Constant(bits) => StepScalar::Constant(f64::from_bits(bits)),
            NodeKind::Times => {
                StepScalar::PerStep(node.grid.times().map(|time| time as f64 / 1000.0).collect())
            }
            NodeKind::ScalarOf => to_scalar(self.vector(self.plan.input(id, 0)?)?, node.grid.count)?,
            NodeKind::Scalar(function) => {
                self.scalar(self.plan.input(id, 0)?)?.map(|value| function.apply(0.0, value))
            }
            NodeKind::Fail(_) => return Err(self.failure(id)),
            _ => return Err(malformed(&node.kind)),
        };
        Ok(self.in_all_steps(id, value))
    }

    /// The value of a step-invariant scalar, which has been computed for one step.
    fn in_all_steps(&self, id: OccurrenceId, value: StepScalar) -> StepScalar {
        if self.plan.node(id).repeat.is_some() { StepScalar::Constant(value.at(0)) } else { value }
    }

    /// The series of a range, and its windows over the steps of `grid`.
    ///
    /// # Errors
    /// As [`OperatorBuilder::vector`].
    pub fn range(&self, id: OccurrenceId, grid: Grid) -> Result<(WindowSource<'q>, Windows), Error> {
        let kind = self.plan.kind(id);
        let windows = self.windows(id, grid)?;
        let source = match kind {
            NodeKind::Samples(selection) => {
                let (matchers, parts) = (selection.matchers(), selection.parts());
                WindowSource::Selector(SeriesReader::new(self.execution, matchers, windows, parts)?)
            }
            NodeKind::Subquery(_, None) => WindowSource::Void,
            NodeKind::Subquery(_, Some(grid)) => {
                let inner = self.plan.input(id, 0)?;
                if grid.count > STEP_COUNT_MAX {
                    return Err(Error::TooManySamples);
                }
                let mut memory = self.execution.operator_memory();
                memory.grow(0, self.plan.columns_bytes(inner, *grid))?;
                self.execution.trace.note_subquery(*grid, windows);
                let inner = self.vector(inner)?;
                WindowSource::Subquery { inner, grid: *grid, series: StepSeries::default(), memory }
            }
            _ => return Err(self.failure(id)),
        };
        Ok((source, windows))
    }

    /// The windows of a range, which may have been planned for one step.
    fn windows(&self, id: OccurrenceId, grid: Grid) -> Result<Windows, Error> {
        let windows = self.plan.kind(id).windows().ok_or_else(|| self.failure(id))?;
        Ok(Windows { grid, ..*windows })
    }

    /// Builds an operator, and the node of the report that watches it.
    fn traced(
        &self,
        id: OccurrenceId,
        build: impl FnOnce(&Self) -> OperatorResult<'q>,
    ) -> Result<(BoxOperator<'q>, Option<Arc<trace::Node>>), Error> {
        match self.trace_node(id, Use::First) {
            None => Ok((build(self)?, None)),
            Some(handle) => {
                let inner = handle.run(|| build(self))?;
                let node = handle.node();
                Ok((Traced::boxed(inner, Some(handle)), Some(node)))
            }
        }
    }

    fn trace_node(&self, id: OccurrenceId, of_shared: Use) -> Option<NodeHandle<'q>> {
        let label = self.plan.occurrence(id).label;
        let text = || self.language.text_at(self.plan.origin(id, 0).position);
        if label.is_empty() { None } else { self.execution.trace.node(label, text(), of_shared) }
    }

    fn untraced(&self, id: OccurrenceId) -> OperatorResult<'q> {
        // Chains of operators may be long, and a loop needs no stack.
        let mut spine = vec![id];
        let mut base = id;
        while self.plan.kind(base).is_binary() {
            base = self.plan.input(base, 0)?;
            if !self.plan.kind(base).is_binary() || !self.plan.occurrence(base).label.is_empty() {
                break;
            }
            spine.push(base);
        }
        let mut left = None;
        while let Some(id) = spine.pop() {
            let node = self.plan.node(id);
            let mut operator = self.operator(id, node, left.take())?;
            if let Some(step_count) = node.repeat {
                operator = Box::new(Repeat::new(operator, step_count));
            }
            left = Some(operator);
        }
        left.ok_or_else(|| malformed(self.plan.kind(id)))
    }

    /// The operator of a node on its own grid; `left` is the left operand if it is built already.
    fn operator(
        &self,
        id: OccurrenceId,
        node: &'q Node,
        left: Option<BoxOperator<'q>>,
    ) -> OperatorResult<'q> {
        self.check_types(id)?;
        let operator = match &node.kind {
            NodeKind::TypedRollup(function, selection) => {
                let windows = selection.windows(node.grid);
                let column_type = selection.column_type();
                let matchers = selection.matchers();
                Box::new(TypedScan::new(self.execution, matchers, windows, column_type, *function)?)
            }
            NodeKind::TypedAggregate(function, labels) => {
                let input = self.plan.input(id, 0)?;
                let of_input = self.plan.properties(input).column_type.unwrap_or_default();
                let vector = self.vector(input)?;
                let step_count = node.grid.count;
                typed::aggregate(self.execution, vector, *function, labels.grouping(), of_input, step_count)
            }
            NodeKind::Latest(_, InstantField::Value) | NodeKind::Smoothed(_) => {
                self.scan(id, ScanReader::default())?
            }
            NodeKind::Latest(..) => drop_name(self.execution, self.scan(id, ScanReader::default())?),
            NodeKind::Rollup(rollup) => self.rollup(id, rollup, node.grid, None)?,
            NodeKind::Map(function) => {
                let mut params = self.params(id)?;
                let function = match function.function {
                    MapFn::Plain(function) | MapFn::EachStep(function) => ElementFn::Plain(function),
                    MapFn::Make(make) => make(&mut params),
                };
                map_values(self.execution, self.vector(self.plan.input(id, 0)?)?, function)
            }
            NodeKind::Aggregate(op, labels) => self.aggregate(id, *op, labels.grouping())?,
            NodeKind::Rank(op, labels) => {
                let param = self.scalar(self.plan.input(id, 0)?)?;
                let inner = self.vector(self.plan.input(id, 1)?)?;
                self.check_param(id, &param);
                let (step_count, origin) = (node.grid.count, self.plan.origin(id, 0));
                top_k(self.execution, inner, *op, labels.grouping(), param, step_count, origin)
            }
            NodeKind::VectorScalar(..) | NodeKind::Join(..) | NodeKind::Set(..) => {
                self.binary(id, &node.kind, left)?
            }
            NodeKind::Absent(labels) => {
                let input = self.plan.input(id, 0)?;
                if self.plan.kind(input).is_vector() {
                    absent(self.execution, self.vector(input)?, node.grid.count, labels.clone())
                } else {
                    let (source, windows) = self.range(input, node.grid)?;
                    absent_over_time(self.execution, source, windows, labels.clone())
                }
            }
            NodeKind::Function(function) => {
                self.language.function(FunctionCall { builder: self, id, function, grid: node.grid })?
            }
            _ => return Err(self.failure(id)),
        };
        let merges = self.plan.properties(id).merges;
        Ok(if merges { Blocking::merge(self.execution, operator) } else { operator })
    }

    /// Refuses operators that have no result for the types of their inputs.
    fn check_types(&self, id: OccurrenceId) -> Result<(), Error> {
        let kind = self.plan.kind(id);
        let is_float =
            |input: &OccurrenceId| self.plan.properties(*input).column_type == Some(ColumnType::Float);
        let fits = kind.takes_any_type() || self.plan.inputs(id).iter().all(is_float);
        if fits && self.plan.properties(id).column_type.is_some() { Ok(()) } else { Err(malformed(kind)) }
    }

    fn scan(&self, id: OccurrenceId, reader: ScanReader<'_>) -> OperatorResult<'q> {
        let kind = self.plan.kind(id);
        let Some(selection) = kind.selection() else { return Err(malformed(kind)) };
        let function = match kind {
            NodeKind::Latest(_, field) => ScanFn::Instant(*field),
            _ => ScanFn::Smoothed(self.plan.origin(id, 0)),
        };
        let windows = selection.windows(self.plan.node(id).grid);
        let (matchers, parts) = (selection.matchers(), selection.parts());
        Ok(Box::new(Scan::new(self.execution, matchers, windows, parts, function, reader)?))
    }

    /// All inputs but the first one, which are scalars.
    fn params(&self, id: OccurrenceId) -> Result<Params, Error> {
        let params = self.plan.inputs(id).iter().skip(1).map(|param| self.scalar(*param));
        Ok(Params::new(params.collect::<Result<_, _>>()?))
    }

    /// The operator of a rollup. With `projection`, only the grouping labels of its series are read.
    fn rollup(
        &self,
        id: OccurrenceId,
        rollup: &'q RollupNode,
        grid: Grid,
        projection: Option<&Grouping<'_>>,
    ) -> OperatorResult<'q> {
        let (execution, range) = (self.execution, self.plan.input(id, 0)?);
        let ignores_names = projection.is_some_and(Grouping::ignores_metadata);
        let function = RangeFn {
            execution,
            rollup: (rollup.make.function)(&mut self.params(id)?),
            windows: self.windows(range, grid)?,
            extension: rollup.extension,
            origin: self.plan.origin(id, 1),
            param_origin: self.plan.origin(id, 2),
            counter_check: self.language.counter_check(),
            keeps_labels: ignores_names && !execution.delays_names(),
        };
        let NodeKind::Samples(selection) = self.plan.kind(range) else {
            return Ok(Box::new(RangeCall::new(self.range(range, grid)?.0, function)));
        };
        let (matchers, windows, parts) = (selection.matchers(), function.windows, selection.parts());
        let reader = ScanReader { function: rollup.make.name, projection, ..ScanReader::default() };
        Ok(Box::new(Scan::new(execution, matchers, windows, parts, ScanFn::Range(function), reader)?))
    }

    fn aggregate(&self, id: OccurrenceId, op: Aggregation, grouping: Grouping<'q>) -> OperatorResult<'q> {
        let param = match self.plan.inputs(id) {
            [param, _] => Some(self.scalar(*param)?),
            _ => None,
        };
        let presence_only = matches!(op, Aggregation::Count | Aggregation::Group);
        let reader =
            ScanReader { function: op.name(), grouping: Some(&grouping), presence_only, projection: None };
        let vector = self.plan.inputs(id).last().ok_or_else(|| malformed(self.plan.kind(id)))?;
        let input = self.aggregate_input(*vector, reader)?;
        if let Some(param) = &param {
            self.check_param(id, param);
        }
        let param = param.unwrap_or(StepScalar::Constant(f64::NAN));
        let (step_count, origin) = (self.plan.node(id).grid.count, self.plan.origin(id, 1));
        Ok(Box::new(HashAggregate::new(self.execution, input, op, grouping, param, step_count, origin)))
    }

    fn check_param(&self, id: OccurrenceId, param: &StepScalar) {
        let (kind, origin) = (self.plan.kind(id), self.plan.origin(id, 2));
        self.language.check_param(kind, param, origin, &self.execution.annotations);
    }

    fn binary(
        &self,
        id: OccurrenceId,
        kind: &'q NodeKind,
        left: Option<BoxOperator<'q>>,
    ) -> OperatorResult<'q> {
        let execution = self.execution;
        let (first, second) = (self.plan.input(id, 0)?, self.plan.input(id, 1)?);
        if let NodeKind::VectorScalar(op, ScalarSide::Left) = kind {
            let (scalar, inner) = (self.scalar(first)?, self.vector(second)?);
            let origin = self.plan.origin(id, 1);
            return Ok(Box::new(VectorScalar::new(execution, inner, scalar, ScalarSide::Left, *op, origin)));
        }
        let left = left.map_or_else(|| self.vector(first), Ok)?;
        let origin = self.plan.origin(id, 1);
        Ok(match kind {
            NodeKind::VectorScalar(op, side) => {
                Box::new(VectorScalar::new(execution, left, self.scalar(second)?, *side, *op, origin))
            }
            NodeKind::Join(op, matching) => {
                vector_vector(execution, left, self.vector(second)?, matching, *op, origin)
            }
            NodeKind::Set(BinaryOp::Or, matching) => {
                let right = self.vector(second)?;
                let union = SetUnion::new(left, right, matching, execution.operator_memory());
                Blocking::merge(execution, Box::new(union))
            }
            NodeKind::Set(op, matching) => {
                let keep = if *op == BinaryOp::And { Keep::Matched } else { Keep::Unmatched };
                Box::new(SetFilter::new(left, self.vector(second)?, matching, keep, execution))
            }
            kind => return Err(malformed(kind)),
        })
    }

    /// The error of a node that fails; errors of its scalars are reported first.
    fn failure(&self, id: OccurrenceId) -> Error {
        let NodeKind::Fail(text) = self.plan.kind(id) else { return malformed(self.plan.kind(id)) };
        let scalars = self.plan.inputs(id).iter().filter(|input| self.plan.kind(**input).is_scalar());
        let of_input = scalars.map(|input| self.scalar(*input)).find_map(Result::err);
        of_input.unwrap_or_else(|| Error::Language(text.clone()))
    }
}

/// The builder of the first one of several queries that are evaluated together; [`builder_beside`] returns
/// the builders of the others.
#[must_use]
pub fn builder_of_queries<'q>(
    plan: &'q Plan,
    roots: &[OccurrenceId],
    execution: &'q Execution<'q>,
    language: &'q dyn Language,
) -> OperatorBuilder<'q> {
    let mut builder = OperatorBuilder { plan, execution, language, sharing: None };
    if execution.settings.shares && !execution.trace.counts_steps() {
        let uses = UseCounts::of(plan, roots);
        let repeated = uses.repeated_selections();
        if !repeated.is_empty() {
            execution.selections.get_or_init(|| Arc::new(Selections::new(repeated)));
        }
        builder.sharing = Some(Rc::new(Sharing { uses, parts: RefCell::default() }));
    }
    builder
}

/// The builder of another query of the plan, which has nodes and selections in common with `first`.
/// Operators of a common node belong to the execution for which they are built first.
#[must_use]
pub fn builder_beside<'q>(
    first: &OperatorBuilder<'q>,
    execution: &'q Execution<'q>,
    language: &'q dyn Language,
) -> OperatorBuilder<'q> {
    if let Some(selections) = first.execution.selections.get() {
        execution.selections.get_or_init(|| selections.clone());
    }
    OperatorBuilder { plan: first.plan, execution, language, sharing: first.sharing.clone() }
}
