//! One round, batch by batch.

use std::collections::BTreeMap;
use std::ops::Range;

use chronolith_model::Labels;
use chronolith_promql::VectorSample;

use super::{
    ActiveGroup, Expression, Interrupted, Notification, Notifications, RoundContext, RoundReport, RuleReport,
    RuleSample, SampleValue, alerting, recording, vector_of,
};
use crate::alert::AlertTerms;
use crate::rule::Alerting;
use crate::schedule::NS_PER_MS;

/// Samples that a rule writes in this round.
struct RuleOutput {
    rule_idx: usize,
    samples: Vec<RuleSample>,
}

/// Samples of one rule within a write.
struct RuleRange {
    rule_idx: usize,
    /// Samples of the result; staleness markers follow.
    own: Range<usize>,
    end: usize,
}

impl ActiveGroup {
    /// Evaluates all rules at the time of a round, records their results, and keeps the state.
    /// Cost: one call of `evaluate` and of `record` per batch, one of `save`.
    ///
    /// # Errors
    /// [`Interrupted`]; batches before have been recorded, the state has not been kept.
    ///
    /// # Panics
    /// If `evaluate` does not return one value per expression, or the round is not after the last one.
    pub fn evaluate(
        &mut self,
        time_ns: i64,
        notifications: Notifications,
        ctx: &mut RoundContext<'_>,
    ) -> Result<RoundReport, Interrupted> {
        assert!(self.last_round_ns.is_none_or(|last_ns| last_ns < time_ns), "rounds ascend");
        let rules = vec![RuleReport::default(); self.rules.len()];
        let mut report = RoundReport { time_ns, rules, notifications: Vec::new(), state_error: None };
        for batch in self.group.batches().to_vec() {
            self.evaluate_batch(&batch, notifications, ctx, &mut report)?;
        }
        self.mark_removed(time_ns, ctx);
        self.last_round_ns = Some(time_ns);
        report.state_error = ctx.state.save(self.state()).err();
        report.notifications.sort_by_key(|notification| notification.rule_idx);
        Ok(report)
    }

    fn evaluate_batch(
        &mut self,
        batch: &[usize],
        notifications: Notifications,
        ctx: &mut RoundContext<'_>,
        report: &mut RoundReport,
    ) -> Result<(), Interrupted> {
        let time_ms = self.sample_time_ms(report.time_ns);
        let rules = batch.iter().map(|&idx| &self.group.rules()[idx]);
        let expressions: Vec<Expression<'_>> =
            rules.map(|rule| Expression { text: &rule.query, expr: &rule.expr }).collect();
        let values = ctx.evaluate.evaluate(&expressions, time_ms)?;
        assert_eq!(values.len(), batch.len(), "one value per expression");
        let mut outputs = Vec::new();
        for (&rule_idx, value) in batch.iter().zip(values) {
            match value.and_then(vector_of).and_then(|result| {
                let rule_report = &mut report.rules[rule_idx];
                self.apply(rule_idx, result, report.time_ns, ctx, rule_report)
            }) {
                Ok(samples) => {
                    if notifications == Notifications::Send {
                        self.notify(rule_idx, ctx.settings.resend_delay_ns, report);
                    }
                    outputs.push(RuleOutput { rule_idx, samples });
                }
                Err(why) => report.rules[rule_idx].error = Some(why),
            }
        }
        self.record(outputs, time_ms, ctx, report);
        Ok(())
    }

    /// Takes the result of a rule over, and returns its samples.
    fn apply(
        &mut self,
        rule_idx: usize,
        result: Vec<VectorSample>,
        time_ns: i64,
        ctx: &mut RoundContext<'_>,
        report: &mut RuleReport,
    ) -> Result<Vec<RuleSample>, String> {
        let limit = self.group.limit;
        let time_ms = self.sample_time_ms(time_ns);
        let rule = &self.group.rules()[rule_idx];
        let samples = match rule.alerting() {
            None => recording::samples(rule, result, limit, time_ms)?,
            Some(fields) => {
                let round_ms = time_ns.div_euclid(NS_PER_MS);
                let results = alerting::results(rule, &result, round_ms, ctx, report)?;
                let alerts = &mut self.rules[rule_idx].alerts;
                alerts.advance(results, &terms_of(fields, limit), time_ns).map_err(|exceeded| {
                    format!("exceeded limit of {} with {} alerts", exceeded.limit, exceeded.alert_count)
                })?;
                alerting::samples(rule, alerts.active(), time_ms)
            }
        };
        report.sample_count = samples.len();
        Ok(samples)
    }

    fn notify(&mut self, rule_idx: usize, resend_delay_ns: i64, report: &mut RoundReport) {
        let interval_ns = self.group.interval_ms.saturating_mul(NS_PER_MS);
        // Two rounds or notifications may fail.
        let validity_ns = resend_delay_ns.max(interval_ns).saturating_mul(4);
        let valid_until_ns = report.time_ns.saturating_add(validity_ns);
        let unsent = self.rules[rule_idx].alerts.take_unsent(report.time_ns, resend_delay_ns);
        let notification = |(labels, alert)| Notification { rule_idx, labels, alert, valid_until_ns };
        report.notifications.extend(unsent.into_iter().map(notification));
    }

    /// Writes the samples of a batch, and staleness markers of series that are not among them any more.
    fn record(
        &mut self,
        outputs: Vec<RuleOutput>,
        time_ms: i64,
        ctx: &mut RoundContext<'_>,
        report: &mut RoundReport,
    ) {
        let mut samples = Vec::new();
        let mut ranges = Vec::with_capacity(outputs.len());
        for RuleOutput { rule_idx, samples: own } in outputs {
            let vanished = vanished(&self.rules[rule_idx].series, &own);
            let markers: Vec<RuleSample> = vanished.map(|labels| stale(labels.clone(), time_ms)).collect();
            let start = samples.len();
            samples.extend(own);
            let own = start..samples.len();
            samples.extend(markers);
            ranges.push(RuleRange { rule_idx, own, end: samples.len() });
        }
        if samples.is_empty() {
            return;
        }
        let rejected: BTreeMap<usize, String> = match ctx.record.record(&samples) {
            Ok(rejected) => rejected.into_iter().map(|sample| (sample.idx, sample.reason)).collect(),
            Err(why) => {
                for range in ranges.iter().filter(|range| range.own.start < range.end) {
                    report.rules[range.rule_idx].error = Some(why.clone());
                }
                return;
            }
        };
        for RuleRange { rule_idx, own, .. } in ranges {
            let mut refused = rejected.range(own.clone());
            let rule_report = &mut report.rules[rule_idx];
            rule_report.rejected_count = refused.clone().count();
            rule_report.error = refused.next_back().map(|(_, reason)| reason.clone());
            let kept = own.filter(|idx| !rejected.contains_key(idx));
            self.rules[rule_idx].series = kept.map(|idx| samples[idx].labels.clone()).collect();
        }
    }

    /// Marks the series of removed rules as stale; after a failure the next round does.
    fn mark_removed(&mut self, time_ns: i64, ctx: &mut RoundContext<'_>) {
        if self.stale_series.is_empty() {
            return;
        }
        let time_ms = self.sample_time_ms(time_ns);
        let markers: Vec<RuleSample> =
            self.stale_series.iter().map(|labels| stale(labels.clone(), time_ms)).collect();
        // A refused marker is one of a series that another rule writes.
        if ctx.record.record(&markers).is_ok() {
            self.stale_series.clear();
        }
    }
}

fn terms_of(fields: &Alerting, limit: Option<usize>) -> AlertTerms {
    AlertTerms {
        hold_ns: fields.hold_ms.saturating_mul(NS_PER_MS),
        keep_firing_ns: fields.keep_firing_ms.saturating_mul(NS_PER_MS),
        limit,
    }
}

fn stale(labels: Labels, time_ms: i64) -> RuleSample {
    RuleSample { labels, time_ms, value: SampleValue::Stale }
}

/// Series before that have no sample; both in order of labels.
fn vanished<'a>(before: &'a [Labels], samples: &'a [RuleSample]) -> impl Iterator<Item = &'a Labels> {
    debug_assert!(before.is_sorted() && samples.is_sorted_by(|a, b| a.labels <= b.labels));
    let mut rest = samples;
    before.iter().filter(move |labels| {
        let skipped = rest.partition_point(|sample| sample.labels < **labels);
        rest = rest.get(skipped..).unwrap_or_default();
        rest.first().is_none_or(|sample| sample.labels != **labels)
    })
}
