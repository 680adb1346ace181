//! Whole templates: alerts and queries of `tools/template-golden`.

mod errors;
mod golden;
mod limits;
mod random;

use std::sync::Arc;

use chronolith_model::{FloatHistogram, Labels, METRIC_NAME, Span};

use super::*;

/// Answers to queries; `tools/template-golden` has the same.
struct Vectors;

impl Functions for Vectors {
    fn query(&mut self, expression: &str) -> Result<Vec<Sample>, String> {
        let up = |value, instance, job| {
            sample(value, &[(METRIC_NAME, "up"), ("instance", instance), ("job", job)])
        };
        match expression {
            "none" => Ok(Vec::new()),
            "one" => Ok(vec![sample(1.5, &[])]),
            "up" => Ok(vec![up(1.0, "b:9100", "node"), up(0.0, "a:9100", "node"), up(1e6, "c:9100", "api")]),
            "hist" => {
                let labels = Labels::from_pairs([(METRIC_NAME, "hist")]);
                Ok(vec![Sample { labels, value: SampleValue::Histogram(Arc::new(histogram())) }])
            }
            "odd" => {
                let labels = [("__value__", "x y"), ("quote", "\"<&'>\""), ("umlaut", "größe")];
                Ok(vec![sample(f64::NAN, &labels)])
            }
            other => Err(format!("no such vector: {other}")),
        }
    }
}

fn sample(value: f64, labels: &[(&str, &str)]) -> Sample {
    Sample { labels: Labels::from_pairs(labels.iter().copied()), value: SampleValue::Float(value) }
}

fn histogram() -> FloatHistogram {
    let mut histogram = FloatHistogram {
        schema: 0,
        zero_threshold: 0.001,
        zero_count: 2.0,
        count: 8.0,
        sum: 18.5,
        ..FloatHistogram::default()
    };
    histogram.positive.spans = vec![Span { offset: 0, length: 2 }];
    histogram.positive.counts = vec![2.0, 3.0];
    histogram.negative.spans = vec![Span { offset: 1, length: 1 }];
    histogram.negative.counts = vec![1.0];
    histogram
}

/// The alert of a name in `tools/template-golden`.
fn alert(name: &str) -> Sample {
    match name {
        "plain" => sample(
            1e6,
            &[
                (METRIC_NAME, "up"),
                ("instance", "web-1.example.com:9100"),
                ("job", "node"),
                ("severity", "page"),
            ],
        ),
        "small" => sample(0.000_012_345_678, &[("instance", "[::1]:80")]),
        "nan" => sample(f64::NAN, &[]),
        "inf" => {
            let text = "a<b & \"c\"\n'd' é€😀";
            sample(f64::NEG_INFINITY, &[("device", "/dev/sda1"), ("text", text)])
        }
        "integer" => sample(42.0, &[("mountpoint", "/")]),
        "float" => sample(1234.5678, &[("le", "+Inf")]),
        "hist" => {
            let labels = Labels::from_pairs([(METRIC_NAME, "hist"), ("job", "api")]);
            Sample { labels, value: SampleValue::Histogram(Arc::new(histogram())) }
        }
        other => panic!("no such data: {other}"),
    }
}

fn expand(template: &str, data: &str, limits: &Limits) -> Result<String, TemplateError> {
    let alert = alert(data);
    let external_labels = Labels::from_pairs([("cluster", "eu-1"), ("replica", "a")]);
    let data = TemplateData {
        labels: &alert.labels,
        external_labels: &external_labels,
        external_url: "http://prom.example:9090/some%20path",
        value: alert.value,
        time_ms: 1_700_000_000_123,
    };
    parse("__alert_Golden", template)?.expand(&data, &mut Vectors, limits)
}
