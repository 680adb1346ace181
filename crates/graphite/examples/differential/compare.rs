//! Compares answers: structure, names, tags, order, times and nulls exactly, values to 1e-12.
//!
//! Invariant: a request that graphite-web refuses agrees with one that we refuse, whatever the texts.

use serde_json::Value;

use crate::generate::Request;
use crate::oracle;
use crate::rules::explaining;

/// Relative difference of equal values.
const TOLERANCE: f64 = 1e-12;
/// Bytes of an answer that a difference shows.
const SHOWN_MAX: usize = 300;

/// Result of one comparison.
pub(crate) enum Verdict {
    Equal,
    /// Different, by the rule of this name.
    Explained(&'static str),
    Different(String),
}

/// Status of an answer.
pub(crate) fn status(answer: &Value) -> i64 {
    answer.get("status").and_then(Value::as_i64).unwrap_or(0)
}

/// Compares the answers to one request.
pub(crate) fn verdict(request: &Request, theirs: &Value, ours: &Value) -> Verdict {
    let reason = match (status(theirs), status(ours)) {
        (200, 200) => difference(theirs, ours),
        (200, _) => Some(format!("ours refuses: {}", short(ours))),
        (_, 200) => Some(format!("theirs refuses: {}", short(theirs))),
        _ => None,
    };
    match reason {
        None => Verdict::Equal,
        Some(reason) => match explaining(request, theirs, ours) {
            Some(rule) => Verdict::Explained(rule),
            None => {
                Verdict::Different(format!("{reason}\n  theirs {}\n  ours   {}", short(theirs), short(ours)))
            }
        },
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(SHOWN_MAX).collect()
}

fn difference(theirs: &Value, ours: &Value) -> Option<String> {
    let mut their_body = body(theirs);
    let mut our_body = body(ours);
    if oracle::is_whisper() {
        remove_file_times(&mut their_body);
        remove_file_times(&mut our_body);
    }
    differs(&their_body, &our_body, "$")
}

/// Removes from nodes what only files have: intervals by the clock, and the folder of series with tags.
fn remove_file_times(nodes: &mut Value) {
    match nodes {
        Value::Array(list) => {
            list.retain(|node| {
                let texts = [node.get("text"), node.get("path"), node.get("name"), Some(node)];
                texts.into_iter().flatten().all(|text| !text.as_str().is_some_and(is_tag_folder))
            });
            list.iter_mut().for_each(remove_file_times);
        }
        Value::Object(fields) => {
            fields.remove("intervals");
            fields.values_mut().for_each(remove_file_times);
        }
        _ => {}
    }
}

fn is_tag_folder(text: &str) -> bool {
    text.starts_with("_tagged")
}

fn body(answer: &Value) -> Value {
    match answer.get("json") {
        Some(json) => json.clone(),
        None => answer.get("text").cloned().unwrap_or(Value::Null),
    }
}

fn differs(theirs: &Value, ours: &Value, path: &str) -> Option<String> {
    match (theirs, ours) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(idx, (a, b))| differs(a, b, &format!("{path}[{idx}]")))
        }
        (Value::Array(a), Value::Array(b)) => Some(format!("{path}: {} and {} items", a.len(), b.len())),
        (Value::Object(a), Value::Object(b)) => {
            if a.len() != b.len() {
                return Some(format!(
                    "{path}: keys {:?} and {:?}",
                    a.keys().collect::<Vec<_>>(),
                    b.keys().collect::<Vec<_>>()
                ));
            }
            a.iter().find_map(|(key, a)| match b.get(key) {
                Some(b) => differs(a, b, &format!("{path}.{key}")),
                None => Some(format!("{path}: no key {key}")),
            })
        }
        (Value::Number(a), Value::Number(b)) => {
            let x = a.as_f64().unwrap_or(f64::NAN);
            let y = b.as_f64().unwrap_or(f64::NAN);
            let is_equal = x == y || (x - y).abs() <= TOLERANCE * x.abs().max(y.abs());
            (!is_equal).then(|| format!("{path}: {a} and {b}"))
        }
        _ => (theirs != ours).then(|| format!("{path}: {} and {}", short(theirs), short(ours))),
    }
}
