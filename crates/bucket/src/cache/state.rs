//! Cached parts, headers and requests in flight, and their eviction: a CLOCK queue per tenant.
//!
//! Invariants: `kept_bytes` is the sum over all parts and headers, and over the shares of all tenants; parts
//! of a block never overlap; only tenants beyond their fair share give room.
//! Cost of an access: one lookup in a map of the block's parts; of an eviction: O(1) amortized, plus a scan
//! of the tenants.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use chronolith_base::hash::HashMap;
use chronolith_block::source::{BlockFile, ByteRange, FetchedPart};
use chronolith_model::TenantId;
use tokio::sync::watch;

use super::items::{BlockKey, CacheSnapshot, Flight, FlightOutcome, HeaderOwner};

/// A part is kept if it has at most this fraction of the budget.
const PART_FRACTION_MAX: u64 = 4;
/// Times that the queue spares a part, or a header, that was used since: a header costs several requests.
const PART_CHANCES: u8 = 1;
const HEADER_CHANCES: u8 = 3;
/// Slots of removed items that a queue has at most, in addition to as many as it has items.
const STALE_SLOTS_MAX: usize = 64;

/// Parts, headers and requests in flight.
pub(super) struct State {
    bytes_max: u64,
    /// Bytes of parts and headers.
    kept_bytes: u64,
    header_bytes: u64,
    in_flight_bytes: u64,
    evictions: u64,
    /// Ascends with each part, header and request.
    last_id: u64,
    blocks: HashMap<BlockKey, CachedBlock>,
    /// By the address of the owner.
    headers: HashMap<usize, Header>,
    shares: HashMap<TenantId, Share>,
}

/// Parts of one block.
#[derive(Default)]
struct CachedBlock {
    parts: BTreeMap<(BlockFile, u64), Part>,
    flights: Vec<Flight>,
}

struct Part {
    bytes: Bytes,
    tenant: TenantId,
    id: u64,
    chances: u8,
}

struct Header {
    owner: Weak<dyn HeaderOwner>,
    tenant: TenantId,
    bytes: u64,
    id: u64,
    chances: u8,
}

/// Part of the cache that a tenant uses.
#[derive(Default)]
struct Share {
    /// In the order of insertion; slots of removed items stay until they are met.
    queue: VecDeque<Slot>,
    bytes: u64,
    item_count: usize,
    /// Bytes of its requests without an answer yet.
    in_flight_bytes: u64,
}

struct Slot {
    id: u64,
    item: SlotItem,
}

#[derive(Clone, Copy)]
enum SlotItem {
    Part(BlockKey, BlockFile, u64),
    Header(usize),
}

/// Memory that is freed after the lock is released.
#[derive(Default)]
pub(super) struct Released {
    parts: Vec<Bytes>,
    headers: Vec<Arc<dyn HeaderOwner>>,
}

impl Released {
    pub(super) fn drop_all(self) {
        self.headers.iter().for_each(|owner| owner.drop_header());
    }
}

impl State {
    pub(super) fn new(bytes_max: u64) -> State {
        State {
            bytes_max,
            kept_bytes: 0,
            header_bytes: 0,
            in_flight_bytes: 0,
            evictions: 0,
            last_id: 0,
            blocks: HashMap::default(),
            headers: HashMap::default(),
            shares: HashMap::default(),
        }
    }

    /// Appends the parts that have bytes of `range`, and the sub-ranges that no part has.
    pub(super) fn find(
        &mut self,
        block: BlockKey,
        range: ByteRange,
        found: &mut Vec<FetchedPart>,
        missing: &mut Vec<ByteRange>,
    ) {
        let ByteRange { file, mut start, end } = range;
        if let Some(cached) = self.blocks.get_mut(&block) {
            let before = cached.parts.range(..=(file, start)).next_back().map(|(key, _)| *key);
            let first = before.filter(|key| key.0 == file).unwrap_or((file, start));
            for (&(_, part_start), part) in cached.parts.range_mut(first..(file, end)) {
                let part_end = part_start + part.bytes.len() as u64;
                if part_end <= start {
                    continue;
                }
                if start < part_start {
                    missing.push(ByteRange { file, start, end: part_start });
                }
                part.chances = PART_CHANCES;
                if found.last().is_none_or(|last| (last.file, last.start) != (file, part_start)) {
                    found.push(FetchedPart { file, start: part_start, bytes: part.bytes.clone() });
                }
                start = part_end;
            }
        }
        if start < end {
            missing.push(ByteRange { file, start, end });
        }
    }

    /// Returns what no request in flight fetches of `missing`; appends the requests that fetch the rest.
    pub(super) fn split_off_flights(
        &self,
        block: BlockKey,
        mut missing: Vec<ByteRange>,
        others: &mut Vec<Flight>,
    ) -> Vec<ByteRange> {
        let flights = self.blocks.get(&block).map(|cached| cached.flights.as_slice()).unwrap_or_default();
        for flight in flights {
            let claimed = flight.range;
            let overlaps =
                |r: &ByteRange| r.file == claimed.file && r.start < claimed.end && claimed.start < r.end;
            if !missing.iter().any(overlaps) {
                continue;
            }
            others.push(flight.clone());
            let rest = missing.iter().flat_map(|range| match overlaps(range) {
                false => [*range, ByteRange { end: range.start, ..*range }],
                true => [
                    ByteRange { end: claimed.start.max(range.start), ..*range },
                    ByteRange { start: claimed.end.min(range.end), ..*range },
                ],
            });
            missing = rest.filter(|range| !range.is_empty()).collect();
        }
        missing
    }

    /// Makes room for a request and records it; returns its id.
    pub(super) fn start_flight(
        &mut self,
        tenant: &TenantId,
        block: BlockKey,
        range: ByteRange,
        deadline_ns: u64,
        outcome: watch::Receiver<Option<FlightOutcome>>,
        released: &mut Released,
    ) -> u64 {
        let id = self.next_id();
        self.blocks.entry(block).or_default().flights.push(Flight { range, deadline_ns, outcome, id });
        self.in_flight_bytes += range.len();
        self.shares.entry(tenant.clone()).or_default().in_flight_bytes += range.len();
        self.evict(tenant, None, released);
        id
    }

    /// Forgets a request. Returns false if it was forgotten before.
    pub(super) fn end_flight(
        &mut self,
        tenant: &TenantId,
        block: BlockKey,
        range: ByteRange,
        id: u64,
    ) -> bool {
        let Some(cached) = self.blocks.get_mut(&block) else { return false };
        let Some(idx) = cached.flights.iter().position(|flight| flight.id == id) else { return false };
        cached.flights.swap_remove(idx);
        self.in_flight_bytes -= range.len();
        let share = self.shares.get_mut(tenant);
        assert!(share.is_some(), "the tenant of a request in flight has a share");
        if let Some(share) = share {
            share.in_flight_bytes -= range.len();
        }
        self.forget_share_if_empty(tenant);
        self.forget_block_if_empty(block);
        true
    }

    /// Ends a request and keeps its bytes, if they fit.
    pub(super) fn land(
        &mut self,
        tenant: &TenantId,
        block: BlockKey,
        range: ByteRange,
        id: u64,
        bytes: Bytes,
        released: &mut Released,
    ) {
        let was_in_flight = self.end_flight(tenant, block, range, id);
        assert!(was_in_flight, "a request lands once");
        let part_bytes = bytes.len() as u64;
        let fits = self.kept_bytes + self.in_flight_bytes + part_bytes <= self.bytes_max;
        if part_bytes == 0 || part_bytes > self.bytes_max / PART_FRACTION_MAX || !fits {
            return;
        }
        self.remove_range(block, range, released);
        let id = self.next_id();
        let part = Part { bytes, tenant: tenant.clone(), id, chances: 0 };
        self.blocks.entry(block).or_default().parts.insert((range.file, range.start), part);
        self.enqueue(tenant, Slot { id, item: SlotItem::Part(block, range.file, range.start) }, part_bytes);
    }

    /// Drops the parts that overlap `range`.
    pub(super) fn remove_range(&mut self, block: BlockKey, range: ByteRange, released: &mut Released) {
        let mut found = Vec::new();
        if let Some(cached) = self.blocks.get(&block) {
            let before = cached.parts.range(..(range.file, range.end)).rev();
            let in_file = before.take_while(|((file, _), _)| *file == range.file);
            let overlapping =
                in_file.take_while(|((_, start), part)| start + part.bytes.len() as u64 > range.start);
            found.extend(overlapping.map(|(key, _)| *key));
        }
        for (file, start) in found {
            self.remove_part(block, file, start, released);
        }
    }

    /// Drops all parts of a block.
    pub(super) fn remove_block(&mut self, block: BlockKey, released: &mut Released) {
        let keys = self.blocks.get(&block).map(|cached| cached.parts.keys().copied().collect::<Vec<_>>());
        for (file, start) in keys.unwrap_or_default() {
            self.remove_part(block, file, start, released);
        }
    }

    /// Records a header; evicts others if it does not fit.
    pub(super) fn add_header(
        &mut self,
        address: usize,
        owner: Weak<dyn HeaderOwner>,
        tenant: &TenantId,
        bytes: u64,
        released: &mut Released,
    ) {
        self.remove_header(address);
        let id = self.next_id();
        let header = Header { owner, tenant: tenant.clone(), bytes, id, chances: HEADER_CHANCES };
        self.headers.insert(address, header);
        self.header_bytes += bytes;
        self.enqueue(tenant, Slot { id, item: SlotItem::Header(address) }, bytes);
        self.evict(tenant, Some(id), released);
    }

    pub(super) fn note_header_use(&mut self, address: usize) {
        if let Some(header) = self.headers.get_mut(&address) {
            header.chances = HEADER_CHANCES;
        }
    }

    /// Forgets a header; returns it.
    pub(super) fn remove_header(&mut self, address: usize) -> Option<Weak<dyn HeaderOwner>> {
        let header = self.headers.remove(&address)?;
        self.header_bytes -= header.bytes;
        self.leave(&header.tenant, header.bytes);
        Some(header.owner)
    }

    pub(super) fn snapshot(&self) -> CacheSnapshot {
        CacheSnapshot {
            header_count: self.headers.len(),
            header_bytes: self.header_bytes,
            range_bytes: self.kept_bytes - self.header_bytes,
            in_flight_bytes: self.in_flight_bytes,
            evictions: self.evictions,
            ..CacheSnapshot::default()
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn remove_part(&mut self, block: BlockKey, file: BlockFile, start: u64, released: &mut Released) {
        let cached = self.blocks.get_mut(&block);
        let Some(part) = cached.and_then(|cached| cached.parts.remove(&(file, start))) else { return };
        self.leave(&part.tenant, part.bytes.len() as u64);
        released.parts.push(part.bytes);
        self.forget_block_if_empty(block);
    }

    fn forget_block_if_empty(&mut self, block: BlockKey) {
        if self.blocks.get(&block).is_some_and(|c| c.parts.is_empty() && c.flights.is_empty()) {
            self.blocks.remove(&block);
        }
    }

    /// Counts an item in the share of its tenant.
    fn enqueue(&mut self, tenant: &TenantId, slot: Slot, bytes: u64) {
        self.kept_bytes += bytes;
        let share = self.shares.entry(tenant.clone()).or_default();
        share.queue.push_back(slot);
        share.bytes += bytes;
        share.item_count += 1;
        if share.queue.len() > 2 * share.item_count + STALE_SLOTS_MAX {
            let blocks = &self.blocks;
            let headers = &self.headers;
            share.queue.retain(|slot| is_kept(blocks, headers, slot));
        }
    }

    /// Takes an item from the share of its tenant.
    fn leave(&mut self, tenant: &TenantId, bytes: u64) {
        self.kept_bytes -= bytes;
        let share = self.shares.get_mut(tenant);
        assert!(share.is_some(), "the tenant of a kept item has a share");
        let Some(share) = share else { return };
        share.bytes -= bytes;
        share.item_count -= 1;
        self.forget_share_if_empty(tenant);
    }

    fn forget_share_if_empty(&mut self, tenant: &TenantId) {
        if self.shares.get(tenant).is_some_and(|s| s.item_count == 0 && s.in_flight_bytes == 0) {
            let share = self.shares.remove(tenant);
            assert!(share.is_some_and(|share| share.bytes == 0), "a share without items has no bytes");
        }
    }

    /// Evicts until everything fits, except for the item `spared`, or no tenant is beyond its fair share.
    fn evict(&mut self, tenant: &TenantId, spared: Option<u64>, released: &mut Released) {
        while self.kept_bytes + self.in_flight_bytes > self.bytes_max {
            let Some(victim) = self.victim(tenant, spared) else { return };
            if !self.evict_one(&victim, spared, released) {
                return;
            }
        }
    }

    /// The tenant that gives room: of those beyond their fair share, requests included, `tenant` itself or
    /// else the one with most bytes. No other tenant gives room: a scan leaves each its share.
    fn victim(&self, tenant: &TenantId, spared: Option<u64>) -> Option<TenantId> {
        let fair_bytes = self.bytes_max / (self.shares.len() as u64).max(1);
        let gives = |(name, share): &(&TenantId, &Share)| {
            let spared_count = usize::from(spared.is_some() && *name == tenant);
            share.item_count > spared_count && share.bytes + share.in_flight_bytes > fair_bytes
        };
        if self.shares.get_key_value(tenant).is_some_and(|own| gives(&own)) {
            return Some(tenant.clone());
        }
        let candidates = self.shares.iter().filter(gives);
        candidates.max_by_key(|(_, share)| share.bytes).map(|(name, _)| name.clone())
    }

    /// Evicts the first item of a tenant's queue that was not used since it was last met. Returns false if
    /// there is none.
    fn evict_one(&mut self, tenant: &TenantId, spared: Option<u64>, released: &mut Released) -> bool {
        // Each item is met once per chance, and once more.
        let slot_count = self.shares.get(tenant).map_or(0, |share| share.queue.len());
        for _ in 0..slot_count * (usize::from(HEADER_CHANCES) + 1) {
            let Some(share) = self.shares.get_mut(tenant) else { return false };
            let Some(slot) = share.queue.pop_front() else { return false };
            if !is_kept(&self.blocks, &self.headers, &slot) {
                continue;
            }
            if spared == Some(slot.id) || self.takes_chance(slot.item) {
                self.shares.entry(tenant.clone()).or_default().queue.push_back(slot);
                continue;
            }
            self.evictions += 1;
            match slot.item {
                SlotItem::Part(block, file, start) => self.remove_part(block, file, start, released),
                SlotItem::Header(address) => {
                    released.headers.extend(self.remove_header(address).and_then(|owner| owner.upgrade()));
                }
            }
            return true;
        }
        false
    }

    /// Takes one chance of an item. Returns true if it had one.
    fn takes_chance(&mut self, item: SlotItem) -> bool {
        let chances = match item {
            SlotItem::Part(block, file, start) => {
                let part = self.blocks.get_mut(&block).and_then(|c| c.parts.get_mut(&(file, start)));
                part.map(|part| &mut part.chances)
            }
            SlotItem::Header(address) => self.headers.get_mut(&address).map(|header| &mut header.chances),
        };
        let Some(chances) = chances.filter(|chances| **chances > 0) else { return false };
        *chances -= 1;
        true
    }

    #[cfg(test)]
    pub(super) fn corrupt_bytes(&mut self, picks: impl Fn(BlockFile, u64) -> bool) {
        for (&(file, start), part) in self.blocks.values_mut().flat_map(|cached| &mut cached.parts) {
            let bits = (start..).map(|offset| if picks(file, offset) { 0x10 } else { 0 });
            let flipped: Vec<u8> = part.bytes.iter().zip(bits).map(|(byte, bit)| byte ^ bit).collect();
            part.bytes = flipped.into();
        }
    }

    /// Returns true if all sums are exact, and no part overlaps another.
    #[cfg(test)]
    pub(super) fn is_consistent(&self) -> bool {
        let mut sums: HashMap<TenantId, (u64, usize)> = HashMap::default();
        let mut add = |tenant: &TenantId, bytes: u64| {
            let sum = sums.entry(tenant.clone()).or_default();
            *sum = (sum.0 + bytes, sum.1 + 1);
        };
        let mut in_flight_bytes = 0;
        for cached in self.blocks.values() {
            let mut last = (BlockFile::Index, 0);
            for (&(file, start), part) in &cached.parts {
                if file == last.0 && start < last.1 {
                    return false;
                }
                last = (file, start + part.bytes.len() as u64);
                add(&part.tenant, part.bytes.len() as u64);
            }
            in_flight_bytes += cached.flights.iter().map(|flight| flight.range.len()).sum::<u64>();
        }
        self.headers.values().for_each(|header| add(&header.tenant, header.bytes));
        let is_share = |(name, share): (&TenantId, &Share)| {
            sums.get(name) == Some(&(share.bytes, share.item_count))
                && share.queue.len() <= 2 * share.item_count + STALE_SLOTS_MAX + 1
        };
        let in_flight_of_tenants: u64 = self.shares.values().map(|share| share.in_flight_bytes).sum();
        in_flight_of_tenants == in_flight_bytes
            && self.kept_bytes == sums.values().map(|sum| sum.0).sum::<u64>()
            && self.in_flight_bytes == in_flight_bytes
            && self.shares.len() == sums.len()
            && self.shares.iter().all(is_share)
    }

    #[cfg(test)]
    pub(super) fn share_bytes(&self, tenant: &TenantId) -> u64 {
        self.shares.get(tenant).map_or(0, |share| share.bytes)
    }
}

/// Returns true if the item of a slot is still kept.
fn is_kept(blocks: &HashMap<BlockKey, CachedBlock>, headers: &HashMap<usize, Header>, slot: &Slot) -> bool {
    let id = match slot.item {
        SlotItem::Part(block, file, start) => {
            blocks.get(&block).and_then(|cached| cached.parts.get(&(file, start))).map(|part| part.id)
        }
        SlotItem::Header(address) => headers.get(&address).map(|header| header.id),
    };
    id == Some(slot.id)
}
