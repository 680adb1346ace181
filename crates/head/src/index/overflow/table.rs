//! Last samples of folded series by key, in order of arrival, and the slots to which they are added.
//!
//! Invariants: a series has one entry of 32 bytes and belongs to one slot; entries move only when series are
//! removed. Senders repeat their order, so the entry after the last hit is checked before the hash table.

use chronolith_base::hash::HashMap;
use chronolith_format::head::wal::{OverflowRef, OverflowSample, OverflowSlot};
use chronolith_model::sample::is_stale;

use super::slot::{BUCKET_COUNT_MAX, SLOT_COUNT_MAX, Slot, SlotKind, step_of};
use crate::index::split_table::SplitTable;

/// Entries that are allocated together.
const BLOCK_COUNT: usize = 1 << 13;
/// Entries that are checked before the table.
const GUESS_COUNT: usize = 4;
/// Bits of the number of a slot in [`Entry::time_and_slot`].
const SLOT_BITS: u32 = 16;
/// Time of an entry without a sample.
const TIME_NONE: i64 = i64::MIN >> SLOT_BITS;
/// Bytes of a slot in addition to its texts.
const SLOT_BYTES: usize = size_of::<Slot>() + 4 * size_of::<u64>();

const _: () = assert!(SLOT_COUNT_MAX < 1 << SLOT_BITS);
const _: () = assert!(size_of::<Entry>() == 32, "a folded series takes 32 bytes");

/// Last sample of a folded series.
#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u128,
    /// Time in the upper 48 bits.
    time_and_slot: i64,
    value: f64,
}

impl Entry {
    fn time(&self) -> i64 {
        self.time_and_slot >> SLOT_BITS
    }

    fn slot(&self) -> usize {
        usize::from(self.time_and_slot as u16)
    }

    fn set_time(&mut self, time: i64) {
        self.time_and_slot = time << SLOT_BITS | (self.time_and_slot & 0xffff);
    }
}

/// Result of folding one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Folded {
    /// The sample changed the entry of its series.
    Changed,
    /// The sample is not newer than the last one.
    Repeated,
    /// The sample has no meaning in a sum: a staleness marker or special value of a counter.
    Ignored,
}

/// Folded series of one tenant.
#[derive(Default)]
pub(crate) struct OverflowTable {
    blocks: Vec<Vec<Entry>>,
    entry_count: usize,
    table: SplitTable,
    slots: Vec<Option<Slot>>,
    slot_by_name: HashMap<(Box<str>, Option<Box<str>>), u16>,
    bucket_counts: HashMap<Box<str>, u16>,
    newest_time: Option<i64>,
    swept_to: Option<i64>,
}

impl OverflowTable {
    /// Number of folded series.
    pub(crate) fn series_count(&self) -> usize {
        self.entry_count
    }

    /// Returns true if there is neither a series nor a total.
    pub(crate) fn is_empty(&self) -> bool {
        self.entry_count == 0 && self.slot_by_name.is_empty()
    }

    /// Returns true if a time fits an entry.
    pub(crate) fn takes_time(time: i64) -> bool {
        (TIME_NONE + 1..-TIME_NONE).contains(&time)
    }

    /// Returns the entry of a series; checks `guess` and the entries after it first.
    pub(crate) fn find(&self, key: u128, guess: usize) -> Option<usize> {
        let near = (guess..self.entry_count.min(guess.saturating_add(GUESS_COUNT)))
            .find(|&idx| self.entry(idx).key == key);
        near.or_else(|| {
            self.table.find(key as u64, |idx| self.entry(idx as usize).key == key).map(|i| i as usize)
        })
    }

    /// Returns the number of the slot of an entry.
    pub(crate) fn slot_of(&self, entry: usize) -> usize {
        self.entry(entry).slot()
    }

    /// Returns the key of an entry.
    pub(crate) fn key_of(&self, entry: usize) -> u128 {
        self.entry(entry).key
    }

    /// Returns a slot that an entry names.
    pub(crate) fn slot(&self, slot: usize) -> Option<&Slot> {
        self.slots.get(slot)?.as_ref()
    }

    /// Returns a slot that an entry names, to change it.
    pub(crate) fn slot_mut(&mut self, slot: usize) -> Option<&mut Slot> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Iterates over all slots.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }

    /// Returns the slot of a metric or bucket, created with `kind` if there is room.
    pub(crate) fn slot_or_create(
        &mut self,
        metric: &str,
        le: Option<&str>,
        kind: impl FnOnce() -> SlotKind,
    ) -> Option<usize> {
        let name = (Box::from(metric), le.map(Box::from));
        if let Some(&slot) = self.slot_by_name.get(&name) {
            return Some(usize::from(slot));
        }
        let bucket_count = self.bucket_counts.get(metric).copied().unwrap_or(0);
        if self.slot_by_name.len() >= SLOT_COUNT_MAX || (le.is_some() && bucket_count >= BUCKET_COUNT_MAX) {
            return None;
        }
        if le.is_some() {
            self.bucket_counts.insert(metric.into(), bucket_count + 1);
        }
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[free] = Some(Slot::new(metric, le, kind()));
        self.slot_by_name.insert(name, free as u16);
        Some(free)
    }

    /// Adds a series without a sample; the key is new.
    pub(crate) fn insert(&mut self, key: u128, slot: usize) -> usize {
        let idx = self.entry_count;
        if idx / BLOCK_COUNT == self.blocks.len() {
            self.blocks.push(Vec::with_capacity(BLOCK_COUNT));
        }
        let entry = Entry { key, time_and_slot: TIME_NONE << SLOT_BITS | slot as i64, value: 0.0 };
        self.blocks[idx / BLOCK_COUNT].push(entry);
        self.entry_count += 1;
        let blocks = &self.blocks;
        self.table.insert(key as u64, idx as u32, |i| entry_in(blocks, i as usize).key as u64);
        if let Some(slot) = self.slot_mut(slot) {
            slot.series_count += 1;
        }
        idx
    }

    /// Folds a sample into its entry and the sums of its slot.
    pub(crate) fn fold(&mut self, entry: usize, time: i64, value: f64) -> Folded {
        let found = &mut self.blocks[entry / BLOCK_COUNT][entry % BLOCK_COUNT];
        let last = *found;
        if time <= last.time() {
            return Folded::Repeated;
        }
        let Some(slot) = self.slots.get_mut(last.slot()).and_then(Option::as_mut) else {
            return Folded::Ignored;
        };
        let is_first = last.time() == TIME_NONE;
        if slot.kind == SlotKind::Counter {
            if !value.is_finite() {
                return Folded::Ignored;
            }
            if !is_first {
                // A value below the last one is a reset: the counter began at 0 again.
                slot.total += if value < last.value { value } else { value - last.value };
            }
        } else {
            if !is_first && !is_stale(last.value) {
                slot.active.remove(last.time(), last.value);
            }
            if !is_stale(value) {
                slot.active.add(time, value);
            }
        }
        found.set_time(time);
        found.value = value;
        slot.time = slot.time.max(step_of(time));
        self.newest_time = self.newest_time.max(Some(time));
        Folded::Changed
    }

    /// Removes series of the given keys; returns those that were there.
    pub(crate) fn remove(&mut self, keys: &[u128]) -> Vec<u128> {
        let mut keys: Vec<u128> =
            keys.iter().copied().filter(|&key| self.find(key, usize::MAX).is_some()).collect();
        keys.sort_unstable();
        keys.dedup();
        for &key in &keys {
            self.remove_one(key);
        }
        keys
    }

    /// Removes one series: the last entry takes its place.
    fn remove_one(&mut self, key: u128) {
        let Some(idx) = self.find(key, usize::MAX) else { return };
        let last_idx = self.entry_count - 1;
        let gone = *self.entry(idx);
        let last = *self.entry(last_idx);
        self.table.remove(key as u64, |i| i as usize == idx);
        if idx != last_idx {
            self.table.remove(last.key as u64, |i| i as usize == last_idx);
            self.blocks[idx / BLOCK_COUNT][idx % BLOCK_COUNT] = last;
            let blocks = &self.blocks;
            self.table.insert(last.key as u64, idx as u32, |i| entry_in(blocks, i as usize).key as u64);
        }
        self.blocks[last_idx / BLOCK_COUNT].pop();
        self.entry_count = last_idx;
        if self.blocks.last().is_some_and(Vec::is_empty) {
            self.blocks.pop();
        }
        if let Some(slot) = self.slot_mut(gone.slot()) {
            slot.series_count -= 1;
            if slot.kind != SlotKind::Counter && gone.time() != TIME_NONE && !is_stale(gone.value) {
                slot.active.remove(gone.time(), gone.value);
            }
        }
    }

    /// Returns the time before which series are idle, if a removal is due.
    pub(crate) fn due_removal(&self, idle: i64, interval: i64) -> Option<i64> {
        let before = self.newest_time?.saturating_sub(idle);
        self.swept_to.is_none_or(|swept| before >= swept.saturating_add(interval)).then_some(before)
    }

    /// Removes series without a sample since `before`, then slots without series and with no later sample.
    /// Order of arrival is kept. Cost: visits all series.
    pub(crate) fn remove_idle(&mut self, before: i64) {
        self.swept_to = Some(before);
        let old = std::mem::take(&mut self.blocks);
        let is_idle = |entry: &Entry| entry.time() < before;
        if old.iter().flatten().any(is_idle) {
            self.table = SplitTable::default();
            self.entry_count = 0;
            for block in old {
                for entry in block {
                    if is_idle(&entry) {
                        self.release(&entry);
                    } else {
                        self.put_back(entry);
                    }
                }
            }
        } else {
            self.blocks = old;
        }
        for slot in &mut self.slots {
            let Some(unused) = slot.take_if(|slot| slot.series_count == 0 && slot.time < before) else {
                continue;
            };
            if let Some(count) = self.bucket_counts.get_mut(&unused.metric).filter(|_| unused.le.is_some()) {
                *count -= 1;
                if *count == 0 {
                    self.bucket_counts.remove(&unused.metric);
                }
            }
            self.slot_by_name.remove(&(unused.metric, unused.le));
        }
    }

    fn release(&mut self, entry: &Entry) {
        if let Some(slot) = self.slot_mut(entry.slot()) {
            slot.series_count -= 1;
            if slot.kind != SlotKind::Counter && entry.time() != TIME_NONE && !is_stale(entry.value) {
                slot.active.remove(entry.time(), entry.value);
            }
        }
    }

    fn put_back(&mut self, entry: Entry) {
        let idx = self.entry_count;
        if idx / BLOCK_COUNT == self.blocks.len() {
            self.blocks.push(Vec::with_capacity(BLOCK_COUNT));
        }
        self.blocks[idx / BLOCK_COUNT].push(entry);
        self.entry_count += 1;
        let blocks = &self.blocks;
        self.table.insert(entry.key as u64, idx as u32, |i| entry_in(blocks, i as usize).key as u64);
    }

    /// Applies the changes of a WAL frame.
    ///
    /// # Errors
    /// The frame has a slot or a time that no frame of this version has; changes before stay.
    pub(crate) fn apply(&mut self, changes: &OverflowRef<'_>) -> Result<(), String> {
        if let Some(before) = changes.removed_before {
            self.remove_idle(before);
        }
        self.remove(&changes.removed);
        let slots: Vec<usize> =
            changes.slots.iter().map(|slot| self.restore_slot(slot)).collect::<Result<_, _>>()?;
        for sample in &changes.samples {
            let slot = slots.get(sample.slot as usize).ok_or("a slot is missing")?;
            if !OverflowTable::takes_time(sample.time) {
                return Err(format!("time {} is not valid", sample.time));
            }
            let entry = self.find(sample.key, usize::MAX).unwrap_or_else(|| self.insert(sample.key, *slot));
            self.fold(entry, sample.time, sample.value);
        }
        Ok(())
    }

    fn restore_slot(&mut self, slot: &OverflowSlot<'_>) -> Result<usize, String> {
        let kind =
            SlotKind::from_number(slot.kind).ok_or_else(|| format!("kind {} is unknown", slot.kind))?;
        self.slot_or_create(slot.metric, slot.le, || kind).ok_or_else(|| "too many metrics".to_owned())
    }

    /// Restores a slot of a checkpoint; returns its number.
    pub(crate) fn load_slot(
        &mut self,
        slot: &OverflowSlot<'_>,
        time: i64,
        total: f64,
    ) -> Result<usize, String> {
        let idx = self.restore_slot(slot)?;
        if let Some(slot) = self.slot_mut(idx) {
            slot.time = time;
            slot.total = total;
        }
        Ok(idx)
    }

    /// Restores a series of a checkpoint.
    pub(crate) fn load_series(&mut self, key: u128, slot: usize, time: i64, value: f64) {
        if !OverflowTable::takes_time(time) || self.find(key, usize::MAX).is_some() {
            return;
        }
        let idx = self.insert(key, slot);
        let entry = &mut self.blocks[idx / BLOCK_COUNT][idx % BLOCK_COUNT];
        entry.set_time(time);
        entry.value = value;
        self.newest_time = self.newest_time.max(Some(time));
        if let Some(slot) = self.slot_mut(slot)
            && slot.kind != SlotKind::Counter
            && !is_stale(value)
        {
            slot.active.add(time, value);
        }
    }

    /// Sets all sums of increases to 0: frames are missing, so that they may be below those in the head.
    pub(crate) fn reset_totals(&mut self) {
        self.slots.iter_mut().flatten().for_each(|slot| slot.total = 0.0);
    }

    /// Iterates over slots with their numbers among the existing ones, for a checkpoint.
    pub(crate) fn numbered_slots(&self) -> Vec<(usize, &Slot)> {
        self.slots.iter().enumerate().filter_map(|(idx, slot)| Some((idx, slot.as_ref()?))).collect()
    }

    /// Iterates over the series with a sample, with numbers of slots as in `numbers`.
    pub(crate) fn samples<'a>(&'a self, numbers: &'a [u32]) -> impl Iterator<Item = OverflowSample> + 'a {
        self.blocks.iter().flatten().filter(|entry| entry.time() != TIME_NONE).map(|entry| OverflowSample {
            slot: numbers.get(entry.slot()).copied().unwrap_or(0),
            key: entry.key,
            time: entry.time(),
            value: entry.value,
        })
    }

    /// Returns the bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.blocks.len() * BLOCK_COUNT * size_of::<Entry>()
            + self.table.heap_bytes()
            + self.slots.len() * SLOT_BYTES
    }

    fn entry(&self, idx: usize) -> &Entry {
        entry_in(&self.blocks, idx)
    }
}

fn entry_in(blocks: &[Vec<Entry>], idx: usize) -> &Entry {
    &blocks[idx / BLOCK_COUNT][idx % BLOCK_COUNT]
}

#[cfg(test)]
mod tests;
