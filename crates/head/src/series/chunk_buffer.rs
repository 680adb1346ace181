//! Buffers of open chunks: an unrolled linked list of 64-byte nodes per chunk. A chunk grows by one node at a
//! time and never moves, and series that grow in step leave no free blocks of smaller sizes.
//!
//! Invariants: a list is circular and identified by its last node, which links to the first; it has exactly
//! as many nodes as its bytes need, and at least one. The count in the chunk header is written only when the
//! chunk is copied, so an append touches the last node only.
//! Not here: the encodings (`format::chunk::decimal_delta`, which knows XOR chunks as well).

use chronolith_format::chunk::decimal_delta::{Misfit, OpenState};
use chronolith_format::chunk::xor::{HEADER_BYTES, SAMPLE_BYTES_MAX};

use crate::series::slots::{SLOT_NONE, Slot, Slots};

/// Chunk bytes per node; with the link to the next node they are one cache line.
// PERF: chunks of a fleet of counters and gauges take 5.3 bytes per sample, so nodes of 32, 48 and 64 bytes
// waste the same on average (links in the small ones, unused ends in the large ones); only the large ones
// cost a single cache miss.
//   cargo bench -p chronolith-head --bench append_speed -- 100000 130 10
pub(crate) const NODE_BYTES: usize = 60;
/// Room for the last byte in use, one more sample, and a split at any byte.
const SPILL_BYTES: usize = 1 + 2 * SAMPLE_BYTES_MAX;

const _: () = assert!(NODE_BYTES >= HEADER_BYTES + SAMPLE_BYTES_MAX, "the first sample fits a node");

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct ChunkNode {
    bytes: [u8; NODE_BYTES],
    next: u32,
}

const _: () = assert!(size_of::<ChunkNode>() == 64);

impl Slot for ChunkNode {
    const EMPTY: ChunkNode = ChunkNode { bytes: [0; NODE_BYTES], next: SLOT_NONE };
    const PAGE_BITS: u32 = 11;

    fn link(&self) -> u32 {
        self.next
    }

    fn set_link(&mut self, link: u32) {
        self.next = link;
    }
}

/// Open chunk of a series: the slot of the last node of its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkBuffer(u32);

impl ChunkBuffer {
    /// No open chunk.
    pub(crate) const NONE: ChunkBuffer = ChunkBuffer(SLOT_NONE);

    pub(crate) fn is_none(self) -> bool {
        self == ChunkBuffer::NONE
    }
}

/// Chunks that [`ChunkBuffers::copy_many`] copies at once: about as many cache misses as a core has in
/// flight.
const COPIES_AT_ONCE: usize = 16;

/// Copy of a whole chunk to a part of a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BufferCopy {
    /// Source, not [`ChunkBuffer::NONE`].
    pub(crate) buffer: ChunkBuffer,
    /// Samples of the chunk.
    pub(crate) count: u16,
    /// Offset of the copy.
    pub(crate) start: usize,
    /// Bytes of the chunk, including its header.
    pub(crate) len: usize,
}

/// Position in the copy of a chunk.
#[derive(Clone, Copy)]
struct CopyCursor {
    /// Slot of the next node.
    node: u32,
    /// Offset of its bytes in the copy.
    at: usize,
    /// End of the copy.
    end: usize,
}

impl CopyCursor {
    const DONE: CopyCursor = CopyCursor { node: SLOT_NONE, at: 0, end: 0 };
}

/// Open chunks of one stripe.
pub(crate) struct ChunkBuffers {
    nodes: Slots<ChunkNode>,
    buffer_count: u64,
}

impl ChunkBuffers {
    pub(crate) fn new() -> ChunkBuffers {
        ChunkBuffers { nodes: Slots::new(), buffer_count: 0 }
    }

    /// Starts a chunk with one sample; `state` has none, and points to the end of the chunk afterwards.
    ///
    /// # Panics
    /// If `value` does not fit the encoding of `state`.
    pub(crate) fn start(&mut self, state: &mut OpenState, time: i64, value: f64) -> ChunkBuffer {
        let buffer = self.start_node();
        let node = self.nodes.get_mut(buffer.0).expect("the node was just made");
        state.append_part(&mut node.bytes, 0, time, value).expect("the encoding was chosen for the value");
        buffer
    }

    /// Appends a sample at the end that `state` points to; the last node of `buffer` may be new.
    ///
    /// # Errors
    /// [`Misfit`] if the value does not fit the encoding of the chunk; nothing was appended.
    pub(crate) fn append(
        &mut self,
        buffer: &mut ChunkBuffer,
        state: &mut OpenState,
        time: i64,
        value: f64,
    ) -> Result<(), Misfit> {
        let len = state.byte_len();
        let base = last_node_start(len);
        if len - base + SAMPLE_BYTES_MAX > NODE_BYTES {
            return self.append_over_end(buffer, state, time, value);
        }
        let node = self.nodes.get_mut(buffer.0).expect("a buffer lives as long as its series says");
        state.append_part(&mut node.bytes, base, time, value)
    }

    /// As [`ChunkBuffers::append`] if the sample may not fit the last node.
    fn append_over_end(
        &mut self,
        buffer: &mut ChunkBuffer,
        state: &mut OpenState,
        time: i64,
        value: f64,
    ) -> Result<(), Misfit> {
        let len = state.byte_len();
        let from = len - 1;
        let at = from - last_node_start(len);
        let last = self.nodes.get_mut(buffer.0).expect("a buffer lives as long as its series says");
        let mut spill = [0; SPILL_BYTES];
        spill[0] = last.bytes[at];
        state.append_part(&mut spill, from, time, value)?;
        let count = state.byte_len() - from;
        let kept = count.min(NODE_BYTES - at);
        last.bytes[at..at + kept].copy_from_slice(&spill[..kept]);
        if kept == count {
            return Ok(());
        }
        let mut node = ChunkNode { next: last.next, ..ChunkNode::EMPTY };
        // Copies a sample of maximal length: bytes after the end may have any value.
        node.bytes[..SAMPLE_BYTES_MAX].copy_from_slice(&spill[kept..kept + SAMPLE_BYTES_MAX]);
        *buffer = self.add_node(*buffer, node);
        Ok(())
    }

    /// Stores the bytes of a whole chunk.
    pub(crate) fn store(&mut self, chunk: &[u8]) -> ChunkBuffer {
        let mut buffer = self.start_node();
        for (idx, part) in chunk.chunks(NODE_BYTES).enumerate() {
            if idx > 0 {
                let next = self.nodes.get(buffer.0).map_or(SLOT_NONE, |last| last.next);
                buffer = self.add_node(buffer, ChunkNode { next, ..ChunkNode::EMPTY });
            }
            if let Some(last) = self.nodes.get_mut(buffer.0) {
                last.bytes[..part.len()].copy_from_slice(part);
            }
        }
        buffer
    }

    /// Appends the chunk that ends at `state` to `out`, with its header filled in.
    pub(crate) fn copy(&self, buffer: ChunkBuffer, state: &OpenState, out: &mut Vec<u8>) {
        if buffer.is_none() {
            return;
        }
        let start = out.len();
        let mut left = state.byte_len();
        out.reserve(left);
        let mut at = self.nodes.get(buffer.0).map_or(SLOT_NONE, |last| last.next);
        while left > 0 {
            let node = self.nodes.get(at).expect("a buffer has as many nodes as its bytes need");
            let count = left.min(NODE_BYTES);
            out.extend_from_slice(&node.bytes[..count]);
            left -= count;
            at = node.next;
        }
        out[start..start + HEADER_BYTES].copy_from_slice(&state.count().to_be_bytes());
    }

    /// Copies several chunks, each to its part of `out`, with their headers filled in.
    // PERF: nodes are read round by round, so that the cache misses of several chunks overlap; misses of one
    // chunk depend on each other. cargo xtask bench queries --head --only chronolith
    pub(crate) fn copy_many(&self, copies: &[BufferCopy], out: &mut [u8]) {
        let mut cursors = [CopyCursor::DONE; COPIES_AT_ONCE];
        for group in copies.chunks(COPIES_AT_ONCE) {
            let cursors = &mut cursors[..group.len()];
            for (cursor, copy) in cursors.iter_mut().zip(group) {
                let first = self.nodes.get(copy.buffer.0).map_or(SLOT_NONE, |last| last.next);
                *cursor = CopyCursor { node: first, at: copy.start, end: copy.start + copy.len };
            }
            let mut is_left = true;
            while is_left {
                is_left = false;
                for cursor in cursors.iter_mut().filter(|cursor| cursor.at < cursor.end) {
                    let node = self.nodes.get(cursor.node).expect("a buffer has as many nodes as it needs");
                    let count = NODE_BYTES.min(cursor.end - cursor.at);
                    out[cursor.at..cursor.at + count].copy_from_slice(&node.bytes[..count]);
                    *cursor = CopyCursor { node: node.next, at: cursor.at + count, ..*cursor };
                    is_left |= cursor.at < cursor.end;
                }
            }
            for copy in group {
                out[copy.start..copy.start + HEADER_BYTES].copy_from_slice(&copy.count.to_be_bytes());
            }
        }
    }

    /// Frees all nodes of a buffer.
    pub(crate) fn free(&mut self, buffer: ChunkBuffer) {
        let Some(last) = self.nodes.get(buffer.0) else { return };
        self.buffer_count -= 1;
        let mut at = last.next;
        while at != buffer.0 {
            let next = self.nodes.get(at).expect("a list is circular").next;
            self.nodes.free(at);
            at = next;
        }
        self.nodes.free(buffer.0);
    }

    /// Number of buffers in use.
    pub(crate) fn count(&self) -> u64 {
        self.buffer_count
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        self.nodes.heap_bytes()
    }

    /// Allocates a buffer of one node.
    fn start_node(&mut self) -> ChunkBuffer {
        self.buffer_count += 1;
        let idx = self.nodes.alloc(ChunkNode::EMPTY);
        if let Some(node) = self.nodes.get_mut(idx) {
            node.next = idx;
        }
        ChunkBuffer(idx)
    }

    /// Appends `node`, which links to the first node, to the list.
    fn add_node(&mut self, buffer: ChunkBuffer, node: ChunkNode) -> ChunkBuffer {
        let idx = self.nodes.alloc(node);
        if let Some(last) = self.nodes.get_mut(buffer.0) {
            last.next = idx;
        }
        // A single node links to itself as the first node, so `node` then links to it too.
        ChunkBuffer(idx)
    }
}

/// Returns the offset of the last node in a chunk of `len` bytes.
fn last_node_start(len: usize) -> usize {
    // A 32-bit division by a constant is a multiplication.
    (len.saturating_sub(1) as u32 / NODE_BYTES as u32) as usize * NODE_BYTES
}

#[cfg(test)]
mod tests;
