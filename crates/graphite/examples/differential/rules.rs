//! Differences that are meant, each with its reason and evidence in graphite-web 1.1.10.
//!
//! Invariant: a rule looks at the request and the answers, never at a seed.

use serde_json::Value;

use crate::compare::status;
use crate::generate::Request;

/// One meant difference.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    holds: fn(&Request, &Value, &Value) -> bool,
}

/// All rules, first match counts.
pub(crate) const RULES: &[Rule] = &[
    // `parseATTime(ts)` calls `ts.strip()`: a time without quotes is an int. Ours reads it.
    Rule {
        name: "unquoted-time",
        holds: |_, theirs, ours| {
            status(ours) == 200 && exception(theirs).contains("has no attribute 'strip'")
        },
    },
    // `val > maxValue` and `max(series)` compare None with a number. Ours skips empty points.
    Rule {
        name: "none-compared",
        holds: |_, theirs, ours| status(ours) == 200 && exception(theirs).contains("'NoneType'"),
    },
    // `Store._list_nodes` shuffles; nodes of one name keep that order.
    Rule {
        name: "find-order",
        holds: |request, theirs, ours| request.path != "/render" && sorted_text(theirs) == sorted_text(ours),
    },
    // `nodes[position]` of a path that is shorter. Ours leaves it out.
    Rule {
        name: "node-position",
        holds: |request, theirs, _| request.path != "/render" && exception(theirs).starts_with("IndexError"),
    },
    // `verticalLine` without a label has the name None, which is no text. Ours is empty.
    Rule {
        name: "no-label",
        holds: |_, theirs, ours| {
            status(ours) == 200
                && (theirs.to_string().contains("\"target\":null")
                    || exception(theirs).contains("expected string or bytes-like"))
        },
    },
    // `lower.tags = upper.tags`: both edges share one dictionary, so a later tag of one is the other's too.
    Rule {
        name: "shared-tags",
        holds: |request, theirs, ours| {
            let is_area =
                |target: &String| target.contains("areaBetween(") || target.contains("ConfidenceArea(");
            status(theirs) == 200 && status(ours) == 200 && request.targets.iter().any(is_area)
        },
    },
    // A window of -5 points slices from the wrong end. Ours refuses it.
    Rule {
        name: "negative-window",
        holds: |_, _, ours| ours.to_string().contains("windowSize -5 is negative"),
    },
    // A call that does not close is the path of its name, mostly without series. Ours refuses it.
    Rule { name: "unclosed", holds: |_, _, ours| ours.to_string().contains("a closing parenthesis after") },
    // A Python int among floats prints without a fraction; ours knows ints per series, not per value.
    Rule { name: "integer-text", holds: |_, theirs, ours| is_same_but_for_integers(theirs, ours) },
    // The generator of `summarize` and `smartSummarize` does not end for some intervals; ours refuses or
    // answers.
    Rule { name: "endless", holds: |_, theirs, _| exception(theirs).starts_with("TimeoutError") },
];

/// The first rule that explains a difference.
pub(crate) fn explaining(request: &Request, theirs: &Value, ours: &Value) -> Option<&'static str> {
    RULES.iter().find(|rule| (rule.holds)(request, theirs, ours)).map(|rule| rule.name)
}

/// Text of the exception that graphite-web ended with.
fn exception(answer: &Value) -> &str {
    answer.get("exception").and_then(Value::as_str).unwrap_or("")
}

/// Characters of a list of nodes in order, so that only their order is lost.
fn sorted_text(answer: &Value) -> Vec<String> {
    fn items(value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Array(list) => list.iter().for_each(|item| items(item, out)),
            Value::Object(map) if map.values().any(Value::is_array) => {
                map.values().for_each(|item| items(item, out))
            }
            other => out.push(other.to_string()),
        }
    }
    let mut out = Vec::new();
    items(answer.get("json").unwrap_or(&Value::Null), &mut out);
    out.sort();
    out
}

fn is_same_but_for_integers(theirs: &Value, ours: &Value) -> bool {
    let text = |answer: &Value| {
        answer.get("text").or(answer.get("json")).map(ToString::to_string).unwrap_or_default()
    };
    let whole = |text: String| {
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(".0") {
            let (before, after) = rest.split_at(at);
            out.push_str(before);
            let tail = &after[2..];
            if tail.starts_with(|c: char| c.is_ascii_digit()) {
                out.push_str(".0");
            }
            rest = tail;
        }
        out + rest
    };
    status(theirs) == 200 && status(ours) == 200 && whole(text(theirs)) == whole(text(ours))
}
