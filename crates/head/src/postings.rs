//! Ascending series ids of one label pair, a byte or two each.
//! Holds: ids are appended in ascending order and never removed; whoever reads leaves out dead series.

use chronolith_base::ByteReader;
use chronolith_base::bytes::put_uvarint;

/// Differences as varints, appended only.
#[derive(Default)]
pub(crate) struct Postings {
    deltas: Vec<u8>,
    last: u32,
}

impl Postings {
    /// Appends `id`, which must be above all others.
    pub(crate) fn push(&mut self, id: u32) {
        assert!(self.deltas.is_empty() || id > self.last, "postings ascend");
        put_uvarint(&mut self.deltas, u64::from(id - self.last));
        self.last = id;
    }

    /// Appends all ids to `out`.
    pub(crate) fn read(&self, out: &mut Vec<u32>) {
        let mut reader = ByteReader::new(&self.deltas);
        let mut id = 0u32;
        while let Ok(delta) = reader.uvarint("posting") {
            id = id.wrapping_add(delta as u32);
            out.push(id);
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.deltas.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back() {
        let mut postings = Postings::default();
        let ids = [0, 1, 2, 130, 70_000, u32::MAX];
        ids.iter().for_each(|&id| postings.push(id));
        let mut out = Vec::new();
        postings.read(&mut out);
        assert_eq!(out, ids);
    }
}
