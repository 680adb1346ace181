//! Last histograms of folded series, encoded: a histogram of 20 buckets takes about 50 bytes instead of 400.
//!
//! Invariant: bytes in use are counted as they change.
//! Not here: bytes of one histogram (`format::head::wal`), series (`table`).

use std::sync::Arc;

use chronolith_base::ByteReader;
use chronolith_format::head::wal::{put_histogram, read_histogram};
use chronolith_model::Histogram;

/// First byte of a histogram with the custom bounds of its slot, which are not repeated.
const BOUNDS_OF_SLOT: u8 = 1;
/// Bytes per histogram in addition to its encoding: the item, and rounding of the allocator.
const ITEM_BYTES: usize = size_of::<Box<[u8]>>() + 16;

/// Encoded histograms by index.
#[derive(Default)]
pub(super) struct LastHistograms {
    items: Vec<Box<[u8]>>,
    /// Indexes of items without a histogram.
    free: Vec<u32>,
    bytes: usize,
}

impl LastHistograms {
    /// Stores an encoded histogram in the place of the one at `idx`, or in a new one; returns its index.
    pub(super) fn put(&mut self, idx: Option<u32>, encoded: &[u8]) -> u32 {
        let idx = idx.unwrap_or_else(|| {
            self.bytes += ITEM_BYTES;
            self.free.pop().unwrap_or_else(|| {
                self.items.push(Box::default());
                self.items.len() as u32 - 1
            })
        });
        assert!(!encoded.is_empty(), "a free item is empty");
        let item = &mut self.items[idx as usize];
        if item.len() == encoded.len() {
            item.copy_from_slice(encoded);
        } else {
            self.bytes = self.bytes + encoded.len() - item.len();
            *item = encoded.into();
        }
        idx
    }

    /// Returns an encoded histogram.
    pub(super) fn get(&self, idx: u32) -> &[u8] {
        &self.items[idx as usize]
    }

    /// Removes a histogram.
    pub(super) fn remove(&mut self, idx: u32) {
        let removed = std::mem::take(&mut self.items[idx as usize]);
        assert!(!removed.is_empty(), "a histogram is removed once");
        self.bytes -= removed.len() + ITEM_BYTES;
        self.free.push(idx);
        if self.free.len() == self.items.len() {
            *self = LastHistograms::default();
        }
    }

    /// Number of histograms.
    pub(super) fn count(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Bytes of heap memory.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns the custom bounds of a histogram, empty without any.
pub(super) fn bounds_of(histogram: &Histogram) -> &Arc<[f64]> {
    match histogram {
        Histogram::Int(histogram) => &histogram.custom_values,
        Histogram::Float(histogram) => &histogram.custom_values,
    }
}

/// Replaces `out` by a histogram of a slot with custom bounds `bounds`.
pub(super) fn encode(histogram: &Histogram, bounds: &Arc<[f64]>, out: &mut Vec<u8>) {
    let own = bounds_of(histogram);
    let is_of_slot = !own.is_empty() && own == bounds;
    out.clear();
    out.push(if is_of_slot { BOUNDS_OF_SLOT } else { 0 });
    put_histogram(histogram, is_of_slot, out);
}

/// Returns a histogram that [`encode`] has encoded.
pub(super) fn decode(encoded: &[u8], bounds: &Arc<[f64]>) -> Option<Histogram> {
    let (&first, rest) = encoded.split_first()?;
    let mut histogram = read_histogram(&mut ByteReader::new(rest)).ok()?;
    if first == BOUNDS_OF_SLOT {
        match &mut histogram {
            Histogram::Int(histogram) => histogram.custom_values = bounds.clone(),
            Histogram::Float(histogram) => histogram.custom_values = bounds.clone(),
        }
    }
    Some(histogram)
}
