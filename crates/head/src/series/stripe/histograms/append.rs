//! Appends histograms, and floats of series that have histograms.
//!
//! Invariant: the decision considers samples of both kinds. An in-order sample of the other kind ends the
//! open chunk, as in Prometheus, so that chunks have the order of their samples.

use std::sync::Arc;

use chronolith_format::chunk::histogram::{self, HistogramAppender};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::xor::SAMPLES_PER_CHUNK;
use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, Histogram, TimeRange};

use super::super::timestamp_cache::{Gap, Known, SeriesWindow};
use super::super::{AppendContext, Stripe, is_gap};
use super::{HistogramSeries, Seen};
use crate::series::decide::{AppendOutcome, Position, Value, decide};

/// A change of kind at a used timestamp is a replacement, wherever the sample was stored.
fn as_replaced(outcome: AppendOutcome) -> AppendOutcome {
    match outcome {
        AppendOutcome::InOrder | AppendOutcome::OutOfOrder => AppendOutcome::Replaced,
        other => other,
    }
}

impl Stripe {
    /// Appends one histogram to series `id`, and merges its out-of-order histograms if they are too many.
    pub(crate) fn append_histogram(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        histogram: &Arc<Histogram>,
    ) -> AppendOutcome {
        let outcome = self.append_histogram_unmerged(cx, id, time, histogram);
        if !self.full_buffers.is_empty() {
            self.merge_full_buffers(cx);
        }
        outcome
    }

    /// As [`Stripe::append_histogram`], but leaves full buffers to the caller (see
    /// [`Stripe::take_full_buffers`]).
    pub(crate) fn append_histogram_unmerged(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        histogram: &Arc<Histogram>,
    ) -> AppendOutcome {
        if self.series(id).is_none() {
            return AppendOutcome::SeriesGone;
        }
        self.touch(id);
        let float = self.float_at(cx, id, time).map(Value::Float);
        let stored = Value::compare(float, Value::Histogram(histogram));
        let outcome = match decide(Position::NotNewest, stored, cx.duplicates) {
            AppendOutcome::OutOfOrder => self.put_histogram(cx, id, time, histogram),
            AppendOutcome::Replaced => {
                self.erase_floats(cx, id, TimeRange::inclusive(time, time));
                as_replaced(self.put_histogram(cx, id, time, histogram))
            }
            refused => return refused,
        };
        self.keep_histogram_budget(cx);
        outcome
    }

    /// Returns the bits of the float that the series has at `time`.
    fn float_at(&mut self, cx: &AppendContext<'_>, id: u32, time: i64) -> Option<u64> {
        let series =
            self.series(id).filter(|series| series.xor.count() > 0 && time <= series.xor.time()).cloned()?;
        let window = SeriesWindow::of(cx, id, time);
        match self.timestamps.known(window, time) {
            Known::Unused => None,
            Known::NotInChunks => self.ooo.find(series.ooo, time),
            Known::Unknown => {
                self.ooo.find(series.ooo, time).or_else(|| self.chunk_value(cx, window, &series, time))
            }
        }
    }

    /// Stores a histogram at a timestamp without a float.
    fn put_histogram(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        histogram: &Arc<Histogram>,
    ) -> AppendOutcome {
        let is_newest = self.histograms.get(id).is_none_or(|histograms| time > histograms.last);
        let position = if is_newest { Position::Newest } else { Position::NotNewest };
        let found = if is_newest { None } else { self.histogram_at(cx, id, time) };
        let stored = Value::compare(found.as_deref().map(Value::Histogram), Value::Histogram(histogram));
        let outcome = decide(position, stored, cx.duplicates);
        match outcome {
            AppendOutcome::InOrder => {
                self.push_histogram(cx, id, time, histogram);
                return outcome;
            }
            AppendOutcome::OutOfOrder | AppendOutcome::Replaced => {}
            _ => return outcome,
        }
        if self.histograms.insert_ooo(id, time, histogram).is_none() {
            cx.windows.add_single(time, 1);
        }
        if self.full_buffers.last() != Some(&id) && self.histograms.is_full(id) {
            self.full_buffers.push(id);
        }
        outcome
    }

    /// Appends a histogram that is newer than all others of the series.
    fn push_histogram(&mut self, cx: &mut AppendContext<'_>, id: u32, time: i64, histogram: &Arc<Histogram>) {
        if self.series(id).is_some_and(|series| time > series.xor.time()) {
            self.seal_open(cx, id);
        }
        let histograms = self.histograms.series_or_new(id);
        let window_end = histograms.window_end;
        let goes_on = |open: &&mut HistogramAppender| time < window_end && !kinds::is_full(open);
        let (is_stored, cut) = match histograms.open.as_mut().filter(goes_on) {
            Some(open) => (true, open.append(time, histogram)),
            None => (false, None),
        };
        if !is_stored || cut.is_some() {
            let before = self.seal_open_histograms(cx, id);
            let start = || HistogramAppender::start(before.as_ref(), time, histogram);
            let open = cut.unwrap_or_else(start);
            let histograms = self.histograms.series_or_new(id);
            histograms.open = Some(open);
            histograms.window_end = TimeRange::window_of(time, cx.window_ms).end;
        }
        self.histograms.series_or_new(id).last = time;
        self.histograms.recount(id);
        cx.windows.add(time, 1);
        self.block_fast_path(id);
    }

    /// Appends a float to a series that has histograms.
    pub(in crate::series::stripe) fn append_float_among_histograms(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        let value = f64::from_bits(value_bits);
        let found = self.histogram_at(cx, id, time);
        let stored = Value::compare(found.as_deref().map(Value::Histogram), Value::Float(value_bits));
        match decide(Position::NotNewest, stored, cx.duplicates) {
            AppendOutcome::OutOfOrder => {}
            AppendOutcome::Replaced => {
                self.erase_histograms(cx, id, TimeRange::inclusive(time, time));
                return as_replaced(self.append_float(cx, id, time, value_bits));
            }
            refused => return refused,
        }
        let float_last =
            self.series(id).filter(|series| series.xor.count() > 0).map(|series| series.xor.time());
        let last = self.histograms.get(id).map(|histograms| histograms.last);
        if is_stale(value) && last < Some(time) && float_last < last {
            // The staleness marker of a series of histograms is a histogram, whoever writes it: scrapes and
            // rules do not know the kind.
            let stale = self.stale_histogram(id);
            self.push_histogram(cx, id, time, &stale);
            return AppendOutcome::InOrder;
        }
        if last < Some(time) {
            self.seal_open_histograms(cx, id);
        }
        self.append_float(cx, id, time, value_bits)
    }

    /// Returns the staleness marker, of the kind of counts that the open chunk has.
    fn stale_histogram(&self, id: u32) -> Arc<Histogram> {
        let stale = Histogram::stale();
        let open = self.histograms.get(id).and_then(|histograms| histograms.open.as_ref());
        Arc::new(match open.map(HistogramAppender::encoding) {
            Some(histogram::ENCODING_HISTOGRAM) => {
                let sum = stale.sum();
                Histogram::Int(chronolith_model::IntHistogram { sum, ..Default::default() })
            }
            _ => stale,
        })
    }

    /// Stores a float at a timestamp without a histogram.
    fn append_float(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        let Some(series) = self.series(id) else { return AppendOutcome::SeriesGone };
        let (mut state, open) = (series.xor, series.open);
        let window = TimeRange::window_of(series.open_min, cx.window_ms);
        if open.is_none() || time <= state.time() || time >= window.end {
            let outcome = match self.append_float_to_new_chunk(cx, id, time, value_bits) {
                AppendOutcome::NotNewest => self.append_float_out_of_order(cx, id, time, value_bits),
                outcome => outcome,
            };
            if self.histograms.get(id).is_some() {
                self.block_fast_path(id);
            }
            return outcome;
        }
        if is_gap(&state, time) {
            let window = SeriesWindow::of(cx, id, time);
            let (step_ms, after) = (state.step_ms(), state.time());
            self.timestamps.note_gap(Gap { window, step_ms, after, before: time });
        }
        let open = self.chunk_buffers.append(open, &mut state, time, f64::from_bits(value_bits));
        if let Some(series) = self.series_mut(id) {
            (series.open, series.xor) = (open, state);
        }
        cx.windows.add(time, 1);
        if usize::from(state.count()) >= SAMPLES_PER_CHUNK {
            self.seal_open(cx, id);
        }
        AppendOutcome::InOrder
    }

    /// Returns the histogram that the series has at `time`.
    fn histogram_at(&mut self, cx: &AppendContext<'_>, id: u32, time: i64) -> Option<Arc<Histogram>> {
        let mut decoded = self.histograms.decoded.take();
        let found = self.histograms.get(id).filter(|histograms| time <= histograms.last);
        let found = found.and_then(|histograms| find(histograms, cx, id, time, &mut decoded));
        self.histograms.decoded = decoded;
        found
    }
}

/// Searches the out-of-order histograms first, then the one chunk that may have the timestamp.
fn find(
    histograms: &HistogramSeries,
    cx: &AppendContext<'_>,
    id: u32,
    time: i64,
    decoded: &mut Option<(Seen, Columns)>,
) -> Option<Arc<Histogram>> {
    if let Some(waiting) = histograms.ooo.get(&time) {
        return Some(waiting.clone());
    }
    let at = |samples: &Columns| {
        let at = samples.times.binary_search(&time).ok()?;
        samples.histogram_at(at).cloned()
    };
    if let Some(open) = &histograms.open
        && (open.times().0..=open.times().1).contains(&time)
    {
        let seen = Seen::Open { id, first: open.times().0, count: open.count() };
        if decoded.as_ref().is_none_or(|(before, _)| *before != seen) {
            *decoded = Some((seen, super::seal::open_samples(open)));
        }
        return decoded.as_ref().and_then(|(_, samples)| at(samples));
    }
    for node in histograms.sealed.near(time) {
        let seen = Seen::Sealed(node.chunk_ref);
        if decoded.as_ref().is_none_or(|(before, _)| *before != seen) {
            // A chunk that cannot be read cannot refuse a sample either; queries report the damage.
            let Some(samples) = super::seal::sealed_samples(cx, node) else { continue };
            *decoded = Some((seen, samples));
        }
        if let Some(found) = decoded.as_ref().and_then(|(_, samples)| at(samples)) {
            return Some(found);
        }
    }
    None
}
