//! Result of an alerting rule: its alerts after the round, samples of `ALERTS` and `ALERTS_FOR_STATE`.

use std::collections::BTreeMap;

use chronolith_model::{Labels, LabelsBuilder, METRIC_NAME};
use chronolith_promql::VectorSample;

use super::{RoundContext, RuleReport, RuleSample, SampleValue};
use crate::alert::{ALERT_NAME, ALERT_STATE, ALERTS, ALERTS_FOR_STATE, Alert, AlertResult};
use crate::rule::Rule;
use crate::template_engine::TemplateData;

const NS_PER_SECOND: i64 = 1_000_000_000;

/// Alerts of a result by their labels, templates expanded. `time_ms` is the time of the round.
///
/// # Errors
/// Prometheus's text for equal labels.
pub(super) fn results(
    rule: &Rule,
    result: &[VectorSample],
    time_ms: i64,
    ctx: &mut RoundContext<'_>,
    report: &mut RuleReport,
) -> Result<BTreeMap<Labels, AlertResult>, String> {
    let Some(alerting) = rule.alerting() else { return Ok(BTreeMap::new()) };
    let mut results = BTreeMap::new();
    for sample in result {
        // As in Prometheus, a native histogram has no value but in templates.
        let value = if sample.histogram.is_some() { 0.0 } else { sample.value };
        let data = TemplateData {
            alert: &rule.name,
            labels: &sample.labels,
            value,
            histogram: sample.histogram.as_ref(),
            external_labels: &ctx.settings.external_labels,
            external_url: &ctx.settings.external_url,
            time_ms,
        };
        let mut expand = |text: &str| expand(text, &data, ctx, report);
        let mut labels = sample.labels.to_builder();
        labels.remove(METRIC_NAME);
        for (name, template) in &rule.labels {
            labels.set(name, &expand(template));
        }
        labels.set(ALERT_NAME, &rule.name);
        let annotations =
            alerting.annotations.iter().map(|(name, template)| (name.clone(), expand(template))).collect();
        if results.insert(labels.finish(), AlertResult { annotations, value }).is_some() {
            return Err(
                "vector contains metrics with the same labelset after applying alert labels".to_owned()
            );
        }
    }
    Ok(results)
}

/// Expands a template; the text of a failure takes its place.
fn expand(
    text: &str,
    data: &TemplateData<'_>,
    ctx: &mut RoundContext<'_>,
    report: &mut RuleReport,
) -> String {
    if !text.contains("{{") {
        return text.to_owned();
    }
    match ctx.templates.expand(text, data, ctx.evaluate) {
        Ok(expanded) => expanded,
        Err(why) => {
            let shown = format!("<error expanding template: {why}>");
            report.template_error.get_or_insert(why);
            shown
        }
    }
}

/// Samples of the alerts of a rule, in order of labels.
pub(super) fn samples<'a>(
    rule: &Rule,
    active: impl Iterator<Item = (&'a Labels, &'a Alert)>,
    time_ms: i64,
) -> Vec<RuleSample> {
    let mut samples = Vec::new();
    for (labels, alert) in active {
        let mut builder = labels_of(rule, labels);
        builder.set(METRIC_NAME, ALERTS_FOR_STATE);
        builder.set(ALERT_NAME, &rule.name);
        let active_at_s = alert.active_at_ns.div_euclid(NS_PER_SECOND);
        let value = SampleValue::Float(active_at_s as f64);
        samples.push(RuleSample { labels: builder.finish(), time_ms, value });
        builder.set(METRIC_NAME, ALERTS);
        builder.set(ALERT_STATE, alert.state.as_str());
        samples.push(RuleSample { labels: builder.finish(), time_ms, value: SampleValue::Float(1.0) });
    }
    samples.sort_by(|a, b| a.labels.cmp(&b.labels));
    samples
}

/// Labels of an alert over the labels of its rule. As in Prometheus, a label whose template gives nothing
/// has the text of the template here.
fn labels_of(rule: &Rule, labels: &Labels) -> LabelsBuilder {
    let mut builder = LabelsBuilder::new();
    rule.labels.iter().for_each(|(name, value)| builder.set(name, value));
    labels.iter().for_each(|(name, value)| builder.set(name, value));
    builder
}
