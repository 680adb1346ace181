//! Writes a JSON value as a block of YAML.
//! Invariants: texts are quoted as JSON quotes them, which YAML reads alike; keys are quoted unless they are
//! plain words.

use serde_json::Value;

const INDENT: &str = "    ";

/// Appends `key: value` at a depth.
pub(super) fn put_entry(out: &mut String, key: &str, value: &Value, depth: usize) {
    out.push_str(&INDENT.repeat(depth));
    put_key(out, key);
    put_value(out, value, depth);
}

/// Appends a value after its key.
fn put_value(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            for (key, value) in fields {
                put_entry(out, key, value, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            for item in items {
                put_item(out, item, depth + 1);
            }
        }
        // Scalars, `{}` and `[]`.
        other => {
            out.push(' ');
            out.push_str(&other.to_string());
            out.push('\n');
        }
    }
}

/// Appends an item of a list, the first field of an object in the line of its dash.
fn put_item(out: &mut String, item: &Value, depth: usize) {
    out.push_str(&INDENT.repeat(depth));
    out.push_str("-   ");
    match item {
        Value::Object(fields) if !fields.is_empty() => {
            for (idx, (key, value)) in fields.iter().enumerate() {
                if idx > 0 {
                    out.push_str(&INDENT.repeat(depth + 1));
                }
                put_key(out, key);
                put_value(out, value, depth + 1);
            }
        }
        other => {
            out.push_str(&other.to_string());
            out.push('\n');
        }
    }
}

fn put_key(out: &mut String, key: &str) {
    let starts_as_word = key.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '$'));
    let is_word =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '{' | '}' | '.' | '$' | '+');
    if starts_as_word && key.chars().all(is_word) {
        out.push_str(key);
    } else {
        out.push_str(&Value::from(key).to_string());
    }
    out.push(':');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_blocks() {
        let mut out = String::new();
        let value = json!({ "a": [{ "b": 1, "c": [] }, "x: \"y\"", [1]], "200": {}, "/x/{y}": null, "no": true, "*/*": 1.5 });
        put_entry(&mut out, "root", &value, 0);
        let want = "root:\n    \"*/*\": 1.5\n    /x/{y}: null\n    \"200\": {}\n    a:\n        -   b: 1\n            c: []\n        \
                    -   \"x: \\\"y\\\"\"\n        -   [1]\n    no: true\n";
        assert_eq!(out, want);
    }
}
