//! Range cache of block files, with a CLOCK eviction policy per tenant: byte ranges and index headers of
//! blocks within one memory budget, one request for a range that several queries need.
//!
//! Invariants: cached ranges, headers and requests in flight have at most `bytes_max` bytes together, unless
//! the requests of a tenant or one header alone exceed its fair share; parts of a block never overlap. A part
//! is handed out by reference: once it is evicted, its memory belongs to the queries that still read it.
//! Not here: the parts and their eviction (`cache::state`), reading a round of a wave (`remote::round`),
//! the requests (`remote`).

pub(crate) mod disk;
mod items;
mod objects;
mod state;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
#[cfg(test)]
use chronolith_block::source::BlockFile;
use chronolith_block::source::{ByteRange, FetchedPart};
use chronolith_model::TenantId;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::ranges::{self, Speed};
pub use disk::{DiskCache, DiskCacheOptions, DiskCacheSnapshot};
pub use items::CacheSnapshot;
pub(crate) use items::{BlockKey, Flight, FlightOutcome, HeaderOwner};
pub(crate) use objects::CachedObjects;
use state::{Released, State};

/// Cached ranges and headers of all blocks.
pub(crate) struct BlockCache {
    /// Ranges that are not in memory any more, or were there before a restart.
    disk: Option<Arc<DiskCache>>,
    bytes_max: u64,
    state: Mutex<State>,
    block_count: AtomicU64,
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    misses: AtomicU64,
    waits: AtomicU64,
    damages: AtomicU64,
}

/// A request that this query sends. Dropping it lets one of the others send it.
pub(crate) struct OwnFlight {
    cache: Arc<BlockCache>,
    block: BlockKey,
    tenant: TenantId,
    range: ByteRange,
    id: u64,
    sender: watch::Sender<Option<FlightOutcome>>,
}

/// Answer of the cache to a round of ranges.
#[derive(Default)]
pub(crate) struct Lookup {
    pub(crate) found: Vec<FetchedPart>,
    pub(crate) own: Vec<OwnFlight>,
    /// Ranges that the cache directory has.
    pub(crate) on_disk: Vec<OwnFlight>,
    pub(crate) others: Vec<Flight>,
}

impl BlockCache {
    /// A cache of at most `bytes_max` bytes, with a directory for ranges that are not in memory.
    pub(crate) fn new(bytes_max: u64, disk: Option<Arc<DiskCache>>) -> Arc<BlockCache> {
        Arc::new(BlockCache {
            disk,
            bytes_max,
            state: Mutex::new(State::new(bytes_max)),
            block_count: AtomicU64::default(),
            hits: AtomicU64::default(),
            hit_bytes: AtomicU64::default(),
            misses: AtomicU64::default(),
            waits: AtomicU64::default(),
            damages: AtomicU64::default(),
        })
    }

    /// The cache directory, if there is one.
    pub(crate) fn disk(&self) -> Option<&Arc<DiskCache>> {
        self.disk.as_ref()
    }

    /// A key that no other block has.
    pub(crate) fn new_block(&self) -> BlockKey {
        BlockKey(self.block_count.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the cached parts of `ranges` (sorted, without overlap), and for the rest the requests of
    /// others that are in flight, those that the caller must read from the directory of `objects`, and those
    /// that it must send. Takes the lock once.
    pub(crate) fn look_up(
        self: &Arc<BlockCache>,
        block: BlockKey,
        tenant: &TenantId,
        ranges: &[ByteRange],
        speed: &Speed,
        deadline_ns: u64,
        objects: Option<&CachedObjects>,
    ) -> Lookup {
        assert!(ranges::are_disjoint(ranges), "a round asks for each byte once");
        let mut looked = Lookup::default();
        let mut missing = Vec::new();
        let mut released = Released::default();
        let mut state = self.state.lock();
        for range in ranges {
            state.find(block, *range, &mut looked.found, &mut missing);
        }
        let unclaimed = state.split_off_flights(block, missing, &mut looked.others);
        assert!(ranges::are_disjoint(&unclaimed), "no byte is requested twice at the same time");
        let (on_disk, mut unclaimed) = match objects {
            Some(objects) => objects.split(&unclaimed),
            None => (Vec::new(), unclaimed),
        };
        ranges::join(&mut unclaimed, speed);
        ranges::split(&mut unclaimed, speed);
        let mut start_flight = |range| {
            let (sender, outcome) = watch::channel(None);
            let id = state.start_flight(tenant, block, range, deadline_ns, outcome, &mut released);
            OwnFlight { cache: self.clone(), block, tenant: tenant.clone(), range, id, sender }
        };
        looked.on_disk.extend(on_disk.into_iter().map(&mut start_flight));
        looked.own.extend(unclaimed.into_iter().map(&mut start_flight));
        drop(state);
        released.drop_all();
        let found_bytes = looked.found.iter().map(|part| part.bytes.len() as u64).sum();
        self.hits.fetch_add(looked.found.len() as u64, Ordering::Relaxed);
        self.hit_bytes.fetch_add(found_bytes, Ordering::Relaxed);
        let miss_count = looked.own.len() + looked.on_disk.len();
        self.misses.fetch_add(miss_count as u64, Ordering::Relaxed);
        self.waits.fetch_add(looked.others.len() as u64, Ordering::Relaxed);
        looked
    }

    /// Counts an item that failed its checksum and is read once more.
    pub(crate) fn note_damage(&self) {
        self.damages.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if all of `range` is in memory; it counts as used.
    pub(crate) fn has(&self, block: BlockKey, range: ByteRange) -> bool {
        let mut missing = Vec::new();
        self.state.lock().find(block, range, &mut Vec::new(), &mut missing);
        missing.is_empty()
    }

    /// Bytes of memory at most.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Drops the cached parts of a block that overlap one of `ranges`.
    pub(crate) fn remove_ranges(&self, block: BlockKey, ranges: &[ByteRange]) {
        let mut released = Released::default();
        let mut state = self.state.lock();
        ranges.iter().for_each(|range| state.remove_range(block, *range, &mut released));
        drop(state);
        released.drop_all();
    }

    /// Drops all cached parts of a block.
    pub(crate) fn remove_block(&self, block: BlockKey) {
        let mut released = Released::default();
        self.state.lock().remove_block(block, &mut released);
        released.drop_all();
    }

    /// Records the header of `owner`; evicts others if it does not fit.
    pub(crate) fn add_header<T: HeaderOwner + 'static>(&self, owner: &Arc<T>, tenant: &TenantId, bytes: u64) {
        let weak: Weak<T> = Arc::downgrade(owner);
        let mut released = Released::default();
        self.state.lock().add_header(address_of(&**owner), weak, tenant, bytes, &mut released);
        released.drop_all();
    }

    /// Records a use of the header of `owner`.
    pub(crate) fn note_header_use<T: HeaderOwner>(&self, owner: &T) {
        self.state.lock().note_header_use(address_of(owner));
    }

    /// Forgets the header of an owner that is dropped.
    pub(crate) fn remove_header<T: HeaderOwner>(&self, owner: &T) {
        self.state.lock().remove_header(address_of(owner));
    }

    pub(crate) fn snapshot(&self) -> CacheSnapshot {
        let mut snapshot = self.state.lock().snapshot();
        snapshot.hits = self.hits.load(Ordering::Relaxed);
        snapshot.hit_bytes = self.hit_bytes.load(Ordering::Relaxed);
        snapshot.misses = self.misses.load(Ordering::Relaxed);
        snapshot.waits = self.waits.load(Ordering::Relaxed);
        snapshot.damages = self.damages.load(Ordering::Relaxed);
        snapshot.disk = self.disk.as_ref().map(|disk| disk.snapshot()).unwrap_or_default();
        snapshot
    }

    /// Flips a bit in each byte of cached parts that `picks` names by their file and offset.
    #[cfg(test)]
    pub(crate) fn corrupt_bytes(&self, picks: impl Fn(BlockFile, u64) -> bool) {
        self.state.lock().corrupt_bytes(picks);
    }
}

impl OwnFlight {
    pub(crate) fn range(&self) -> ByteRange {
        self.range
    }

    /// Keeps the fetched bytes, if they fit, and hands them to the queries that wait.
    pub(crate) fn complete(self, bytes: &Bytes) {
        // Queries that wait for it take the bytes for the range without a look at their length.
        assert_eq!(bytes.len() as u64, self.range.len(), "a request is completed with its whole range");
        let mut released = Released::default();
        self.cache.state.lock().land(
            &self.tenant,
            self.block,
            self.range,
            self.id,
            bytes.clone(),
            &mut released,
        );
        self.sender.send_replace(Some(FlightOutcome::Fetched(bytes.clone())));
        released.drop_all();
    }

    /// Shares a failure of the storage with the queries that wait.
    pub(crate) fn fail(self, what: String) {
        self.cache.state.lock().end_flight(&self.tenant, self.block, self.range, self.id);
        self.sender.send_replace(Some(FlightOutcome::Unavailable(what)));
    }
}

impl Drop for OwnFlight {
    fn drop(&mut self) {
        // Nothing is left of it if it was completed or failed.
        self.cache.state.lock().end_flight(&self.tenant, self.block, self.range, self.id);
    }
}

fn address_of<T>(owner: &T) -> usize {
    std::ptr::from_ref(owner).addr()
}
