//! Short constructors for the table of functions.
//!
//! Not here: conversion of arguments (`parameters`).

use super::function::{Function, Group, Implementation, PointUse};
use crate::parameters::{DefaultValue, Occurrence, Parameter, ParameterType};

/// One row of the table.
pub(super) const fn function(
    name: &'static str,
    group: Group,
    parameters: &'static [Parameter],
    run: Implementation,
    description: &'static str,
) -> Function {
    let points = match group {
        Group::Alias | Group::Sorting | Group::FilterSeries => PointUse::Kept,
        Group::Combine => PointUse::Joined,
        Group::Transform | Group::Calculate | Group::FilterData | Group::Graph | Group::Special => {
            PointUse::Changed
        }
    };
    Function { name, group, description, parameters, points, run }
}

const fn parameter(
    name: &'static str,
    kind: ParameterType,
    occurrence: Occurrence,
    default: DefaultValue,
) -> Parameter {
    Parameter { name, kind, occurrence, default, options: &[] }
}

/// A parameter that has to be given.
pub(super) const fn required(name: &'static str, kind: ParameterType) -> Parameter {
    parameter(name, kind, Occurrence::Required, DefaultValue::Absent)
}

/// A parameter that may be left out.
pub(super) const fn optional(name: &'static str, kind: ParameterType) -> Parameter {
    parameter(name, kind, Occurrence::Optional, DefaultValue::Absent)
}

/// A parameter with a default number.
pub(super) const fn with_number(name: &'static str, kind: ParameterType, default: f64) -> Parameter {
    parameter(name, kind, Occurrence::Optional, DefaultValue::Number(default))
}

/// A parameter with a default text.
pub(super) const fn with_text(name: &'static str, kind: ParameterType, default: &'static str) -> Parameter {
    parameter(name, kind, Occurrence::Optional, DefaultValue::Text(default))
}

/// A parameter that is off by default, or on.
pub(super) const fn with_bool(name: &'static str, default: bool) -> Parameter {
    parameter(name, ParameterType::Boolean, Occurrence::Optional, DefaultValue::Bool(default))
}

/// The last parameter, once or more.
pub(super) const fn repeated(name: &'static str, kind: ParameterType) -> Parameter {
    parameter(name, kind, Occurrence::Repeated, DefaultValue::Absent)
}

/// The last parameter, any number of times.
pub(super) const fn any_number(name: &'static str, kind: ParameterType) -> Parameter {
    parameter(name, kind, Occurrence::OptionalRepeated, DefaultValue::Absent)
}

/// The list of series that most functions begin with.
pub(super) const SERIES_LIST: Parameter = required("seriesList", ParameterType::SeriesList);
