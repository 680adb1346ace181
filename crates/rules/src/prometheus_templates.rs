//! Prometheus's templates (`template`) as the engine of rounds and files.
//!
//! Not here: the language (`template`).

use chronolith_model::Labels;

use crate::template::{self, Functions, Limits, Sample, SampleValue};
use crate::template_engine::{TemplateData, TemplateEngine, TemplateQueries};

/// Go's `text/template` with Prometheus's functions and variables, within [`Limits`].
#[derive(Debug, Clone, Copy, Default)]
pub struct PrometheusTemplates {
    limits: Limits,
}

/// Queries of a template at the time of its round.
struct QueriesAt<'a> {
    queries: &'a mut dyn TemplateQueries,
    time_ms: i64,
}

impl Functions for QueriesAt<'_> {
    fn query(&mut self, expression: &str) -> Result<Vec<Sample>, String> {
        let samples = self.queries.query(expression, self.time_ms)?;
        let sample = |found: chronolith_promql::VectorSample| Sample {
            labels: found.labels,
            value: found.histogram.map_or(SampleValue::Float(found.value), SampleValue::Histogram),
        };
        Ok(samples.into_iter().map(sample).collect())
    }
}

/// Name of the template of an alert in texts of errors.
fn name_of(alert: &str) -> String {
    format!("__alert_{alert}")
}

impl TemplateEngine for PrometheusTemplates {
    fn check(&self, alert: &str, text: &str) -> Result<(), String> {
        template::parse(&name_of(alert), text).map(drop).map_err(|error| error.message().to_owned())
    }

    fn expand(
        &self,
        text: &str,
        data: &TemplateData<'_>,
        queries: &mut dyn TemplateQueries,
    ) -> Result<String, String> {
        let external = data.external_labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let of_alert = template::TemplateData {
            labels: data.labels,
            external_labels: &Labels::from_pairs(external),
            external_url: data.external_url,
            value: match data.histogram {
                Some(histogram) => SampleValue::Histogram(histogram.clone()),
                None => SampleValue::Float(data.value),
            },
            time_ms: data.time_ms,
        };
        let mut functions = QueriesAt { queries, time_ms: data.time_ms };
        let parsed = template::parse(&name_of(data.alert), text).map_err(|error| error.to_string())?;
        parsed.expand(&of_alert, &mut functions, &self.limits).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chronolith_promql::VectorSample;

    use super::*;

    /// Answers each query with its text as a label, at the time of the query.
    struct Echo;

    impl TemplateQueries for Echo {
        fn query(&mut self, query: &str, time_ms: i64) -> Result<Vec<VectorSample>, String> {
            let labels = Labels::from_pairs([("query", query)]);
            Ok(vec![VectorSample { labels, time_ms, value: time_ms as f64, histogram: None }])
        }
    }

    fn expand(text: &str) -> Result<String, String> {
        let labels = Labels::from_pairs([("__name__", "up"), ("job", "a")]);
        let external_labels = BTreeMap::from([("region".to_owned(), "eu".to_owned())]);
        let data = TemplateData {
            alert: "Down",
            labels: &labels,
            value: 1e6,
            histogram: None,
            external_labels: &external_labels,
            external_url: "http://localhost",
            time_ms: 5_000,
        };
        PrometheusTemplates::default().expand(text, &data, &mut Echo)
    }

    #[test]
    fn a_template_reads_the_data_and_the_queries_of_its_round() {
        let text = "{{ $labels.job }} {{ $externalLabels.region }} {{ $value }} \
                    {{ with query \"up\" }}{{ . | first | label \"query\" }} {{ . | first | value }}{{ end }}";
        assert_eq!(expand(text).as_deref(), Ok("a eu 1e+06 up 5000"));
    }

    #[test]
    fn errors_have_the_texts_of_prometheus() {
        let unclosed = PrometheusTemplates::default().check("Down", "{{ $labels");
        assert_eq!(unclosed, Err("template: __alert_Down:1: unclosed action".to_owned()));
        let error = expand("{{ first . }}").expect_err("no vector");
        assert!(
            error.starts_with("error executing template __alert_Down: template: __alert_Down:1:"),
            "{error}"
        );
    }
}
