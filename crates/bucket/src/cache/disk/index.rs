//! Index of the cache directory in memory: which ranges of which objects are where.
//!
//! Invariants: ranges of an object never overlap; each slot is in the list of its segment; bytes of tenants
//! are exact sums.
//! Cost: about 60 bytes per entry; a lookup is one search for the object and one for the range.
//! Not here: files and their bytes (`log`, `recover`).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use chronolith_base::disk::DiskFile;
use chronolith_base::hash::HashMap;
use chronolith_format::bucket::cache_segment::{EntryPosition, SegmentTable};

use super::keys::tenant_of;

/// Estimated memory of an entry: its node in the map of its object, its slot in the list of its segment.
const ENTRY_HEAP_BYTES: u64 = 60;
/// Estimated memory of an object without its key.
const OBJECT_HEAP_BYTES: u64 = 160;

/// Number of a segment; numbers ascend in order of creation.
pub(super) type SegmentNumber = u32;
type ObjectId = u64;

/// Entries of all segments.
#[derive(Default)]
pub(super) struct Index {
    ids: BTreeMap<Arc<str>, ObjectId>,
    objects: HashMap<ObjectId, Object>,
    segments: BTreeMap<SegmentNumber, Segment>,
    tenant_bytes: HashMap<Box<str>, u64>,
    last_id: ObjectId,
    entry_count: u64,
    key_bytes: u64,
    /// Ascends with each removal of damaged ranges.
    removal_count: u64,
}

struct Object {
    key: Arc<str>,
    /// By offset in the object.
    slots: BTreeMap<u64, Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    segment: SegmentNumber,
    /// Offset of the entry in the segment.
    offset: u32,
    /// Bytes of the object.
    len: u32,
    /// Read since it was written.
    is_hit: bool,
}

struct Segment {
    file: Arc<dyn DiskFile>,
    entries: Vec<(ObjectId, u64)>,
}

/// An entry and the file that has it.
#[derive(Clone)]
pub(super) struct FoundEntry {
    pub(super) key: Arc<str>,
    /// Offset of the first byte in the object.
    pub(super) start: u64,
    pub(super) len: u32,
    pub(super) segment: SegmentNumber,
    /// Offset of the entry in the segment.
    pub(super) offset: u32,
    pub(super) file: Arc<dyn DiskFile>,
}

impl FoundEntry {
    pub(super) fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

/// Position of an entry in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) segment: SegmentNumber,
    pub(super) offset: u32,
}

impl Index {
    pub(super) fn entry_count(&self) -> u64 {
        self.entry_count
    }

    /// Estimated memory of keys, objects and entries in bytes.
    pub(super) fn heap_bytes(&self) -> u64 {
        self.entry_count * ENTRY_HEAP_BYTES + self.objects.len() as u64 * OBJECT_HEAP_BYTES + self.key_bytes
    }

    /// Number of removals so far: bytes that were fetched before a removal may be damaged.
    pub(super) fn removal_count(&self) -> u64 {
        self.removal_count
    }

    /// Adds a segment without entries.
    pub(super) fn add_segment(&mut self, number: SegmentNumber, file: Arc<dyn DiskFile>) {
        let replaced = self.segments.insert(number, Segment { file, entries: Vec::new() });
        assert!(replaced.is_none(), "the number of a segment is used once");
    }

    /// Returns the sub-ranges of `start..end` that no entry has.
    pub(super) fn gaps(&self, key: &str, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = start;
        for (slot_start, slot) in self.slots_in(key, start, end) {
            if at < slot_start {
                gaps.push((at, slot_start));
            }
            at = at.max(slot_start + u64::from(slot.len));
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Returns the end of the last entry of an object.
    pub(super) fn end_of(&self, key: &str) -> Option<u64> {
        let object = self.ids.get(key).and_then(|id| self.objects.get(id))?;
        object.slots.last_key_value().map(|(start, slot)| start + u64::from(slot.len))
    }

    /// Returns the entries that have bytes of `start..end`, ascending, and marks them as read.
    pub(super) fn find(&mut self, key: &str, start: u64, end: u64) -> Vec<FoundEntry> {
        let Some(object) = self.ids.get(key).and_then(|id| self.objects.get_mut(id)) else {
            return Vec::new();
        };
        let first = first_slot(&object.slots, start);
        let mut found = Vec::new();
        for (&slot_start, slot) in object.slots.range_mut(first..end) {
            let Some(segment) = self.segments.get(&slot.segment) else { continue };
            slot.is_hit = true;
            found.push(FoundEntry {
                key: object.key.clone(),
                start: slot_start,
                len: slot.len,
                segment: slot.segment,
                offset: slot.offset,
                file: segment.file.clone(),
            });
        }
        found
    }

    /// Adds an entry. Returns false if another one has some of its bytes, or its segment is gone.
    pub(super) fn insert(&mut self, key: &str, start: u64, len: u32, position: Position) -> bool {
        if len == 0 || !self.segments.contains_key(&position.segment) {
            return false;
        }
        let id = self.object_id(key);
        self.insert_slot(id, start, len, position)
    }

    /// Adds the entries of a segment by its table, without entries that overlap another one.
    pub(super) fn insert_table(&mut self, number: SegmentNumber, table: &SegmentTable) {
        let mut entries: Vec<EntryPosition> = table.entries().filter(|entry| entry.len > 0).collect();
        // The later one of two entries with the same bytes counts.
        entries.reverse();
        entries.sort_by_key(|entry| entry.key_idx);
        for of_key in entries.chunk_by(|a, b| a.key_idx == b.key_idx) {
            let key = of_key.first().and_then(|entry| table.keys().get(entry.key_idx));
            let Some(key) = key else { continue };
            let id = self.object_id(key);
            for EntryPosition { start, len, offset, .. } in of_key {
                let Ok(offset) = u32::try_from(*offset) else { continue };
                self.insert_slot(id, *start, *len, Position { segment: number, offset });
            }
        }
    }

    fn insert_slot(&mut self, id: ObjectId, start: u64, len: u32, position: Position) -> bool {
        let end = start.saturating_add(u64::from(len));
        let Some(object) = self.objects.get_mut(&id) else { return false };
        let before = object.slots.range(..end).next_back();
        if before.is_some_and(|(from, slot)| *from + u64::from(slot.len) > start) {
            return false;
        }
        let Position { segment, offset } = position;
        object.slots.insert(start, Slot { segment, offset, len, is_hit: false });
        let segment = self.segments.get_mut(&segment);
        // A slot in no list would outlive the file that has its bytes.
        assert!(segment.is_some(), "the segment of an entry is in the index");
        if let Some(segment) = segment {
            segment.entries.push((id, start));
        }
        self.entry_count += 1;
        let tenant = tenant_of(&object.key);
        match self.tenant_bytes.get_mut(tenant) {
            Some(sum) => *sum += u64::from(len),
            None => drop(self.tenant_bytes.insert(tenant.into(), u64::from(len))),
        }
        true
    }

    /// Moves an entry that was copied to another segment, unless it was removed meanwhile.
    pub(super) fn move_entry(&mut self, entry: &FoundEntry, position: Position) {
        let Some(&id) = self.ids.get(&entry.key) else { return };
        let slot = self.objects.get_mut(&id).and_then(|object| object.slots.get_mut(&entry.start));
        let is_same = |slot: &&mut Slot| (slot.segment, slot.offset) == (entry.segment, entry.offset);
        let Some(slot) = slot.filter(is_same) else { return };
        let Some(segment) = self.segments.get_mut(&position.segment) else { return };
        segment.entries.push((id, entry.start));
        *slot = Slot { segment: position.segment, offset: position.offset, is_hit: false, ..*slot };
    }

    /// Removes the entries that have bytes of `start..end`.
    pub(super) fn remove_range(&mut self, key: &str, start: u64, end: u64) {
        self.removal_count += 1;
        let Some(&id) = self.ids.get(key) else { return };
        let starts: Vec<u64> = self.slots_in(key, start, end).map(|(start, _)| start).collect();
        starts.into_iter().for_each(|start| self.remove_slot(id, start));
    }

    /// Removes the entries of all objects whose keys begin with `prefix`.
    pub(super) fn remove_objects(&mut self, prefix: &str) {
        self.removal_count += 1;
        let after = self.ids.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let keys = after.take_while(|(key, _)| key.starts_with(prefix));
        let ids: Vec<ObjectId> = keys.map(|(_, id)| *id).collect();
        for id in ids {
            let starts = self.objects.get(&id).map(|object| object.slots.keys().copied().collect::<Vec<_>>());
            starts.unwrap_or_default().into_iter().for_each(|start| self.remove_slot(id, start));
        }
    }

    /// Returns the entries of a segment that were read since they were written, of tenants within their fair
    /// share of all bytes.
    pub(super) fn worth_keeping(&self, number: SegmentNumber) -> Vec<FoundEntry> {
        let Some(segment) = self.segments.get(&number) else { return Vec::new() };
        let all_bytes: u64 = self.tenant_bytes.values().sum();
        let fair_bytes = all_bytes / (self.tenant_bytes.len() as u64).max(1);
        let entry_of = |&(id, start): &(ObjectId, u64)| {
            let object = self.objects.get(&id)?;
            let slot = object.slots.get(&start).filter(|slot| slot.segment == number && slot.is_hit)?;
            let is_fair = self.tenant_bytes.get(tenant_of(&object.key)).is_some_and(|b| *b <= fair_bytes);
            is_fair.then(|| FoundEntry {
                key: object.key.clone(),
                start,
                len: slot.len,
                segment: number,
                offset: slot.offset,
                file: segment.file.clone(),
            })
        };
        segment.entries.iter().filter_map(entry_of).collect()
    }

    /// Removes a segment with its entries; returns their number.
    pub(super) fn remove_segment(&mut self, number: SegmentNumber) -> u64 {
        let before = self.entry_count;
        let Some(segment) = self.segments.remove(&number) else { return 0 };
        for (id, start) in segment.entries {
            let slot = self.objects.get(&id).and_then(|object| object.slots.get(&start));
            if slot.is_some_and(|slot| slot.segment == number) {
                self.remove_slot(id, start);
            }
        }
        before - self.entry_count
    }

    /// Slots that have bytes of `start..end`, ascending.
    fn slots_in(&self, key: &str, start: u64, end: u64) -> impl Iterator<Item = (u64, &Slot)> {
        let object = self.ids.get(key).and_then(|id| self.objects.get(id));
        let slots = object.map(|object| object.slots.range(first_slot(&object.slots, start)..end.max(start)));
        slots.into_iter().flatten().map(|(start, slot)| (*start, slot))
    }

    fn object_id(&mut self, key: &str) -> ObjectId {
        if let Some(id) = self.ids.get(key) {
            return *id;
        }
        self.last_id += 1;
        let key: Arc<str> = key.into();
        self.key_bytes += key.len() as u64;
        self.ids.insert(key.clone(), self.last_id);
        self.objects.insert(self.last_id, Object { key, slots: BTreeMap::new() });
        self.last_id
    }

    fn remove_slot(&mut self, id: ObjectId, start: u64) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        let Some(slot) = object.slots.remove(&start) else { return };
        let key = object.key.clone();
        if object.slots.is_empty() {
            self.objects.remove(&id);
            self.ids.remove(&key);
            self.key_bytes -= key.len() as u64;
        }
        self.entry_count -= 1;
        let tenant = tenant_of(&key);
        let bytes = self.tenant_bytes.get_mut(tenant);
        assert!(bytes.is_some(), "the tenant of an entry has a sum of bytes");
        let Some(bytes) = bytes else { return };
        *bytes -= u64::from(slot.len);
        if *bytes == 0 {
            self.tenant_bytes.remove(tenant);
        }
    }
}

/// Offset of the slot that has the byte at `start`, else `start`.
fn first_slot(slots: &BTreeMap<u64, Slot>, start: u64) -> u64 {
    let before = slots.range(..=start).next_back();
    before.filter(|(from, slot)| *from + u64::from(slot.len) > start).map_or(start, |(from, _)| *from)
}
