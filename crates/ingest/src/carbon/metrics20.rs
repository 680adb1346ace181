//! Metrics 2.0: the JSON array of `POST /metrics`, as Metrictank's gateway takes it.
//!
//! Invariants: an object with a missing or wrong field refuses itself alone; one object at a time is in
//! memory as a tree. A series is its name and tags: `org_id`, `unit`, `interval` and `mtype` are checked as
//! the gateway does, and not stored. Not here: HTTP and the size of the body (`server`).

use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::points::{PointWriter, check_path};
use super::refused::RefusedReason;
use super::time;

/// Types of metrics that the gateway accepts.
const TYPES: [&str; 5] = ["gauge", "rate", "count", "counter", "timestamp"];
/// Tags of a metric at most.
const TAG_COUNT_MAX: usize = 256;

/// A body that is not a JSON array of objects; metrics before the error are in the batch.
#[derive(Debug, thiserror::Error)]
#[error("metrics body is not a JSON array of metrics: {source}")]
pub struct MetricsError {
    #[from]
    source: serde_json::Error,
}

/// Appends the metrics of a body to `points`, each as its path `name;tag=value`.
///
/// Cost: one pass and some allocations per metric. Memory beyond the batch: the largest object as a tree, at
/// most 32 times its bytes.
///
/// # Errors
/// [`MetricsError`] if the body is not JSON, or not an array.
pub fn decode_metrics(body: &[u8], points: &mut PointWriter<'_>) -> Result<(), MetricsError> {
    let mut parser = serde_json::Deserializer::from_slice(body);
    points.begin(&[]);
    (&mut parser).deserialize_seq(MetricVisitor { points })?;
    parser.end()?;
    Ok(())
}

struct MetricVisitor<'a, 'b> {
    points: &'a mut PointWriter<'b>,
}

impl<'de> Visitor<'de> for MetricVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of metrics")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(metric) = elements.next_element::<Value>()? {
            if let Err(reason) = push_metric(&metric, self.points) {
                self.points.refuse(reason, metric.to_string().as_bytes());
            }
        }
        Ok(())
    }
}

fn push_metric(metric: &Value, points: &mut PointWriter<'_>) -> Result<(), RefusedReason> {
    let fields = metric.as_object().ok_or(RefusedReason::BadMetric)?;
    let name = text_field(fields, "name").ok_or(RefusedReason::BadMetric)?;
    let has_type = text_field(fields, "mtype").is_some_and(|kind| TYPES.contains(&kind));
    let has_interval = fields.get("interval").and_then(Value::as_u64).is_some_and(|seconds| seconds > 0);
    if name.is_empty() || name.contains(';') || !has_type || !has_interval {
        return Err(RefusedReason::BadMetric);
    }
    let value = fields.get("value").and_then(Value::as_f64).ok_or(RefusedReason::BadValue)?;
    let time = fields.get("time").and_then(Value::as_f64).ok_or(RefusedReason::BadTime)?;
    let time_ms = time::from_number(time, points.now_ms())?;
    let mut path = name.to_owned();
    for tag in tags_of(fields)? {
        path.push(';');
        path.push_str(tag);
    }
    points.push_checked(&check_path(path.as_bytes())?, value, time_ms);
    Ok(())
}

fn text_field<'m>(fields: &'m Map<String, Value>, name: &str) -> Option<&'m str> {
    fields.get(name).and_then(Value::as_str)
}

/// Returns the tags, each `key=value`.
fn tags_of(fields: &Map<String, Value>) -> Result<Vec<&str>, RefusedReason> {
    let tags: &[Value] = match fields.get("tags") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(tags)) if tags.len() <= TAG_COUNT_MAX => tags,
        Some(_) => return Err(RefusedReason::BadMetric),
    };
    let valid = |tag: &Value| -> Option<()> {
        let (name, value) = tag.as_str()?.split_once('=')?;
        let is_valid = !name.is_empty()
            && !name.contains([';', '!', '^'])
            && !value.is_empty()
            && !value.starts_with('~')
            && !value.contains(';');
        is_valid.then_some(())
    };
    if tags.iter().any(|tag| valid(tag).is_none()) {
        return Err(RefusedReason::BadMetric);
    }
    Ok(tags.iter().filter_map(Value::as_str).collect())
}

#[cfg(test)]
mod tests {
    use crate::carbon::tests::{Decoded, decode_with};

    use super::*;

    fn decode(body: &str) -> (Decoded, bool) {
        let mut is_json = true;
        let decoded = decode_with(|points| is_json = decode_metrics(body.as_bytes(), points).is_ok());
        (decoded, is_json)
    }

    #[track_caller]
    fn check(body: &str, want: &[&str]) {
        let (decoded, is_json) = decode(body);
        assert!(is_json, "{body}");
        assert_eq!(decoded.points, want, "{body}");
        assert_eq!(decoded.refused.total(), 0, "{:?}", decoded.refused);
    }

    #[track_caller]
    fn check_refused(metric: &str, reason: RefusedReason) {
        let good = r#"{"name":"ok","interval":1,"value":1,"time":9,"mtype":"gauge"}"#;
        let (decoded, is_json) = decode(&format!("[{metric},{good}]"));
        assert!(is_json, "{metric}");
        assert_eq!(decoded.points, ["ok 1 @9000"], "{metric}");
        assert_eq!(decoded.refused.count(reason), 1, "{metric}: {:?}", decoded.refused);
    }

    #[test]
    fn metrics_are_paths_with_tags() {
        check(
            r#"[{"org_id":1,"name":"some.id.of.a.metric.1","interval":10,"value":1.5,"unit":"ms",
                "time":1700000000,"mtype":"gauge","tags":["host=b","dc=a"]},
               {"name":"n","interval":60,"value":-3,"time":1700000001,"mtype":"count","tags":null}]"#,
            &["some.id.of.a.metric.1;dc=a;host=b 1.5 @1700000000000", "n -3 @1700000001000"],
        );
        check("[]", &[]);
    }

    #[test]
    fn a_value_is_the_nearest_double() {
        let body = |value: &str| {
            format!(r#"[{{"name":"n","interval":1,"value":{value},"time":9,"mtype":"gauge"}}]"#)
        };
        check(&body("-2000.1700000000121"), &["n -2000.1700000000121 @9000"]);
        check(&body("0.30000000000000004"), &["n 0.30000000000000004 @9000"]);
    }

    #[test]
    fn a_bad_metric_refuses_itself_alone() {
        let with = |field: &str, value: &str| {
            let mut fields = vec![
                ("name", "\"n\""),
                ("interval", "10"),
                ("value", "1"),
                ("time", "9"),
                ("mtype", "\"gauge\""),
            ];
            fields.retain(|(name, _)| *name != field);
            if !value.is_empty() {
                fields.push((field, value));
            }
            let pairs: Vec<String> =
                fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            format!("{{{}}}", pairs.join(","))
        };
        for (field, value) in [
            ("name", ""),
            ("name", "\"\""),
            ("name", "\"a;b=c\""),
            ("name", "7"),
            ("mtype", ""),
            ("mtype", "\"gouge\""),
            ("interval", "0"),
            ("interval", "\"10\""),
            ("tags", "{}"),
            ("tags", "[1]"),
            ("tags", "[\"a\"]"),
            ("tags", "[\"=b\"]"),
            ("tags", "[\"a=\"]"),
            ("tags", "[\"a=~b\"]"),
            ("tags", "[\"a!=b\"]"),
        ] {
            check_refused(&with(field, value), RefusedReason::BadMetric);
        }
        check_refused(&with("value", "\"1\""), RefusedReason::BadValue);
        check_refused(&with("value", ""), RefusedReason::BadValue);
        check_refused(&with("time", "null"), RefusedReason::BadTime);
        check_refused(&with("time", "0"), RefusedReason::TimeRange);
        check_refused(&with("name", "\"a\\u0000\""), RefusedReason::ControlByte);
        check_refused(&with("name", "\"..\""), RefusedReason::EmptyPath);
        check_refused("17", RefusedReason::BadMetric);
    }

    #[test]
    fn bodies_of_other_forms_are_errors() {
        let deep = "[".repeat(100_000);
        for body in ["", "{}", "7", "[{\"name\":\"a\"", "[1,]", "[] []", "[\u{0}]", &deep] {
            assert!(!decode(body).1, "{body:.20}");
        }
    }
}
