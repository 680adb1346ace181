//! Kinds of values as codecs of open chunks: words, whose open chunk is in the record of their series, and
//! native histograms.
//!
//! Invariant: a series has at most one open chunk, of one kind.
//! Not here: the encodings (`format::chunk`); sealing, start timestamps and the order of samples, which are
//! the same for every kind (`seal`, `append`).

use std::sync::Arc;

use chronolith_format::chunk::histogram::HistogramAppender;
use chronolith_format::chunk::kinds;
use chronolith_format::head::slice::OpenChunk;
use chronolith_model::Histogram;

use super::record::SeriesState;
use super::state::{AppendContext, Stripe};
use crate::series::sealed_chunks::ChunkMeta;
use crate::series::value::HISTOGRAM_BITS;

/// Kind of value: codec of its open chunk.
pub(super) trait Kind {
    /// Value of a new sample.
    type New<'a>: Copy;
    /// Chunk that an append has begun because its sample does not fit the open one.
    type Next: Default;

    /// Returns range, size and encoding of the open chunk of a series.
    fn open(stripe: &Stripe, id: u32) -> Option<ChunkMeta>;

    /// Appends the bytes of the open chunk of a series to `out`; none without one.
    fn copy(stripe: &Stripe, id: u32, out: &mut Vec<u8>);

    /// Returns the open chunk of a series as a checkpoint stores it; `bytes` is scratch memory.
    fn entry<'a>(stripe: &'a Stripe, id: u32, bytes: &'a mut Vec<u8>) -> Option<OpenChunk<'a>>;

    /// Appends a sample, newer than all of its series, to the open chunk; returns false if it does not belong
    /// there.
    fn push(stripe: &mut Stripe, id: u32, time: i64, value: Self::New<'_>, next: &mut Self::Next) -> bool;

    /// Starts an open chunk with a sample that [`Kind::push`] has not taken; `previous` is the chunk of
    /// histograms before it.
    fn start(
        stripe: &mut Stripe,
        id: u32,
        time: i64,
        value: Self::New<'_>,
        window_end: i64,
        next: Self::Next,
        previous: Option<HistogramAppender>,
    );

    /// Ends the open chunk of a series after `seal` has read its bytes; its last sample stays the newest one.
    /// Returns a chunk of histograms, for the header of the next.
    fn end<R>(
        stripe: &mut Stripe,
        id: u32,
        seal: impl FnOnce(&ChunkMeta, &[u8]) -> R,
    ) -> Option<(R, Option<HistogramAppender>)>;

    /// Seals or converts the open chunk after an append if it is full, or if there is no more memory for it.
    fn finish_append(stripe: &mut Stripe, cx: &AppendContext<'_>, id: u32);
}

/// Kind of 64-bit words.
pub(super) struct Words;

impl Kind for Words {
    type New<'a> = u64;
    type Next = ();

    fn open(stripe: &Stripe, id: u32) -> Option<ChunkMeta> {
        stripe.series(id)?.open_words()
    }

    fn copy(stripe: &Stripe, id: u32, out: &mut Vec<u8>) {
        if let Some(series) = stripe.series(id) {
            series.copy_open(&stripe.chunk_buffers, out);
        }
    }

    fn entry<'a>(stripe: &'a Stripe, id: u32, bytes: &'a mut Vec<u8>) -> Option<OpenChunk<'a>> {
        let series = stripe.series(id)?;
        let open = series.open_words()?;
        bytes.clear();
        series.copy_open(&stripe.chunk_buffers, bytes);
        Some(OpenChunk::Words(*series.open_state(), open.min_time(), bytes))
    }

    fn push(stripe: &mut Stripe, id: u32, time: i64, bits: u64, _: &mut ()) -> bool {
        let pushed = stripe.with_open_words(id, |series, buffers, scratch| {
            series.takes_next(time) && series.append(buffers, scratch, time, bits).is_some()
        });
        pushed.unwrap_or(false)
    }

    fn start(
        stripe: &mut Stripe,
        id: u32,
        time: i64,
        bits: u64,
        window_end: i64,
        _: Self::Next,
        _: Option<HistogramAppender>,
    ) {
        stripe.with_open_words(id, |series, buffers, _| series.start_open(buffers, time, bits, window_end));
    }

    fn end<R>(
        stripe: &mut Stripe,
        id: u32,
        seal: impl FnOnce(&ChunkMeta, &[u8]) -> R,
    ) -> Option<(R, Option<HistogramAppender>)> {
        let meta = Words::open(stripe, id)?;
        stripe.with_open_words(id, |series, buffers, scratch| {
            let sealed = scratch.with_copy(series, buffers, |bytes| seal(&meta, bytes));
            series.end_open(buffers);
            (sealed, None)
        })
    }

    #[cold]
    fn finish_append(stripe: &mut Stripe, cx: &AppendContext<'_>, id: u32) {
        let Some(series) = stripe.series(id).filter(|series| series.is_at_step()) else { return };
        if series.is_full() {
            stripe.seal_open(cx, id);
        } else {
            stripe.with_open_words(id, SeriesState::convert_open);
        }
    }
}

/// Kind of native histograms.
pub(super) struct Histograms;

impl Kind for Histograms {
    type New<'a> = &'a Arc<Histogram>;
    type Next = Option<HistogramAppender>;

    fn open(stripe: &Stripe, id: u32) -> Option<ChunkMeta> {
        let open = stripe.histograms.get(id)?;
        let (first, last) = open.times();
        Some(ChunkMeta::in_order(open.encoding(), open.count(), first, last, open.bytes().len()))
    }

    fn copy(stripe: &Stripe, id: u32, out: &mut Vec<u8>) {
        if let Some(open) = stripe.histograms.get(id) {
            out.extend_from_slice(open.bytes());
        }
    }

    fn entry<'a>(stripe: &'a Stripe, id: u32, _: &'a mut Vec<u8>) -> Option<OpenChunk<'a>> {
        let open = stripe.histograms.get(id)?;
        Some(OpenChunk::Histograms(open.encoding(), open.bytes()))
    }

    fn push(
        stripe: &mut Stripe,
        id: u32,
        time: i64,
        histogram: &Arc<Histogram>,
        next: &mut Option<HistogramAppender>,
    ) -> bool {
        let pushed = stripe.histograms.update(id, |open, window_end| {
            if time >= window_end || kinds::is_full(open) {
                return false;
            }
            // A histogram that the open chunk cannot take, because of new buckets for example, starts the
            // next one.
            *next = open.append(time, histogram);
            next.is_none()
        });
        if pushed == Some(true)
            && let Some(series) = stripe.series_mut(id)
        {
            series.set_newest(Some((time, HISTOGRAM_BITS)));
        }
        pushed.unwrap_or(false)
    }

    fn start(
        stripe: &mut Stripe,
        id: u32,
        time: i64,
        histogram: &Arc<Histogram>,
        window_end: i64,
        next: Option<HistogramAppender>,
        previous: Option<HistogramAppender>,
    ) {
        let next = next.unwrap_or_else(|| HistogramAppender::start(previous.as_ref(), time, histogram));
        stripe.histograms.insert(id, next, window_end);
        if let Some(series) = stripe.series_mut(id) {
            series.set_newest(Some((time, HISTOGRAM_BITS)));
        }
    }

    fn end<R>(
        stripe: &mut Stripe,
        id: u32,
        seal: impl FnOnce(&ChunkMeta, &[u8]) -> R,
    ) -> Option<(R, Option<HistogramAppender>)> {
        let meta = Histograms::open(stripe, id)?;
        let open = stripe.histograms.remove(id)?;
        Some((seal(&meta, open.bytes()), Some(open)))
    }

    fn finish_append(stripe: &mut Stripe, cx: &AppendContext<'_>, _: u32) {
        stripe.keep_histogram_budget(cx);
    }
}
