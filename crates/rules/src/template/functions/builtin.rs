//! `call`, `index`, `slice`, `len`.

use std::sync::Arc;

use super::super::value::{List, UintType, Value};
use super::environment::{Failure, Outcome, text_of};

/// `callee` is not a function, as nothing in a template is.
pub(super) fn call(callee: &Value, function: &Value) -> Outcome {
    if matches!(function, Value::Nil) {
        return Err("call of nil".into());
    }
    let callee = String::from_utf8_lossy(text_of(callee)).into_owned();
    Err(format!("non-function {callee} of type {}", function.type_name()).into())
}

/// Element of an element of `item`, and so on.
pub(super) fn index(item: &Value, indices: &[Value]) -> Outcome {
    if matches!(item, Value::Nil) {
        return Err("index of untyped nil".into());
    }
    let mut item = item.clone();
    for index in indices {
        item = match item.target() {
            Value::Text(text) | Value::Html(text) => {
                let byte = text.get(position(index, text.len())?);
                let byte = byte.ok_or("reflect: string index out of range")?;
                Value::Uint(UintType::Uint8, u64::from(*byte))
            }
            Value::List(list) => {
                let element = list.elements.get(position(index, list.elements.len())?);
                element.cloned().ok_or("reflect: slice index out of range")?
            }
            Value::Map(map) => match index {
                Value::Text(key) => map.get(key),
                Value::Nil => return Err("value is nil; should be of type string".into()),
                index => {
                    return Err(format!("value has type {}; should be string", index.type_name()).into());
                }
            },
            Value::Nil => return Err("index of nil pointer".into()),
            item => return Err(format!("can't index item of type {}", item.type_name()).into()),
        };
    }
    Ok(item)
}

/// Returns a part of a text or a list: `item[i:j]`.
pub(super) fn slice(item: &Value, indices: &[Value]) -> Outcome {
    if matches!(item, Value::Nil) {
        return Err("slice of untyped nil".into());
    }
    if indices.len() > 3 {
        return Err(format!("too many slice indexes: {}", indices.len()).into());
    }
    let item = item.target();
    let len = match item {
        Value::Text(_) | Value::Html(_) if indices.len() == 3 => {
            return Err("cannot 3-index slice a string".into());
        }
        Value::Text(text) | Value::Html(text) => text.len(),
        Value::List(list) => list.elements.len(),
        item => return Err(format!("can't slice item of type {}", item.type_name()).into()),
    };
    let mut bounds = [0, len, len];
    for (bound, index) in bounds.iter_mut().zip(indices) {
        *bound = position(index, len)?;
    }
    let [start, end, capacity] = bounds;
    for [lower, upper] in [[start, end], [end, capacity]] {
        if lower > upper {
            return Err(format!("invalid slice index: {lower} > {upper}").into());
        }
    }
    Ok(match item {
        Value::List(list) => {
            let elements = list.elements.get(start..end).unwrap_or_default().to_vec();
            Value::List(Arc::new(List { type_name: list.type_name, elements }))
        }
        Value::Html(text) => Value::Html(Arc::from(text.get(start..end).unwrap_or_default())),
        item => Value::text(text_of(item).get(start..end).unwrap_or_default()),
    })
}

/// Bytes of a text, elements of a list or a map.
pub(super) fn len(item: &Value) -> Outcome {
    let len = match item.target() {
        Value::Text(text) | Value::Html(text) => text.len(),
        Value::List(list) => list.elements.len(),
        Value::Map(map) => map.entries.len(),
        Value::Nil => return Err("reflect: call of reflect.Value.Type on zero Value".into()),
        item => return Err(format!("len of type {}", item.type_name()).into()),
    };
    Ok(Value::int(i64::try_from(len).unwrap_or(i64::MAX)))
}

/// Returns an index that is not larger than `len`.
fn position(index: &Value, len: usize) -> Result<usize, Failure> {
    let number = match index {
        Value::Int(_, number) => *number,
        Value::Uint(_, number) => *number as i64,
        Value::Nil => return Err("cannot index slice/array with nil".into()),
        index => return Err(format!("cannot index slice/array with type {}", index.type_name()).into()),
    };
    let position = usize::try_from(number).ok().filter(|&position| position <= len);
    position.ok_or_else(|| format!("index out of range: {number}").into())
}
