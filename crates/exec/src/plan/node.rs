//! Nodes of a plan: operators with their arguments. All of it is the structural key of hash consing.
//!
//! Invariants: equal nodes compute the same series. Matchers and labels of groups are sorted. Inputs are in
//! order of evaluation: a range before the parameters of its function, the parameter of an aggregation before
//! its vector.

use std::fmt;
use std::hash::{Hash, Hasher};

use chronolith_model::query::ColumnType;
use chronolith_model::{Labels, Matcher};

use crate::aggregate::Aggregation;
use crate::aggregate::topk::TopKOp;
use crate::arith::{BinaryOp, ElementOp, go_max, go_min, scalar_op};
use crate::column::StepScalar;
use crate::grid::{Grid, Windows};
use crate::grouping::Grouping;
use crate::join::ScalarSide;
use crate::join::matching::Matching;
use crate::map::ElementFn;
use crate::rollup::Rollup;
use crate::rollup::extended::RangeExtension;
use crate::samples::SampleParts;
use crate::select::InstantField;
use crate::typed::TypedFn;

/// Number of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(super) u32);

/// One operator, and the steps that it computes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    pub(super) kind: NodeKind,
    pub(super) inputs: Vec<NodeId>,
    pub(super) grid: Grid,
    /// Steps in which the value of the only step of `grid` is repeated, if the node is step-invariant.
    pub(super) repeat: Option<usize>,
}

/// Operator with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A number, by its bits.
    Constant(u64),
    /// The evaluation times in seconds.
    Times,
    /// The value of the only series of a vector.
    ScalarOf,
    /// A function of one or two scalars.
    Scalar(ScalarFn),
    /// All samples in the windows of a selection.
    Samples(Selection),
    /// A vector on a grid of its own, as samples; `None` if no step lies in the windows.
    Subquery(Windows, Option<Grid>),
    /// The latest sample of each window.
    Latest(Selection, InstantField),
    /// Values interpolated between the samples around each step.
    Smoothed(Selection),
    /// A function of the samples in each window of a selection, read as a type of their own.
    TypedRollup(TypedFn, Selection),
    /// One series per group of a vector of another type than floats.
    TypedAggregate(TypedFn, GroupLabels),
    /// A function of a range and scalars.
    Rollup(RollupNode),
    /// A function of the values of a vector, and of scalars.
    Map(Named<MapFn>),
    /// One series per group; a quantile has a parameter.
    Aggregate(Aggregation, GroupLabels),
    /// Some series of each group, chosen by a parameter.
    Rank(TopKOp, GroupLabels),
    /// A vector and a scalar.
    VectorScalar(ElementOp, ScalarSide),
    /// Arithmetic or a comparison between two vectors.
    Join(ElementOp, Matching),
    /// `and`, `or`, `unless`
    Set(BinaryOp, Matching),
    /// A series with these labels and the value 1 where a vector or range has no samples.
    Absent(Labels),
    /// A function that only the language has.
    Function(FunctionNode),
    /// Fails with this text once its scalars are computed. Other inputs are not built.
    Fail(String),
}

/// A function of a range.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RollupNode {
    /// The function.
    pub make: Named<MakeRollup>,
    /// Values at the ends of a range.
    pub extension: Option<RangeExtension>,
    /// Effect on metric names.
    pub names: NameEffect,
    /// True if the result depends on the evaluation time though the samples are the same.
    pub depends_on_time: bool,
}

impl RollupNode {
    /// A function that removes the metric name of each series.
    #[must_use]
    pub fn new(name: &'static str, make: MakeRollup) -> RollupNode {
        RollupNode {
            make: Named { name, function: make },
            extension: None,
            names: NameEffect::Removes,
            depends_on_time: false,
        }
    }
}

/// A function that only the language has. The builder of operators hands it to
/// [`super::operators::Language::function`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FunctionNode {
    /// Name of the function.
    pub name: &'static str,
    /// Arguments that are texts.
    pub texts: Vec<String>,
    /// A selection that the function makes by itself.
    pub selection: Option<Selection>,
    /// Labels of the groups, if it is an aggregation.
    pub grouping: GroupLabels,
    /// Effect on metric names.
    pub names: NameEffect,
    /// True if each series of the input becomes one series of the output.
    pub keeps_series: bool,
    /// True if the result depends on the evaluation time though the inputs are the same.
    pub depends_on_time: bool,
}

impl FunctionNode {
    /// A function without text parameters that turns each series of the input into one series of the output.
    #[must_use]
    pub fn new(name: &'static str, names: NameEffect) -> FunctionNode {
        FunctionNode {
            name,
            texts: Vec::new(),
            selection: None,
            grouping: GroupLabels::default(),
            names,
            keeps_series: true,
            depends_on_time: false,
        }
    }
}

/// Effect of a function on metric names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameEffect {
    /// Metric names stay.
    Keeps,
    /// Metric names are removed, so that series may become equal.
    Removes,
    /// Results have none, and cannot become equal.
    Drops,
    /// Labels change, so that series may become equal or differ only in their name.
    Rewrites,
}

/// A function of scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScalarFn {
    /// `-a`
    Negate,
    /// `a op b`
    Binary(BinaryOp),
    /// The lesser.
    Min,
    /// The greater.
    Max,
}

impl ScalarFn {
    /// The result for two numbers; [`ScalarFn::Negate`] ignores the first one.
    pub(super) fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            ScalarFn::Negate => -right,
            ScalarFn::Binary(op) => scalar_op(op, left, right),
            ScalarFn::Min => go_min(left, right),
            ScalarFn::Max => go_max(left, right),
        }
    }
}

/// A function that is compared by its name.
#[derive(Clone, Copy)]
pub struct Named<F> {
    /// Name of the function.
    pub name: &'static str,
    /// The function, or what makes it of parameters.
    pub function: F,
}

/// A function of the values of a vector.
#[derive(Clone, Copy)]
pub enum MapFn {
    /// Depends on the value alone.
    Plain(fn(f64) -> f64),
    /// Depends on the value alone, but is evaluated in every step even if the value stays the same.
    EachStep(fn(f64) -> f64),
    /// Made of scalar parameters.
    Make(fn(&mut Params) -> ElementFn),
}

/// Makes a rollup of scalar parameters.
pub type MakeRollup = fn(&mut Params) -> Rollup;

impl<F> PartialEq for Named<F> {
    fn eq(&self, other: &Named<F>) -> bool {
        self.name == other.name
    }
}

impl<F> Eq for Named<F> {}

impl<F> Hash for Named<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl<F> fmt::Debug for Named<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Parameters of a function, in order.
pub struct Params(std::vec::IntoIter<StepScalar>);

impl Params {
    pub(super) fn new(all: Vec<StepScalar>) -> Params {
        Params(all.into_iter())
    }

    /// The next one, if there is one.
    pub fn take(&mut self) -> Option<StepScalar> {
        self.0.next()
    }

    /// The next one; NaN if there is none.
    pub fn take_or_nan(&mut self) -> StepScalar {
        self.take().unwrap_or(StepScalar::Constant(f64::NAN))
    }
}

/// Labels that make the groups of an aggregation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct GroupLabels {
    names: Vec<String>,
    without: bool,
}

impl GroupLabels {
    /// Groups by the labels of these names; if `without`, by all others.
    #[must_use]
    pub fn new(mut names: Vec<String>, without: bool) -> GroupLabels {
        names.sort_unstable();
        GroupLabels { names, without }
    }

    /// The grouping of an operator.
    #[must_use]
    pub fn grouping(&self) -> Grouping<'_> {
        Grouping::new(&self.names, self.without)
    }

    /// Returns true if groups are made by the label `name`.
    #[must_use]
    pub fn includes(&self, name: &str) -> bool {
        !self.without && self.names.iter().any(|label| label == name)
    }

    /// Returns true if all series are in one group.
    pub(super) fn is_one(&self) -> bool {
        !self.without && self.names.is_empty()
    }
}

/// Matchers, and the windows in which samples of their series are needed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Sorted: their order does not matter.
    matchers: Vec<Matcher>,
    windows: Windows,
    parts: SampleParts,
    column_type: ColumnType,
}

impl Selection {
    /// `parts` are the parts of the samples that operators above need.
    #[must_use]
    pub fn new(matchers: &[Matcher], windows: Windows, parts: SampleParts) -> Selection {
        let mut matchers = matchers.to_vec();
        matchers.sort_by(|a, b| (&a.name, a.op as u8, &a.value).cmp(&(&b.name, b.op as u8, &b.value)));
        Selection { matchers, windows, parts, column_type: ColumnType::Float }
    }

    /// The same selection, of samples of another type than floats.
    #[must_use]
    pub fn of_type(self, column_type: ColumnType) -> Selection {
        Selection { column_type, ..self }
    }

    /// Type in which samples are read.
    pub(super) fn column_type(&self) -> ColumnType {
        self.column_type
    }

    /// The matchers, sorted.
    #[must_use]
    pub fn matchers(&self) -> &[Matcher] {
        &self.matchers
    }

    /// The windows over the steps of `grid`. A step-invariant selection may have been planned for more steps
    /// than are computed.
    #[must_use]
    pub fn windows(&self, grid: Grid) -> Windows {
        Windows { grid, ..self.windows }
    }

    pub(super) fn parts(&self) -> SampleParts {
        self.parts
    }
}

impl NodeKind {
    /// The series that it selects and reads as they are pulled, if it does.
    pub(super) fn selection(&self) -> Option<&Selection> {
        match self {
            NodeKind::Samples(selection)
            | NodeKind::Latest(selection, _)
            | NodeKind::Smoothed(selection)
            | NodeKind::TypedRollup(_, selection) => Some(selection),
            _ => None,
        }
    }

    /// The same operator, whatever the first and last step of the query. The step of a subquery stays.
    pub(super) fn without_range(&self) -> NodeKind {
        let mut kind = self.clone();
        let windows = match &mut kind {
            NodeKind::Samples(selection)
            | NodeKind::Latest(selection, _)
            | NodeKind::Smoothed(selection)
            | NodeKind::TypedRollup(_, selection) => Some(&mut selection.windows),
            NodeKind::Function(function) => {
                function.selection.as_mut().map(|selection| &mut selection.windows)
            }
            NodeKind::Subquery(windows, inner) => {
                if let Some(grid) = inner {
                    *grid = Grid { step_ms: grid.step_ms, ..Grid::instant(0) };
                }
                Some(windows)
            }
            _ => None,
        };
        if let Some(windows) = windows {
            windows.grid = Grid::instant(0);
        }
        kind
    }

    /// Windows of the node, if it has some.
    pub(super) fn windows(&self) -> Option<&Windows> {
        match self {
            NodeKind::Subquery(windows, _) => Some(windows),
            NodeKind::Function(function) => function.selection.as_ref().map(|selection| &selection.windows),
            kind => kind.selection().map(|selection| &selection.windows),
        }
    }

    /// Returns true if the value may differ from step to step although the inputs do not.
    pub(super) fn depends_on_time(&self) -> bool {
        match self {
            NodeKind::Times | NodeKind::Map(Named { function: MapFn::EachStep(_), .. }) => true,
            NodeKind::Rollup(rollup) => rollup.depends_on_time,
            NodeKind::Function(function) => function.depends_on_time,
            kind => kind.windows().is_some_and(|windows| windows.shift.fixed_ms.is_none()),
        }
    }

    /// Returns true if the node is a scalar.
    pub(super) fn is_scalar(&self) -> bool {
        matches!(self, NodeKind::Constant(_) | NodeKind::Times | NodeKind::ScalarOf | NodeKind::Scalar(_))
    }

    /// Returns true if the node is a vector, with one value per series and step.
    pub(super) fn is_vector(&self) -> bool {
        !self.is_scalar() && !matches!(self, NodeKind::Samples(_) | NodeKind::Subquery(..))
    }

    /// Returns true if inputs may be of another type than floats: the operator reads the type, or presence.
    pub(super) fn takes_any_type(&self) -> bool {
        match self {
            NodeKind::TypedAggregate(..) | NodeKind::Absent(_) => true,
            NodeKind::Aggregate(op, _) => matches!(op, Aggregation::Count | Aggregation::Group),
            NodeKind::Set(op, _) => *op != BinaryOp::Or,
            _ => false,
        }
    }

    /// Returns true for operators with two operands, which form long chains.
    pub(super) fn is_binary(&self) -> bool {
        matches!(self, NodeKind::VectorScalar(..) | NodeKind::Join(..) | NodeKind::Set(..))
    }
}
