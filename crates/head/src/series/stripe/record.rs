//! Record of a series: last sample and open chunk of words, in the one cache line that an in-order append
//! touches.
//!
//! An open chunk is XOR or decimal-delta. It starts in the encoding of the chunk before it; an XOR chunk of
//! [`CONVERSION_COUNT`] samples is encoded as decimal-delta if that is clearly smaller, and a chunk with a
//! value that does not fit decimal-delta is encoded again with a finer scale or as XOR.
//!
//! Invariants: the state describes the open chunk and, without one, the last sample; no encoding changes a
//! sample.
//! Not here: nodes of chunks (`chunk_buffer`), the encodings and the rule that chooses
//! (`format::chunk::decimal_delta`), sealing (`seal`).

use chronolith_format::chunk::decimal_delta::{
    self, CONVERSION_COUNT, Misfit, OpenState, is_conversion_due, reencode,
};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::xor::{SAMPLES_PER_CHUNK, XorState};
use chronolith_model::{Columns, TimeRange};

use super::layout::NONE;
use super::ooo_log::OooList;
use crate::series::chunk_buffer::{BufferCopy, ChunkBuffer, ChunkBuffers};
use crate::series::sealed_chunks::ChunkMeta;

/// Record of a series.
#[derive(Clone)]
pub(crate) struct SeriesState {
    state: OpenState,
    /// Timestamp of the first sample of the open chunk.
    open_min: i64,
    /// End of the window of the open chunk.
    window_end: i64,
    /// Bytes of the open chunk; none between sealing and the next word.
    open: ChunkBuffer,
    /// Slot of the newest sealed chunk.
    pub(super) sealed: u32,
    /// Samples in the out-of-order log.
    pub(super) ooo: OooList,
    /// Index of the tenant; [`NONE`] for a free slot.
    pub(crate) tenant: u32,
}

const _: () = assert!(size_of::<SeriesState>() <= 64, "the state of a series is one cache line");
/// Samples per test for a full chunk or a due conversion.
const COUNT_STEP: u16 = 8;
const _: () = assert!(CONVERSION_COUNT.is_multiple_of(COUNT_STEP));
const _: () = assert!((SAMPLES_PER_CHUNK as u16).is_multiple_of(COUNT_STEP));

/// Buffers for encoding open chunks again.
#[derive(Default)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    encoded: Vec<u8>,
    samples: Columns,
}

impl Scratch {
    /// Calls `read` with a copy of the open chunk of words of a series.
    pub(super) fn with_copy<R>(
        &mut self,
        series: &SeriesState,
        buffers: &ChunkBuffers,
        read: impl FnOnce(&[u8]) -> R,
    ) -> R {
        self.bytes.clear();
        series.copy_open(buffers, &mut self.bytes);
        read(&self.bytes)
    }
}

impl SeriesState {
    pub(super) const EMPTY: SeriesState = SeriesState {
        state: OpenState::new(),
        open_min: 0,
        window_end: 0,
        open: ChunkBuffer::NONE,
        sealed: NONE,
        ooo: OooList::EMPTY,
        tenant: NONE,
    };

    /// Returns true if the series had a sample that was not deleted since.
    pub(crate) fn has_sample(&self) -> bool {
        self.state.count() > 0
    }

    /// Returns true if the record refers to no samples; there may be an open chunk of histograms.
    pub(super) fn has_no_chunk(&self) -> bool {
        self.open.is_none() && self.sealed == NONE && self.ooo.is_empty()
    }

    /// Returns true if the out-of-order log has samples of the series.
    pub(crate) fn has_out_of_order(&self) -> bool {
        !self.ooo.is_empty()
    }

    /// Returns the timestamp of the newest sample of any kind; 0 without samples.
    pub(crate) fn newest_time(&self) -> i64 {
        self.state.time()
    }

    /// Returns the bits of the newest sample; `HISTOGRAM_BITS` for a histogram.
    pub(crate) fn newest_bits(&self) -> u64 {
        self.state.value_bits()
    }

    /// Sets the newest sample of a series without an open chunk of words; `None` if it has no sample.
    pub(crate) fn set_newest(&mut self, newest: Option<(i64, u64)>) {
        debug_assert!(self.open.is_none(), "the state is that of the open chunk");
        self.state = newest.map_or(OpenState::new(), |(time, bits)| XorState::ended(time, bits).into());
    }

    pub(crate) fn has_open_words(&self) -> bool {
        !self.open.is_none()
    }

    /// Returns range, size and encoding of the open chunk of words.
    pub(crate) fn open_words(&self) -> Option<ChunkMeta> {
        let state = &self.state;
        self.has_open_words().then(|| {
            let (encoding, len) = (state.encoding(), state.byte_len());
            ChunkMeta::in_order(encoding, state.count(), self.open_min, state.time(), len)
        })
    }

    /// Returns the copy of the open chunk of words to offset `start` of a buffer; `None` without one.
    pub(crate) fn open_copy(&self, start: usize) -> Option<BufferCopy> {
        let count = self.state.count();
        let len = self.state.byte_len();
        self.has_open_words().then_some(BufferCopy { buffer: self.open, count, start, len })
    }

    /// Returns the encoder state of the open chunk of words.
    pub(crate) fn open_state(&self) -> &OpenState {
        &self.state
    }

    /// Appends the bytes of the open chunk of words to `out`; none without one.
    pub(super) fn copy_open(&self, buffers: &ChunkBuffers, out: &mut Vec<u8>) {
        buffers.copy(self.open, &self.state, out);
    }

    /// Returns true if a word at `time` goes to the open chunk of words.
    pub(super) fn takes_next(&self, time: i64) -> bool {
        !self.open.is_none() && time > self.state.time() && time < self.window_end
    }

    /// Appends a word to the open chunk of words; `None`, and no change, if the chunk had to be encoded again
    /// and does not decode.
    pub(super) fn append(
        &mut self,
        buffers: &mut ChunkBuffers,
        scratch: &mut Scratch,
        time: i64,
        bits: u64,
    ) -> Option<()> {
        let value = f64::from_bits(bits);
        match buffers.append(&mut self.open, &mut self.state, time, value) {
            Ok(()) => Some(()),
            Err(Misfit) => self.rewrite_open(buffers, scratch, |samples| samples.push(time, value)),
        }
    }

    /// Returns true if the open chunk may be full or due for [`SeriesState::convert_open`].
    // PERF: one test for both, as both are at multiples of this number of samples.
    //   cargo xtask append-path
    pub(super) fn is_at_step(&self) -> bool {
        self.state.count().is_multiple_of(COUNT_STEP)
    }

    /// Returns true if the open chunk of words has to be sealed.
    pub(super) fn is_full(&self) -> bool {
        usize::from(self.state.count()) >= SAMPLES_PER_CHUNK
    }

    /// Starts a chunk with one word, in the encoding of the chunk before it if the word fits. The series has
    /// no open chunk of words.
    pub(super) fn start_open(&mut self, buffers: &mut ChunkBuffers, time: i64, bits: u64, window_end: i64) {
        let value = f64::from_bits(bits);
        self.state = self.state.next_chunk(value);
        self.open = buffers.start(&mut self.state, time, value);
        (self.open_min, self.window_end) = (time, window_end);
    }

    /// Sets the open chunk of words to `bytes`, which end at `state`. The series has none.
    pub(crate) fn restore_open(
        &mut self,
        buffers: &mut ChunkBuffers,
        state: OpenState,
        bytes: &[u8],
        first_time: i64,
        window_end: i64,
    ) {
        (self.state, self.open) = (state, buffers.store(bytes));
        (self.open_min, self.window_end) = (first_time, window_end);
    }

    /// Drops the open chunk of words; its last sample stays the newest one.
    pub(crate) fn end_open(&mut self, buffers: &mut ChunkBuffers) {
        buffers.free(self.open);
        self.open = ChunkBuffer::NONE;
    }

    /// Encodes the open chunk of words, which is XOR, as decimal-delta if that is clearly smaller.
    #[cold]
    pub(super) fn convert_open(&mut self, buffers: &mut ChunkBuffers, scratch: &mut Scratch) {
        if !self.state.as_xor().is_some_and(|state| is_conversion_due(&state)) {
            return;
        }
        let Scratch { bytes, encoded, samples } = scratch;
        bytes.clear();
        self.copy_open(buffers, bytes);
        // A chunk that does not decode stays as it is: its readers report the damage.
        if let Ok(Some(state)) = decimal_delta::convert(bytes, samples, encoded) {
            self.replace_open(buffers, state.into(), encoded);
        }
    }

    /// Replaces the last word of the open chunk; `None`, and no change, if the chunk does not decode.
    pub(super) fn replace_last(
        &mut self,
        buffers: &mut ChunkBuffers,
        scratch: &mut Scratch,
        bits: u64,
    ) -> Option<()> {
        let time = self.state.time();
        self.rewrite_open(buffers, scratch, |samples| {
            samples.truncate(samples.len() - 1);
            samples.push(time, f64::from_bits(bits));
        })
    }

    /// Encodes the open chunk again with its samples changed by `change`; `None`, and no change, if the chunk
    /// does not decode.
    #[cold]
    fn rewrite_open(
        &mut self,
        buffers: &mut ChunkBuffers,
        scratch: &mut Scratch,
        change: impl FnOnce(&mut Columns),
    ) -> Option<()> {
        let Scratch { bytes, encoded, samples } = scratch;
        bytes.clear();
        samples.clear();
        self.copy_open(buffers, bytes);
        kinds::decode(self.state.encoding(), bytes, TimeRange::ALL, samples).ok()?;
        // A checkpoint is not decoded when it is restored: bytes and state may disagree.
        let is_whole = samples.len() == usize::from(self.state.count())
            && samples.times.last() == Some(&self.state.time());
        if !is_whole {
            return None;
        }
        change(samples);
        let state = reencode(&samples.times, &samples.values, encoded);
        self.replace_open(buffers, state, encoded);
        Some(())
    }

    fn replace_open(&mut self, buffers: &mut ChunkBuffers, state: OpenState, bytes: &[u8]) {
        buffers.free(self.open);
        (self.state, self.open) = (state, buffers.store(bytes));
    }
}
