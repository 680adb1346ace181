//! Slab allocator for append-only byte streams: singly linked nodes of three size classes, small ones first.
//!
//! Invariants: only the last node of a stream is partly filled; freed nodes are reused. Beyond its first
//! node, at most 3/4 of a stream's memory is unused.
//! Not here: the content of streams (`open_chunk`).

/// Null value of a node reference.
const NONE: u32 = u32::MAX;
/// Node size per class, link included: odd numbers of cache lines. Series that are scraped together write at
/// the same offset of their nodes; with powers of two, these addresses would map to a few sets of the cache.
const CLASS_BYTES: [usize; 3] = [64, 320, 576];
/// Nodes of a stream per class; further ones are of the last class.
const NODES_PER_CLASS: u8 = 4;
const LINK_BYTES: usize = 4;
const CLASS_SHIFT: u32 = 30;
/// Nodes per allocation.
const ARENA_NODES: usize = 1024;

/// A stream: its first and its last node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    head: u32,
    tail: u32,
    /// Bytes used in the last node, link included.
    tail_used: u16,
    /// Node count, saturating at the last class.
    nodes: u8,
}

impl Stream {
    pub(super) const EMPTY: Stream = Stream { head: NONE, tail: NONE, tail_used: 0, nodes: 0 };
}

#[derive(Default)]
struct Class {
    arenas: Vec<Box<[u8]>>,
    used: u32,
    free: u32,
}

impl Stream {
    /// Appends the first `len` bytes that were written to [`Slab::room`].
    #[inline]
    pub(super) fn take_room(&mut self, len: usize) {
        self.tail_used += len as u16;
    }
}

/// Memory of all streams.
pub(super) struct Slab {
    classes: [Class; 3],
}

impl Slab {
    pub(super) fn new() -> Slab {
        let class = || Class { arenas: Vec::new(), used: 0, free: NONE };
        Slab { classes: [class(), class(), class()] }
    }

    /// Returns the unused end of the last node if it has at least `len` bytes. [`Stream::take_room`] appends
    /// bytes that were written there.
    #[inline]
    pub(super) fn room(&mut self, stream: &Stream, len: usize) -> Option<&mut [u8]> {
        if stream.tail == NONE {
            return None;
        }
        self.node_mut(stream.tail).get_mut(stream.tail_used as usize..).filter(|room| room.len() >= len)
    }

    /// Appends `bytes`, across nodes where necessary.
    pub(super) fn append(&mut self, stream: &mut Stream, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if stream.tail == NONE || stream.tail_used as usize == CLASS_BYTES[class_of(stream.tail)] {
                self.add_node(stream);
            }
            let used = stream.tail_used as usize;
            let node = self.node_mut(stream.tail);
            let count = bytes.len().min(node.len() - used);
            node[used..used + count].copy_from_slice(&bytes[..count]);
            stream.tail_used += count as u16;
            bytes = &bytes[count..];
        }
    }

    fn add_node(&mut self, stream: &mut Stream) {
        let class = usize::from(stream.nodes / NODES_PER_CLASS).min(CLASS_BYTES.len() - 1);
        let node = self.take_node(class);
        self.node_mut(node)[..LINK_BYTES].copy_from_slice(&NONE.to_le_bytes());
        if stream.tail == NONE {
            stream.head = node;
        } else {
            self.node_mut(stream.tail)[..LINK_BYTES].copy_from_slice(&node.to_le_bytes());
        }
        stream.tail = node;
        stream.tail_used = LINK_BYTES as u16;
        stream.nodes = (stream.nodes + 1).min(NODES_PER_CLASS * CLASS_BYTES.len() as u8);
    }

    fn take_node(&mut self, class: usize) -> u32 {
        let free = self.classes[class].free;
        if free != NONE {
            self.classes[class].free = self.link(free);
            return free;
        }
        let of_class = &mut self.classes[class];
        if of_class.used as usize == of_class.arenas.len() * ARENA_NODES {
            of_class.arenas.push(vec![0; ARENA_NODES * CLASS_BYTES[class]].into_boxed_slice());
        }
        let node = of_class.used;
        assert!(node < 1 << CLASS_SHIFT, "fewer than 2^30 nodes");
        of_class.used += 1;
        node | (class as u32) << CLASS_SHIFT
    }

    /// Appends the bytes of the stream to `out` and frees its nodes.
    pub(super) fn drain(&mut self, stream: &mut Stream, out: &mut Vec<u8>) {
        let mut node = stream.head;
        while node != NONE {
            let next = self.link(node);
            let end =
                if node == stream.tail { stream.tail_used as usize } else { CLASS_BYTES[class_of(node)] };
            out.extend_from_slice(&self.node_mut(node)[LINK_BYTES..end]);
            let class = class_of(node);
            let free = self.classes[class].free;
            self.node_mut(node)[..LINK_BYTES].copy_from_slice(&free.to_le_bytes());
            self.classes[class].free = node;
            node = next;
        }
        *stream = Stream::EMPTY;
    }

    fn link(&mut self, node: u32) -> u32 {
        let mut link = [0; LINK_BYTES];
        link.copy_from_slice(&self.node_mut(node)[..LINK_BYTES]);
        u32::from_le_bytes(link)
    }

    #[inline]
    fn node_mut(&mut self, node: u32) -> &mut [u8] {
        let class = class_of(node);
        let bytes = CLASS_BYTES[class];
        let number = (node & ((1 << CLASS_SHIFT) - 1)) as usize;
        let (arena, start) = (number / ARENA_NODES, number % ARENA_NODES * bytes);
        &mut self.classes[class].arenas[arena][start..start + bytes]
    }
}

#[inline]
fn class_of(node: u32) -> usize {
    (node >> CLASS_SHIFT) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drained_streams_equal_appended_bytes_and_nodes_are_reused() {
        let mut slab = Slab::new();
        let mut streams = [Stream::EMPTY; 7];
        for round in 0..3 {
            let mut expected = vec![Vec::new(); streams.len()];
            for step in 0..3000usize {
                let at = step * step % streams.len();
                let len = 1 + step % 16;
                let bytes: [u8; 16] = std::array::from_fn(|i| (step + i + round) as u8);
                let bytes = &bytes[..len];
                match slab.room(&streams[at], len).filter(|_| step % 2 == 0) {
                    Some(room) => {
                        room[..len].copy_from_slice(bytes);
                        streams[at].take_room(len);
                    }
                    None => slab.append(&mut streams[at], bytes),
                }
                expected[at].extend_from_slice(bytes);
            }
            for (stream, expected) in streams.iter_mut().zip(&expected) {
                let mut out = Vec::new();
                slab.drain(stream, &mut out);
                assert_eq!(&out, expected);
            }
            assert_eq!(slab.classes.iter().map(|c| c.arenas.len()).sum::<usize>(), 3, "round {round}");
        }
    }
}
