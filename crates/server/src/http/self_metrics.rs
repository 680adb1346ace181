//! `status/self_metrics`: the server's own metrics as JSON, in the fields of Prometheus's `MetricFamily`
//! messages.
//!
//! Invariants: families and their series are sorted; 64-bit integers are strings, as in the JSON mapping of
//! protobuf. The bucket of `+Inf` is left out, its count equals the count of all samples.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_model::GoRegex;
use chronolith_service::metrics::{Family, FamilyKind, FamilySample};
use serde_json::{Map, Value, json};

use super::dispatch;
use super::error::ApiError;
use super::params::Params;
use super::status::success;
use crate::exposition::gather::gather;
use crate::web::Web;

/// Label of the upper bound of a bucket.
const BUCKET_LABEL: &str = "le";

pub(super) async fn self_metrics(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let params = Params::of_url(request.uri())?;
    let filter = params.get("metric_name_pattern").map(name_filter).transpose()?;
    let value = dispatch::run_status(&web, move |web| families(gather(web), filter.as_ref())).await?;
    Ok(success(&value))
}

/// The pattern is anchored here and not in [`GoRegex`] alone, because the text of an error shows it anchored.
fn name_filter(pattern: &str) -> Result<GoRegex, ApiError> {
    GoRegex::new(&format!("^(?:{pattern})$"))
        .map_err(|why| ApiError::bad_request(format_args!("invalid metric_name_pattern: {why}")))
}

fn families(mut families: Vec<Family>, filter: Option<&GoRegex>) -> Value {
    families.retain(|family| filter.is_none_or(|filter| filter.is_match(&family.name)));
    families.sort_by(|a, b| a.name.cmp(&b.name));
    families.iter().map(family).collect()
}

fn family(family: &Family) -> Value {
    let mut series: BTreeMap<Vec<(&str, &str)>, Vec<&FamilySample>> = BTreeMap::new();
    for sample in &family.samples {
        series.entry(labels_of(sample)).or_default().push(sample);
    }
    let metrics = series.into_iter().map(|(labels, samples)| {
        let shown = labels.iter().map(|(name, value)| json!({ "name": name, "value": value }));
        let mut metric = Map::new();
        if !labels.is_empty() {
            metric.insert("label".to_owned(), shown.collect());
        }
        let (field, value) = match family.kind {
            FamilyKind::Counter => ("counter", scalar(&samples)),
            FamilyKind::Gauge => ("gauge", scalar(&samples)),
            FamilyKind::Histogram => ("histogram", histogram(&samples)),
        };
        metric.insert(field.to_owned(), value);
        Value::Object(metric)
    });
    let mut value = json!({
        "name": family.name,
        "help": family.help,
        "type": family.kind.as_str().to_ascii_uppercase(),
        "metric": metrics.collect::<Vec<_>>(),
    });
    if !family.unit().is_empty() {
        value["unit"] = family.unit().into();
    }
    value
}

/// Labels of the series of a sample, sorted.
fn labels_of(sample: &FamilySample) -> Vec<(&str, &str)> {
    let labels = sample.labels.iter().map(|(name, value)| (*name, value.as_str()));
    let is_bucket = sample.suffix == "_bucket";
    let mut labels: Vec<_> = labels.filter(|(name, _)| !is_bucket || *name != BUCKET_LABEL).collect();
    labels.sort_unstable();
    labels
}

fn scalar(samples: &[&FamilySample]) -> Value {
    json!({ "value": samples.first().map_or(Value::Null, |sample| float(sample.value)) })
}

fn histogram(samples: &[&FamilySample]) -> Value {
    let mut value = json!({ "sampleCount": "0", "sampleSum": 0, "bucket": [] });
    let mut buckets = Vec::new();
    for sample in samples {
        match sample.suffix {
            "_count" => value["sampleCount"] = count(sample.value),
            "_sum" => value["sampleSum"] = float(sample.value),
            _ => {
                let bound = sample.labels.iter().find(|(name, _)| *name == BUCKET_LABEL);
                let bound = bound.and_then(|(_, bound)| bound.parse().ok()).unwrap_or(f64::INFINITY);
                if bound.is_finite() {
                    buckets
                        .push(json!({ "cumulativeCount": count(sample.value), "upperBound": float(bound) }));
                }
            }
        }
    }
    value["bucket"] = buckets.into();
    value
}

fn count(value: f64) -> Value {
    (value as u64).to_string().into()
}

/// A number; the words of protobuf's JSON mapping where JSON has none.
fn float(value: f64) -> Value {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity".into() } else { "-Infinity".into() }
    } else if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        (value as i64).into()
    } else {
        value.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(suffix: &'static str, labels: &[(&'static str, &str)], value: f64) -> FamilySample {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        FamilySample { suffix, labels, value }
    }

    fn family_of(kind: FamilyKind, samples: Vec<FamilySample>) -> Value {
        family(&Family { name: "x_seconds".to_owned(), kind, help: "Things.", samples })
    }

    #[test]
    fn counters_and_gauges_have_one_value_per_series() {
        let samples = vec![sample("", &[("b", "2"), ("a", "1")], 1.5), sample("", &[], f64::NAN)];
        let want = json!({
            "name": "x_seconds", "help": "Things.", "type": "COUNTER", "unit": "seconds",
            "metric": [
                { "counter": { "value": "NaN" } },
                { "label": [{ "name": "a", "value": "1" }, { "name": "b", "value": "2" }], "counter": { "value": 1.5 } },
            ],
        });
        assert_eq!(family_of(FamilyKind::Counter, samples), want);
        let gauge = family_of(FamilyKind::Gauge, vec![sample("", &[], f64::NEG_INFINITY)]);
        assert_eq!(gauge["metric"], json!([{ "gauge": { "value": "-Infinity" } }]));
    }

    #[test]
    fn histograms_have_their_buckets_in_one_message() {
        let samples = vec![
            sample("_bucket", &[("code", "200"), ("le", "0.5")], 2.0),
            sample("_bucket", &[("code", "200"), ("le", "+Inf")], 3.0),
            sample("_sum", &[("code", "200")], 4.25),
            sample("_count", &[("code", "200")], 3.0),
        ];
        let want = json!([{
            "label": [{ "name": "code", "value": "200" }],
            "histogram": {
                "sampleCount": "3", "sampleSum": 4.25,
                "bucket": [{ "cumulativeCount": "2", "upperBound": 0.5 }],
            },
        }]);
        assert_eq!(family_of(FamilyKind::Histogram, samples)["metric"], want);
    }
}
