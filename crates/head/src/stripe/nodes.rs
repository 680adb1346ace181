//! Places of sealed chunks: one list a series through a shared arena. New chunks are put in front; one that
//! is encoded again keeps its place in the list.
//! Holds: a list ends at [`super::NONE`]; a node belongs to one list.

use chronolith_format::sealed::RecordHeader;

use super::NONE;
use crate::sealed::SealedPlace;
use crate::slots::{SLOT_NONE, Slot, Slots};

/// A sealed chunk as the head remembers it.
/// Packed to what its fields need: there is one for each chunk of each series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct SealedNode {
    pub(crate) min_time: i64,
    pub(crate) span_ms: u32,
    pub(crate) place: SealedPlace,
    pub(crate) len: u16,
    pub(crate) count: u16,
    next: u32,
}

const _: () = assert!(size_of::<SealedNode>() <= 28);

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

impl Slot for SealedNode {
    const EMPTY: SealedNode = SealedNode {
        min_time: 0,
        span_ms: 0,
        place: SealedPlace { file: 0, offset: 0 },
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

/// The arena.
pub(crate) struct SealedNodes {
    nodes: Slots<SealedNode>,
}

impl SealedNodes {
    pub(crate) fn new() -> SealedNodes {
        SealedNodes { nodes: Slots::new() }
    }

    /// Puts `node` before the list that starts at `older`; gives the new start.
    pub(crate) fn push(&mut self, mut node: SealedNode, older: u32) -> u32 {
        node.next = older;
        self.nodes.alloc(node)
    }

    /// The list that starts at `start`.
    pub(crate) fn list(&self, start: u32) -> impl Iterator<Item = &SealedNode> {
        let mut at = start;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at)?;
            at = node.next;
            Some(node)
        })
    }

    /// As [`SealedNodes::list`], with the slots of the nodes.
    pub(crate) fn slots(&self, start: u32) -> impl Iterator<Item = (u32, &SealedNode)> {
        let mut at = start;
        std::iter::from_fn(move || {
            let (slot, node) = (at, self.nodes.get(at)?);
            at = node.next;
            Some((slot, node))
        })
    }

    /// The node in a slot.
    pub(crate) fn get(&self, slot: u32) -> Option<&SealedNode> {
        self.nodes.get(slot)
    }

    /// Puts `node` where another of the same list is.
    pub(crate) fn replace(&mut self, slot: u32, node: SealedNode) {
        if let Some(old) = self.nodes.get_mut(slot) {
            *old = SealedNode { next: old.next, ..node };
        }
    }

    /// Unlinks the nodes for which `is_gone` holds; gives the new start.
    pub(crate) fn remove(&mut self, start: u32, mut is_gone: impl FnMut(&SealedNode) -> bool) -> u32 {
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

    /// Nodes in use.
    pub(crate) fn count(&self) -> u64 {
        self.nodes.used_count()
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        self.nodes.heap_bytes()
    }
}
