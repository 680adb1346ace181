//! Samples of one selected series: open chunks and out-of-order samples are copied, sealed chunks are
//! referenced.
//!
//! Invariant: a read returns the samples at the time of the selection; overlapping chunks are resolved in the
//! order of their arrival: in-order chunks, out-of-order chunks by age, the out-of-order log.

use std::ops::Range;
use std::sync::Arc;

use chronolith_base::{Disk, Reservation};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::starts::start_at;
use chronolith_format::chunk::xor::EncodedChunk;
use chronolith_model::{Columns, DuplicatePolicy, QueryError, SampleSource, TimeRange};

use crate::series::sealed::{SealedFile, SealedStore};
use crate::series::sealed_chunks::{ChunkOrder, ChunkRef, SealedChunk};
use crate::series::stripe::{Arrivals, OooSample, SeriesState, Stripe};

/// One chunk of a series.
pub(crate) enum HeadChunk {
    /// A chunk in a sealed file.
    Sealed { file: Arc<SealedFile>, node: SealedChunk },
    /// A copy of the open chunk.
    Open(Box<EncodedChunk>),
    /// A copy of the out-of-order samples that were accepted under one policy, never empty.
    OutOfOrder(Box<Columns>, DuplicatePolicy),
    /// The newest sample alone, for callers that need no other.
    Newest { time: i64, value: f64, start_ms: i64 },
}

// There is one per chunk of every selected series.
const _: () = assert!(size_of::<HeadChunk>() <= 48);

impl HeadChunk {
    pub(crate) fn min_time(&self) -> i64 {
        match self {
            HeadChunk::Sealed { node, .. } => node.min_time(),
            HeadChunk::Open(chunk) => chunk.min_time,
            HeadChunk::OutOfOrder(samples, _) => samples.times.first().copied().unwrap_or(i64::MAX),
            HeadChunk::Newest { time, .. } => *time,
        }
    }

    pub(crate) fn max_time(&self) -> i64 {
        match self {
            HeadChunk::Sealed { node, .. } => node.max_time(),
            HeadChunk::Open(chunk) => chunk.max_time,
            HeadChunk::OutOfOrder(samples, _) => samples.times.last().copied().unwrap_or(i64::MIN),
            HeadChunk::Newest { time, .. } => *time,
        }
    }

    fn count(&self) -> usize {
        match self {
            HeadChunk::Sealed { node, .. } => usize::from(node.count()),
            HeadChunk::Open(chunk) => usize::from(chunk.count),
            HeadChunk::OutOfOrder(samples, _) => samples.len(),
            HeadChunk::Newest { .. } => 1,
        }
    }

    /// Returns the reference of a sealed chunk.
    pub(crate) fn chunk_ref(&self) -> Option<ChunkRef> {
        match self {
            HeadChunk::Sealed { node, .. } => Some(node.chunk_ref()),
            _ => None,
        }
    }

    /// Returns a copy of a sealed chunk if it has no start timestamps. Those of others are encoded for blocks
    /// with the samples.
    pub(crate) fn copy_plain(&self, disk: &dyn Disk) -> Result<Option<EncodedChunk>, QueryError> {
        match self {
            HeadChunk::Sealed { file, node } if !node.has_starts() => file.copy(disk, node).map(Some),
            _ => Ok(None),
        }
    }

    fn order(&self) -> ChunkOrder {
        match self {
            HeadChunk::Sealed { node, .. } => node.order(),
            HeadChunk::Open(_) | HeadChunk::Newest { .. } => ChunkOrder::InOrder,
            HeadChunk::OutOfOrder(_, duplicates) => ChunkOrder::OutOfOrder(*duplicates),
        }
    }

    /// Returns true if the samples win against those that arrived before. In-order chunks overlap only those
    /// of an earlier version, which they replace.
    fn replaces(&self) -> bool {
        self.order() != ChunkOrder::OutOfOrder(DuplicatePolicy::KeepFirst)
    }

    /// Returns a key that sorts chunks by the arrival of their samples.
    fn arrival(&self) -> (bool, ChunkRef) {
        (self.order() != ChunkOrder::InOrder, self.chunk_ref().unwrap_or(ChunkRef::MAX))
    }

    fn heap_bytes(&self) -> usize {
        size_of::<HeadChunk>()
            + match self {
                HeadChunk::Sealed { .. } | HeadChunk::Newest { .. } => 0,
                HeadChunk::Open(chunk) => size_of::<EncodedChunk>() + chunk.bytes.len(),
                HeadChunk::OutOfOrder(samples, _) => {
                    let words = 16 * samples.len() + 8 * samples.start_times.len();
                    size_of::<Columns>() + words + samples.histogram_bytes()
                }
            }
    }

    /// Appends the samples in `range` to `out`.
    pub(crate) fn decode(
        &self,
        disk: &dyn Disk,
        range: TimeRange,
        out: &mut Columns,
    ) -> Result<(), QueryError> {
        match self {
            HeadChunk::Sealed { file, node } => file.decode(disk, node, range, out),
            HeadChunk::Open(chunk) => {
                kinds::decode(chunk.encoding, &chunk.bytes, range, out).map_err(|error| QueryError::Corrupt {
                    path: "head memory".to_owned(),
                    what: format!("open chunk: {error}"),
                })
            }
            HeadChunk::OutOfOrder(samples, _) => {
                out.extend_from(samples, samples.indices_in(range));
                Ok(())
            }
            HeadChunk::Newest { time, value, start_ms } => {
                if range.contains(*time) {
                    out.push(*time, *value);
                    if *start_ms != 0 {
                        out.set_start_time(*start_ms);
                    }
                }
                Ok(())
            }
        }
    }
}

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

/// Appends the chunks of a series that may have samples in `range` to `out`, oldest first.
pub(crate) fn copy_chunks(
    stripe: &Stripe,
    files: &mut RecentFiles<'_>,
    id: u32,
    series: &SeriesState,
    range: TimeRange,
    out: &mut Vec<HeadChunk>,
) {
    let first = out.len();
    for node in stripe.sealed_of(series) {
        if range.overlaps_inclusive(node.min_time(), node.max_time())
            && let Some(file) = files.get(node.chunk_ref().file())
        {
            out.push(HeadChunk::Sealed { file, node: *node });
        }
    }
    if let Some(open) = stripe.open_chunk(id)
        && range.overlaps_inclusive(open.min_time(), open.max_time())
    {
        let mut bytes = Vec::new();
        stripe.copy_open(id, &mut bytes);
        let chunk = kinds::with_starts(open.with_bytes(bytes), stripe.open_starts(id));
        out.push(HeadChunk::Open(Box::new(chunk)));
    }
    if series.has_out_of_order() {
        copy_out_of_order(stripe.ooo_samples(id), range, out);
    }
    out[first..].sort_by_key(HeadChunk::min_time);
}

/// Appends those of ascending `samples` that are in `range` to `out`, by policy.
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

/// Returns the newest sample of a series in `range` if the series record has it: it is the last one of the
/// open chunk.
pub(crate) fn newest(stripe: &Stripe, id: u32, series: &SeriesState, range: TimeRange) -> Option<HeadChunk> {
    let time = series.newest_time();
    let is_known = series.has_open_words() && range.contains(time);
    is_known.then(|| HeadChunk::Newest {
        time,
        value: f64::from_bits(series.newest_bits()),
        start_ms: start_at(stripe.open_starts(id), time),
    })
}

/// Returns the length of the run of overlapping chunks at the start of `chunks` (sorted by first timestamp).
pub(crate) fn overlapping_len(chunks: &[HeadChunk]) -> usize {
    let mut max_time = chunks.first().map_or(i64::MIN, HeadChunk::max_time);
    let mut len = 1;
    while let Some(chunk) = chunks.get(len).filter(|c| c.min_time() <= max_time) {
        max_time = max_time.max(chunk.max_time());
        len += 1;
    }
    len
}

/// Merges the samples of overlapping chunks into `out`, one per timestamp.
pub(crate) fn merge_chunks(
    disk: &dyn Disk,
    chunks: &[HeadChunk],
    range: TimeRange,
    out: &mut Columns,
) -> Result<(), QueryError> {
    let mut by_arrival: Vec<&HeadChunk> =
        chunks.iter().filter(|chunk| range.overlaps_inclusive(chunk.min_time(), chunk.max_time())).collect();
    by_arrival.sort_by_key(|chunk| chunk.arrival());
    let sample_count = by_arrival.iter().map(|chunk| chunk.count()).sum();
    let (mut in_order, mut later) = (Arrivals::with_capacity(sample_count), Arrivals::default());
    for chunk in by_arrival {
        let arrivals = if chunk.order() == ChunkOrder::InOrder { &mut in_order } else { &mut later };
        arrivals.add(chunk.replaces(), |samples| chunk.decode(disk, range, samples))?;
    }
    in_order.resolve();
    later.resolve();
    in_order.merge(&later, range, out);
    Ok(())
}

/// Chunks of series that were selected together.
pub(crate) struct SelectedChunks {
    chunks: Vec<HeadChunk>,
    disk: Arc<dyn Disk>,
    _memory: Reservation,
}

impl SelectedChunks {
    /// Keeps `memory`, the reservation for all chunks and the labels of their series, as long as one of them
    /// may be read.
    pub(crate) fn new(
        chunks: Vec<HeadChunk>,
        disk: Arc<dyn Disk>,
        memory: Reservation,
    ) -> Arc<SelectedChunks> {
        Arc::new(SelectedChunks { chunks, disk, _memory: memory })
    }

    /// Returns the chunks of one series.
    pub(super) fn chunks(&self, range: &Range<u32>) -> &[HeadChunk] {
        &self.chunks[range.start as usize..range.end as usize]
    }

    /// Returns the bytes that `chunks` take.
    pub(crate) fn heap_bytes(chunks: &[HeadChunk]) -> u64 {
        chunks.iter().map(|c| c.heap_bytes() as u64).sum()
    }
}

/// Samples of a selected series of the head.
pub(crate) struct HeadSamples {
    selected: Arc<SelectedChunks>,
    /// Its chunks in `selected`.
    range: Range<u32>,
}

impl HeadSamples {
    /// Samples of the chunks `range` of `selected`.
    pub(crate) fn new(selected: Arc<SelectedChunks>, range: Range<u32>) -> HeadSamples {
        HeadSamples { selected, range }
    }

    fn chunks(&self) -> &[HeadChunk] {
        self.selected.chunks(&self.range)
    }
}

impl SampleSource for HeadSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let disk = &*self.selected.disk;
        let mut rest = self.chunks();
        while !rest.is_empty() {
            let (group, others) = rest.split_at(overlapping_len(rest));
            rest = others;
            match group {
                [one] if range.overlaps_inclusive(one.min_time(), one.max_time()) => {
                    one.decode(disk, range, out)?;
                }
                [_] => {}
                several => merge_chunks(disk, several, range, out)?,
            }
        }
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.chunks().iter().map(HeadChunk::count).sum()
    }

    fn chunk_count_hint(&self) -> usize {
        self.chunks().len()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        let chunks = self.chunks();
        Some((chunks.first()?.min_time(), chunks.iter().map(HeadChunk::max_time).max()?))
    }
}

#[cfg(test)]
mod tests;
