//! Samples of rules as writes: one write per batch, durable before the round goes on.
//!
//! Invariants: each sample that the store refuses is found, also where it refuses some samples of a write;
//! nothing is written after the permit of the round is over.
//! Not here: which samples a rule writes (`chronolith_rules::round`).

use std::sync::Arc;

use chronolith_model::sample::STALE_NAN;
use chronolith_model::{FloatHistogram, Histogram, WriteBatch, WriteOutcome};
use chronolith_rules::round::{Record, RejectedSample, RuleSample, SampleValue};
use chronolith_tsdb::Writer;

use crate::access::Identity;
use crate::rules::round_permit::RoundPermit;
use crate::service::Service;
use crate::write::destination::Destination;
use crate::write::{TargetStore, WriteTarget};

/// Id under which an owner of a cluster lists samples of rules that it refuses.
const REQUEST_ID: &str = "rules";

/// Writes of the rules of one tenant.
pub(super) struct RuleWriter<'a> {
    pub(super) service: &'a Service,
    pub(super) identity: &'a Identity,
    pub(super) permit: &'a RoundPermit,
}

impl Record for RuleWriter<'_> {
    fn record(&mut self, samples: &[RuleSample]) -> Result<Vec<RejectedSample>, String> {
        let store = &self.service.lifecycle.destination().map_err(|refusal| refusal.to_string())?;
        let mut invalid = Vec::new();
        let mut valid = Vec::with_capacity(samples.len());
        for (idx, sample) in samples.iter().enumerate() {
            match check(sample) {
                Ok(()) => valid.push((idx, sample)),
                Err(reason) => invalid.push(RejectedSample { idx, reason }),
            }
        }
        let outcome = self.write(store, &valid)?;
        let mut rejected = self.rejected(store, &valid, &outcome)?;
        rejected.append(&mut invalid);
        rejected.sort_by_key(|one| one.idx);
        Ok(rejected)
    }
}

impl RuleWriter<'_> {
    fn target(&self) -> WriteTarget<'_> {
        WriteTarget { identity: self.identity, store: TargetStore::Default, writer: Writer::Rule }
    }

    /// Stores samples that a repair has found missing, and counts those that are refused.
    ///
    /// # Errors
    /// Nothing is stored.
    pub(super) fn add(&self, store: &Destination, samples: &[&RuleSample]) -> Result<(), String> {
        let valid: Vec<(usize, &RuleSample)> =
            samples.iter().copied().enumerate().filter(|(_, sample)| check(sample).is_ok()).collect();
        let outcome = self.write(store, &valid)?;
        self.service.rules.engine.counters.rejected_samples.add(outcome.rejected_count());
        Ok(())
    }

    /// Stores samples durably and counts them.
    fn write(&self, store: &Destination, samples: &[(usize, &RuleSample)]) -> Result<WriteOutcome, String> {
        self.permit.check().map_err(|over| over.to_string())?;
        let mut writing = self.service.writes.begin(store, self.target()).of_request(&REQUEST_ID);
        writing.apply_batch(&mut batch_of(samples)).map_err(|failure| failure.to_string())?;
        let waited = writing.wait(|_| {}).map_err(|failure| failure.to_string());
        waited.map(|acknowledged| acknowledged.outcome)
    }

    /// Returns the samples of a write with this outcome that were refused: halves of it are applied again,
    /// uncounted, until each is stored or refused as a whole. A stored sample is equal to its repetition.
    fn rejected(
        &self,
        store: &Destination,
        samples: &[(usize, &RuleSample)],
        outcome: &WriteOutcome,
    ) -> Result<Vec<RejectedSample>, String> {
        let Some((kind, _, _)) = &outcome.first_reject else { return Ok(Vec::new()) };
        if outcome.rejected_count() >= samples.len() as u64 {
            let rejected = |(idx, _): &(usize, &RuleSample)| RejectedSample {
                idx: *idx,
                reason: kind.reason().replace('_', " "),
            };
            return Ok(samples.iter().map(rejected).collect());
        }
        let mut all = Vec::new();
        let halves = samples.split_at(samples.len() / 2);
        for half in [halves.0, halves.1] {
            self.permit.check().map_err(|over| over.to_string())?;
            let mut writing = self.service.writes.begin(store, self.target()).of_request(&REQUEST_ID);
            writing.apply_batch(&mut batch_of(half)).map_err(|failure| failure.to_string())?;
            let Some(applied) = writing.into_applied() else { continue };
            let waited = self.service.writes.wait_uncounted(store, applied);
            let outcome = waited.map_err(|failure| failure.to_string())?;
            all.append(&mut self.rejected(store, half, &outcome)?);
        }
        Ok(all)
    }
}

fn batch_of(samples: &[(usize, &RuleSample)]) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    samples.iter().for_each(|(_, sample)| push_sample(&mut batch, sample));
    batch
}

/// Appends a sample to a batch.
pub(super) fn push_sample(batch: &mut WriteBatch, sample: &RuleSample) {
    let RuleSample { labels, time_ms, value } = sample;
    match value {
        SampleValue::Float(value) => batch.push_labels(labels, &[(*time_ms, *value)]),
        SampleValue::Stale => batch.push_labels(labels, &[(*time_ms, STALE_NAN)]),
        SampleValue::Histogram(histogram) => {
            let histogram = Arc::new(Histogram::Float(FloatHistogram::clone(histogram)));
            batch.push_histograms(labels, &[(*time_ms, histogram)]);
        }
    }
}

fn check(sample: &RuleSample) -> Result<(), String> {
    match &sample.value {
        SampleValue::Histogram(histogram) => histogram.validate().map_err(|error| error.to_string()),
        SampleValue::Float(_) | SampleValue::Stale => Ok(()),
    }
}
