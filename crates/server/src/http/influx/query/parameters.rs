//! Bound parameters of a request: the JSON of `params`.

use chronolith_influxql::ast::Regex;
use chronolith_influxql::{Parameter, Parameters};
use serde_json::Value;

/// Reads an object of values: numbers, texts, booleans, or objects with one key that names the kind.
pub(super) fn of_json(text: &str) -> Result<Parameters, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let values = match value {
        Value::Object(values) => values,
        Value::Null => serde_json::Map::new(),
        other => {
            let kind = match type_name(&other) {
                "boolean" => "bool",
                kind => kind,
            };
            return Err(format!(
                "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
            ));
        }
    };
    let mut parameters = Parameters::default();
    for (name, value) in &values {
        parameters.insert(name, parameter(value));
    }
    Ok(parameters)
}

fn parameter(value: &Value) -> Parameter {
    let invalid = || Parameter::Invalid(format!("unable to bind parameter with type {}", type_name(value)));
    match value {
        Value::Bool(value) => Parameter::Boolean(*value),
        Value::String(text) => Parameter::Text(text.clone()),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), ..) => Parameter::Integer(value),
            (None, Some(value), _) => Parameter::Unsigned(value),
            (None, None, Some(value)) => Parameter::Number(value),
            _ => invalid(),
        },
        Value::Object(object) => match object.iter().next() {
            Some((kind, value)) if object.len() == 1 => of_kind(kind, value),
            _ => Parameter::Invalid("bound object parameter value must have exactly one entry".to_owned()),
        },
        Value::Null | Value::Array(_) => invalid(),
    }
}

fn of_kind(kind: &str, value: &Value) -> Parameter {
    let text = value.as_str();
    let wrong = |wanted: &str| Parameter::Invalid(format!("{kind} must be a {wanted} value"));
    match kind {
        "float" | "number" => value.as_f64().map_or_else(|| wrong("float"), Parameter::Number),
        "integer" | "int" => value.as_i64().map_or_else(|| wrong("integer"), Parameter::Integer),
        "string" => text.map_or_else(|| wrong("string"), |text| Parameter::Text(text.to_owned())),
        "boolean" | "bool" => value.as_bool().map_or_else(|| wrong("boolean"), Parameter::Boolean),
        "identifier" | "ident" => {
            text.map_or_else(|| wrong("string"), |text| Parameter::Ident(text.to_owned()))
        }
        "regex" => match text.map(|text| Regex::new(text.to_owned())) {
            None => wrong("string"),
            Some(Ok(regex)) => Parameter::Regex(regex),
            Some(Err(error)) => Parameter::Invalid(error.to_string()),
        },
        "duration" => match (value.as_i64(), text.map(chronolith_influxql::syntax::parse_duration)) {
            (Some(ns), _) => Parameter::Duration(ns),
            (None, Some(Ok(ns))) => Parameter::Duration(ns),
            (None, Some(Err(error))) => Parameter::Invalid(error.to_string()),
            (None, None) => wrong("string"),
        },
        kind => Parameter::Invalid(format!("unknown bind parameter type: {kind}")),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
    }
}
