//! Appends samples of every kind to a stripe.
//!
//! Invariants: a sample after the newest one of its series, of any kind, goes to the open chunk of its kind
//! and seals that of the other, as in Prometheus, so chunks have the order of their samples; one at the newest
//! timestamp is decided at once; an earlier one goes to the out-of-order log. That is compared with the
//! stored samples only while the append has lookups left; otherwise the policy applies when the log is
//! resolved (`resolve`).
//! Not here: sealing (`seal`), the WAL (`write`).

use std::cmp::Ordering;
use std::sync::Arc;

use chronolith_format::chunk::histogram::{self, HistogramAppender};
use chronolith_format::chunk::{kinds, starts};
use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, DuplicatePolicy, Histogram, TimeRange};

use super::decoded::{DecodedChunk, OutOfBudget, Source, StoredSample, UNLIMITED};
use super::histograms::{HISTOGRAM_BITS, open_samples};
use super::layout::slot_of;
use super::ooo_log::{OooSample, SampleValue};
use super::record::SeriesState;
use super::state::{AppendContext, Stripe};
use crate::series::decide::{AppendOutcome, Position, Sample, Stored, Value, decide};
use crate::series::sealed_chunks::{ChunkMeta, ChunkOrder, SealedChunk};

/// Sealed chunks of a series that a lookup visits.
const LOOKUP_CHUNKS_MAX: usize = 256;

impl Stripe {
    /// Appends one sample without a start timestamp to series `id`.
    pub(crate) fn append(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value: Value<'_>,
    ) -> AppendOutcome {
        self.append_sample(cx, id, Sample { time, value, start_ms: 0 })
    }

    /// Appends one sample to series `id`.
    pub(crate) fn append_sample(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        sample: Sample<'_>,
    ) -> AppendOutcome {
        let Sample { time, value, start_ms } = sample;
        let Some(series) = self.series(id) else { return AppendOutcome::SeriesGone };
        let newest = if series.has_sample() { time.cmp(&series.newest_time()) } else { Ordering::Greater };
        self.touch(id);
        let (position, found) = match newest {
            Ordering::Greater => (Position::Newest, None),
            Ordering::Equal => (Position::NotNewest, self.newest_sample(cx, id, time)),
            Ordering::Less => (Position::NotNewest, self.look_up(cx, id, time)),
        };
        let stored = match Value::compare(found.as_ref().map(|one| one.value.as_value()), value) {
            Stored::Same if found.is_some_and(|one| one.start_ms != start_ms) => Stored::OtherStart,
            stored => stored,
        };
        let outcome = decide(position, stored, cx.duplicates);
        match (outcome, value) {
            (AppendOutcome::InOrder, Value::Word(bits)) => {
                return self.append_word(cx, id, time, bits, start_ms);
            }
            (AppendOutcome::InOrder, Value::Histogram(one)) => {
                self.append_histogram(cx, id, time, one, start_ms);
            }
            (AppendOutcome::Replaced, _) if newest == Ordering::Equal => {
                self.replace_newest(cx, id, sample);
            }
            (AppendOutcome::OutOfOrder | AppendOutcome::Replaced, _) => {
                self.push_out_of_order(cx, id, sample);
            }
            _ => {}
        }
        outcome
    }

    /// Appends a word that is newer than all samples of the series.
    fn append_word(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        bits: u64,
        start_ms: i64,
    ) -> AppendOutcome {
        if !self.series(id).is_some_and(|series| series.takes_next(time)) {
            return self.append_to_new_chunk(cx, id, time, bits, start_ms);
        }
        // Before the word: the append may seal the chunk.
        self.starts.push(id, time, start_ms);
        self.append_in_order(cx, id, time, bits)
    }

    /// As [`Stripe::append`] for a word after the newest sample of its series; returns
    /// [`AppendOutcome::NotNewest`] for others. The open chunk of the series has no start timestamps.
    pub(crate) fn append_in_order(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        let (page, slot) = slot_of(id);
        let Some(Some(page)) = self.pages.get_mut(page) else { return AppendOutcome::SeriesGone };
        let series = page.offered(slot);
        if !series.takes_next(time) {
            return self.append_to_new_chunk(cx, id, time, value_bits, 0);
        }
        if series.append(&mut self.chunk_buffers, &mut self.scratch, time, value_bits).is_none() {
            return self.append_to_new_chunk(cx, id, time, value_bits, 0);
        }
        cx.windows.add(time, 1);
        if series.is_at_step() {
            self.seal_or_convert(cx, id);
        }
        AppendOutcome::InOrder
    }

    /// Seals the open chunk of words if it is full, and converts it if that is due.
    #[cold]
    fn seal_or_convert(&mut self, cx: &AppendContext<'_>, id: u32) {
        if self.series(id).is_some_and(SeriesState::is_full) {
            self.seal_open(cx, id);
        } else {
            self.with_open_words(id, SeriesState::convert_open);
        }
    }

    /// As [`Stripe::append_in_order`] for words that do not belong to the open chunk.
    fn append_to_new_chunk(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
        start_ms: i64,
    ) -> AppendOutcome {
        let Some(series) = self.series(id) else { return AppendOutcome::SeriesGone };
        if series.has_sample() && time <= series.newest_time() {
            return AppendOutcome::NotNewest;
        }
        if is_stale(f64::from_bits(value_bits))
            && let Some(stale) = self.stale_histogram(cx, id)
        {
            // The staleness marker of a series of histograms is a histogram, whoever writes it: scrapes and
            // rules do not know the kind.
            self.append_histogram(cx, id, time, &stale, start_ms);
            return AppendOutcome::InOrder;
        }
        self.seal_open(cx, id);
        let window_end = cx.window_of(time).end;
        self.with_open_words(id, |series, buffers, _| {
            series.start_open(buffers, time, value_bits, window_end);
        });
        self.starts.push(id, time, start_ms);
        cx.windows.add(time, 1);
        AppendOutcome::InOrder
    }

    /// Appends a histogram that is newer than all samples of the series.
    fn append_histogram(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        histogram: &Arc<Histogram>,
        start_ms: i64,
    ) {
        // A histogram that the open chunk cannot take, because of new buckets for example, starts the next one.
        let next = self.histograms.update(id, |open, window_end| {
            if time >= window_end || kinds::is_full(open) {
                return Some(None);
            }
            open.append(time, histogram).map(Some)
        });
        if !matches!(next, Some(None)) {
            let before = self.seal_open(cx, id);
            let next = next.flatten().flatten();
            let next = next.unwrap_or_else(|| HistogramAppender::start(before.as_ref(), time, histogram));
            self.histograms.insert(id, next, cx.window_of(time).end);
        }
        self.starts.push(id, time, start_ms);
        if let Some(series) = self.series_mut(id) {
            series.set_newest(Some((time, HISTOGRAM_BITS)));
        }
        cx.windows.add(time, 1);
        self.keep_histogram_budget(cx);
    }

    /// Returns the staleness marker of a series whose newest sample is a histogram, of the kind of counts
    /// that its open chunk has.
    fn stale_histogram(&mut self, cx: &AppendContext<'_>, id: u32) -> Option<Arc<Histogram>> {
        let (last, open) = (self.newest_time(id)?, self.histograms.get(id));
        let encoding = open.map(HistogramAppender::encoding);
        if encoding.is_none() {
            let newest = self.newest_sample(cx, id, last)?.value;
            matches!(newest, SampleValue::Histogram(_)).then_some(())?;
        }
        let stale = Histogram::stale();
        let sum = stale.sum();
        Some(Arc::new(match encoding {
            Some(histogram::ENCODING_HISTOGRAM) => {
                Histogram::Int(chronolith_model::IntHistogram { sum, ..Default::default() })
            }
            _ => stale,
        }))
    }

    /// Returns the newest sample of a series, which is at `time`. Its start timestamp may be unknown where the
    /// first sample of a timestamp stays.
    fn newest_sample(&mut self, cx: &AppendContext<'_>, id: u32, time: i64) -> Option<StoredSample> {
        let series = self.series(id)?;
        let bits = series.newest_bits();
        let word = StoredSample { value: SampleValue::Word(bits), start_ms: self.starts.at(id, time) };
        if bits == HISTOGRAM_BITS {
            return self.visible_at(cx, id, time);
        }
        let has_start_elsewhere = cx.duplicates == DuplicatePolicy::LastWins
            && !series.has_open_words()
            && (self.sealed_of(series).any(|node| node.has_starts() && node.max_time() >= time)
                || self.ooo.samples(series.ooo).any(|one| one.start_ms() != 0));
        if has_start_elsewhere { self.visible_at(cx, id, time).or(Some(word)) } else { Some(word) }
    }

    /// Stores another sample at the newest timestamp, so that the record of the series has it.
    fn replace_newest(&mut self, cx: &mut AppendContext<'_>, id: u32, sample: Sample<'_>) {
        let Sample { time, value, start_ms } = sample;
        self.decoded.clear();
        if let Value::Word(bits) = value
            && self.series(id).is_some_and(SeriesState::has_open_words)
        {
            let replaced = self
                .with_open_words(id, |series, buffers, scratch| series.replace_last(buffers, scratch, bits));
            if replaced.flatten().is_some() {
                self.starts.replace_last(id, time, start_ms);
                return;
            }
        }
        self.seal_open(cx, id);
        self.push_out_of_order(cx, id, sample);
        if let Some(series) = self.series_mut(id) {
            let bits = match value {
                Value::Word(bits) => bits,
                Value::Histogram(_) => HISTOGRAM_BITS,
            };
            series.set_newest(Some((time, bits)));
        }
    }

    /// Returns the visible sample of a series at `time`, as far as the append has lookups left.
    fn look_up(&mut self, cx: &mut AppendContext<'_>, id: u32, time: i64) -> Option<StoredSample> {
        let mut budget = cx.lookups_left;
        if budget == 0 {
            return None;
        }
        let found = self.find(cx, id, time, &mut budget);
        cx.lookups_left = budget;
        found.ok().flatten()
    }

    /// Adds a sample to the log; encodes those of the series when they are many.
    fn push_out_of_order(&mut self, cx: &mut AppendContext<'_>, id: u32, sample: Sample<'_>) {
        let Sample { time, value, start_ms } = sample;
        let Some(list) = self.series(id).map(|series| series.ooo) else { return };
        let owned = OooSample::new(time, SampleValue::of(value), start_ms, cx.duplicates);
        let (list, count) = self.ooo.push(list, id, owned);
        if let Some(series) = self.series_mut(id) {
            series.ooo = list;
        }
        cx.windows.add_single(time, 1);
        if self.ooo.is_full(count) {
            self.seal_out_of_order(cx, id, TimeRange::ALL);
            for id in self.ooo.sparse_series() {
                self.move_out_of_order(id);
            }
        }
        if matches!(value, Value::Histogram(_)) {
            self.keep_histogram_budget(cx);
        }
    }

    /// Returns the visible sample of a series at `time`; decodes at most `budget` chunks.
    fn find(
        &mut self,
        cx: &AppendContext<'_>,
        id: u32,
        time: i64,
        budget: &mut u32,
    ) -> Result<Option<StoredSample>, OutOfBudget> {
        let Some(series) = self.series(id).cloned() else { return Ok(None) };
        let mut decoded = std::mem::take(&mut self.decoded);
        let found = self.find_in_chunks(cx, id, &series, time, budget, &mut decoded);
        self.decoded = decoded;
        let mut found = found?;
        let mut buffered: Vec<_> = self.ooo.samples(series.ooo).filter(|one| one.time() == time).collect();
        while let Some(one) = buffered.pop() {
            if found.is_none() || one.replaces() {
                found = Some(StoredSample { value: one.value().clone(), start_ms: one.start_ms() });
            }
        }
        Ok(found)
    }

    /// Returns the visible sample of a series at `time`; `None` as well if it cannot be read.
    pub(super) fn visible_at(&mut self, cx: &AppendContext<'_>, id: u32, time: i64) -> Option<StoredSample> {
        self.find(cx, id, time, &mut { UNLIMITED }).ok().flatten()
    }

    /// Returns the start timestamp of the visible sample of a series at `time`; 0 if it is unknown or cannot be
    /// read.
    pub(crate) fn start_at(&mut self, cx: &AppendContext<'_>, id: u32, time: i64) -> i64 {
        self.visible_at(cx, id, time).map_or(0, |one| one.start_ms)
    }

    /// Sets the start timestamp of the visible sample of a series at `time`, if there is one.
    pub(crate) fn set_start(&mut self, cx: &mut AppendContext<'_>, id: u32, time: i64, start_ms: i64) {
        if self.newest_time(id).is_none_or(|newest| newest < time) {
            return;
        }
        if let Some(found) = self.visible_at(cx, id, time) {
            let (value, duplicates) = (found.value.as_value(), cx.duplicates);
            cx.duplicates = DuplicatePolicy::LastWins;
            self.append_sample(cx, id, Sample { time, value, start_ms });
            cx.duplicates = duplicates;
        }
    }

    fn find_in_chunks(
        &self,
        cx: &AppendContext<'_>,
        id: u32,
        series: &SeriesState,
        time: i64,
        budget: &mut u32,
        decoded: &mut DecodedChunk,
    ) -> Result<Option<StoredSample>, OutOfBudget> {
        let mut found = None;
        if let Some(open) = series.open_words()
            && time >= open.min_time()
        {
            let source = Source::Open(id, open.min_time(), open.count());
            found = decoded.find(source, time, budget, |out| {
                let is_decoded = self.decode_open_words(series, &open, out);
                starts::fill(self.starts.of(id), 0, out);
                is_decoded
            })?;
        } else if let Some(open) = self.histograms.get(id)
            && time >= open.times().0
        {
            let (first, count) = (open.times().0, open.count());
            found = decoded.find(Source::Open(id, first, count), time, budget, |out| {
                *out = open_samples(open);
                starts::fill(self.starts.of(id), 0, out);
                true
            })?;
        }
        let mut nodes: Vec<SealedChunk> = Vec::new();
        for (visited, node) in self.sealed_of(series).enumerate() {
            if visited == LOOKUP_CHUNKS_MAX && *budget < UNLIMITED / 2 {
                return Err(OutOfBudget);
            }
            if node.min_time() <= time && time <= node.max_time() {
                nodes.push(*node);
            }
        }
        nodes.sort_by_key(|node| (node.is_out_of_order(), node.chunk_ref()));
        for node in &nodes {
            let value = decoded
                .find(Source::Sealed(node.chunk_ref()), time, budget, |out| cx.decode(node, out).is_ok())?;
            let replaces = node.order() != ChunkOrder::OutOfOrder(DuplicatePolicy::KeepFirst);
            if value.is_some() && (found.is_none() || replaces) {
                found = value;
            }
        }
        Ok(found)
    }

    /// Appends the samples of the open chunk of words, whose metadata is `open`, to `out`; returns true if they
    /// decode.
    fn decode_open_words(&self, series: &SeriesState, open: &ChunkMeta, out: &mut Columns) -> bool {
        let mut bytes = Vec::new();
        self.copy_open(series, &mut bytes);
        kinds::decode(open.encoding(), &bytes, TimeRange::ALL, out).is_ok()
    }
}
