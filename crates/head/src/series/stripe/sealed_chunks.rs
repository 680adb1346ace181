//! References to sealed chunks: one linked list per series in a shared slab. New chunks are prepended; a
//! chunk that is encoded again keeps its slot in the list.
//!
//! Invariants: a list ends at [`super::NONE`]; an element belongs to one list.

use chronolith_format::head::sealed::RecordHeader;

use super::NONE;
use crate::series::sealed::ChunkRef;
use crate::series::slots::{SLOT_NONE, Slot, Slots};

/// Metadata of a sealed chunk. Packed: there is one per chunk of each series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct SealedChunk {
    pub(crate) min_time: i64,
    pub(crate) span_ms: u32,
    pub(crate) chunk_ref: ChunkRef,
    pub(crate) len: u16,
    pub(crate) count: u16,
    next: u32,
}

const _: () = assert!(size_of::<SealedChunk>() <= 28);

impl SealedChunk {
    /// Returns the metadata of a chunk of `len` bytes at `chunk_ref`.
    ///
    /// # Panics
    /// If the chunk spans more than 49 days; windows are shorter.
    pub(crate) fn new(chunk_ref: ChunkRef, header: &RecordHeader, len: usize) -> SealedChunk {
        let span_ms =
            u32::try_from(header.max_time - header.min_time).expect("a chunk stays within a window");
        let len = u16::try_from(len).expect("chunks are at most xor::CHUNK_BYTES_MAX long");
        SealedChunk { min_time: header.min_time, span_ms, chunk_ref, len, count: header.count, next: NONE }
    }

    /// Returns the metadata of a chunk of a checkpoint, whose fields the caller has checked.
    pub(crate) fn restored(
        chunk_ref: ChunkRef,
        min_time: i64,
        span_ms: u32,
        len: u16,
        count: u16,
    ) -> SealedChunk {
        SealedChunk { min_time, span_ms, chunk_ref, len, count, next: NONE }
    }

    pub(crate) fn max_time(&self) -> i64 {
        self.min_time + i64::from(self.span_ms)
    }
}

impl Slot for SealedChunk {
    const EMPTY: SealedChunk = SealedChunk {
        min_time: 0,
        span_ms: 0,
        chunk_ref: ChunkRef { file: 0, offset: 0 },
        len: 0,
        count: 0,
        next: NONE,
    };
    const PAGE_BITS: u32 = 11;

    fn link(&self) -> u32 {
        self.next
    }

    fn set_link(&mut self, link: u32) {
        self.next = link;
    }
}

const _: () = assert!(NONE == SLOT_NONE);

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

    /// As [`SealedChunks::list`], with slots.
    pub(crate) fn slots(&self, start: u32) -> impl Iterator<Item = (u32, &SealedChunk)> {
        let mut at = start;
        std::iter::from_fn(move || {
            let (slot, node) = (at, self.nodes.get(at)?);
            at = node.next;
            Some((slot, node))
        })
    }

    /// Returns the chunk in a slot.
    pub(crate) fn get(&self, slot: u32) -> Option<&SealedChunk> {
        self.nodes.get(slot)
    }

    /// Replaces the chunk in a slot by another of the same series.
    pub(crate) fn replace(&mut self, slot: u32, node: SealedChunk) {
        if let Some(old) = self.nodes.get_mut(slot) {
            *old = SealedChunk { next: old.next, ..node };
        }
    }

    /// Unlinks the chunks for which `is_gone` returns true; returns the new start.
    pub(crate) fn remove(&mut self, start: u32, mut is_gone: impl FnMut(&SealedChunk) -> bool) -> u32 {
        let mut kept_start = NONE;
        let mut kept_last = NONE;
        let mut at = start;
        while let Some(&node) = self.nodes.get(at) {
            if is_gone(&node) {
                self.nodes.free(at);
            } else {
                match kept_last {
                    NONE => kept_start = at,
                    last => self.link(last, at),
                }
                kept_last = at;
            }
            at = node.next;
        }
        self.link(kept_last, NONE);
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
