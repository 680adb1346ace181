//! Replaces the texts of a batch by ids of dictionaries before its samples are appended.
//!
//! Invariants: the frame of a new text is queued before any samples frame with its id; samples that are
//! refused for their time bring no text. A series of a batch is refused as a whole if one of its texts is.
//! Not here: dictionaries (`texts`).

use std::sync::Arc;

use chronolith_format::head::wal;
use chronolith_model::{BatchSeries, Reject, TimeRange, WordKind, WriteBatch, WriteOutcome};
use parking_lot::RwLockReadGuard;

use super::job::{TimeBounds, series_text};
use crate::index::tenant::TenantHead;
use crate::state::HeadState;
use crate::texts::file::FRAME_BYTES;
use crate::texts::{Interned, TEXT_BYTES_MAX, TextDictionary};

/// Texts of a batch as words.
#[derive(Default)]
pub(super) struct BatchTexts<'a> {
    /// Values of all samples of the batch; empty if it has no texts.
    pub(super) values: Vec<f64>,
    /// Indexes of series of the batch that are refused, ascending.
    pub(super) refused: Vec<u32>,
    /// Keeps the dictionaries until the samples are appended.
    _in_use: Option<RwLockReadGuard<'a, ()>>,
}

/// Dictionary of the window of the last sample.
struct Target {
    window: TimeRange,
    dictionary: Arc<TextDictionary>,
}

/// Interns the texts of one batch, with scratch memory.
struct Interner<'a> {
    state: &'a HeadState,
    tenant: &'a TenantHead,
    bounds: TimeBounds,
    batch: &'a WriteBatch,
    target: Option<Target>,
    payload: Vec<u8>,
}

/// Interns the texts of a batch and queues frames of the new ones; counts refused samples in `outcome`.
pub(super) fn intern_texts<'a>(
    state: &'a HeadState,
    tenant: &'a TenantHead,
    bounds: TimeBounds,
    batch: &'a WriteBatch,
    outcome: &mut WriteOutcome,
) -> BatchTexts<'a> {
    let mut out =
        BatchTexts { values: batch.values.clone(), refused: Vec::new(), _in_use: Some(tenant.texts.keep()) };
    let mut interner = Interner { state, tenant, bounds, batch, target: None, payload: Vec::new() };
    for (idx, series) in (0u32..).zip(&batch.series) {
        if batch.kind_of(idx as usize) != WordKind::Text {
            continue;
        }
        let words = out.values.get_mut(series.samples.start as usize..series.samples.end as usize);
        if let Err(reject) = interner.intern_series(series, words.unwrap_or_default()) {
            let samples = series.samples.start as usize..series.samples.end as usize;
            for &time in batch.times.get(samples).unwrap_or_default() {
                let kind = bounds.refuse(time).unwrap_or(reject);
                outcome.reject(kind, 1, time, || series_text(batch, idx));
            }
            out.refused.push(idx);
        }
    }
    out
}

impl Interner<'_> {
    /// Replaces the indices in `words`, the values of a series, by ids.
    fn intern_series(&mut self, series: &BatchSeries, words: &mut [f64]) -> Result<(), Reject> {
        let samples = series.samples.start as usize..series.samples.end as usize;
        let times = self.batch.times.get(samples).unwrap_or_default();
        for (word, &time) in words.iter_mut().zip(times) {
            if self.bounds.refuse(time).is_none() {
                *word = f64::from_bits(self.intern(time, word.to_bits())?);
            }
        }
        Ok(())
    }

    /// Returns the id of a text of the batch in the dictionary of the window of `time`.
    fn intern(&mut self, time: i64, idx: u64) -> Result<u64, Reject> {
        let range = usize::try_from(idx).ok().and_then(|idx| self.batch.texts.get(idx));
        let text = range.and_then(|range| self.batch.raw.get(range.start as usize..range.end as usize));
        let text = text.ok_or(Reject::BadReference)?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(Reject::TextLimit);
        }
        let Interner { state, tenant, .. } = *self;
        let target = match self.target.take().filter(|target| target.window.contains(time)) {
            Some(target) => target,
            None => {
                let window = TimeRange::window_of(time, state.series.window_width(tenant.unit));
                let dictionary = tenant.texts.get_or_create(window.start, &state.texts.budget);
                Target { window, dictionary }
            }
        };
        let target = self.target.insert(target);
        let mut entries = target.dictionary.lock();
        match target.dictionary.intern(&mut entries, state.texts.seed, text) {
            Interned::Known(id) => Ok(id),
            Interned::Added(id) => {
                self.payload.clear();
                wal::encode_texts(tenant.name(), target.window.start, &mut self.payload);
                wal::put_text(id, text, &mut self.payload);
                state.wal.append(wal::KIND_TEXTS, wal::STRIPE_NONE, &self.payload);
                Ok(id)
            }
            Interned::Refused => Err(Reject::TextLimit),
        }
    }
}

const _: () = assert!(FRAME_BYTES + TEXT_BYTES_MAX < wal::FRAME_PAYLOAD_BYTES_MAX);
