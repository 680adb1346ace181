//! Where the memory of one tenant's tables is. Cost: nothing worth mention; sums are kept while the tables grow.

use super::{Name, Pair, Tables};
use crate::memory::MemoryPart;

impl Tables {
    /// Text, pairs, lists and tables, each once.
    pub(crate) fn memory(&self) -> [MemoryPart; 8] {
        let part = |name, bytes: usize, count: usize| MemoryPart::new(name, bytes as u64, count as u64);
        let name_bytes = self.names.capacity() * size_of::<Name>()
            + self.name_list_bytes
            + self
                .names
                .iter()
                .map(|name| 4 * name.by_value.lock().len() + name.searches.heap_bytes())
                .sum::<usize>()
            + self.name_table.allocation_size();
        let (series, pairs) = (self.ids.len(), self.pairs.len());
        let index_bytes = 4 * (self.ids.capacity() + self.starts.capacity()) + 8 * self.dead.capacity();
        [
            part("label_text", self.text.capacity(), pairs),
            part("label_names", name_bytes, self.names.len()),
            part("label_pairs", self.pairs.capacity() * size_of::<Pair>(), pairs),
            part("label_pair_table", self.pair_table.heap_bytes(), pairs),
            part("series_members", self.members.heap_bytes(), series),
            part("series_index", index_bytes, series),
            part("series_table", self.label_table.heap_bytes(), series),
            part("postings", self.postings_bytes, pairs),
        ]
    }
}
