//! One row of the table of functions.
//!
//! Not here: the rows, which lie in the files of their themes.

use crate::error::EvalError;
use crate::parameters::{Bound, Parameter};
use crate::scope::Scope;
use crate::value::Value;

/// Implementation of a function.
pub(crate) type Implementation = fn(&mut Scope<'_>, &mut Bound) -> Result<Value, EvalError>;

/// One function of the language.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    /// Name in targets.
    pub name: &'static str,
    /// Group in `/functions`.
    pub group: Group,
    /// One sentence for `/functions`.
    pub description: &'static str,
    /// Parameters in order.
    pub parameters: &'static [Parameter],
    /// Memory that the points of a call take.
    pub points: PointUse,
    /// Implementation.
    pub run: Implementation,
}

/// Points of a result, compared with the points of the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointUse {
    /// The points of the arguments themselves.
    Kept,
    /// New points, per result as many as the longest series has.
    Joined,
    /// The same number of points with other values.
    Changed,
}

/// Group of a function in `/functions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// Several series to one.
    Combine,
    /// Each value to another.
    Transform,
    /// Statistics and forecasts.
    Calculate,
    /// Series by their values.
    FilterSeries,
    /// Values by themselves.
    FilterData,
    /// Order of series.
    Sorting,
    /// Names of series.
    Alias,
    /// Properties for drawing only.
    Graph,
    /// Functions that belong to no other group.
    Special,
}

impl Group {
    /// Name in `/functions`.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Group::Combine => "Combine",
            Group::Transform => "Transform",
            Group::Calculate => "Calculate",
            Group::FilterSeries => "Filter Series",
            Group::FilterData => "Filter Data",
            Group::Sorting => "Sorting",
            Group::Alias => "Alias",
            Group::Graph => "Graph",
            Group::Special => "Special",
        }
    }
}
