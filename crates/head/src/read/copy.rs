//! Copies chunks of series under the lock of their stripe.
//!
//! Invariants: what the chunks refer to stays readable without the lock; the open chunks of one list share an
//! allocation.
//! Not here: decoding (`source`), choice of the series (`select`, `presence`, `snapshot`).

use std::sync::Arc;

use chronolith_base::Disk;
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::starts::start_at;
use chronolith_model::{Columns, DuplicatePolicy, TimeRange};

use crate::read::source::{ChunkMemory, HeadChunk, OpenChunkCopy};
use crate::series::chunk_buffer::BufferCopy;
use crate::series::sealed::{SealedFile, SealedStore};
use crate::series::sealed_chunks::ChunkMeta;
use crate::series::stripe::{OooSample, SeriesState, Stripe};

/// Cache of the sealed files used last: neighbouring series share few files, and each needs some of them.
pub(crate) struct RecentFiles<'a> {
    store: &'a SealedStore,
    recent: Vec<Arc<SealedFile>>,
}

/// Capacity of the cache.
const RECENT_FILES_MAX: usize = 8;

impl<'a> RecentFiles<'a> {
    pub(crate) fn new(store: &'a SealedStore) -> RecentFiles<'a> {
        RecentFiles { store, recent: Vec::new() }
    }

    fn get(&mut self, number: u32) -> Option<Arc<SealedFile>> {
        if let Some(found) = self.recent.iter().find(|file| file.number() == number) {
            return Some(found.clone());
        }
        let file = self.store.file(number)?;
        if self.recent.len() == RECENT_FILES_MAX {
            self.recent.remove(0);
        }
        self.recent.push(file.clone());
        Some(file)
    }
}

/// Chunks of series of one stripe, grouped by series, and the bytes of those that were open.
#[derive(Default)]
pub(crate) struct CopiedChunks {
    chunks: Vec<HeadChunk>,
    bytes: Vec<u8>,
    /// Open chunks of words whose bytes are still to be copied.
    pending: Vec<BufferCopy>,
}

impl CopiedChunks {
    /// Returns an empty list with room for this many chunks.
    pub(crate) fn with_capacity(chunk_count: usize) -> CopiedChunks {
        CopiedChunks { chunks: Vec::with_capacity(chunk_count), ..CopiedChunks::default() }
    }

    /// Returns the chunks.
    pub(crate) fn chunks(&self) -> &[HeadChunk] {
        &self.chunks
    }

    /// Returns the memory from which the chunks are decoded, after [`CopiedChunks::finish`].
    pub(crate) fn memory<'a>(&'a self, disk: &'a dyn Disk) -> ChunkMemory<'a> {
        debug_assert!(self.pending.is_empty(), "the bytes are copied under the lock of the stripe");
        ChunkMemory { disk, open_bytes: &self.bytes }
    }

    /// Returns the bytes that the chunks take.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.heap_bytes() as u64).sum()
    }

    /// Retains the chunks for which `is_kept` returns true.
    pub(crate) fn retain(&mut self, is_kept: impl FnMut(&HeadChunk) -> bool) {
        self.chunks.retain(is_kept);
    }

    /// Removes a chunk.
    pub(crate) fn remove(&mut self, idx: usize) {
        self.chunks.remove(idx);
    }

    /// Appends the newest sample of a series in `range` if the series record has it, as the last one of the
    /// open chunk; returns false otherwise.
    pub(crate) fn push_newest(
        &mut self,
        stripe: &Stripe,
        id: u32,
        series: &SeriesState,
        range: TimeRange,
    ) -> bool {
        let time = series.newest_time();
        let is_known = series.has_open_words() && range.contains(time) && !stripe.has_buffered(id);
        if is_known {
            let value = f64::from_bits(series.newest_bits());
            let start_ms = start_at(stripe.open_starts(id), time);
            self.chunks.push(HeadChunk::Newest { time, value, start_ms });
        }
        is_known
    }

    /// Appends the chunks of a series that may have samples in `range`, oldest first. Must be followed by
    /// [`CopiedChunks::finish`] under the same lock.
    pub(crate) fn push_chunks(
        &mut self,
        stripe: &Stripe,
        files: &mut RecentFiles<'_>,
        id: u32,
        series: &SeriesState,
        range: TimeRange,
    ) {
        let first = self.chunks.len();
        for node in stripe.sealed_of(series) {
            if range.overlaps_inclusive(node.min_time(), node.max_time())
                && let Some(file) = files.get(node.chunk_ref().file())
            {
                self.chunks.push(HeadChunk::Sealed { file, node: *node });
            }
        }
        let open = series.open_words().or_else(|| stripe.open_chunk(id));
        if let Some(open) = open.filter(|open| range.overlaps_inclusive(open.min_time(), open.max_time())) {
            self.push_open(stripe, id, series, open);
        }
        if stripe.has_out_of_order(id, series) {
            copy_out_of_order(stripe.ooo_samples(id), range, &mut self.chunks);
        }
        self.chunks[first..].sort_by_key(HeadChunk::min_time);
    }

    fn push_open(&mut self, stripe: &Stripe, id: u32, series: &SeriesState, open: ChunkMeta) {
        let start = self.bytes.len();
        let starts = stripe.open_starts(id);
        let mut encoding = open.encoding();
        if starts.is_empty()
            && let Some(copy) = series.open_copy(start)
        {
            self.bytes.resize(start + copy.len, 0);
            self.pending.push(copy);
        } else {
            let mut bytes = Vec::new();
            stripe.copy_open(id, &mut bytes);
            let chunk = kinds::with_starts(open.with_bytes(bytes), starts);
            encoding = chunk.encoding;
            self.bytes.extend_from_slice(&chunk.bytes);
        }
        let offset = |at: usize| u32::try_from(at).expect("the open chunks of a page are below 4 GiB");
        self.chunks.push(HeadChunk::Open(OpenChunkCopy {
            min_time: open.min_time(),
            max_time: open.max_time(),
            start: offset(start),
            len: offset(self.bytes.len() - start),
            count: open.count(),
            encoding,
        }));
    }

    /// Copies the bytes of the open chunks, which must not have changed since.
    pub(crate) fn finish(&mut self, stripe: &Stripe) {
        stripe.copy_buffers(&self.pending, &mut self.bytes);
        self.pending = Vec::new();
    }
}

/// Appends the samples in `range` to `out`, by policy; `samples` ascend.
fn copy_out_of_order(samples: Vec<OooSample>, range: TimeRange, out: &mut Vec<HeadChunk>) {
    let mut parts =
        [DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins].map(|policy| (policy, Columns::default()));
    for one in samples.into_iter().filter(|one| range.contains(one.time())) {
        let (_, columns) = &mut parts[usize::from(one.duplicates() == DuplicatePolicy::LastWins)];
        one.push_to(columns);
    }
    for (policy, columns) in parts {
        if !columns.is_empty() {
            out.push(HeadChunk::OutOfOrder(Box::new(columns), policy));
        }
    }
}
