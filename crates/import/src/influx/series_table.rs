//! Series of a shard in the order of blocks, with the places of their points in TSM files and WAL.
//!
//! The indices of all files and the keys of the WAL, each sorted by key, are merged; series are then sorted
//! by labels.
//! Invariants: equal labels are one series, whatever keys gave them.
//! Memory: label pairs once, 4 bytes per label of a series, 20 bytes per series, 16 bytes per series and
//! file.
//! Not here: points (`shard`).

use chronolith_base::{DecodeError, KWayMerge};
use chronolith_block::{LabelDictionary, LabelRanks};
use chronolith_model::{Labels, LabelsBuilder, WordKind};

use super::key::{KeyReject, parse_labels};
use super::tsm::{IndexKey, IndexKeys, TsmFile};
use super::wal_points::{WalKey, kind_order};

/// Place of the points of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// Offset of the key in the index of a file.
    File { file: u32, offset: u64 },
    /// Index of the key in the WAL.
    Wal { key: u32 },
}

struct Entry {
    /// End of its pairs; they begin at the end of the previous entry's pairs.
    pairs_end: usize,
    sources_end: usize,
}

/// Series of one shard.
#[derive(Default)]
pub(crate) struct SeriesTable {
    dictionary: LabelDictionary,
    pairs: Vec<u32>,
    entries: Vec<Entry>,
    sources: Vec<KeySource>,
    /// Entries by labels.
    order: Vec<u32>,
    /// Ends of the runs of equal labels in `order`.
    groups: Vec<u32>,
    builder: LabelsBuilder,
}

/// Receives what the table leaves out.
pub(crate) trait TableEvents {
    /// Reports that the rest of the index of a file cannot be read.
    fn index_damage(&mut self, file: usize, error: &DecodeError);
    /// Reports a key that cannot be a series.
    fn rejected(&mut self, key: &[u8], reject: KeyReject, sources: &[KeySource]);
}

/// Next key of a source of the merge: bytes and order of the kind.
type MergeKey<'a> = (&'a [u8], u8);

impl SeriesTable {
    /// Merges the keys of all files and of the WAL.
    pub(crate) fn build(
        files: &[Option<TsmFile<'_>>],
        wal_keys: &[WalKey],
        events: &mut dyn TableEvents,
    ) -> SeriesTable {
        let mut table = SeriesTable::default();
        let mut cursors: Vec<Option<IndexKeys<'_>>> =
            files.iter().map(|file| file.as_ref().map(TsmFile::keys)).collect();
        let mut heads: Vec<Option<IndexKey<'_>>> = vec![None; files.len()];
        let mut merge: KWayMerge<MergeKey<'_>> = KWayMerge::with_capacity(files.len() + 1);
        let mut wal_idx = 0;
        let wal_source = files.len();
        for source in 0..=wal_source {
            table.advance(source, &mut cursors, &mut heads, wal_keys.first(), &mut merge, events);
        }
        let mut of_key = Vec::new();
        let mut sources = Vec::new();
        while let Some((key, _)) = merge.pop(&mut of_key) {
            sources.clear();
            let mut kind = WordKind::Float;
            for &source in &of_key {
                if let Some(head) = heads.get(source).copied().flatten() {
                    kind = head.kind;
                    sources.push(KeySource::File { file: source as u32, offset: head.offset as u64 });
                } else if let Some(head) = wal_keys.get(wal_idx) {
                    kind = head.kind;
                    sources.push(KeySource::Wal { key: wal_idx as u32 });
                    wal_idx += 1;
                }
            }
            table.add(key, kind, &sources, events);
            for &source in &of_key {
                let wal_next = wal_keys.get(wal_idx);
                table.advance(source, &mut cursors, &mut heads, wal_next, &mut merge, events);
            }
        }
        table.sort();
        table
    }

    /// Pushes the next key of a source to the merge.
    fn advance<'a>(
        &self,
        source: usize,
        cursors: &mut [Option<IndexKeys<'a>>],
        heads: &mut [Option<IndexKey<'a>>],
        wal_next: Option<&'a WalKey>,
        merge: &mut KWayMerge<MergeKey<'a>>,
        events: &mut dyn TableEvents,
    ) {
        let Some(cursor) = cursors.get_mut(source) else {
            if let Some(next) = wal_next {
                merge.push((&next.key, kind_order(next.kind)), source);
            }
            return;
        };
        let next = match cursor.as_mut().and_then(Iterator::next) {
            Some(Ok(next)) => Some(next),
            Some(Err(error)) => {
                events.index_damage(source, &error);
                None
            }
            None => None,
        };
        if let Some(next) = next {
            merge.push((next.key, kind_order(next.kind)), source);
        }
        if let Some(head) = heads.get_mut(source) {
            *head = next;
        }
    }

    fn add(&mut self, key: &[u8], kind: WordKind, sources: &[KeySource], events: &mut dyn TableEvents) {
        if let Err(reject) = parse_labels(key, kind, &mut self.builder) {
            events.rejected(key, reject, sources);
            return;
        }
        for (name, value) in self.builder.iter() {
            self.pairs.push(self.dictionary.number(name, value));
        }
        self.sources.extend_from_slice(sources);
        let pairs_end = self.pairs.len();
        let sources_end = self.sources.len();
        self.entries.push(Entry { pairs_end, sources_end });
    }

    fn sort(&mut self) {
        self.dictionary.freeze();
        let ranks: LabelRanks = self.dictionary.ranks();
        let mut order: Vec<u32> = (0u32..).take(self.entries.len()).collect();
        let rank_of = |pair: &u32| ranks.of(*pair);
        order
            .sort_by(|&a, &b| self.pairs_of(a).iter().map(rank_of).cmp(self.pairs_of(b).iter().map(rank_of)));
        let runs = order.chunk_by(|&a, &b| self.pairs_of(a) == self.pairs_of(b));
        self.groups = runs
            .scan(0u32, |end, run| {
                *end += run.len() as u32;
                Some(*end)
            })
            .collect();
        self.order = order;
    }

    fn pairs_of(&self, entry: u32) -> &[u32] {
        let start = self.before(entry).map_or(0, |before| before.pairs_end);
        let end = self.entries.get(entry as usize).map_or(start, |entry| entry.pairs_end);
        self.pairs.get(start..end).unwrap_or_default()
    }

    fn before(&self, entry: u32) -> Option<&Entry> {
        self.entries.get((entry as usize).checked_sub(1)?)
    }

    /// Number of series.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    fn entries_of(&self, series: usize) -> &[u32] {
        let end = |idx: usize| self.groups.get(idx).map_or(0, |&end| end as usize);
        let start = series.checked_sub(1).map_or(0, end);
        self.order.get(start..end(series)).unwrap_or_default()
    }

    /// Labels of a series. `builder` is cleared.
    pub(crate) fn labels(&self, series: usize, builder: &mut LabelsBuilder) -> Labels {
        builder.clear();
        for &entry in self.entries_of(series).iter().take(1) {
            for &pair in self.pairs_of(entry) {
                let (name, value) = self.dictionary.texts(pair);
                builder.push(name, value);
            }
        }
        builder.finish()
    }

    /// Places of the points of a series.
    pub(crate) fn sources(&self, series: usize) -> impl Iterator<Item = KeySource> {
        self.entries_of(series).iter().flat_map(|&entry| {
            let start = self.before(entry).map_or(0, |before| before.sources_end);
            let end = self.entries.get(entry as usize).map_or(start, |entry| entry.sources_end);
            self.sources.get(start..end).unwrap_or_default().iter().copied()
        })
    }
}
