//! `query` and the functions of its results.

use std::sync::Arc;

use super::super::value::{List, TYPE_QUERY_RESULT, Value};
use super::environment::{Environment, NIL_DEREFERENCE, Outcome, text_of};

pub(super) fn query(environment: &mut Environment<'_>, expression: &str) -> Outcome {
    environment.meter.add_query()?;
    let samples = environment.functions.query(expression)?;
    environment.meter.add_steps(samples.len() as u64)?;
    let elements = samples.iter().map(|sample| sample.to_value().pointer()).collect();
    Ok(Value::List(Arc::new(List { type_name: TYPE_QUERY_RESULT, elements })))
}

pub(super) fn first(samples: &Value) -> Outcome {
    let first = match samples {
        Value::List(list) => list.elements.first().cloned(),
        _ => None,
    };
    first.ok_or_else(|| "first() called on vector with no elements".into())
}

/// Returns the value of a label, or no text.
pub(super) fn label(name: &Value, sample: &Value) -> Outcome {
    if matches!(sample, Value::Nil) {
        return Err(NIL_DEREFERENCE.into());
    }
    Ok(label_of(sample, text_of(name)))
}

fn label_of(sample: &Value, name: &[u8]) -> Value {
    match field(sample, "Labels") {
        Some(Value::Map(labels)) => labels.get(name),
        _ => Value::text(""),
    }
}

pub(super) fn value(sample: &Value) -> Outcome {
    field(sample, "Value").ok_or_else(|| NIL_DEREFERENCE.into())
}

/// Returns the samples in order of the values of a label; equal ones keep their order.
pub(super) fn sort_by_label(name: &[u8], samples: &Value) -> Value {
    let mut elements = match samples {
        Value::List(list) => list.elements.clone(),
        _ => Vec::new(),
    };
    elements.sort_by_cached_key(|sample| text_of(&label_of(sample, name)).to_vec());
    Value::List(Arc::new(List { type_name: TYPE_QUERY_RESULT, elements }))
}

fn field(sample: &Value, name: &str) -> Option<Value> {
    match sample.target() {
        Value::Struct(fields) => fields.field(name).map(|field| field.value.clone()),
        _ => None,
    }
}
