//! Counters of all open blocks of a pool: blocks, maps, bytes.
//!
//! Invariant: a block counts until the last reader of its files is dropped, also after it was removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sums over all open blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OpenSizes {
    /// Open blocks.
    pub blocks: u64,
    /// Memory maps.
    pub maps: u64,
    /// Bytes of mapped files.
    pub mapped_bytes: u64,
    /// Bytes on the heap.
    pub heap_bytes: u64,
}

/// Counters over all open blocks.
#[derive(Default)]
pub(crate) struct OpenCounts {
    blocks: AtomicU64,
    maps: AtomicU64,
    mapped_bytes: AtomicU64,
    heap_bytes: AtomicU64,
}

impl OpenCounts {
    pub(crate) fn sizes(&self) -> OpenSizes {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        OpenSizes {
            blocks: load(&self.blocks),
            maps: load(&self.maps),
            mapped_bytes: load(&self.mapped_bytes),
            heap_bytes: load(&self.heap_bytes),
        }
    }
}

/// The share of one open block, subtracted when its files are closed.
pub(crate) struct OpenPermit {
    counts: Arc<OpenCounts>,
    sizes: OpenSizes,
}

impl OpenPermit {
    pub(crate) fn new(counts: Arc<OpenCounts>, sizes: OpenSizes) -> OpenPermit {
        counts.blocks.fetch_add(sizes.blocks, Ordering::Relaxed);
        counts.maps.fetch_add(sizes.maps, Ordering::Relaxed);
        counts.mapped_bytes.fetch_add(sizes.mapped_bytes, Ordering::Relaxed);
        counts.heap_bytes.fetch_add(sizes.heap_bytes, Ordering::Relaxed);
        OpenPermit { counts, sizes }
    }
}

impl Drop for OpenPermit {
    fn drop(&mut self) {
        self.counts.blocks.fetch_sub(self.sizes.blocks, Ordering::Relaxed);
        self.counts.maps.fetch_sub(self.sizes.maps, Ordering::Relaxed);
        self.counts.mapped_bytes.fetch_sub(self.sizes.mapped_bytes, Ordering::Relaxed);
        self.counts.heap_bytes.fetch_sub(self.sizes.heap_bytes, Ordering::Relaxed);
    }
}
