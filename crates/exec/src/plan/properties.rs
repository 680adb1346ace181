//! Properties of a node, computed once from the properties of its inputs: metric names, samples needed,
//! reference time, depth.
//!
//! Invariants: names err on the side of "may be equal", times on the side of "more samples".

use std::sync::Arc;

use chronolith_model::query::ColumnType;
use chronolith_model::{METRIC_NAME, MatchOp, Matcher};

use super::node::{FunctionNode, NameEffect, NodeKind, Selection};
use crate::arith::{BinaryOp, ElementOp};
use crate::cardinality::Cardinality;
use crate::grid::{TimeShift, Windows};
use crate::join::matching::Matching;
use crate::select::InstantField;
use crate::typed::TypedFn;

/// Metric names among the series of a vector. Unless they are [`Names::Many`], series stay distinct when
/// names are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    /// No series has a name.
    None,
    /// All series have this name.
    One(Arc<str>),
    /// Series may differ in nothing but the name.
    Many,
}

/// Samples within `[time + earliest_ms, time + latest_ms]` decide the value at `time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeBounds {
    /// First of them, relative to the evaluation time.
    pub earliest_ms: i64,
    /// Last of them.
    pub latest_ms: i64,
}

/// Time at which all selections of a vector look, relative to the evaluation time or fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// A scalar, which does not count.
    None,
    /// All selections share it.
    Shared(TimeShift),
    /// Selections differ, or there are none.
    Mixed,
}

/// Properties of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Metric names of its series.
    pub names: Names,
    /// True if two different series may have got equal labels in it or below, which is an error if they have
    /// values in one step.
    pub collides: bool,
    /// True if its series have to be merged, because names were removed that kept them apart.
    pub merges: bool,
    /// Samples that it needs; `None` if it needs none. Does not hold for selections at a fixed time.
    pub needs: Option<TimeBounds>,
    /// Time at which its selections look.
    pub reference: Reference,
    /// Levels of operators that call each other, itself included.
    pub depth: usize,
    /// Type of its values; `None` if the operator has no result for its inputs.
    pub column_type: Option<ColumnType>,
}

/// Rules of a language about metric names in results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NameRules {
    /// True if names stay until the end of the query.
    pub are_delayed: bool,
    /// True if series of one name may differ in labels that are removed with it.
    pub have_metadata: bool,
}

impl Names {
    fn joined(&self, other: &Names) -> Names {
        if self == other { self.clone() } else { Names::Many }
    }

    fn of(selection: &Selection, rules: NameRules) -> Names {
        let is_name = |m: &&Matcher| &*m.name == METRIC_NAME && m.op == MatchOp::Equal && !m.value.is_empty();
        match selection.matchers().iter().find(is_name) {
            Some(name) if !rules.have_metadata => Names::One(name.value.clone()),
            _ => Names::Many,
        }
    }
}

impl Properties {
    /// Properties of a node of this kind over inputs with these properties.
    pub(super) fn of(kind: &NodeKind, inputs: &[&Properties], rules: NameRules) -> Properties {
        let mut own = Properties {
            names: Names::None,
            collides: inputs.iter().any(|input| input.collides),
            merges: false,
            needs: needs(kind, inputs),
            reference: reference(kind, inputs),
            depth: inputs.iter().map(|input| input.depth).max().unwrap_or(0),
            column_type: column_type(kind, inputs),
        };
        // Scalars are computed in a loop, whatever the length of a chain.
        own.depth += usize::from(!matches!(kind, NodeKind::Scalar(_)));
        own.set_names(kind, inputs, rules);
        own
    }

    fn set_names(&mut self, kind: &NodeKind, inputs: &[&Properties], rules: NameRules) {
        // Scalars have no names.
        let first = inputs.iter().find(|input| input.names != Names::None);
        let inner = first.map_or(Names::None, |input| input.names.clone());
        let (effect, names) = match kind {
            NodeKind::Samples(selection)
            | NodeKind::Smoothed(selection)
            | NodeKind::TypedRollup(_, selection) => (NameEffect::Keeps, Names::of(selection, rules)),
            NodeKind::Latest(selection, field) => {
                let keeps = *field == InstantField::Value;
                let effect = if keeps { NameEffect::Keeps } else { NameEffect::Removes };
                (effect, Names::of(selection, rules))
            }
            NodeKind::Subquery(..) | NodeKind::Rank(..) => (NameEffect::Keeps, inner),
            NodeKind::Rollup(rollup) => (rollup.names, inner),
            NodeKind::Map(_) => (NameEffect::Removes, inner),
            NodeKind::Aggregate(_, grouping) | NodeKind::TypedAggregate(_, grouping) => {
                let keeps = grouping.includes(METRIC_NAME);
                (if keeps { NameEffect::Keeps } else { NameEffect::Drops }, inner)
            }
            NodeKind::VectorScalar(op, _) if op.drops_name() => (NameEffect::Removes, inner),
            NodeKind::VectorScalar(..) => (NameEffect::Keeps, inner),
            NodeKind::Join(op, matching) => (NameEffect::Keeps, names_of_join(*op, matching, inputs, rules)),
            NodeKind::Set(op, _) => (NameEffect::Keeps, names_of_set(*op, inputs)),
            NodeKind::Function(FunctionNode { names, .. }) => (*names, inner),
            _ => (NameEffect::Drops, inner),
        };
        match effect {
            NameEffect::Keeps => self.names = names,
            NameEffect::Drops => {}
            NameEffect::Rewrites => {
                self.names = Names::Many;
                self.collides = true;
            }
            NameEffect::Removes => {
                let may_be_equal = names == Names::Many;
                self.collides |= may_be_equal;
                self.merges = may_be_equal && !rules.are_delayed;
                if rules.are_delayed {
                    self.names = names;
                }
            }
        }
    }
}

fn column_type(kind: &NodeKind, inputs: &[&Properties]) -> Option<ColumnType> {
    let of_input = inputs.last().and_then(|input| input.column_type);
    match kind {
        NodeKind::TypedRollup(function, selection) => function.result_type(selection.column_type()),
        // Across series there is no order in time; floats have aggregations of their own.
        NodeKind::TypedAggregate(TypedFn::First | TypedFn::Last, _) => None,
        NodeKind::TypedAggregate(..) if of_input == Some(ColumnType::Float) => None,
        NodeKind::TypedAggregate(function, _) => function.result_type(of_input?),
        NodeKind::Set(..) => inputs.first()?.column_type,
        _ => Some(ColumnType::Float),
    }
}

/// Names of the results of a join. An included `__name__`, or a fill value, may give results other names than
/// their series.
fn names_of_join(op: ElementOp, matching: &Matching, inputs: &[&Properties], rules: NameRules) -> Names {
    let [left, right] = inputs else { return Names::Many };
    let brings_names = matching.include.iter().any(|label| label == METRIC_NAME)
        || matching.fill_left.is_some()
        || matching.fill_right.is_some();
    if brings_names {
        Names::Many
    } else if op.drops_name() {
        if rules.are_delayed { left.names.joined(&right.names) } else { Names::None }
    } else if matching.card == Cardinality::OneToMany {
        right.names.clone()
    } else {
        left.names.clone()
    }
}

fn names_of_set(op: BinaryOp, inputs: &[&Properties]) -> Names {
    match (op, inputs) {
        (BinaryOp::Or, [left, right]) => left.names.joined(&right.names),
        (_, [left, ..]) => left.names.clone(),
        _ => Names::Many,
    }
}

fn needs(kind: &NodeKind, inputs: &[&Properties]) -> Option<TimeBounds> {
    let join = |a: TimeBounds, b: TimeBounds| TimeBounds {
        earliest_ms: a.earliest_ms.min(b.earliest_ms),
        latest_ms: a.latest_ms.max(b.latest_ms),
    };
    let below = inputs.iter().filter_map(|input| input.needs).reduce(join);
    let Some(Windows { shift, width_ms, .. }) = kind.windows() else { return below };
    let shifted = |within: TimeBounds| TimeBounds {
        earliest_ms: within.earliest_ms.saturating_sub(shift.offset_ms).saturating_sub(*width_ms),
        latest_ms: within.latest_ms.saturating_sub(shift.offset_ms),
    };
    // A subquery evaluates its input at the times in its windows, a selection reads them.
    if let NodeKind::Subquery(..) = kind {
        return below.map(shifted);
    }
    let own = shifted(TimeBounds { earliest_ms: 0, latest_ms: 0 });
    Some(below.map_or(own, |below| join(own, below)))
}

fn reference(kind: &NodeKind, inputs: &[&Properties]) -> Reference {
    if kind.is_scalar() {
        return Reference::None;
    }
    let below = inputs.iter().map(|input| input.reference).filter(|reference| *reference != Reference::None);
    let below = below.reduce(|a, b| if a == b { a } else { Reference::Mixed });
    match (kind, kind.windows(), below) {
        (NodeKind::Subquery(outer, _), _, Some(Reference::Shared(inner))) => {
            Reference::Shared(shifted(inner, outer.shift))
        }
        (NodeKind::Subquery(..) | NodeKind::Function(_), _, below) => below.unwrap_or(Reference::Mixed),
        (_, Some(windows), _) => {
            Reference::Shared(shifted(TimeShift { fixed_ms: None, offset_ms: 0 }, windows.shift))
        }
        (_, None, below) => below.unwrap_or(Reference::Mixed),
    }
}

/// `inner` evaluated at times shifted by `outer`. Offsets add up until the time is fixed; equal references
/// are equal values.
fn shifted(inner: TimeShift, outer: TimeShift) -> TimeShift {
    if inner.fixed_ms.is_some() {
        return inner;
    }
    let offset_ms = inner.offset_ms.saturating_add(outer.offset_ms);
    match outer.fixed_ms {
        Some(time_ms) => TimeShift { fixed_ms: Some(time_ms.saturating_sub(offset_ms)), offset_ms: 0 },
        None => TimeShift { fixed_ms: None, offset_ms },
    }
}
