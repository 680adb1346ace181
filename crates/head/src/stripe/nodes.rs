//! Places of sealed chunks: one list a series through a shared arena, newest first.
//! Holds: a list ends at [`super::NONE`]; a node belongs to one list.

use chronolith_format::sealed::RecordHeader;

use super::NONE;
use crate::sealed::SealedPlace;

/// A sealed chunk as the head remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealedNode {
    pub(crate) min_time: i64,
    pub(crate) span_ms: u32,
    pub(crate) place: SealedPlace,
    pub(crate) len: u16,
    pub(crate) count: u16,
    next: u32,
}

const _: () = assert!(size_of::<SealedNode>() <= 32);

impl SealedNode {
    /// The node of a chunk of `len` bytes at `place`.
    ///
    /// # Panics
    /// If the chunk spans more than 49 days; windows are shorter.
    pub(crate) fn new(place: SealedPlace, header: &RecordHeader, len: usize) -> SealedNode {
        let span_ms =
            u32::try_from(header.max_time - header.min_time).expect("a chunk stays within a window");
        let len = u16::try_from(len).expect("chunks are at most xor::CHUNK_BYTES_MAX long");
        SealedNode { min_time: header.min_time, span_ms, place, len, count: header.count, next: NONE }
    }

    /// A node of a checkpoint, whose fields the caller has checked.
    pub(crate) fn restored(
        place: SealedPlace,
        min_time: i64,
        span_ms: u32,
        len: u16,
        count: u16,
    ) -> SealedNode {
        SealedNode { min_time, span_ms, place, len, count, next: NONE }
    }

    pub(crate) fn max_time(&self) -> i64 {
        self.min_time + i64::from(self.span_ms)
    }
}

/// The arena.
#[derive(Default)]
pub(crate) struct SealedNodes {
    nodes: Vec<SealedNode>,
    free: Vec<u32>,
}

impl SealedNodes {
    /// Puts `node` before the list that starts at `older`; gives the new start.
    pub(crate) fn push(&mut self, mut node: SealedNode, older: u32) -> u32 {
        node.next = older;
        if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    /// The list that starts at `start`, newest first.
    pub(crate) fn list(&self, start: u32) -> impl Iterator<Item = &SealedNode> {
        let mut at = start;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.next;
            Some(node)
        })
    }

    /// Unlinks the nodes for which `is_gone` holds; gives the new start.
    pub(crate) fn remove(&mut self, start: u32, mut is_gone: impl FnMut(&SealedNode) -> bool) -> u32 {
        let mut kept_start = NONE;
        let mut kept_last = NONE;
        let mut at = start;
        while at != NONE {
            let node = self.nodes[at as usize];
            if is_gone(&node) {
                self.free.push(at);
            } else {
                match kept_last {
                    NONE => kept_start = at,
                    last => self.nodes[last as usize].next = at,
                }
                kept_last = at;
            }
            at = node.next;
        }
        if kept_last != NONE {
            self.nodes[kept_last as usize].next = NONE;
        }
        kept_start
    }

    /// Nodes in use.
    pub(crate) fn count(&self) -> u64 {
        (self.nodes.len() - self.free.len()) as u64
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        (self.nodes.capacity() * size_of::<SealedNode>() + 4 * self.free.capacity()) as u64
    }
}
