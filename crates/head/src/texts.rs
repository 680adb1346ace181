//! Texts of series of texts: a word of a text series is the id of a text in the dictionary of its tenant and
//! window.
//!
//! Invariants: within a dictionary an id has one text, and equal texts have equal ids. The frame of a new
//! text is queued for the WAL under the lock of its dictionary, so it precedes every samples frame that names
//! the id, whichever thread writes it. A dictionary is freed only while no sample of its window is in the
//! head and no append or selection of its tenant is running. Ids are keyed hashes: they are the same after a
//! restart, in every file and under every alias of a series, so texts can be read back in any order.
//! Not here: files of texts (`file`), samples (`series`), which move ids like any word.

pub(crate) mod file;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::hash::{HashMap, HashSet};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::memory_part::MemoryPart;

/// Bytes of the longest text.
pub(crate) const TEXT_BYTES_MAX: usize = 4 << 20;
/// Memory of a text in addition to its bytes: reference counts, entry of the table.
const TEXT_OVERHEAD_BYTES: u64 = 48;

/// Memory of the texts of all tenants.
#[derive(Debug, Default)]
pub(crate) struct TextBudget {
    used_bytes: AtomicU64,
    count: AtomicU64,
    bytes_max: u64,
    /// Texts that are in no file of texts.
    unsaved_count: AtomicU64,
}

impl TextBudget {
    pub(crate) fn new(bytes_max: u64) -> Arc<TextBudget> {
        Arc::new(TextBudget { bytes_max, ..TextBudget::default() })
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub(crate) fn has_unsaved(&self) -> bool {
        self.unsaved_count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn memory(&self) -> MemoryPart {
        MemoryPart::new("texts", self.used_bytes(), self.count.load(Ordering::Relaxed))
    }

    /// Returns true if three quarters of the budget are used.
    pub(crate) fn is_short(&self) -> bool {
        self.used_bytes() > self.bytes_max / 4 * 3
    }

    fn has_room(&self, text: &[u8]) -> bool {
        self.used_bytes().saturating_add(cost_of(text)) <= self.bytes_max
    }
}

fn cost_of(text: &[u8]) -> u64 {
    text.len() as u64 + TEXT_OVERHEAD_BYTES
}

/// Texts of one tenant and window.
pub(crate) struct TextDictionary {
    entries: Mutex<Entries>,
    budget: Arc<TextBudget>,
}

/// Entries of a dictionary, locked.
#[derive(Default)]
pub(crate) struct Entries {
    by_id: HashMap<u64, Arc<[u8]>>,
    bytes: u64,
    /// Ids of texts that are in no file of texts.
    unsaved: Vec<u64>,
}

/// Result of looking for a text.
pub(crate) enum Interned {
    /// The dictionary has it.
    Known(u64),
    /// The text was added; its frame must be queued before the dictionary is unlocked.
    Added(u64),
    /// There is no memory left for it.
    Refused,
}

impl TextDictionary {
    fn new(budget: Arc<TextBudget>) -> TextDictionary {
        TextDictionary { entries: Mutex::default(), budget }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock()
    }

    /// Returns the text of an id.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<[u8]>> {
        self.entries.lock().by_id.get(&id).cloned()
    }

    /// Returns the id of a text, which is added if there is memory for it.
    pub(crate) fn intern(&self, entries: &mut Entries, seed: u64, text: &[u8]) -> Interned {
        let mut id = xxh3_64_with_seed(text, seed);
        // Another text with the same hash moves this one to the next id.
        while let Some(found) = entries.by_id.get(&id) {
            if **found == *text {
                return Interned::Known(id);
            }
            id = id.wrapping_add(1);
        }
        if !self.budget.has_room(text) {
            return Interned::Refused;
        }
        self.add(entries, id, Arc::from(text));
        self.note_unsaved(entries, id);
        Interned::Added(id)
    }

    /// Adds a text that was read from a file or the WAL, unless its id is known.
    pub(crate) fn restore(&self, id: u64, text: &[u8], is_saved: bool) {
        let mut entries = self.entries.lock();
        if entries.by_id.contains_key(&id) {
            return;
        }
        self.add(&mut entries, id, Arc::from(text));
        if !is_saved {
            self.note_unsaved(&mut entries, id);
        }
    }

    fn add(&self, entries: &mut Entries, id: u64, text: Arc<[u8]>) {
        let cost = cost_of(&text);
        entries.by_id.insert(id, text);
        entries.bytes += cost;
        self.budget.used_bytes.fetch_add(cost, Ordering::Relaxed);
        self.budget.count.fetch_add(1, Ordering::Relaxed);
    }

    fn note_unsaved(&self, entries: &mut Entries, id: u64) {
        entries.unsaved.push(id);
        self.budget.unsaved_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the texts that are in no file and counts them as saved; [`TextDictionary::put_back`] reverts
    /// it.
    pub(crate) fn take_unsaved(&self) -> Vec<(u64, Arc<[u8]>)> {
        let mut entries = self.entries.lock();
        let ids = std::mem::take(&mut entries.unsaved);
        self.budget.unsaved_count.fetch_sub(ids.len() as u64, Ordering::Relaxed);
        ids.iter().filter_map(|id| Some((*id, entries.by_id.get(id)?.clone()))).collect()
    }

    /// Counts texts as not saved.
    pub(crate) fn put_back(&self, texts: &[(u64, Arc<[u8]>)]) {
        let mut entries = self.entries.lock();
        texts.iter().for_each(|(id, _)| self.note_unsaved(&mut entries, *id));
    }

    /// Returns a dictionary with those texts whose id is in `live`; `None` if that are nearly all.
    pub(crate) fn with_ids(&self, live: &HashSet<u64>) -> Option<Arc<TextDictionary>> {
        let entries = self.entries.lock();
        if entries.by_id.len() < live.len() + live.len() / 4 {
            return None;
        }
        let smaller = TextDictionary::new(self.budget.clone());
        let mut kept = smaller.entries.lock();
        for (&id, text) in entries.by_id.iter().filter(|(id, _)| live.contains(*id)) {
            smaller.add(&mut kept, id, text.clone());
        }
        entries
            .unsaved
            .iter()
            .filter(|id| live.contains(*id))
            .for_each(|&id| smaller.note_unsaved(&mut kept, id));
        drop(kept);
        Some(Arc::new(smaller))
    }

    /// Returns all texts.
    pub(crate) fn all(&self) -> Vec<(u64, Arc<[u8]>)> {
        self.entries.lock().by_id.iter().map(|(id, text)| (*id, text.clone())).collect()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.entries.lock().bytes
    }
}

impl Drop for TextDictionary {
    fn drop(&mut self) {
        let entries = self.entries.get_mut();
        self.budget.used_bytes.fetch_sub(entries.bytes, Ordering::Relaxed);
        self.budget.count.fetch_sub(entries.by_id.len() as u64, Ordering::Relaxed);
        self.budget.unsaved_count.fetch_sub(entries.unsaved.len() as u64, Ordering::Relaxed);
    }
}

/// Dictionaries of one tenant by the start of their window.
#[derive(Default)]
pub(crate) struct TenantTexts {
    by_window: RwLock<BTreeMap<i64, Arc<TextDictionary>>>,
    /// Shared while ids are in use that no sample in the head has, or of samples that may leave it.
    in_use: RwLock<()>,
}

impl TenantTexts {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_window.read().is_empty()
    }

    /// Keeps all dictionaries until the guard is dropped.
    pub(crate) fn keep(&self) -> RwLockReadGuard<'_, ()> {
        self.in_use.read_recursive()
    }

    /// Returns the dictionaries for removal; `None` while they are in use.
    pub(crate) fn try_free(&self) -> Option<UnusedTexts<'_>> {
        Some(UnusedTexts { texts: self, _alone: self.in_use.try_write()? })
    }

    /// Returns the dictionary of the window that starts at `window_start`, created if missing.
    pub(crate) fn get_or_create(&self, window_start: i64, budget: &Arc<TextBudget>) -> Arc<TextDictionary> {
        if let Some(found) = self.by_window.read().get(&window_start) {
            return found.clone();
        }
        let mut by_window = self.by_window.write();
        let create = || Arc::new(TextDictionary::new(budget.clone()));
        by_window.entry(window_start).or_insert_with(create).clone()
    }

    /// Returns the dictionaries by the start of their window.
    pub(crate) fn all(&self) -> Vec<(i64, Arc<TextDictionary>)> {
        self.by_window.read().iter().map(|(start, one)| (*start, one.clone())).collect()
    }

    /// Returns the dictionaries for reading; `None` if there are none.
    pub(crate) fn snapshot(&self) -> Option<HeadTexts> {
        let by_window = self.by_window.read();
        (!by_window.is_empty()).then(|| HeadTexts(Arc::new(by_window.clone())))
    }
}

/// Dictionaries of a tenant while nothing uses their ids, so that texts may go.
pub(crate) struct UnusedTexts<'t> {
    texts: &'t TenantTexts,
    _alone: RwLockWriteGuard<'t, ()>,
}

impl UnusedTexts<'_> {
    /// Removes the dictionary of the window that starts at `window_start`.
    pub(crate) fn remove(&self, window_start: i64) {
        self.texts.by_window.write().remove(&window_start);
    }

    /// Replaces the dictionary of the window that starts at `window_start`; readers keep the one they have.
    pub(crate) fn replace(&self, window_start: i64, smaller: Arc<TextDictionary>) {
        self.texts.by_window.write().insert(window_start, smaller);
    }
}

/// Texts of a tenant as of one moment.
#[derive(Clone)]
pub struct HeadTexts(Arc<BTreeMap<i64, Arc<TextDictionary>>>);

impl HeadTexts {
    /// Returns the text of a sample at `time` whose value is `word`.
    #[must_use]
    pub fn get(&self, time: i64, word: u64) -> Option<Arc<[u8]>> {
        let (_, dictionary) = self.0.range(..=time).next_back()?;
        dictionary.get(word)
    }
}

/// Texts of all tenants: what their dictionaries share.
pub(crate) struct TextStore {
    pub(crate) budget: Arc<TextBudget>,
    /// Key of the hashes.
    pub(crate) seed: u64,
    pub(crate) file: Mutex<file::TextFile>,
}

impl TextStore {
    /// Returns a store for the WAL with `key`.
    pub(crate) fn new(bytes_max: u64, key: u128, file: file::TextFile) -> TextStore {
        let seed = (key as u64) ^ ((key >> 64) as u64).rotate_left(29);
        TextStore { budget: TextBudget::new(bytes_max), seed, file: Mutex::new(file) }
    }
}

#[cfg(test)]
mod tests;
