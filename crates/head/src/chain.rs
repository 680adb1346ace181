//! Bytes of open chunks as chains of links of one size: a chunk grows by a link at a time and never moves, and
//! series that grow in step leave no slots of smaller sizes behind.
//!
//! Holds: a chain is a circle that is known by its last link, whose link is the first; it has as many links as
//! its bytes need, and at least one. The count in the chunk's header is written when the chunk is copied, so
//! that an append touches the last link only.
//! Not here: what the bits mean (`format::xor`).

use chronolith_format::xor::{HEADER_BYTES, SAMPLE_BYTES_MAX, XorState};

use crate::slots::{SLOT_NONE, Slot, Slots};

/// Bytes of a chunk in a link; with the number of the next link they are one cache line.
// PERF: chunks of a fleet of counters and gauges take 5.3 bytes a sample, so that links of 32, 48 and 64 bytes waste
// the same in the mean (numbers in the short ones, ends of the long ones); only the last are a single cache miss.
//   cargo run --release -p chronolith-head --example append_speed -- 100000 130 10
pub(crate) const LINK_BYTES: usize = 60;
/// The last byte in use, one sample more, and room to cut at any place.
const SPILL_BYTES: usize = 1 + 2 * SAMPLE_BYTES_MAX;

const _: () = assert!(LINK_BYTES >= HEADER_BYTES + SAMPLE_BYTES_MAX, "the first sample fits a link");

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Link {
    bytes: [u8; LINK_BYTES],
    next: u32,
}

const _: () = assert!(size_of::<Link>() == 64);

impl Slot for Link {
    const EMPTY: Link = Link { bytes: [0; LINK_BYTES], next: SLOT_NONE };
    const PAGE_BITS: u32 = 11;

    fn link(&self) -> u32 {
        self.next
    }

    fn set_link(&mut self, link: u32) {
        self.next = link;
    }
}

/// The last link of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chain(u32);

impl Chain {
    /// No chain.
    pub(crate) const NONE: Chain = Chain(SLOT_NONE);

    pub(crate) fn is_none(self) -> bool {
        self == Chain::NONE
    }
}

/// The open chunks of one stripe.
pub(crate) struct Chains {
    links: Slots<Link>,
    chain_count: u64,
}

impl Chains {
    pub(crate) fn new() -> Chains {
        Chains { links: Slots::new(), chain_count: 0 }
    }

    /// A chunk with one sample, which `state` (new before) then stands behind.
    pub(crate) fn start(&mut self, state: &mut XorState, time: i64, value: f64) -> Chain {
        let chain = self.start_link();
        let link = self.links.get_mut(chain.0).expect("the link was just made");
        state.append_part(&mut link.bytes, 0, time, value);
        chain
    }

    /// Appends a sample to the chunk that `state` stands behind; gives its chain, which may end in a further link.
    pub(crate) fn append(&mut self, chain: Chain, state: &mut XorState, time: i64, value: f64) -> Chain {
        let len = state.byte_len();
        let base = last_link_start(len);
        if len - base + SAMPLE_BYTES_MAX > LINK_BYTES {
            return self.append_over_end(chain, state, time, value);
        }
        let link = self.links.get_mut(chain.0).expect("a chain lives as long as its series says");
        state.append_part(&mut link.bytes, base, time, value);
        chain
    }

    /// As [`Chains::append`] where the sample may reach behind the last link.
    fn append_over_end(&mut self, chain: Chain, state: &mut XorState, time: i64, value: f64) -> Chain {
        let len = state.byte_len();
        let from = len - 1;
        let at = from - last_link_start(len);
        let last = self.links.get_mut(chain.0).expect("a chain lives as long as its series says");
        let mut spill = [0; SPILL_BYTES];
        spill[0] = last.bytes[at];
        state.append_part(&mut spill, from, time, value);
        let count = state.byte_len() - from;
        let kept = count.min(LINK_BYTES - at);
        last.bytes[at..at + kept].copy_from_slice(&spill[..kept]);
        if kept == count {
            return chain;
        }
        let mut link = Link { next: last.next, ..Link::EMPTY };
        // A whole sample is copied whatever its length: what lies behind the bytes in use may be anything.
        link.bytes[..SAMPLE_BYTES_MAX].copy_from_slice(&spill[kept..kept + SAMPLE_BYTES_MAX]);
        self.add_link(chain, link)
    }

    /// A chain with the bytes of a whole chunk.
    pub(crate) fn store(&mut self, chunk: &[u8]) -> Chain {
        let mut chain = self.start_link();
        for (idx, part) in chunk.chunks(LINK_BYTES).enumerate() {
            if idx > 0 {
                let next = self.links.get(chain.0).map_or(SLOT_NONE, |last| last.next);
                chain = self.add_link(chain, Link { next, ..Link::EMPTY });
            }
            if let Some(last) = self.links.get_mut(chain.0) {
                last.bytes[..part.len()].copy_from_slice(part);
            }
        }
        chain
    }

    /// Appends the chunk that `state` stands behind to `out`, its header filled in.
    pub(crate) fn copy(&self, chain: Chain, state: &XorState, out: &mut Vec<u8>) {
        if chain.is_none() {
            return;
        }
        let start = out.len();
        let mut left = state.byte_len();
        out.reserve(left);
        let mut at = self.links.get(chain.0).map_or(SLOT_NONE, |last| last.next);
        while left > 0 {
            let link = self.links.get(at).expect("a chain has as many links as its bytes need");
            let count = left.min(LINK_BYTES);
            out.extend_from_slice(&link.bytes[..count]);
            left -= count;
            at = link.next;
        }
        out[start..start + HEADER_BYTES].copy_from_slice(&state.count().to_be_bytes());
    }

    /// Gives all links of a chain back.
    pub(crate) fn free(&mut self, chain: Chain) {
        let Some(last) = self.links.get(chain.0) else { return };
        self.chain_count -= 1;
        let mut at = last.next;
        while at != chain.0 {
            let next = self.links.get(at).expect("a chain is a circle").next;
            self.links.free(at);
            at = next;
        }
        self.links.free(chain.0);
    }

    /// Chains in use.
    pub(crate) fn count(&self) -> u64 {
        self.chain_count
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        self.links.heap_bytes()
    }

    /// A chain of one link.
    fn start_link(&mut self) -> Chain {
        self.chain_count += 1;
        let idx = self.links.alloc(Link::EMPTY);
        if let Some(link) = self.links.get_mut(idx) {
            link.next = idx;
        }
        Chain(idx)
    }

    /// Puts `link`, which leads to the first link, behind the last one.
    fn add_link(&mut self, chain: Chain, link: Link) -> Chain {
        let idx = self.links.alloc(link);
        if let Some(last) = self.links.get_mut(chain.0) {
            last.next = idx;
        }
        // The only link of a chain leads to itself, which is the first link then, so `link` does too.
        Chain(idx)
    }
}

/// Where in a chunk of `len` bytes its last link starts.
fn last_link_start(len: usize) -> usize {
    // In 32 bits the division is a multiplication.
    (len.saturating_sub(1) as u32 / LINK_BYTES as u32) as usize * LINK_BYTES
}

#[cfg(test)]
mod tests;
