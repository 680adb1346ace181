//! Contract of the templates in labels and annotations of alerts.
//!
//! Invariant: a text that [`TemplateEngine::check`] accepts may still fail when it is expanded.
//! Not here: the language (its implementation).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::{FloatHistogram, Labels};
use chronolith_promql::VectorSample;

/// Values that a template of an alert can read.
#[derive(Debug, Clone, Copy)]
pub struct TemplateData<'a> {
    /// Name of the alert, for messages.
    pub alert: &'a str,
    /// `$labels`: labels of the result, with the metric name.
    pub labels: &'a Labels,
    /// `$value` of a float.
    pub value: f64,
    /// `$value` of a native histogram.
    pub histogram: Option<&'a Arc<FloatHistogram>>,
    /// `$externalLabels`
    pub external_labels: &'a BTreeMap<String, String>,
    /// `$externalURL`
    pub external_url: &'a str,
    /// Time of the round in milliseconds, for `query`.
    pub time_ms: i64,
}

/// Instant queries of templates.
pub trait TemplateQueries {
    /// Returns the result of `query`, a vector.
    ///
    /// # Errors
    /// The text that the template shows.
    fn query(&mut self, query: &str, time_ms: i64) -> Result<Vec<VectorSample>, String>;
}

/// Parses and expands templates.
pub trait TemplateEngine {
    /// Parses the template of an alert.
    ///
    /// # Errors
    /// Prometheus's text.
    fn check(&self, alert: &str, text: &str) -> Result<(), String>;

    /// Expands a template.
    ///
    /// # Errors
    /// Prometheus's text, without `<error expanding template: ...>`.
    fn expand(
        &self,
        text: &str,
        data: &TemplateData<'_>,
        queries: &mut dyn TemplateQueries,
    ) -> Result<String, String>;
}
