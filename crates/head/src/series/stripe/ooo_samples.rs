//! Out-of-order samples of a series in one list, for the checkpoint: floats and native histograms.
//!
//! Invariant: the buffers keep the last written of two values at a timestamp, so their samples are of
//! [`DuplicatePolicy::LastWins`].
//! Not here: the buffers (`ooo_buffer`, `histograms`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::{Columns, DuplicatePolicy, Histogram};

use super::{AppendContext, HistogramParts, NONE, Stripe};

/// An out-of-order sample and the policy under which it was accepted.
#[derive(Debug, Clone)]
pub(crate) struct OooSample {
    pub(crate) time: i64,
    pub(crate) value: SampleValue,
    pub(crate) duplicates: DuplicatePolicy,
}

/// Value of a sample: the bits of a float, or a histogram.
#[derive(Debug, Clone)]
pub(crate) enum SampleValue {
    Word(u64),
    Histogram(Arc<Histogram>),
}

impl Stripe {
    /// Returns the out-of-order samples of a series, ascending by time.
    pub(crate) fn ooo_samples(&self, id: u32) -> Vec<OooSample> {
        let sample = |time, value| OooSample { time, value, duplicates: DuplicatePolicy::LastWins };
        let mut out = Vec::new();
        if let Some(series) = self.series(id).filter(|series| series.ooo != NONE) {
            let floats = self.ooo.samples(series.ooo);
            let words = floats.values.iter().map(|value| SampleValue::Word(value.to_bits()));
            out.extend(floats.times.iter().zip(words).map(|(&time, word)| sample(time, word)));
        }
        if let Some(series) = self.histograms_of(id).filter(|series| !series.ooo.is_empty()) {
            let histogram = |one: &Arc<Histogram>| SampleValue::Histogram(one.clone());
            out.extend(series.ooo.iter().map(|(&time, one)| sample(time, histogram(one))));
            out.sort_by_key(|sample| sample.time);
        }
        out
    }

    /// Adds out-of-order samples of a checkpoint to a series, whose chunks are restored already.
    pub(crate) fn restore_ooo(&mut self, cx: &AppendContext<'_>, id: u32, samples: Vec<OooSample>) {
        let (mut words, mut histograms) = (BTreeMap::new(), Vec::new());
        for OooSample { time, value, .. } in samples {
            match value {
                SampleValue::Word(bits) => drop(words.insert(time, bits)),
                SampleValue::Histogram(histogram) => histograms.push((time, histogram)),
            }
        }
        if let Some(before) = self.series(id).map(|series| series.ooo).filter(|_| !words.is_empty()) {
            let restored = self.ooo.samples(before);
            for (&time, value) in restored.times.iter().zip(&restored.values) {
                words.entry(time).or_insert(value.to_bits());
            }
            let mut all = Columns::default();
            words.into_iter().for_each(|(time, bits)| all.push(time, f64::from_bits(bits)));
            self.ooo.free(before);
            let buffer = self.ooo.store(&all);
            if let Some(series) = self.series_mut(id) {
                series.ooo = buffer;
            }
        }
        if !histograms.is_empty() {
            self.restore_histograms(
                cx,
                id,
                HistogramParts { open: None, ooo: histograms, sealed: Vec::new() },
            );
        }
    }

    /// Removes the out-of-order samples of a series without other histograms; returns them.
    pub(crate) fn discard_ooo(&mut self, id: u32) -> Vec<OooSample> {
        let samples = self.ooo_samples(id);
        if let Some(series) = self.series_mut(id) {
            let buffer = std::mem::replace(&mut series.ooo, NONE);
            self.ooo.free(buffer);
        }
        samples
    }
}
