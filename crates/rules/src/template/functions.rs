//! Functions of templates: names, types of arguments, and their results. Go's own ones and Prometheus's.
//!
//! Not here: evaluation of arguments (`eval`), `and` and `or`, which do not evaluate all of them.

mod builtin;
mod casing;
mod compare;
mod environment;
mod escape;
mod host;
mod humanize;
mod param;
mod regex_cache;
mod regexes;
mod samples;
mod table;
mod url;

use std::sync::Arc;

pub(super) use environment::{Environment, Failure, printable};
pub(super) use param::Param;
pub(super) use table::Function;

use super::format;
use super::text::to_text;
use super::value::{ElementType, Map, Value};
use environment::{Outcome, text_of};

/// Calls `function`; the arguments have the types of its signature.
pub(super) fn call(environment: &mut Environment<'_>, function: Function, arguments: Vec<Value>) -> Outcome {
    let text_bytes = arguments.iter().map(|value| text_of(value).len()).sum();
    environment.meter.add_text(text_bytes)?;
    let result = dispatch(environment, function, &arguments)?;
    if let Value::Text(text) = &result {
        environment.meter.check_text(text.len())?;
        environment.meter.add_text(text.len())?;
    }
    Ok(result)
}

fn dispatch(environment: &mut Environment<'_>, function: Function, arguments: &[Value]) -> Outcome {
    let [first, second] = [0, 1].map(|idx| arguments.get(idx).unwrap_or(&Value::Nil));
    let rest = arguments.get(1..).unwrap_or_default();
    let bytes_max = environment.meter.output_bytes_max();
    let printed = |text: Result<Vec<u8>, format::TooLong>| match text {
        Ok(text) => Ok(Value::text(text)),
        Err(format::TooLong) => Err(Failure::Limit(environment.meter.too_long())),
    };
    match function {
        Function::And | Function::Or => Ok(first.clone()),
        Function::Not => Ok(Value::Bool(!first.is_true())),
        Function::Call => builtin::call(first, second),
        Function::Index => builtin::index(first, rest),
        Function::Slice => builtin::slice(first, rest),
        Function::Len => builtin::len(first),
        Function::Print => printed(format::print(arguments, bytes_max)),
        Function::Println => printed(format::println(arguments, bytes_max)),
        Function::Printf => printed(format::printf(text_of(first), rest, bytes_max)),
        Function::Html => Ok(Value::text(escape::html(&escape::joined(environment, arguments)?))),
        Function::Js => Ok(Value::text(escape::js(&escape::joined(environment, arguments)?))),
        Function::Urlquery => Ok(Value::text(url::query_escape(&escape::joined(environment, arguments)?))),
        Function::Eq => compare::eq(first, rest).map(Value::Bool),
        Function::Ne => compare::eq(first, rest).map(|equal| Value::Bool(!equal)),
        Function::Lt => compare::lt(first, second).map(Value::Bool),
        Function::Le => compare::le(first, second).map(Value::Bool),
        Function::Gt => compare::le(first, second).map(|is_le| Value::Bool(!is_le)),
        Function::Ge => compare::lt(first, second).map(|is_lt| Value::Bool(!is_lt)),
        function => prometheus(environment, function, arguments),
    }
}

/// Calls one of Prometheus's functions.
fn prometheus(environment: &mut Environment<'_>, function: Function, arguments: &[Value]) -> Outcome {
    let [first, second, third] = [0, 1, 2].map(|idx| arguments.get(idx).unwrap_or(&Value::Nil));
    let text = || to_text(text_of(first));
    let data = environment.data;
    Ok(match function {
        Function::Query => return samples::query(environment, &text()),
        Function::First => return samples::first(first),
        Function::Label => return samples::label(first, second),
        Function::Value => return samples::value(first),
        Function::Strvalue => return samples::label(&Value::text("__value__"), first),
        Function::SortByLabel => samples::sort_by_label(text_of(first), second),
        Function::Args => return args(environment, arguments),
        Function::ReReplaceAll => {
            return regexes::replace_all(environment, first, second, &to_text(text_of(third)));
        }
        Function::Match => return regexes::is_match(environment, text_of(first), &to_text(text_of(second))),
        Function::SafeHtml => Value::Html(Arc::from(text_of(first))),
        Function::Title => Value::text(casing::title(&text())),
        Function::ToUpper => Value::text(casing::upper(&text())),
        Function::ToLower => Value::text(casing::lower(&text())),
        Function::GraphLink => Value::text(url::expression_link(text_of(first), 0)),
        Function::TableLink => Value::text(url::expression_link(text_of(first), 1)),
        Function::StripPort => Value::text(host::strip_port(&text())),
        Function::StripDomain => Value::text(host::strip_domain(&text())),
        Function::Humanize => Value::text(humanize::decimal(humanize::to_float(first)?)),
        Function::Humanize1024 => Value::text(humanize::binary(humanize::to_float(first)?)),
        Function::HumanizeDuration => Value::text(humanize::duration(humanize::to_float(first)?)),
        Function::HumanizePercentage => Value::text(humanize::percentage(humanize::to_float(first)?)),
        Function::HumanizeTimestamp => Value::text(humanize::timestamp(humanize::to_float(first)?)?),
        Function::ToTime => Value::Time(humanize::time(humanize::to_float(first)?)?).pointer(),
        Function::ToDuration => humanize::to_duration(humanize::to_float(first)?),
        Function::Now => Value::Float(data.time_ms as f64 / 1000.0),
        Function::PathPrefix => Value::text(url::path(data.external_url)),
        Function::ExternalUrl => Value::text(data.external_url),
        Function::ParseDuration => Value::Float(humanize::parse_duration(text_of(first))?),
        Function::UrlQueryEscape => Value::text(url::query_escape(text_of(first))),
        // All others are Go's own ones.
        _ => Value::Nil,
    })
}

/// A map of the arguments, for templates that take several.
fn args(environment: &Environment<'_>, arguments: &[Value]) -> Outcome {
    let entries = arguments.iter().enumerate();
    let entries = entries.map(|(idx, value)| (format!("arg{idx}").into_bytes(), value.clone())).collect();
    let map = Map::new(ElementType::Any, entries);
    environment.meter.check_depth(map.depth)?;
    Ok(Value::Map(Arc::new(map)))
}
