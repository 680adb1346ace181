//! Appends samples of every kind to a stripe.
//!
//! Invariants: a sample after the newest one of its series, of any kind, goes to the open chunk of its kind
//! and seals the open chunk of the other kind, as in Prometheus, so chunks have the order of their samples;
//! one at the newest timestamp is decided at once; an earlier one goes to the out-of-order log. That is
//! compared with the stored samples only while the append has lookups left; otherwise the policy applies when
//! the log is resolved (`resolve`).
//! Not here: sealing (`seal`), the WAL (`write`).

use std::cmp::Ordering;
use std::sync::Arc;

use chronolith_format::chunk::histogram::{self, HistogramAppender};
use chronolith_format::chunk::{kinds, starts};
use chronolith_format::head::slice::OpenChunk;
use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, DuplicatePolicy, Histogram, TimeRange};

use super::decoded::{DecodedChunk, OutOfBudget, Source, StoredSample, UNLIMITED, spend};
use super::kind::{Histograms, Kind, Words};
use super::layout::slot_of;
use super::ooo_log::OooSample;
use super::record::SeriesState;
use super::state::{AppendContext, Stripe};
use crate::series::decide::{AppendOutcome, Position, Stored, decide};
use crate::series::sealed_chunks::{ChunkMeta, ChunkOrder};
use crate::series::value::{HISTOGRAM_BITS, Sample, SampleValue, Value};

/// Sealed chunks whose times cost as much to compare as one costs to decode: a lookup pays for them although
/// it decodes none, so samples in descending order do not visit all chunks of their series each.
const VISITS_PER_LOOKUP: usize = 64;

/// Returns true if the visit of a chunk after `visited` others uses up a lookup.
fn is_visit_to_pay(visited: usize) -> bool {
    visited % VISITS_PER_LOOKUP == VISITS_PER_LOOKUP - 1
}

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
            (AppendOutcome::InOrder, Value::Word(bits)) => self.append_word(cx, id, time, bits, start_ms),
            (AppendOutcome::InOrder, Value::Histogram(one)) => {
                self.append_newest::<Histograms>(cx, id, time, one, start_ms);
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
    fn append_word(&mut self, cx: &mut AppendContext<'_>, id: u32, time: i64, bits: u64, start_ms: i64) {
        if is_stale(f64::from_bits(bits))
            && let Some(stale) = self.stale_histogram(cx, id)
        {
            // The staleness marker of a series of histograms is a histogram, whoever writes it: scrapes and
            // rules do not know the kind.
            return self.append_newest::<Histograms>(cx, id, time, &stale, start_ms);
        }
        self.append_newest::<Words>(cx, id, time, bits, start_ms);
    }

    /// Appends a sample that is newer than all samples of the series: to the open chunk if that takes it,
    /// else to a new one.
    fn append_newest<K: Kind>(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value: K::New<'_>,
        start_ms: i64,
    ) {
        let mut next = K::Next::default();
        if !K::push(self, id, time, value, &mut next) {
            let previous = self.seal_open(cx, id);
            K::start(self, id, time, value, cx.window_of(time).end, next, previous);
        }
        self.starts.push(id, time, start_ms);
        cx.windows.add(time, 1);
        K::finish_append(self, cx, id);
    }

    /// As [`Stripe::append`] for a word after the newest sample of its series; returns
    /// [`AppendOutcome::NotNewest`] for others, and [`AppendOutcome::SeriesGone`] for series of another
    /// tenant. The open chunk of the series has no start timestamps.
    // PERF: inlined into the loop over the samples of a batch.
    //   cargo xtask append-path
    #[inline(always)]
    pub(crate) fn append_in_order(
        &mut self,
        cx: &mut AppendContext<'_>,
        tenant: u32,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        let (page, slot) = slot_of(id);
        let Some(Some(page)) = self.pages.get_mut(page) else { return AppendOutcome::SeriesGone };
        let Some(series) = page.offered(slot, tenant) else { return AppendOutcome::SeriesGone };
        if !series.takes_next(time) {
            return self.append_to_new_chunk(cx, id, time, value_bits);
        }
        if series.append(&mut self.chunk_buffers, &mut self.scratch, time, value_bits).is_none() {
            return self.append_to_new_chunk(cx, id, time, value_bits);
        }
        cx.windows.add(time, 1);
        if series.is_at_step() {
            Words::finish_append(self, cx, id);
        }
        AppendOutcome::InOrder
    }

    /// As [`Stripe::append_in_order`] for words that do not belong to the open chunk.
    #[cold]
    fn append_to_new_chunk(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        let Some(series) = self.series(id) else { return AppendOutcome::SeriesGone };
        if series.has_sample() && time <= series.newest_time() {
            return AppendOutcome::NotNewest;
        }
        self.append_word(cx, id, time, value_bits, 0);
        AppendOutcome::InOrder
    }

    /// Returns the staleness marker of a series whose newest sample is a histogram, of the kind of counts
    /// that its open chunk has.
    fn stale_histogram(&mut self, cx: &AppendContext<'_>, id: u32) -> Option<Arc<Histogram>> {
        let (last, open) = (self.newest_time(id)?, self.histograms.get(id));
        let encoding = open.map(HistogramAppender::encoding);
        let is_histogram = |found: Option<StoredSample>| {
            found.is_some_and(|one| matches!(one.value, SampleValue::Histogram(_)))
        };
        let may_be_histogram = self.series(id)?.newest_bits() == HISTOGRAM_BITS;
        if encoding.is_none() && !(may_be_histogram && is_histogram(self.visible_at(cx, id, last))) {
            return None;
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

    /// Returns the newest sample of a series, which is at `time`. A histogram that is not in the open chunk
    /// and a start timestamp that another chunk may have are looked up while the append has lookups left.
    fn newest_sample(&mut self, cx: &mut AppendContext<'_>, id: u32, time: i64) -> Option<StoredSample> {
        let series = self.series(id)?;
        let bits = series.newest_bits();
        if bits == HISTOGRAM_BITS {
            return match Histograms::open(self, id).filter(|open| open.max_time() == time) {
                Some(open) => self.find_in_open(id, &open, time),
                None => self.look_up(cx, id, time),
            };
        }
        let word = StoredSample { value: SampleValue::Word(bits), start_ms: self.starts.at(id, time) };
        let mut budget = cx.lookups_left;
        let has_start_elsewhere = cx.duplicates == DuplicatePolicy::LastWins
            && !series.has_open_words()
            && self.may_have_start(series, time, &mut budget);
        cx.lookups_left = budget;
        if has_start_elsewhere { self.look_up(cx, id, time).or(Some(word)) } else { Some(word) }
    }

    /// Returns the sample at `time` of the open chunk of a series. Replacing the newest sample seals that
    /// chunk, so no other chunk has a value of its last timestamp.
    fn find_in_open(&mut self, id: u32, open: &ChunkMeta, time: i64) -> Option<StoredSample> {
        let source = Source::Open(id, open.min_time(), open.count());
        let mut decoded = std::mem::take(&mut self.decoded);
        let found = decoded.find(source, time, &mut { UNLIMITED }, |out| self.decode_open(id, open, out));
        self.decoded = decoded;
        found.ok().flatten()
    }

    /// Returns true if samples of a series at `time` may have a start timestamp outside the open chunk; false
    /// as well once `budget` is used up.
    fn may_have_start(&self, series: &SeriesState, time: i64, budget: &mut u32) -> bool {
        if self.ooo.samples(series.ooo).any(|one| one.start_ms() != 0) {
            return true;
        }
        for (visited, node) in self.sealed_of(series).enumerate() {
            if is_visit_to_pay(visited) && spend(budget).is_err() {
                return false;
            }
            if node.has_starts() && node.max_time() >= time {
                return true;
            }
        }
        false
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
            series.set_newest(Some((time, value.newest_bits())));
        }
    }

    /// Returns the visible sample of a series at `time` if the append has enough lookups left.
    fn look_up(&mut self, cx: &mut AppendContext<'_>, id: u32, time: i64) -> Option<StoredSample> {
        let mut budget = cx.lookups_left;
        if budget == 0 {
            return None;
        }
        let found = self.find(cx, id, time, &mut budget);
        cx.lookups_left = budget;
        found.ok().flatten()
    }

    /// Adds a sample to the log; encodes the series's samples when they are many.
    fn push_out_of_order(&mut self, cx: &mut AppendContext<'_>, id: u32, sample: Sample<'_>) {
        let Sample { time, value, start_ms } = sample;
        let Some(list) = self.series(id).map(|series| series.ooo) else { return };
        let owned = OooSample::new(time, value.to_owned(), start_ms, cx.duplicates);
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
        // Newest first: the newest sample that replaces counts, else the stored sample, else the oldest one.
        let mut buffered = None;
        for one in self.ooo.samples(series.ooo).filter(|one| one.time() == time) {
            let is_last = one.replaces();
            buffered = Some(one);
            if is_last {
                break;
            }
        }
        if let Some(one) = buffered.filter(|one| found.is_none() || one.replaces()) {
            found = Some(StoredSample { value: one.value().clone(), start_ms: one.start_ms() });
        }
        Ok(found)
    }

    /// Returns the visible sample of a series at `time`; `None` as well if it cannot be read.
    pub(super) fn visible_at(&mut self, cx: &AppendContext<'_>, id: u32, time: i64) -> Option<StoredSample> {
        self.find(cx, id, time, &mut { UNLIMITED }).ok().flatten()
    }

    /// Returns the start timestamp of the visible sample of a series at `time`; 0 if it is unknown or cannot
    /// be read.
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
        if let Some(open) = self.open_chunk(id)
            && time >= open.min_time()
        {
            let source = Source::Open(id, open.min_time(), open.count());
            found = decoded.find(source, time, budget, |out| self.decode_open(id, &open, out))?;
        }
        let mut nodes = std::mem::take(&mut decoded.candidates);
        nodes.clear();
        for (visited, node) in self.sealed_of(series).enumerate() {
            if is_visit_to_pay(visited) {
                spend(budget)?;
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
        decoded.candidates = nodes;
        Ok(found)
    }

    /// Returns range, size and encoding of the open chunk of a series, of any kind.
    pub(crate) fn open_chunk(&self, id: u32) -> Option<ChunkMeta> {
        Words::open(self, id).or_else(|| Histograms::open(self, id))
    }

    /// Appends the bytes of the open chunk of a series to `out`; none without one.
    pub(crate) fn copy_open(&self, id: u32, out: &mut Vec<u8>) {
        Words::copy(self, id, out);
        Histograms::copy(self, id, out);
    }

    /// Returns the open chunk of a series as a checkpoint stores it; `bytes` is scratch memory.
    pub(crate) fn open_entry<'a>(&'a self, id: u32, bytes: &'a mut Vec<u8>) -> Option<OpenChunk<'a>> {
        match Histograms::open(self, id) {
            None => Words::entry(self, id, bytes),
            Some(_) => Histograms::entry(self, id, bytes),
        }
    }

    /// Ends the open chunk of a series after `seal` has read its bytes. Returns a chunk of histograms, for
    /// the header of the next.
    pub(super) fn end_open<R>(
        &mut self,
        id: u32,
        seal: impl FnOnce(&ChunkMeta, &[u8]) -> R,
    ) -> Option<(R, Option<HistogramAppender>)> {
        match Histograms::open(self, id) {
            None => Words::end(self, id, seal),
            Some(_) => Histograms::end(self, id, seal),
        }
    }

    /// Appends the samples of the open chunk of a series, whose metadata is `open`, to empty columns; returns
    /// true if they decode.
    fn decode_open(&self, id: u32, open: &ChunkMeta, out: &mut Columns) -> bool {
        let mut bytes = Vec::new();
        self.copy_open(id, &mut bytes);
        let decoded = kinds::decode(open.encoding(), &bytes, TimeRange::ALL, out);
        starts::fill(self.starts.of(id), 0, out);
        decoded.is_ok()
    }
}
