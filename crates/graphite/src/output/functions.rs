//! The table of functions as JSON: `/functions` and `/functions/NAME`.
//!
//! Invariant: the JSON is valid; infinite defaults are 1e9999.
//! Not here: the table itself.

use super::json::{push_string, push_value};
use crate::aggregation::NAMES;
use crate::functions::{Function, all, find};
use crate::parameters::{DefaultValue, Occurrence, Parameter, ParameterType};

/// Appends all functions as an object by name.
pub fn render_all(out: &mut String) {
    let mut functions: Vec<&Function> = all().collect();
    functions.sort_by_key(|function| function.name);
    out.push('{');
    for (idx, function) in functions.into_iter().enumerate() {
        if idx > 0 {
            out.push_str(", ");
        }
        push_string(out, function.name);
        out.push_str(": ");
        push_function(out, function);
    }
    out.push('}');
}

/// Appends one function; returns false if there is none of this name.
pub fn render_one(name: &str, out: &mut String) -> bool {
    match find(name) {
        Some(function) => {
            push_function(out, function);
            true
        }
        None => false,
    }
}

fn is_repeated(parameter: &Parameter) -> bool {
    matches!(parameter.occurrence, Occurrence::Repeated | Occurrence::OptionalRepeated)
}

/// The signature as Python would write it.
fn signature(function: &Function) -> String {
    let parameters = function.parameters.iter().map(|parameter| {
        match (is_repeated(parameter), parameter.occurrence, parameter.default) {
            (true, ..) => format!("*{}", parameter.name),
            (_, Occurrence::Required, _) => parameter.name.to_owned(),
            (_, _, DefaultValue::Absent) => format!("{}=None", parameter.name),
            (_, _, DefaultValue::Number(value)) => format!("{}={value}", parameter.name),
            (_, _, DefaultValue::Text(text)) => format!("{}='{text}'", parameter.name),
            (_, _, DefaultValue::Bool(value)) => {
                format!("{}={}", parameter.name, if value { "True" } else { "False" })
            }
        }
    });
    format!("{}({})", function.name, parameters.collect::<Vec<_>>().join(", "))
}

fn push_function(out: &mut String, function: &Function) {
    out.push_str("{\"name\": ");
    push_string(out, function.name);
    out.push_str(", \"function\": ");
    push_string(out, &signature(function));
    out.push_str(", \"description\": ");
    push_string(out, function.description);
    out.push_str(", \"module\": \"graphite.render.functions\", \"group\": ");
    push_string(out, function.group.name());
    out.push_str(", \"params\": [");
    for (idx, parameter) in function.parameters.iter().enumerate() {
        if idx > 0 {
            out.push_str(", ");
        }
        push_parameter(out, parameter);
    }
    out.push_str("]}");
}

/// Texts that a parameter takes; by default the texts of its type.
fn options(parameter: &Parameter) -> Vec<&'static str> {
    let mut options = parameter.options.to_vec();
    if matches!(parameter.kind, ParameterType::AggFunc | ParameterType::AggOrSeriesFunc) {
        options.extend(NAMES.iter().map(|(name, _)| *name));
    }
    options.sort_unstable();
    options
}

fn push_parameter(out: &mut String, parameter: &Parameter) {
    out.push_str("{\"name\": ");
    push_string(out, parameter.name);
    out.push_str(", \"type\": ");
    push_string(out, parameter.kind.name());
    if matches!(parameter.occurrence, Occurrence::Required | Occurrence::Repeated) {
        out.push_str(", \"required\": true");
    }
    match parameter.default {
        DefaultValue::Absent => {}
        DefaultValue::Number(value) => {
            out.push_str(", \"default\": ");
            push_value(out, value, value.fract() == 0.0);
        }
        DefaultValue::Text(text) => {
            out.push_str(", \"default\": ");
            push_string(out, text);
        }
        DefaultValue::Bool(value) => out.push_str(&format!(", \"default\": {value}")),
    }
    if is_repeated(parameter) {
        out.push_str(", \"multiple\": true");
    }
    for (idx, option) in options(parameter).into_iter().enumerate() {
        out.push_str(if idx == 0 { ", \"options\": [" } else { ", " });
        push_string(out, option);
    }
    if !options(parameter).is_empty() {
        out.push(']');
    }
    out.push('}');
}
