//! Ascending series ids of one label pair, a byte or two each.
//! Holds: ids are appended in ascending order and never removed; whoever reads leaves out dead series.

use chronolith_base::ByteReader;
use chronolith_base::bytes::put_uvarint;

/// No series has this id.
const ID_NONE: u32 = u32::MAX;

/// The first id, and differences as varints, appended only. A pair of one series has nothing on the heap.
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
    /// Appends `id`, which must be above all others; gives how many bytes of heap that took.
    pub(crate) fn push(&mut self, id: u32) -> usize {
        if self.first == ID_NONE {
            (self.first, self.last) = (id, id);
            return 0;
        }
        assert!(id > self.last, "postings ascend");
        let before = self.deltas.capacity();
        put_uvarint(&mut self.deltas, u64::from(id - self.last));
        self.last = id;
        self.deltas.capacity() - before
    }

    /// Appends all ids to `out`.
    pub(crate) fn read(&self, out: &mut Vec<u32>) {
        if self.first == ID_NONE {
            return;
        }
        let mut id = self.first;
        out.push(id);
        let mut reader = ByteReader::new(&self.deltas);
        while let Ok(delta) = reader.uvarint("posting") {
            id = id.wrapping_add(delta as u32);
            out.push(id);
        }
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
        let ids = [0, 1, 2, 130, 70_000, u32::MAX - 1];
        let heap_bytes: usize = ids.iter().map(|&id| postings.push(id)).sum();
        postings.read(&mut out);
        assert_eq!(out, ids);
        assert_eq!(heap_bytes, postings.deltas.capacity());
    }
}
