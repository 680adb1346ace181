//! Last samples of folded series by key, in order of arrival, and the slots to which they are added.
//!
//! Invariants: a series has one entry of 32 bytes and belongs to one slot; entries move only when series are
//! removed. Senders repeat their order, so the entry after the last hit is checked before the hash table.

mod histograms;

use chronolith_base::hash::HashMap;
use chronolith_format::head::wal::{OverflowRef, OverflowSample, OverflowSlot};
use chronolith_model::sample::is_stale;

use super::last_histograms::LastHistograms;
use super::slot::{BUCKET_COUNT_MAX, KIND_FURTHER, SLOT_COUNT_MAX, Slot, SlotKind, ValueClass, step_of};
use crate::index::split_table::SplitTable;

/// Entries that are allocated together.
const BLOCK_COUNT: usize = 1 << 13;
/// Entries that are checked before the table.
const GUESS_COUNT: usize = 4;
/// Bits of the number of a slot in [`Entry::time_and_slot`].
const SLOT_BITS: u32 = 16;
/// Time of an entry without a sample.
const TIME_NONE: i64 = i64::MIN >> SLOT_BITS;
/// Bits of the value of an entry without a histogram.
const HISTOGRAM_NONE: u64 = u64::MAX;
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
    /// Last value; in a slot of histograms the bits are the index of the last histogram.
    value: f64,
}

impl Entry {
    fn without_sample(key: u128, slot: usize) -> Entry {
        let time_and_slot = TIME_NONE << SLOT_BITS | slot as i64;
        Entry { key, time_and_slot, value: f64::from_bits(HISTOGRAM_NONE) }
    }

    /// Index of the last histogram of an entry in a slot of histograms.
    fn histogram_idx(&self) -> Option<u32> {
        u32::try_from(self.value.to_bits()).ok()
    }

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
    /// The slot of the series has values of another class.
    OtherClass,
    /// The sample would exceed the memory of histograms.
    Full,
}

/// Name of a slot: metric, bound of a bucket, class of values.
type SlotName = (Box<str>, Option<Box<str>>, ValueClass);

/// Slots of one part of a checkpoint.
pub(crate) struct SlotsForCheckpoint<'a> {
    slots: Vec<&'a Slot>,
    numbers: Vec<Option<u32>>,
}

impl<'a> SlotsForCheckpoint<'a> {
    /// Iterates over the slots in order of their numbers.
    pub(crate) fn slots(&self) -> impl ExactSizeIterator<Item = &'a Slot> {
        self.slots.iter().copied()
    }

    /// Numbers of the slots in the part, by their numbers in the table.
    pub(crate) fn numbers(&self) -> &[Option<u32>] {
        &self.numbers
    }
}

/// Folded series of one tenant.
#[derive(Default)]
pub(crate) struct OverflowTable {
    blocks: Vec<Vec<Entry>>,
    entry_count: usize,
    table: SplitTable,
    slots: Vec<Option<Slot>>,
    slot_by_name: HashMap<SlotName, u16>,
    bucket_counts: HashMap<Box<str>, u16>,
    last_histograms: LastHistograms,
    /// Bytes of the sums of histograms of all slots.
    histogram_sum_bytes: usize,
    encoded: Vec<u8>,
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

    /// Returns the slot of a metric or bucket for values of `class`, created with `kind` if there is room.
    pub(crate) fn slot_or_create(
        &mut self,
        metric: &str,
        le: Option<&str>,
        class: ValueClass,
        kind: impl FnOnce() -> SlotKind,
    ) -> Option<usize> {
        let name = (Box::from(metric), le.map(Box::from), class);
        if let Some(&slot) = self.slot_by_name.get(&name) {
            return Some(usize::from(slot));
        }
        let is_further = ValueClass::ALL
            .into_iter()
            .any(|other| self.slot_by_name.contains_key(&(name.0.clone(), name.1.clone(), other)));
        self.create_slot(name, kind(), is_further)
    }

    fn create_slot(&mut self, name: SlotName, kind: SlotKind, is_further: bool) -> Option<usize> {
        let metric = &name.0;
        let le = name.1.as_deref();
        let bucket_count = self.bucket_counts.get(metric).copied().unwrap_or(0);
        if self.slot_by_name.len() >= SLOT_COUNT_MAX || (le.is_some() && bucket_count >= BUCKET_COUNT_MAX) {
            return None;
        }
        if le.is_some() {
            self.bucket_counts.insert(metric.clone(), bucket_count + 1);
        }
        assert!(!self.slot_by_name.contains_key(&name), "a slot has its name alone");
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free == self.slots.len() {
            self.slots.push(None);
        }
        let slot = Slot::new(metric, le, kind, is_further);
        self.histogram_sum_bytes += slot.histograms.as_ref().map_or(0, |sums| sums.heap_bytes());
        self.slots[free] = Some(slot);
        self.slot_by_name.insert(name, free as u16);
        Some(free)
    }

    /// Adds a series without a sample; the key is new.
    pub(crate) fn insert(&mut self, key: u128, slot: usize) -> usize {
        let idx = self.entry_count;
        if idx / BLOCK_COUNT == self.blocks.len() {
            self.blocks.push(Vec::with_capacity(BLOCK_COUNT));
        }
        let entry = Entry::without_sample(key, slot);
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
        if slot.histograms.is_some() {
            return Folded::OtherClass;
        }
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
        self.release(&gone);
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
            self.histogram_sum_bytes -= unused.histograms.as_ref().map_or(0, |sums| sums.heap_bytes());
            self.slot_by_name.remove(&(unused.metric, unused.le, unused.kind.class()));
        }
    }

    /// Removes an entry from its slot.
    fn release(&mut self, entry: &Entry) {
        self.release_histogram(entry);
        if let Some(slot) = self.slot_mut(entry.slot()) {
            slot.series_count -= 1;
            if slot.histograms.is_some() {
                return;
            }
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
        let slots = self.restore_slots(&changes.slots)?;
        for sample in &changes.samples {
            let entry = self.replayed_entry(&slots, sample.slot, sample.key, sample.time)?;
            self.fold(entry, sample.time, sample.value);
        }
        Ok(())
    }

    /// Restores the slots of a frame; returns their numbers.
    fn restore_slots(&mut self, slots: &[OverflowSlot<'_>]) -> Result<Vec<usize>, String> {
        slots.iter().map(|slot| self.restore_slot(slot)).collect()
    }

    /// Returns the entry of a sample of a frame, whose slots have the numbers `slots`.
    fn replayed_entry(&mut self, slots: &[usize], slot: u32, key: u128, time: i64) -> Result<usize, String> {
        let slot = slots.get(slot as usize).ok_or("a slot is missing")?;
        if !OverflowTable::takes_time(time) {
            return Err(format!("time {time} is not valid"));
        }
        Ok(self.entry_in(key, *slot))
    }

    /// Returns the entry of a series in a slot, without a sample if it is new or was in another slot.
    fn entry_in(&mut self, key: u128, slot: usize) -> usize {
        match self.find(key, usize::MAX) {
            None => self.insert(key, slot),
            Some(entry) => {
                self.move_to(entry, slot);
                entry
            }
        }
    }

    /// Moves a series to a slot of another class, in which its next sample is the first.
    pub(crate) fn move_to(&mut self, entry: usize, slot: usize) {
        let before = *self.entry(entry);
        if before.slot() == slot {
            return;
        }
        self.release(&before);
        self.blocks[entry / BLOCK_COUNT][entry % BLOCK_COUNT] = Entry::without_sample(before.key, slot);
        if let Some(slot) = self.slot_mut(slot) {
            slot.series_count += 1;
        }
    }

    fn restore_slot(&mut self, slot: &OverflowSlot<'_>) -> Result<usize, String> {
        let number = slot.kind & !KIND_FURTHER;
        let kind = SlotKind::from_number(number).ok_or_else(|| format!("kind {number} is unknown"))?;
        let name = (Box::from(slot.metric), slot.le.map(Box::from), kind.class());
        if let Some(&slot) = self.slot_by_name.get(&name) {
            return Ok(usize::from(slot));
        }
        let is_further = slot.kind & KIND_FURTHER != 0;
        self.create_slot(name, kind, is_further).ok_or_else(|| "too many metrics".to_owned())
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
        self.reset_histogram_totals();
    }

    /// Returns the slots of floats, or the slots of histograms, for a checkpoint.
    pub(crate) fn slots_for_checkpoint(&self, of_histograms: bool) -> SlotsForCheckpoint<'_> {
        let mut out = SlotsForCheckpoint { slots: Vec::new(), numbers: vec![None; self.slots.len()] };
        for (idx, slot) in self.slots.iter().enumerate() {
            if let Some(slot) = slot.as_ref().filter(|slot| slot.histograms.is_some() == of_histograms) {
                out.numbers[idx] = Some(out.slots.len() as u32);
                out.slots.push(slot);
            }
        }
        out
    }

    /// Iterates over the series with a sample in slots of floats, with numbers of slots as in `numbers`.
    pub(crate) fn samples<'a>(
        &'a self,
        numbers: &'a [Option<u32>],
    ) -> impl Iterator<Item = OverflowSample> + 'a {
        self.with_sample(numbers).map(|(slot, entry)| OverflowSample {
            slot,
            key: entry.key,
            time: entry.time(),
            value: entry.value,
        })
    }

    /// Iterates over the entries with a sample whose slot has a number.
    fn with_sample<'a>(&'a self, numbers: &'a [Option<u32>]) -> impl Iterator<Item = (u32, &'a Entry)> + 'a {
        let entries = self.blocks.iter().flatten().filter(|entry| entry.time() != TIME_NONE);
        entries.filter_map(|entry| Some(((*numbers.get(entry.slot())?)?, entry)))
    }

    /// Returns the bytes of heap memory without histograms.
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
