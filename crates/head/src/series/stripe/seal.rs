//! Seals open chunks and out-of-order samples, and removes samples, whatever their kind.
//!
//! Out-of-order samples of a series are sealed as chunks of their own, which may overlap others: a read, a
//! flush or a deletion resolves them (`resolve`). So the cost per sample is the same for any arrival order.
//!
//! Invariants: a chunk lies within one window; in-order chunks of a series do not overlap each other; a
//! damaged chunk stays as it is.
//! Not here: bytes (`format::chunk`), files (`series::sealed`).

use std::collections::BTreeMap;

use chronolith_format::chunk::histogram::HistogramAppender;
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::starts::{StartRun, runs_of, start_at};
use chronolith_format::chunk::xor::{self, ENCODING_XOR, EncodedChunk, SAMPLES_PER_CHUNK};
use chronolith_model::query::SampleKind;
use chronolith_model::{Columns, DuplicatePolicy, TimeRange};

use super::ooo_log::{OooList, OooSample};
use super::reordered::{append_newest_out_of_order, flush, flush_range};
use super::resolve::Arrivals;
use super::state::{AppendContext, Stripe};
use crate::reorder::Sample;
use crate::series::sealed_chunks::{ChunkMeta, ChunkOrder, ChunkRef, SealedChunk};
use crate::series::value::{HISTOGRAM_BITS, SampleValue};

impl Stripe {
    /// Seals the open chunk of a series, if there is one; the series record keeps the last sample. Returns a
    /// chunk of histograms, for the header of the next.
    pub(crate) fn seal_open(&mut self, cx: &AppendContext<'_>, id: u32) -> Option<HistogramAppender> {
        let starts = self.starts.take(id);
        let (node, histograms) = self.end_open(id, |meta, bytes| {
            if starts.is_empty() {
                return store_chunk(cx, id, meta, bytes);
            }
            let chunk = kinds::with_starts(meta.with_bytes(bytes.to_vec()), &starts);
            store_chunk(cx, id, &ChunkMeta::of(&chunk, ChunkOrder::InOrder), &chunk.bytes)
        })?;
        self.link_sealed(id, node);
        histograms
    }

    /// Seals the out-of-order samples of a series in `range`, as chunks next to those that they overlap.
    pub(crate) fn seal_out_of_order(&mut self, cx: &mut AppendContext<'_>, id: u32, range: TimeRange) {
        let taken = self.take_out_of_order(id, range);
        if taken.is_empty() {
            return;
        }
        let mut arrivals = Arrivals::default();
        for one in &taken {
            arrivals.add(one.replaces(), |samples| one.push_to(samples));
        }
        arrivals.resolve();
        if arrivals.samples().len() < taken.len() {
            taken.iter().for_each(|one| cx.windows.add_single(one.time(), -1));
            arrivals.samples().times.iter().for_each(|&time| cx.windows.add_single(time, 1));
        }
        self.push_out_of_order_chunks(cx, id, &arrivals, |time| cx.window_of(time).start);
    }

    /// As [`Stripe::seal_out_of_order`] for all samples of a series that may belong to another tenant than
    /// the append: samples of one timestamp go to several chunks, so that no count of a window changes.
    fn seal_out_of_order_unresolved(&mut self, cx: &AppendContext<'_>, id: u32) {
        let mut taken = self.take_out_of_order(id, TimeRange::ALL);
        // Stable: samples of one timestamp stay in the order of their arrival.
        taken.sort_by_key(|one| one.time());
        let mut layers: Vec<Arrivals> = Vec::new();
        for run in taken.chunk_by(|a, b| a.time() == b.time()) {
            layers.resize_with(layers.len().max(run.len()), Arrivals::default);
            for (layer, one) in layers.iter_mut().zip(run) {
                layer.add(one.replaces(), |samples| one.push_to(samples));
            }
        }
        let window = |time| cx.window_of_any_tenant(time).start;
        layers.iter().for_each(|layer| self.push_out_of_order_chunks(cx, id, layer, window));
    }

    /// Moves the samples of a series to the end of the log, which frees their entries.
    pub(super) fn move_out_of_order(&mut self, id: u32) {
        let taken = self.take_out_of_order(id, TimeRange::ALL);
        self.put_out_of_order(id, taken);
    }

    /// Adds samples to the log; returns the number of samples that the log counts for the series.
    fn put_out_of_order(&mut self, id: u32, samples: Vec<OooSample>) -> usize {
        let Some(mut list) = self.series(id).map(|series| series.ooo) else { return 0 };
        let mut count = 0;
        for one in samples {
            (list, count) = self.ooo.push(list, id, one);
        }
        if let Some(series) = self.series_mut(id) {
            series.ooo = list;
        }
        count
    }

    /// Seals samples without equal timestamps, in chunks that do not cross windows of `window_start`.
    fn push_out_of_order_chunks(
        &mut self,
        cx: &AppendContext<'_>,
        id: u32,
        arrivals: &Arrivals,
        window_start: impl Fn(i64) -> i64,
    ) {
        self.count_ooo_sealed(arrivals.samples().len());
        for (run, replaces) in arrivals.runs(window_start) {
            let policy = if replaces { DuplicatePolicy::LastWins } else { DuplicatePolicy::KeepFirst };
            let (mut words, mut histograms) = (Columns::default(), Columns::default());
            for idx in run {
                let is_histogram = arrivals.samples().histogram_at(idx).is_some();
                let part = if is_histogram { &mut histograms } else { &mut words };
                part.push_after_gap(arrivals.samples(), idx);
            }
            for part in [words, histograms] {
                self.push_samples(cx, id, &part, ChunkOrder::OutOfOrder(policy));
            }
        }
    }

    /// Removes the out-of-order samples in `range` from the log; returns them in the order of their arrival.
    fn take_out_of_order(&mut self, id: u32, range: TimeRange) -> Vec<OooSample> {
        let Some(list) = self.series(id).map(|series| series.ooo).filter(|list| !list.is_empty()) else {
            return Vec::new();
        };
        let mut all: Vec<OooSample> = self.ooo.samples(list).collect();
        all.reverse();
        let (taken, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| range.contains(one.time()));
        if taken.is_empty() {
            return taken;
        }
        self.ooo.free(list);
        if let Some(series) = self.series_mut(id) {
            series.ooo = OooList::EMPTY;
        }
        self.put_out_of_order(id, kept);
        taken
    }

    /// Seals all samples of a series in `window`; returns true if it has some.
    pub(crate) fn seal_window(&mut self, cx: &mut AppendContext<'_>, id: u32, window: TimeRange) -> bool {
        if self.has_reorder_buffers() {
            flush_range(self, cx, id, window);
        }
        if self.open_times(id).is_some_and(|(first, _)| window.contains(first)) {
            self.seal_open(cx, id);
            self.keep_histogram_budget(cx);
        }
        self.seal_out_of_order(cx, id, window);
        let Some(series) = self.series(id) else { return false };
        self.sealed_of(series).any(|node| window.contains(node.min_time()))
    }

    /// Seals histograms of the stripe while all stripes together exceed the budget. Cost: none below the
    /// limit; above it, a scan of all series with histograms per half of the bytes of the stripe.
    pub(super) fn keep_histogram_budget(&mut self, cx: &AppendContext<'_>) {
        if !self.histograms.report(cx.histograms(), self.ooo.histogram_bytes()) {
            return;
        }
        let bytes = |stripe: &Stripe| stripe.histograms.open_bytes() + stripe.ooo.histogram_bytes();
        let kept = bytes(self) / 2;
        let mut ids = self.ooo.series_with_histograms();
        ids.extend(self.histograms.largest());
        for id in ids {
            if bytes(self) <= kept {
                break;
            }
            self.seal_out_of_order_unresolved(cx, id);
            if self.histograms.get(id).is_some() {
                self.seal_open(cx, id);
            }
            cx.histograms().note_sealed_early();
        }
        self.histograms.report(cx.histograms(), self.ooo.histogram_bytes());
    }

    /// Seals ascending samples of one window: words as chunks of about equal size, each full or the only one.
    fn push_samples(&mut self, cx: &AppendContext<'_>, id: u32, samples: &Columns, order: ChunkOrder) {
        let mut chunks = Vec::new();
        for (run, kind) in samples.runs() {
            let times = &samples.times[run.clone()];
            if kind == SampleKind::Histogram {
                let histograms = samples.histograms_at(run);
                kinds::encode_histograms(times.iter().copied().zip(histograms), &mut chunks);
                continue;
            }
            let part_count = (times.len() / SAMPLES_PER_CHUNK).max(1);
            let part_len = times.len().div_ceil(part_count).max(1);
            for (times, values) in times.chunks(part_len).zip(samples.values[run].chunks(part_len)) {
                chunks.push(EncodedChunk {
                    encoding: ENCODING_XOR,
                    min_time: times[0],
                    max_time: times[times.len() - 1],
                    count: times.len() as u16,
                    bytes: xor::encode_whole(times, values),
                });
            }
        }
        let (mut first, mut starts) = (0, Vec::<StartRun>::new());
        for chunk in chunks {
            let range = first..first + usize::from(chunk.count);
            first = range.end;
            starts.clear();
            if let Some(start_times) = samples.start_times.get(range.start..) {
                runs_of(&samples.times[range], start_times, &mut starts);
            }
            self.link(cx, id, &kinds::with_starts(chunk, &starts), order);
        }
    }

    fn link(&mut self, cx: &AppendContext<'_>, id: u32, chunk: &EncodedChunk, order: ChunkOrder) {
        let meta = ChunkMeta::of(chunk, order);
        let node = store_chunk(cx, id, &meta, &chunk.bytes);
        self.link_sealed(id, node);
    }

    /// Removes the sealed chunks for which `is_gone` returns true from the series, and releases them in their
    /// files.
    pub(crate) fn unlink_sealed(
        &mut self,
        cx: &AppendContext<'_>,
        id: u32,
        mut is_gone: impl FnMut(&SealedChunk) -> bool,
    ) {
        self.remove_sealed(id, |node| {
            let is_gone = is_gone(node);
            if is_gone {
                cx.store().release(node.chunk_ref());
            }
            is_gone
        });
    }

    /// As [`Stripe::unlink_sealed`] for chunks that are in a block; `visit` gets each. Out-of-order samples
    /// that arrived after them and would have lost against them are removed as well: without the chunks they
    /// would seem to be new.
    pub(crate) fn drop_flushed(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        is_flushed: impl Fn(&SealedChunk) -> bool,
        mut visit: impl FnMut(&SealedChunk),
    ) {
        let Some(series) = self.series(id) else { return };
        let nodes: Vec<SealedChunk> = self.sealed_of(series).copied().collect();
        let flushed: Vec<&SealedChunk> = nodes.iter().filter(|node| is_flushed(node)).collect();
        let range = |node: &SealedChunk| TimeRange::inclusive(node.min_time(), node.max_time());
        let overlaps_flushed = |one: TimeRange| flushed.iter().any(|node| one.overlaps(range(node)));
        let buffered =
            self.ooo.times(series.ooo).any(|time| overlaps_flushed(TimeRange::inclusive(time, time)));
        if buffered {
            self.seal_out_of_order(cx, id, TimeRange::ALL);
        }
        let keeps_first = |node: &SealedChunk| {
            let order = ChunkOrder::OutOfOrder(DuplicatePolicy::KeepFirst);
            node.order() == order && !is_flushed(node) && overlaps_flushed(range(node))
        };
        let later: Vec<SealedChunk> = match self.series(id) {
            Some(series) => self.sealed_of(series).filter(|n| keeps_first(n)).copied().collect(),
            None => Vec::new(),
        };
        for node in later {
            self.remove_known(cx, id, &node, &flushed);
        }
        self.unlink_sealed(cx, id, |node| {
            let is_gone = is_flushed(node);
            if is_gone {
                visit(node);
            }
            is_gone
        });
    }

    /// Seals the chunk `node` again without the timestamps that one of `others` has.
    fn remove_known(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        node: &SealedChunk,
        others: &[&SealedChunk],
    ) {
        let (mut samples, mut known) = (Columns::default(), Columns::default());
        if cx.decode(node, &mut samples).is_err() {
            return;
        }
        for other in others {
            // A damaged chunk has no samples that could win.
            let _ = cx.decode(other, &mut known);
        }
        known.times.sort_unstable();
        let mut kept = Columns::default();
        for (idx, time) in samples.times.iter().enumerate() {
            if known.times.binary_search(time).is_err() {
                kept.push_after_gap(&samples, idx);
            }
        }
        if kept.len() == samples.len() {
            return;
        }
        cx.windows.add_single(node.min_time(), kept.len() as i64 - samples.len() as i64);
        self.unlink_sealed(cx, id, |one| one.chunk_ref() == node.chunk_ref());
        self.push_samples(cx, id, &kept, node.order());
    }

    /// Removes the samples of series `id` in `range`. The rest reads as if they had never been written; a
    /// later sample at one of their timestamps is stored like any other. Returns the number of samples;
    /// `None` if nothing has changed, the last sample in the series record included.
    pub(crate) fn erase(&mut self, cx: &mut AppendContext<'_>, id: u32, range: TimeRange) -> Option<u64> {
        if self.has_reorder_buffers() {
            flush(self, cx, id);
        }
        let series = self.series(id).filter(|series| series.has_sample())?;
        let forgets_last = range.contains(series.newest_time());
        if !forgets_last && !self.overlaps(id, range) {
            return None;
        }
        self.seal_open(cx, id);
        self.seal_out_of_order(cx, id, TimeRange::ALL);
        self.decoded.clear();
        let mut windows: BTreeMap<i64, Vec<SealedChunk>> = BTreeMap::new();
        for node in self.series(id).into_iter().flat_map(|series| self.sealed_of(series)) {
            let window = cx.window_of(node.min_time());
            if window.overlaps(range) {
                windows.entry(window.start).or_default().push(*node);
            }
        }
        let mut sample_count = 0;
        for nodes in windows.into_values() {
            if !nodes.iter().any(|node| range.overlaps_inclusive(node.min_time(), node.max_time())) {
                continue;
            }
            if nodes.iter().any(SealedChunk::is_out_of_order) {
                sample_count += self.erase_together(cx, id, range, nodes);
            } else {
                sample_count +=
                    nodes.iter().map(|node| self.erase_in_chunk(cx, id, range, node)).sum::<u64>();
            }
        }
        self.recompute_last(cx, id);
        (sample_count > 0 || forgets_last).then_some(sample_count)
    }

    /// Erases from an in-order chunk; returns the number of samples.
    fn erase_in_chunk(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        range: TimeRange,
        node: &SealedChunk,
    ) -> u64 {
        let mut samples = Columns::default();
        let is_whole = range.contains(node.min_time()) && range.contains(node.max_time());
        if !is_whole {
            if cx.decode(node, &mut samples).is_err() {
                return 0;
            }
            samples.remove(samples.indices_in(range));
        }
        let erased_count = u64::from(node.count()) - samples.len() as u64;
        if erased_count > 0 {
            cx.windows.add(node.min_time(), -(erased_count as i64));
            self.unlink_sealed(cx, id, |one| one.chunk_ref() == node.chunk_ref());
            self.push_samples(cx, id, &samples, ChunkOrder::InOrder);
        }
        erased_count
    }

    /// Erases from all chunks of a window; the rest becomes in-order chunks, because a chunk that is sealed
    /// again would seem to have arrived last.
    fn erase_together(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        range: TimeRange,
        mut nodes: Vec<SealedChunk>,
    ) -> u64 {
        nodes.sort_by_key(|node| (node.is_out_of_order(), node.chunk_ref()));
        let mut arrivals = Arrivals::default();
        nodes.retain(|node| {
            let replaces = node.order() != ChunkOrder::OutOfOrder(DuplicatePolicy::KeepFirst);
            arrivals.add(replaces, |out| cx.decode(node, out).is_ok())
        });
        let (Some(first), stored_count) = (nodes.first(), arrivals.samples().len()) else { return 0 };
        let window_time = first.min_time();
        arrivals.resolve();
        let mut samples = arrivals.into_samples();
        let visible_count = samples.len();
        samples.remove(samples.indices_in(range));
        cx.windows.add_single(window_time, samples.len() as i64 - stored_count as i64);
        self.unlink_sealed(cx, id, |one| nodes.iter().any(|node| node.chunk_ref() == one.chunk_ref()));
        self.push_samples(cx, id, &samples, ChunkOrder::InOrder);
        (visible_count - samples.len()) as u64
    }

    /// Recomputes the last sample of a series without open chunk and out-of-order samples.
    fn recompute_last(&mut self, cx: &AppendContext<'_>, id: u32) {
        let Some(series) = self.series(id) else { return };
        let newest = newest_sealed(cx, self.sealed_of(series));
        let newest = newest.map(|time| {
            // The value of a damaged chunk is unknown: any further sample at this timestamp is then a
            // conflict, which is right.
            let found = self.visible_at(cx, id, time);
            (time, found.map_or(f64::NAN.to_bits(), |one| one.value.as_value().newest_bits()))
        });
        if let Some(series) = self.series_mut(id) {
            series.set_newest(newest);
        }
    }

    /// Removes the words from `newest` on from the out-of-order samples of a series.
    pub(super) fn take_newest_words(&mut self, id: u32, newest: i64) -> Vec<Sample> {
        let mut words = Vec::new();
        let mut kept = Vec::new();
        for one in self.take_out_of_order(id, TimeRange::new(newest, i64::MAX)) {
            match one.value() {
                SampleValue::Word(bits) if one.start_ms() == 0 && one.replaces() => {
                    words.push(Sample { time_ms: one.time(), value: f64::from_bits(*bits) });
                }
                _ => kept.push(one),
            }
        }
        self.put_out_of_order(id, kept);
        words
    }

    /// Returns the out-of-order and buffered samples of a series, resolved and ascending.
    pub(crate) fn ooo_samples(&self, id: u32) -> Vec<OooSample> {
        let Some(series) = self.series(id) else { return Vec::new() };
        let mut all: Vec<OooSample> = self.ooo.samples(series.ooo).collect();
        all.reverse();
        all.extend(self.reorder_buffers.samples(id));
        all.sort_by_key(|one| one.time());
        let mut resolved: Vec<OooSample> = Vec::with_capacity(all.len());
        for one in all {
            match resolved.last_mut().filter(|last| last.time() == one.time()) {
                Some(last) if one.replaces() => *last = one,
                Some(_) => {}
                None => resolved.push(one),
            }
        }
        resolved
    }

    /// Adds out-of-order samples of a checkpoint to a series; [`Stripe::finish_restore`] must follow.
    pub(crate) fn restore_ooo(&mut self, cx: &AppendContext<'_>, id: u32, samples: Vec<OooSample>) {
        self.put_out_of_order(id, samples);
        self.histograms.report(cx.histograms(), self.ooo.histogram_bytes());
    }

    /// Ends the restore of a series that has out-of-order samples, after all of its entries. Its newest
    /// sample may be one of them: it was in a reorder buffer, replaced a sealed one, or is a histogram of
    /// an old checkpoint.
    pub(crate) fn finish_restore(&mut self, cx: &mut AppendContext<'_>, id: u32) {
        let Some(series) = self.series(id) else { return };
        let newest = series.has_sample().then(|| series.newest_time());
        let has_newest = self.ooo.times(series.ooo).any(|time| newest.is_none_or(|newest| time >= newest));
        if has_newest && series.has_open_words() {
            append_newest_out_of_order(self, cx, id);
        } else if has_newest
            && let Some(one) = self.ooo_samples(id).pop()
            && (newest != Some(one.time()) || one.replaces())
            && let Some(series) = self.series_mut(id)
        {
            series.set_newest(Some((one.time(), one.value().as_value().newest_bits())));
        }
        let Some(series) = self.series(id) else { return };
        if self.ooo.is_full(self.ooo.times(series.ooo).count()) {
            self.seal_out_of_order(cx, id, TimeRange::ALL);
        }
    }

    /// Adds the open chunk of histograms of a checkpoint to a series. An earlier version may have had an open
    /// chunk of words next to it, of which the older one is sealed.
    pub(crate) fn restore_open_histograms(
        &mut self,
        cx: &AppendContext<'_>,
        id: u32,
        open: HistogramAppender,
    ) {
        let Some(series) = self.series(id) else { return };
        let (first, last) = open.times();
        if series.has_sample() && last < series.newest_time() {
            self.link(cx, id, &open.encoded(), ChunkOrder::InOrder);
            return;
        }
        self.seal_open(cx, id);
        self.histograms.insert(id, open, cx.window_of(first).end);
        self.histograms.report(cx.histograms(), self.ooo.histogram_bytes());
        if let Some(series) = self.series_mut(id) {
            series.set_newest(Some((last, HISTOGRAM_BITS)));
        }
    }

    /// Adds the start timestamps of a checkpoint of an earlier version, which apply to all samples of a
    /// series. Its chunks and out-of-order samples are restored already.
    pub(crate) fn restore_old_starts(&mut self, cx: &AppendContext<'_>, id: u32, runs: &[StartRun]) {
        if let Some((first, last)) = self.open_times(id) {
            self.starts.restore(id, &runs_between(runs, first, last));
        }
        let mut buffered = self.take_out_of_order(id, TimeRange::ALL);
        buffered.iter_mut().for_each(|one| one.set_start(start_at(runs, one.time())));
        self.put_out_of_order(id, buffered);
        let runs_of_chunk = |node: &SealedChunk| runs_between(runs, node.min_time(), node.max_time());
        let mut nodes: Vec<SealedChunk> = match self.series(id) {
            Some(series) => self.sealed_of(series).copied().collect(),
            None => Vec::new(),
        };
        if nodes.iter().all(|node| runs_of_chunk(node).is_empty()) {
            return;
        }
        // Every chunk is sealed again, so that their order stays the order of arrival.
        nodes.sort_by_key(SealedChunk::chunk_ref);
        for node in nodes {
            // A chunk that cannot be read stays as it is: its readers report the damage.
            let Ok(chunk) = cx.copy_sealed(&node) else { continue };
            self.unlink_sealed(cx, id, |one| one.chunk_ref() == node.chunk_ref());
            self.link(cx, id, &kinds::with_starts(chunk, &runs_of_chunk(&node)), node.order());
        }
    }

    /// Sets the last sample of a series without open chunk, if it is newer than the one known.
    pub(crate) fn restore_last(&mut self, id: u32, time: i64, bits: u64) {
        if let Some(series) = self.series_mut(id)
            && !series.has_open_words()
            && (!series.has_sample() || series.newest_time() < time)
        {
            series.set_newest(Some((time, bits)));
        }
    }

    /// Removes a series with all its samples; `visit` gets timestamp and count of each chunk and out-of-order
    /// sample, and the reference of sealed chunks.
    pub(crate) fn discard(&mut self, id: u32, mut visit: impl FnMut(i64, u16, Option<ChunkRef>)) {
        let Some(series) = self.series(id).cloned() else { return };
        self.remove_sealed(id, |node| {
            visit(node.min_time(), node.count(), Some(node.chunk_ref()));
            true
        });
        self.end_open(id, |open, _| visit(open.min_time(), open.count(), None));
        self.ooo.times(series.ooo).for_each(|time| visit(time, 1, None));
        self.reorder_buffers.samples(id).for_each(|one| visit(one.time(), 1, None));
        self.reorder_buffers.remove(id);
        self.ooo.free(series.ooo);
        if let Some(series) = self.series_mut(id) {
            series.ooo = OooList::EMPTY;
        }
        self.remove(id);
    }
}

/// Stores the bytes of a chunk in a sealed file; returns its reference for [`Stripe::link_sealed`].
fn store_chunk(cx: &AppendContext<'_>, id: u32, meta: &ChunkMeta, bytes: &[u8]) -> SealedChunk {
    let chunk_ref = cx.store().push(&meta.header(id), bytes);
    SealedChunk::new(chunk_ref, meta).expect("chunks have few samples within a window")
}

/// Returns the timestamp of the newest sample of sealed chunks. Decodes chunks for which only a bound is
/// known if they may have it.
fn newest_sealed<'a>(cx: &AppendContext<'_>, chunks: impl Iterator<Item = &'a SealedChunk>) -> Option<i64> {
    let mut chunks: Vec<&SealedChunk> = chunks.collect();
    chunks.sort_by_key(|chunk| std::cmp::Reverse(chunk.max_time()));
    let mut newest = None;
    for chunk in chunks {
        if newest.is_some_and(|newest| newest >= chunk.max_time()) {
            break;
        }
        let mut samples = Columns::default();
        let is_known = !chunk.is_bound() || cx.decode(chunk, &mut samples).is_err();
        let last = samples.times.last().copied().filter(|_| !is_known).unwrap_or(chunk.max_time());
        newest = newest.max(Some(last));
    }
    newest
}

/// Returns the part of `runs` that affects samples from `first` to `last`; empty if none has a start
/// timestamp.
fn runs_between(runs: &[StartRun], first: i64, last: i64) -> Vec<StartRun> {
    let end = runs.partition_point(|run| run.time <= last);
    let start = runs.partition_point(|run| run.time <= first).saturating_sub(1);
    let clamped = |run: &StartRun| StartRun { time: run.time.max(first), ..*run };
    let part: Vec<StartRun> = runs.get(start..end).unwrap_or(&[]).iter().map(clamped).collect();
    if part.iter().any(|run| run.start_ms != 0) { part } else { Vec::new() }
}
