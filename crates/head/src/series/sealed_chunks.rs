//! References to sealed chunks of every kind: one linked list per series in a shared slab, the newest first.
//!
//! Invariants: a list ends at [`SLOT_NONE`]; an element belongs to one list; an out-of-order chunk was
//! sealed after every in-order chunk with one of its timestamps was begun.

use chronolith_format::chunk::decimal_delta::ENCODING_DECIMAL_DELTA;
use chronolith_format::chunk::histogram::{ENCODING_FLOAT_HISTOGRAM, ENCODING_HISTOGRAM};
use chronolith_format::chunk::kinds::ENCODING_WITH_STARTS;
use chronolith_format::chunk::xor::{ENCODING_XOR, EncodedChunk};
use chronolith_format::head::sealed::RecordHeader;
use chronolith_model::DuplicatePolicy;

use crate::series::slots::{SLOT_NONE, Slot, Slots};

/// Position of a sealed chunk: file number and byte offset. Ascends in the order of sealing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct ChunkRef {
    file: u32,
    offset: u32,
}

impl ChunkRef {
    /// After all others.
    pub(crate) const MAX: ChunkRef = ChunkRef::new(u32::MAX, u32::MAX);

    pub(crate) const fn new(file: u32, offset: u32) -> ChunkRef {
        ChunkRef { file, offset }
    }

    /// Returns the number of the file.
    pub(crate) fn file(self) -> u32 {
        self.file
    }

    /// Returns the start of the record in the file.
    pub(crate) fn offset(self) -> u32 {
        self.offset
    }
}

/// Encodings of sealed chunks, by their number in [`SealedChunk::tag`].
const ENCODINGS: [u8; 5] = [
    ENCODING_XOR,
    ENCODING_HISTOGRAM,
    ENCODING_FLOAT_HISTOGRAM,
    ENCODING_DECIMAL_DELTA,
    ENCODING_WITH_STARTS,
];

const COUNT_BITS: u32 = 10;
const COUNT_MASK: u16 = (1 << COUNT_BITS) - 1;
const ENCODING_MASK: u16 = 7;
/// The span is a bound, in units of 2^[`BOUND_SHIFT`].
const IS_BOUND: u16 = 1 << 13;
const IS_OUT_OF_ORDER: u16 = 1 << 14;
const LAST_WINS: u16 = 1 << 15;

/// A span beyond 32 bits, as chunks of stores in nanoseconds have from 4.3 s on, is rounded up to a multiple
/// of 2^11: an upper bound, which is enough to find chunks in a range and chunks that overlap. The record in
/// the sealed file has the exact time.
const BOUND_SHIFT: u32 = 11;
/// Widest windows, in the unit of a tenant, whose chunks have a span.
pub(crate) const WINDOW_WIDTH_MAX: i64 = (u32::MAX as i64) << BOUND_SHIFT;

/// Precedence of the samples of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkOrder {
    /// Samples were appended in order, or have been merged.
    InOrder,
    /// Samples arrived after the samples of in-order chunks; the policy applies to equal timestamps.
    OutOfOrder(DuplicatePolicy),
}

/// Range, size and kind of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkMeta {
    encoding: u8,
    order: ChunkOrder,
    count: u16,
    min_time: i64,
    max_time: i64,
    /// Bytes of chunk data.
    len: usize,
}

impl ChunkMeta {
    /// Returns the metadata of an in-order chunk with `len` bytes of chunk data.
    pub(crate) fn in_order(encoding: u8, count: u16, min_time: i64, max_time: i64, len: usize) -> ChunkMeta {
        ChunkMeta { encoding, order: ChunkOrder::InOrder, count, min_time, max_time, len }
    }

    /// Returns the metadata of an encoded chunk.
    pub(crate) fn of(chunk: &EncodedChunk, order: ChunkOrder) -> ChunkMeta {
        let &EncodedChunk { encoding, count, min_time, max_time, .. } = chunk;
        ChunkMeta { order, ..ChunkMeta::in_order(encoding, count, min_time, max_time, chunk.bytes.len()) }
    }

    pub(crate) fn with_order(self, order: ChunkOrder) -> ChunkMeta {
        ChunkMeta { order, ..self }
    }

    pub(crate) fn encoding(&self) -> u8 {
        self.encoding
    }

    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// Returns the timestamp of the first sample.
    pub(crate) fn min_time(&self) -> i64 {
        self.min_time
    }

    /// Returns the timestamp of the last sample.
    pub(crate) fn max_time(&self) -> i64 {
        self.max_time
    }

    /// Returns the header of the chunk in a sealed file.
    pub(crate) fn header(&self, series_id: u32) -> RecordHeader {
        let &ChunkMeta { encoding, count, min_time, max_time, .. } = self;
        RecordHeader { series_id, encoding, count, min_time, max_time }
    }

    /// Returns the chunk with its bytes.
    pub(crate) fn with_bytes(&self, bytes: Vec<u8>) -> EncodedChunk {
        let &ChunkMeta { encoding, count, min_time, max_time, .. } = self;
        EncodedChunk { encoding, min_time, max_time, count, bytes }
    }
}

/// Metadata of a sealed chunk. Packed: there is one per chunk of each series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct SealedChunk {
    min_time: i64,
    /// From the first sample to the last, or a bound of that.
    span: u32,
    chunk_ref: ChunkRef,
    /// Bytes of chunk data; 0 if they do not fit, then the record has them.
    len: u16,
    /// Number of samples, encoding, order.
    tag: u16,
    next: u32,
}

const _: () = assert!(size_of::<SealedChunk>() <= 28);

impl SealedChunk {
    /// Returns the metadata of a chunk at `chunk_ref`; `None` if the encoding is not one of the head, the
    /// chunk has 1024 samples or more, or is longer than [`WINDOW_WIDTH_MAX`].
    pub(crate) fn new(chunk_ref: ChunkRef, meta: &ChunkMeta) -> Option<SealedChunk> {
        let (span, bound) = stored_span(meta.max_time.checked_sub(meta.min_time)?)?;
        let encoding = ENCODINGS.iter().position(|&encoding| encoding == meta.encoding)? as u16;
        if meta.count > COUNT_MASK {
            return None;
        }
        let order = match meta.order {
            ChunkOrder::InOrder => 0,
            ChunkOrder::OutOfOrder(DuplicatePolicy::KeepFirst) => IS_OUT_OF_ORDER,
            ChunkOrder::OutOfOrder(DuplicatePolicy::LastWins) => IS_OUT_OF_ORDER | LAST_WINS,
        };
        let tag = meta.count | encoding << COUNT_BITS | bound | order;
        let len = u16::try_from(meta.len).unwrap_or(0);
        Some(SealedChunk { min_time: meta.min_time, span, chunk_ref, len, tag, next: SLOT_NONE })
    }

    /// Returns the position of the chunk, which identifies it.
    pub(crate) fn chunk_ref(&self) -> ChunkRef {
        self.chunk_ref
    }

    /// Returns the timestamp of the first sample.
    pub(crate) fn min_time(&self) -> i64 {
        self.min_time
    }

    /// Returns the span as a checkpoint stores it, see [`max_time_of`].
    pub(crate) fn stored_span(&self) -> u32 {
        self.span
    }

    /// Returns the timestamp of the last sample, or a bound of it.
    pub(crate) fn max_time(&self) -> i64 {
        max_time_of(self.min_time, self.span, self.tag)
    }

    /// Returns true if [`SealedChunk::max_time`] may be after the last sample.
    pub(crate) fn is_bound(&self) -> bool {
        self.tag & IS_BOUND != 0
    }

    pub(crate) fn count(&self) -> u16 {
        self.tag & COUNT_MASK
    }

    pub(crate) fn encoding(&self) -> u8 {
        ENCODINGS[usize::from(self.tag >> COUNT_BITS & ENCODING_MASK)]
    }

    /// Returns true if samples of the chunk have start timestamps.
    pub(crate) fn has_starts(&self) -> bool {
        self.encoding() == ENCODING_WITH_STARTS
    }

    pub(crate) fn order(&self) -> ChunkOrder {
        split_stored_count(self.tag).1
    }

    /// Returns the sample count and the order of the chunk in one number, for [`split_stored_count`] and
    /// [`max_time_of`].
    pub(crate) fn stored_count(&self) -> u16 {
        self.tag & (COUNT_MASK | IS_BOUND | IS_OUT_OF_ORDER | LAST_WINS)
    }

    pub(crate) fn is_out_of_order(&self) -> bool {
        self.tag & IS_OUT_OF_ORDER != 0
    }

    /// Returns the bytes of chunk data, if they are known here.
    pub(crate) fn byte_len(&self) -> Option<usize> {
        (self.len > 0).then_some(usize::from(self.len))
    }
}

/// Returns a span in 32 bits, and [`IS_BOUND`] if it is rounded up.
fn stored_span(span: i64) -> Option<(u32, u16)> {
    if let Ok(exact) = u32::try_from(span) {
        return Some((exact, 0));
    }
    let units = span.checked_add((1 << BOUND_SHIFT) - 1)? >> BOUND_SHIFT;
    Some((u32::try_from(units).ok()?, IS_BOUND))
}

/// Returns the timestamp of the last sample of a chunk, or a bound of it; `stored_count` says which.
pub(crate) fn max_time_of(min_time: i64, stored_span: u32, stored_count: u16) -> i64 {
    let shift = if stored_count & IS_BOUND != 0 { BOUND_SHIFT } else { 0 };
    min_time.saturating_add(i64::from(stored_span) << shift)
}

/// Splits a sample count as a checkpoint stores it: two bits of it are the order of the chunk.
pub(crate) fn split_stored_count(stored: u16) -> (u16, ChunkOrder) {
    let order = match (stored & IS_OUT_OF_ORDER != 0, stored & LAST_WINS != 0) {
        (false, _) => ChunkOrder::InOrder,
        (true, false) => ChunkOrder::OutOfOrder(DuplicatePolicy::KeepFirst),
        (true, true) => ChunkOrder::OutOfOrder(DuplicatePolicy::LastWins),
    };
    (stored & !(IS_BOUND | IS_OUT_OF_ORDER | LAST_WINS), order)
}

impl Slot for SealedChunk {
    const EMPTY: SealedChunk =
        SealedChunk { min_time: 0, span: 0, chunk_ref: ChunkRef::new(0, 0), len: 0, tag: 0, next: SLOT_NONE };
    const PAGE_BITS: u32 = 11;

    fn link(&self) -> u32 {
        self.next
    }

    fn set_link(&mut self, link: u32) {
        self.next = link;
    }
}

/// Slab of the sealed chunks of a stripe.
pub(crate) struct SealedChunks {
    nodes: Slots<SealedChunk>,
}

impl SealedChunks {
    pub(crate) fn new() -> SealedChunks {
        SealedChunks { nodes: Slots::new() }
    }

    /// Prepends `node` to the list that starts at `older`; returns the new start.
    pub(crate) fn push(&mut self, mut node: SealedChunk, older: u32) -> u32 {
        node.next = older;
        self.nodes.alloc(node)
    }

    /// Iterates over the list that starts at `start`.
    pub(crate) fn list(&self, start: u32) -> impl Iterator<Item = &SealedChunk> {
        let mut at = start;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at)?;
            at = node.next;
            Some(node)
        })
    }

    /// Unlinks the chunks for which `is_gone` returns true; returns the new start.
    pub(crate) fn remove(&mut self, start: u32, mut is_gone: impl FnMut(&SealedChunk) -> bool) -> u32 {
        let mut kept_start = SLOT_NONE;
        let mut kept_last = SLOT_NONE;
        let mut at = start;
        while let Some(&node) = self.nodes.get(at) {
            if is_gone(&node) {
                self.nodes.free(at);
            } else {
                match kept_last {
                    SLOT_NONE => kept_start = at,
                    last => self.link(last, at),
                }
                kept_last = at;
            }
            at = node.next;
        }
        self.link(kept_last, SLOT_NONE);
        kept_start
    }

    fn link(&mut self, from: u32, to: u32) {
        if let Some(node) = self.nodes.get_mut(from) {
            node.next = to;
        }
    }

    /// Number of chunks.
    pub(crate) fn count(&self) -> u64 {
        self.nodes.used_count()
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        self.nodes.heap_bytes()
    }
}
