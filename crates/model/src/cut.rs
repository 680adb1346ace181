//! Cuts of a partition of the replicated log: which block of an owner counts, and from which record on a new
//! owner reads. Any number of owners may read a partition, none knows of the others.
//!
//! Each owner that applies the cut at offset X has the same open windows and makes the same blocks of them.
//! The catalogue of a store keeps one offset per partition, the cut that its newest block of the partition is
//! of; block and offset get there in one step.
//!
//! Invariants, which `tests` verify in every order of two owners, three cuts and stops: a sample is in one
//! live block at most; no `resume` passes a sample that is in no block; a sample is in a block, in an open
//! window of every owner that has read it, or in a record that the next owner reads.
//! Not here: records (`format::record`), catalogues (`format::bucket::catalogue`), uploads.

use std::collections::{BTreeMap, VecDeque};

use xxhash_rust::xxh3::xxh3_128;

use crate::log_position::LogPartition;

/// Returns true if the blocks of the cut at offset `cut` may become live in a catalogue whose newest cut of
/// the partition is `catalogue_cut`. Otherwise the windows are in live blocks already, and the owner drops
/// its blocks. The answer counts only for the snapshot of the catalogue that the next one is created after.
#[must_use]
pub fn may_publish(catalogue_cut: Option<u64>, cut: u64) -> bool {
    catalogue_cut.is_none_or(|newest| newest < cut)
}

/// Returns the offset from which on a new owner has to read: the oldest record with a sample that is in no
/// live block, or `next_offset` if there is none. `first_offsets` are the first records of all windows that
/// are open, or cut and in no live block.
#[must_use]
pub fn resume_after(next_offset: u64, first_offsets: impl Iterator<Item = u64>) -> u64 {
    first_offsets.fold(next_offset, u64::min)
}

/// Returns the offset that replaces the stored one, if any: offsets only grow, whichever owner writes.
#[must_use]
pub fn next_resume(stored: Option<u64>, own: u64) -> Option<u64> {
    stored.is_none_or(|stored| stored < own).then_some(own)
}

/// Returns the random part of the name of a block, 80 bits: a hash of partition, offset of the cut, folder of
/// the store in the bucket, start of the window and name of the process that writes.
///
/// The process is part of it since files of two owners may differ, in the bounds of their chunks for example:
/// with equal names, an owner that wakes up later would replace files of the live block of another one.
#[must_use]
pub fn block_name_hash(
    partition: LogPartition,
    cut: u64,
    folder: &str,
    window_start: i64,
    writer: &[u8; 16],
) -> u128 {
    let mut bytes = Vec::with_capacity(52 + folder.len());
    bytes.extend_from_slice(&partition.topic.0);
    bytes.extend_from_slice(&partition.number.0.to_le_bytes());
    bytes.extend_from_slice(&cut.to_le_bytes());
    bytes.extend_from_slice(&window_start.to_le_bytes());
    bytes.extend_from_slice(writer);
    bytes.extend_from_slice(folder.as_bytes());
    xxh3_128(&bytes) >> 48
}

/// Windows of a store that were cut together, and whose owner does not know of live blocks of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CutWindows {
    /// Offset of the cut.
    pub cut: u64,
    /// Starts of the windows, ascending; not empty.
    pub windows: Vec<i64>,
    /// First record with a sample of one of them.
    first_offset: u64,
}

impl CutWindows {
    /// Windows of a cut, as another process has noted them. `windows` ascend and are not empty.
    #[must_use]
    pub fn new(cut: u64, windows: Vec<i64>, first_offset: u64) -> CutWindows {
        assert!(!windows.is_empty() && windows.is_sorted(), "the windows of a cut ascend");
        CutWindows { cut, windows, first_offset }
    }

    /// Returns the offset of the first record with a sample of one of the windows.
    #[must_use]
    pub fn first_offset(&self) -> u64 {
        self.first_offset
    }
}

/// Windows of one partition at one owner, which are in no live block: a fold over the records.
///
/// Bounds: a word per open window of a store, and per window that waits for its block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnedWindows<S> {
    next_offset: u64,
    /// First record of each open window, by store and start of the window.
    open: BTreeMap<(S, i64), u64>,
    /// Cut windows of each store, by ascending offset of their cut.
    cut: BTreeMap<S, VecDeque<CutWindows>>,
}

impl<S: Clone + Ord> OwnedWindows<S> {
    /// No windows; the first record has the offset `resume`.
    #[must_use]
    pub fn new(resume: u64) -> OwnedWindows<S> {
        OwnedWindows { next_offset: resume, open: BTreeMap::new(), cut: BTreeMap::new() }
    }

    /// Offset of the next record.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.next_offset
    }

    /// Notes that the next record has samples in a window.
    pub fn note_samples(&mut self, store: S, window_start: i64) {
        self.open.entry((store, window_start)).or_insert(self.next_offset);
    }

    /// Notes a window that records from `first_offset` on have opened, before this owner was made.
    pub fn note_earlier(&mut self, store: S, window_start: i64, first_offset: u64) {
        let known = self.open.entry((store, window_start)).or_insert(first_offset);
        *known = first_offset.min(*known);
    }

    /// Notes windows that were cut before this owner was made.
    ///
    /// # Panics
    /// If the owner has a later cut of the store.
    pub fn note_earlier_cut(&mut self, store: S, cut: CutWindows) {
        let cuts = self.cut.entry(store).or_default();
        assert!(cuts.back().is_none_or(|last| last.cut < cut.cut), "cuts are noted in their order");
        cuts.push_back(cut);
    }

    /// Returns the open windows: store, start and offset of the first record.
    pub fn open(&self) -> impl Iterator<Item = (&S, i64, u64)> {
        self.open.iter().map(|((store, start), first_offset)| (store, *start, *first_offset))
    }

    /// Returns true if the window is open.
    pub fn is_open(&self, store: &S, window_start: i64) -> bool {
        self.open.contains_key(&(store.clone(), window_start))
    }

    /// Ends a record: the next one follows. Offsets may have gaps.
    ///
    /// # Panics
    /// If the record is before the expected one.
    pub fn end_record(&mut self, offset: u64) {
        assert!(offset >= self.next_offset, "records are applied in order");
        self.next_offset = offset + 1;
    }

    /// Cuts the open windows for which `is_cut` is true; the next record, at `offset`, is the cut. Windows
    /// without samples since the cut before are not open, so the second one of two equal cuts makes no
    /// blocks.
    pub fn cut(&mut self, offset: u64, is_cut: impl Fn(&S, i64) -> bool) {
        let windows = self.open.extract_if(.., |key, _| is_cut(&key.0, key.1));
        for ((store, window_start), first_offset) in windows {
            let cuts = self.cut.entry(store).or_default();
            match cuts.back_mut() {
                Some(last) if last.cut == offset => {
                    last.windows.push(window_start);
                    last.first_offset = last.first_offset.min(first_offset);
                }
                _ => cuts.push_back(CutWindows { cut: offset, windows: vec![window_start], first_offset }),
            }
        }
    }

    /// Returns the windows that are published next, of each store the windows of its oldest cut: a catalogue
    /// with a cut has the blocks of all cuts before it.
    pub fn next_to_publish(&self) -> impl Iterator<Item = (&S, &CutWindows)> {
        self.cut.iter().filter_map(|(store, cuts)| Some((store, cuts.front()?)))
    }

    /// Forgets the windows of the cut at `offset` of a store, which are in live blocks: this owner has
    /// published them, or its catalogue has this cut or a later one.
    ///
    /// # Panics
    /// If it is not the oldest cut of the store that is left.
    pub fn settle(&mut self, store: &S, offset: u64) {
        let cuts = self.cut.get_mut(store);
        let is_left = cuts.is_some_and(|cuts| {
            let oldest = cuts.pop_front();
            assert!(
                oldest.is_some_and(|one| one.cut == offset),
                "cuts of a store are settled in their order"
            );
            !cuts.is_empty()
        });
        if !is_left {
            assert!(self.cut.remove(store).is_some(), "the store has windows to publish");
        }
    }

    /// Returns the offset from which on a new owner has to read.
    #[must_use]
    pub fn resume(&self) -> u64 {
        let cut = self.cut.values().flatten().map(|one| one.first_offset);
        resume_after(self.next_offset, self.open.values().copied().chain(cut))
    }
}

#[cfg(test)]
mod tests;
