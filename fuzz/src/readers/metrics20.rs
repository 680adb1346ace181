//! Metrics 2.0: `decode_metrics`.
//!
//! Properties: a body is read if it is a JSON array; each element is a point or refused; points that are
//! written as metrics are read as the same points. Not here: requests (`server`).

use chronolith_base::Rng;
use chronolith_ingest::carbon::decode_metrics;
use serde_json::{Value, json};

use super::mutate::{insert, offset, pick, token};
use super::points::{Point, decode, sent_time};
use super::reader::{Reader, check_equal, owned};

const SEEDS: &[&[u8]] = &[
    br#"[{"name":"a.b.c","interval":10,"value":1.5,"time":1700000000,"mtype":"gauge","unit":"B","org_id":1}]"#,
    br#"[{"name":"disk","interval":1,"value":-2e3,"time":1700000000123,"mtype":"count","tags":["host=x","dc=y"]}]"#,
    br#"[{"name":"a","interval":60,"value":7,"time":1700000000.9,"mtype":"rate","tags":null},{"name":"b","interval":60,"value":8,"time":1700000001,"mtype":"counter","tags":[]}]"#,
    br#"[{"name":"m{a=\"b\"}","interval":1,"value":0,"time":1,"mtype":"timestamp","tags":["c=d"]}]"#,
    br#"[]"#,
    br#"[{},1,null,"x",[[[[]]]],{"name":7}]"#,
    br#"[{"name":"..a..","interval":1,"value":1,"time":9,"mtype":"gauge","tags":["name=x","k=~v","k","=v","k=","a!=b"]}]"#,
    "[{\"name\":\"caf\u{e9}.\u{1f4a9}\\u0000\\ud83d\\ude00\",\"interval\":1,\"value\":1,\"time\":9,\"mtype\":\"gauge\"}]".as_bytes(),
    br#"[{"name":"a","name":"b","interval":1,"value":1e308,"time":99999999999,"mtype":"gauge"}]"#,
];

const TOKENS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\"name\":",
    b"\"interval\":",
    b"\"value\":",
    b"\"time\":",
    b"\"mtype\":",
    b"\"tags\":",
    b"\"a.b\"",
    b"\"k=v\"",
    b"\"name=x\"",
    b"\"gauge\"",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"1e-999",
    b"-0.0",
    b"1700000000",
    b"1700000000123",
    b"18446744073709551616",
    b"9999999999999",
    b";",
    b"~",
    b"=",
    b"[[[[[[[[[[[[[[[[",
    br#"{"name":"x","interval":1,"value":1,"time":9,"mtype":"gauge"}"#,
];

/// The reader of metrics.
pub(super) struct MetricsReader;

impl Reader for MetricsReader {
    fn seeds(&self) -> Vec<Vec<u8>> {
        owned(SEEDS)
    }

    fn tokens(&self) -> &'static [&'static [u8]] {
        TOKENS
    }

    /// Changes a value, or repeats and removes elements, of a body that stays JSON mostly.
    fn mutate(&self, rng: &Rng, input: &mut Vec<u8>) {
        let Ok(Value::Array(mut metrics)) = serde_json::from_slice(input) else {
            let at = offset(rng, input);
            return insert(input, at, token(rng, TOKENS));
        };
        if metrics.is_empty() {
            metrics.push(json!({"name": "x", "interval": 1, "value": 1, "time": 9, "mtype": "gauge"}));
        }
        let at = rng.below(metrics.len() as u64) as usize;
        match rng.below(5) {
            0 => {
                metrics.remove(at);
            }
            1 => {
                let copy = metrics[at].clone();
                metrics.push(copy);
            }
            _ => {
                let field = *pick(rng, &["name", "interval", "value", "time", "mtype", "tags"]);
                let value = random_value(rng, 2);
                if let Some(fields) = metrics[at].as_object_mut() {
                    fields.insert(field.to_owned(), value);
                }
            }
        }
        *input = Value::Array(metrics).to_string().into_bytes();
    }

    fn read(&mut self, input: &[u8]) -> Result<String, String> {
        let mut is_read = false;
        let found = decode(|points| is_read = decode_metrics(input, points).is_ok())?;
        let array = serde_json::from_slice::<Vec<Value>>(input);
        check_equal("an array", &is_read, &array.is_ok())?;
        if let Ok(elements) = &array {
            let count = found.points.len() as u64 + found.refused_count();
            check_equal("points and elements", &count, &(elements.len() as u64))?;
        }
        let written: Vec<(Value, Point)> =
            found.points.iter().filter_map(|point| Some((metric_of(point)?, point.clone()))).collect();
        let body = Value::Array(written.iter().map(|(metric, _)| metric.clone()).collect()).to_string();
        let mut outcome = Ok(());
        let again = decode(|points| outcome = decode_metrics(body.as_bytes(), points))?;
        outcome.map_err(|error| format!("written and refused: {error}"))?;
        let wanted: Vec<Point> = written.into_iter().map(|(_, point)| point).collect();
        check_equal("read, written and read", &wanted, &again.points)?;
        Ok(format!("{is_read} {}", found.describe()))
    }

    fn input_bytes_max(&self) -> usize {
        64 << 10
    }
}

fn random_value(rng: &Rng, depth: u32) -> Value {
    match rng.below(8) {
        0 => Value::Null,
        1 => json!(rng.below(2_000_000_000)),
        2 => json!(-(rng.below(100) as f64) / 8.0),
        3 => json!(*pick(rng, &["gauge", "a..b", "k=v", ";", "", "x;y=z", "m{a=\"b\"}", "nan", "\u{0}"])),
        4 if depth > 0 => (0..rng.below(4)).map(|_| random_value(rng, depth - 1)).collect(),
        5 => json!(["dc=x", "host=\u{e9}"]),
        6 => json!(1_700_000_000_000_u64 + rng.below(1_000_000)),
        _ => json!(*pick(rng, &[0.0, -0.0, 1e300, 5e-324, 0.1, 1_700_000_000.5])),
    }
}

/// A point as a metric; `None` if metrics 2.0 cannot name it.
fn metric_of(point: &Point) -> Option<Value> {
    let mut parts = point.0.split(';');
    let name = parts.next()?;
    let tags: Vec<&str> = parts.collect();
    let is_legal = |tag: &&str| {
        let Some((key, value)) = tag.split_once('=') else { return false };
        !key.is_empty() && !key.contains(['!', '^']) && !value.is_empty() && !value.starts_with('~')
    };
    let is_plain = !name.is_empty() && tags.iter().all(is_legal);
    let value = f64::from_bits(point.2);
    is_plain.then(|| {
        json!({
            "name": name, "interval": 1, "value": value, "time": sent_time(point.1), "mtype": "gauge",
            "tags": tags,
        })
    })
}
