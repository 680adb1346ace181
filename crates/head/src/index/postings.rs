//! Postings of one label pair in order of creation, delta-encoded in one or two bytes per series.
//!
//! Invariant: ids are appended and never removed; they ascend, except where ids of departed series are
//! reused; readers skip dead series.

use chronolith_base::ByteReader;
use chronolith_base::bytes::put_uvarint;

/// Not a series id.
const ID_NONE: u32 = u32::MAX;

/// The first id, and differences as varints, append-only. A pair of one series has no heap memory.
pub(crate) struct Postings {
    deltas: Vec<u8>,
    first: u32,
    last: u32,
}

impl Default for Postings {
    fn default() -> Self {
        Postings { deltas: Vec::new(), first: ID_NONE, last: ID_NONE }
    }
}

impl Postings {
    /// Appends `id`, cheapest if it is above the last one; returns the heap bytes added.
    pub(crate) fn push(&mut self, id: u32) -> usize {
        if self.first == ID_NONE {
            (self.first, self.last) = (id, id);
            return 0;
        }
        let before = self.deltas.capacity();
        put_uvarint(&mut self.deltas, u64::from(id.wrapping_sub(self.last)));
        self.last = id;
        self.deltas.capacity() - before
    }

    /// Appends all ids to `out`.
    pub(crate) fn read(&self, out: &mut Vec<u32>) {
        out.extend(self.iter());
    }

    /// Returns true if `wanted` returns true for one of the ids; stops at the first.
    pub(crate) fn any(&self, wanted: impl FnMut(u32) -> bool) -> bool {
        self.iter().any(wanted)
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let mut id = self.first;
        let first = (id != ID_NONE).then_some(id);
        let mut deltas = self.deltas.as_slice();
        let next = move || {
            // Fast path: most neighbours are less than 128 apart.
            let delta = match deltas {
                [] => return None,
                [small, rest @ ..] if *small < 0x80 => {
                    deltas = rest;
                    u32::from(*small)
                }
                _ => {
                    let mut reader = ByteReader::new(deltas);
                    let delta = reader.uvarint("posting").ok()?;
                    deltas = &deltas[deltas.len() - reader.remaining()..];
                    delta as u32
                }
            };
            id = id.wrapping_add(delta);
            Some(id)
        };
        first.into_iter().chain(std::iter::from_fn(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back() {
        let mut postings = Postings::default();
        let mut out = Vec::new();
        postings.read(&mut out);
        assert!(out.is_empty());
        let ids = [0, 1, 2, 130, 70_000, u32::MAX - 1, 5, 6, 3];
        let heap_bytes: usize = ids.iter().map(|&id| postings.push(id)).sum();
        postings.read(&mut out);
        assert_eq!(out, ids);
        assert_eq!(heap_bytes, postings.deltas.capacity());
    }
}
