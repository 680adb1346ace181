//! Comparison of the answers of two servers.
//! Invariants: order of series does not matter, nor does it matter in which order a server added numbers:
//! values may differ by [`TOLERANCE`] of their size.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

const TOLERANCE: f64 = 1e-9;

/// Samples by series; a list of labels has no samples.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Answer(BTreeMap<String, Vec<(i64, f64)>>);

impl Answer {
    /// Reads the body of an answer of the API.
    pub(super) fn parse(body: &str) -> Result<Answer> {
        let json: Value = serde_json::from_str(body).with_context(|| format!("no JSON: {body:.200}"))?;
        ensure!(json["status"] == "success", "{body:.300}");
        let data = &json["data"];
        let mut series = BTreeMap::new();
        if let Some(names) = data.as_array() {
            for name in names {
                series.insert(name.to_string(), Vec::new());
            }
            return Ok(Answer(series));
        }
        for one in data["result"].as_array().context("no result")? {
            let samples = match one["values"].as_array() {
                Some(values) => values.iter().map(sample).collect::<Result<_>>()?,
                None => vec![sample(&one["value"])?],
            };
            series.insert(one["metric"].to_string(), samples);
        }
        Ok(Answer(series))
    }

    /// Joins several answers into one; `idx` tells them apart.
    pub(super) fn join(&mut self, idx: usize, other: Answer) {
        self.0.extend(other.0.into_iter().map(|(labels, samples)| (format!("{idx} {labels}"), samples)));
    }

    pub(super) fn series_count(&self) -> usize {
        self.0.len()
    }

    /// Fails with the first difference.
    pub(super) fn check_equal(&self, other: &Answer) -> Result<()> {
        if let Some(labels) = self.0.keys().find(|labels| !other.0.contains_key(*labels)) {
            bail!("only the first has {labels}");
        }
        for (labels, theirs) in &other.0 {
            let Some(ours) = self.0.get(labels) else { bail!("only the second has {labels}") };
            ensure!(ours.len() == theirs.len(), "{labels}: {} and {} samples", ours.len(), theirs.len());
            for (a, b) in ours.iter().zip(theirs) {
                ensure!(a.0 == b.0 && same(a.1, b.1), "{labels}: {a:?} and {b:?}");
            }
        }
        Ok(())
    }
}

fn sample(pair: &Value) -> Result<(i64, f64)> {
    let seconds = pair[0].as_f64().context("no time")?;
    let text = pair[1].as_str().context("no value")?;
    Ok(((seconds * 1000.0).round() as i64, text.parse().with_context(|| text.to_owned())?))
}

fn same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(value: &str) -> Answer {
        let body = format!(
            "{{\"status\":\"success\",\"data\":{{\"result\":[{{\"metric\":{{\"a\":\"b\"}},\"values\":[[1.5,\"{value}\"]]}}]}}}}"
        );
        Answer::parse(&body).expect("good")
    }

    #[test]
    fn the_last_digits_do_not_matter_and_others_do() {
        assert!(answer("1000000000000").check_equal(&answer("1000000000000.1")).is_ok());
        assert!(answer("NaN").check_equal(&answer("NaN")).is_ok());
        assert!(answer("1").check_equal(&answer("1.0001")).is_err());
        assert!(answer("1").check_equal(&Answer::default()).is_err());
        assert!(Answer::default().check_equal(&answer("1")).is_err());
        let names = Answer::parse("{\"status\":\"success\",\"data\":[\"x\",\"y\"]}").expect("good");
        assert_eq!(names.series_count(), 2);
        assert!(Answer::parse("{\"status\":\"error\",\"error\":\"no\"}").is_err());
    }
}
