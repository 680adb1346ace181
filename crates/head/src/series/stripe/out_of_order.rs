//! Appends samples that are not newer than the newest one: out-of-order samples, duplicates, replacements.
//!
//! Invariant: the decision considers all samples of the series, but a chunk is decoded only if the timestamp
//! cache cannot prove the timestamp unused, and once for all samples of a batch that fall into the same
//! chunk.

use chronolith_format::chunk::xor;
use chronolith_model::{Columns, TimeRange};

use super::timestamp_cache::{Known, SeriesWindow};
use super::{AppendContext, NONE, SealedChunk, SeriesState, Stripe};
use crate::series::decide::{AppendOutcome, Position, Value, decide};
use crate::series::sealed::ChunkRef;

/// Identity of the chunk that was decoded last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Seen {
    #[default]
    Nothing,
    /// Series, first timestamp and sample count of an open chunk.
    Open(u32, i64, u16),
    Sealed(ChunkRef),
}

/// Cache of the chunk that was decoded last: a sender that repeats a batch needs one chunk for many samples
/// in a row.
#[derive(Default)]
pub(super) struct Decoded {
    seen: Seen,
    samples: Columns,
    /// Scratch: chunks that may have the timestamp of the current lookup.
    nodes: Vec<SealedChunk>,
}

impl Decoded {
    /// Invalidates the cache after chunks have changed under the same identity.
    pub(super) fn clear(&mut self) {
        self.seen = Seen::Nothing;
    }

    fn value(&self, time: i64) -> Option<u64> {
        let at = self.samples.times.binary_search(&time).ok()?;
        self.samples.values.get(at).map(|v| v.to_bits())
    }
}

impl Stripe {
    /// Prefetches the cache lines that [`Stripe::append_out_of_order`] will read for these series and
    /// timestamps.
    // PERF: prefetch. Each out-of-order sample touches three cold cache lines, those of another series each;
    // loading them for a group of samples first lets the misses overlap instead of waiting for each in turn.
    //   cargo run --release -p chronolith-head --example late_speed -- 4000 1440 10 withheld 60000
    pub(crate) fn prefetch_out_of_order(
        &self,
        cx: &AppendContext<'_>,
        samples: impl Iterator<Item = (u32, i64)>,
    ) {
        let mut touched = 0;
        for (id, time) in samples {
            let ooo = self.series(id).map_or(NONE, |series| series.ooo);
            touched ^=
                u64::from(self.ooo.touch(ooo)) ^ self.timestamps.touch(SeriesWindow::of(cx, id, time), time);
        }
        std::hint::black_box(touched);
    }

    /// Appends a sample that is not newer than the newest one of its series, or finds that it must not be
    /// stored.
    pub(crate) fn append_out_of_order(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        if self.histograms.get(id).is_some() {
            // Histograms may have arrived since the sample was found to be out of order.
            return self.append_float_among_histograms(cx, id, time, value_bits);
        }
        self.append_float_out_of_order(cx, id, time, value_bits)
    }

    /// As [`Stripe::append_out_of_order`], without a look at the histograms of the series.
    pub(super) fn append_float_out_of_order(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        let Some(series) = self.series(id).cloned() else { return AppendOutcome::SeriesGone };
        let window = SeriesWindow::of(cx, id, time);
        let known = self.timestamps.known(window, time);
        // The buffer is checked first: a buffered sample may replace one of a chunk.
        let waiting = if known == Known::Unused { None } else { self.ooo.find(series.ooo, time) };
        let stored = match known {
            Known::Unused | Known::NotInChunks => waiting,
            Known::Unknown => waiting.or_else(|| self.chunk_value(cx, window, &series, time)),
        };
        let stored = Value::compare(stored.map(Value::Float), Value::Float(value_bits));
        let outcome = decide(Position::NotNewest, stored, cx.duplicates);
        if !matches!(outcome, AppendOutcome::OutOfOrder | AppendOutcome::Replaced) {
            return outcome;
        }
        if waiting.is_some() {
            self.ooo.replace(series.ooo, time, value_bits);
            return outcome;
        }
        cx.windows.add_single(time, 1);
        self.timestamps.take(window, time);
        let (chain, count) = self.ooo.insert(series.ooo, time, value_bits);
        if let Some(series) = self.series_mut(id) {
            series.ooo = chain;
        }
        let (nodes, by_time) = (&self.sealed_chunks, &mut self.by_time);
        if self.ooo.is_full(count, || by_time.sample_count(nodes, id, series.sealed)) {
            self.full_buffers.push(id);
        }
        outcome
    }

    /// Returns the series whose out-of-order buffer is full. The appender merges them, in as many slices as
    /// it takes, before it releases the stripe for good.
    pub(crate) fn take_full_buffers(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.full_buffers)
    }

    /// Merges the out-of-order samples of all series whose buffer is full.
    pub(crate) fn merge_full_buffers(&mut self, cx: &mut AppendContext<'_>) {
        for id in self.take_full_buffers() {
            self.seal_crowded_open(cx, id);
            let all = TimeRange { start: i64::MIN, end: i64::MAX };
            self.merge_out_of_order(cx, id, all);
            self.seal_crowded_open_histograms(cx, id);
            self.merge_out_of_order_histograms(cx, id, all);
        }
    }

    /// Seals the open chunk of a series if at least half of its out-of-order samples belong into it.
    pub(crate) fn seal_crowded_open(&mut self, cx: &mut AppendContext<'_>, id: u32) {
        let Some(series) = self.series(id).filter(|series| series.ooo != NONE && !series.open.is_none())
        else {
            return;
        };
        let (before_open, count) = self.ooo.counts(series.ooo, series.open_min);
        if before_open <= count / 2 {
            self.seal_open(cx, id);
        }
    }

    /// Returns the bits of the value that a chunk has at `time`, which lies in `window` and is not after the
    /// last sample.
    pub(super) fn chunk_value(
        &mut self,
        cx: &AppendContext<'_>,
        window: SeriesWindow,
        series: &SeriesState,
        time: i64,
    ) -> Option<u64> {
        if time == series.xor.time() {
            return Some(series.xor.value_bits());
        }
        if !series.open.is_none() && time >= series.open_min {
            // Two neighbours in the wrong order: the last two samples of a chunk have none between them.
            if time > series.xor.time() - series.xor.step_ms() {
                return None;
            }
            self.decode_open(window, series);
            return self.decoded.value(time);
        }
        self.sealed_value(cx, window, series, time)
    }

    fn decode_open(&mut self, window: SeriesWindow, series: &SeriesState) {
        let seen = Seen::Open(window.id, series.open_min, series.xor.count());
        if self.decoded.seen == seen {
            return;
        }
        self.chunk.clear();
        self.chunk_buffers.copy(series.open, &series.xor, &mut self.chunk);
        self.decoded.samples.clear();
        // Decoding cannot fail: this process encoded the bytes.
        let decoded = xor::decode(&self.chunk, TimeRange::ALL, &mut self.decoded.samples);
        debug_assert!(decoded.is_ok(), "open chunks decode");
        self.decoded.seen = seen;
        if self.ooo.is_tree(series.ooo) {
            return;
        }
        let mut nodes = std::mem::take(&mut self.decoded.nodes);
        self.sealed_in(window.id, series.sealed, series.open_min, i64::MAX, &mut nodes);
        if nodes.is_empty() {
            let open = TimeRange { start: series.open_min, end: i64::MAX };
            self.timestamps.note_chunk(
                window,
                &self.decoded.samples.times,
                self.ooo.times_in(series.ooo, open),
            );
        }
        self.decoded.nodes = nodes;
    }

    fn sealed_value(
        &mut self,
        cx: &AppendContext<'_>,
        window: SeriesWindow,
        series: &SeriesState,
        time: i64,
    ) -> Option<u64> {
        let mut decoded = std::mem::take(&mut self.decoded);
        let mut nodes = std::mem::take(&mut decoded.nodes);
        self.sealed_in(window.id, series.sealed, time, time, &mut nodes);
        let mut found = None;
        for node in &nodes {
            if decoded.seen != Seen::Sealed(node.chunk_ref) {
                decoded.seen = Seen::Nothing;
                decoded.samples.clear();
                // A chunk that cannot be read cannot refuse a sample either; queries report the damage.
                if self.decode_sealed(cx, node, &mut decoded.samples) {
                    decoded.seen = Seen::Sealed(node.chunk_ref);
                    // With so many out-of-order samples the next lookup rarely hits the same chunk.
                    if !self.ooo.is_tree(series.ooo) && self.overlaps_no_other(window.id, series, node) {
                        let within = TimeRange::inclusive(node.min_time, node.max_time());
                        let waiting = self.ooo.times_in(series.ooo, within);
                        self.timestamps.note_chunk(window, &decoded.samples.times, waiting);
                    }
                }
            }
            found = decoded.value(time);
            if found.is_some() {
                break;
            }
        }
        decoded.nodes = nodes;
        self.decoded = decoded;
        found
    }

    /// Returns true if no other chunk of the series overlaps `node`. Chunks of earlier versions may overlap.
    fn overlaps_no_other(&mut self, id: u32, series: &SeriesState, node: &SealedChunk) -> bool {
        let mut others = Vec::new();
        self.sealed_in(id, series.sealed, node.min_time, node.max_time(), &mut others);
        (series.open.is_none() || series.open_min > node.max_time()) && others.len() == 1
    }
}
