//! Samples of one series as a reader holds them: open and late ones copied, sealed ones by place.
//!
//! Holds: what is read is what was there when the series was selected; chunks that overlap are merged, and of
//! equal times the younger one wins: a late sample has the time of another only if it has replaced it.

use std::sync::Arc;

use chronolith_base::{Disk, Reservation};
use chronolith_format::xor;
use chronolith_model::{Columns, QueryError, SampleSource, TimeRange};

use crate::sealed::SealedFile;
use crate::sealed::SealedStore;
use crate::stripe::{Hot, NONE, SealedNode, Stripe};

/// One chunk of a series.
pub(crate) enum HeadChunk {
    /// In a sealed file.
    Sealed { file: Arc<SealedFile>, node: SealedNode },
    /// A copy of the open chunk.
    Open { bytes: Box<[u8]>, min_time: i64, max_time: i64, count: u16 },
    /// A copy of late samples, never empty.
    Late(Box<Columns>),
    /// The newest sample alone, for readers that want no other.
    Newest { time: i64, value: f64 },
}

// There is one for every chunk of every selected series.
const _: () = assert!(size_of::<HeadChunk>() <= 48);

impl HeadChunk {
    pub(crate) fn min_time(&self) -> i64 {
        match self {
            HeadChunk::Sealed { node, .. } => node.min_time,
            HeadChunk::Open { min_time, .. } => *min_time,
            HeadChunk::Late(samples) => samples.times.first().copied().unwrap_or(i64::MAX),
            HeadChunk::Newest { time, .. } => *time,
        }
    }

    pub(crate) fn max_time(&self) -> i64 {
        match self {
            HeadChunk::Sealed { node, .. } => node.max_time(),
            HeadChunk::Open { max_time, .. } => *max_time,
            HeadChunk::Late(samples) => samples.times.last().copied().unwrap_or(i64::MIN),
            HeadChunk::Newest { time, .. } => *time,
        }
    }

    fn count(&self) -> usize {
        match self {
            HeadChunk::Sealed { node, .. } => usize::from(node.count),
            HeadChunk::Open { count, .. } => usize::from(*count),
            HeadChunk::Late(samples) => samples.len(),
            HeadChunk::Newest { .. } => 1,
        }
    }

    /// Which chunk wins at equal times: the smaller rank.
    fn rank(&self) -> (u8, u64) {
        match self {
            HeadChunk::Late(_) => (0, 0),
            HeadChunk::Open { .. } | HeadChunk::Newest { .. } => (1, 0),
            HeadChunk::Sealed { node, .. } => {
                (2, u64::MAX - (u64::from(node.place.file) << 32 | u64::from(node.place.offset)))
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        size_of::<HeadChunk>()
            + match self {
                HeadChunk::Sealed { .. } | HeadChunk::Newest { .. } => 0,
                HeadChunk::Open { bytes, .. } => bytes.len(),
                HeadChunk::Late(samples) => size_of::<Columns>() + 16 * samples.len(),
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
            HeadChunk::Sealed { file, node } => {
                let len = usize::from(node.len);
                file.read_chunk(disk, node.place.offset, len, |bytes| xor::decode(bytes, range, out))?
                    .map_err(|e| file.corrupt(format!("chunk at offset {}: {e}", node.place.offset)))
            }
            HeadChunk::Open { bytes, .. } => xor::decode(bytes, range, out).map_err(|e| {
                QueryError::Corrupt { path: "head memory".to_owned(), what: format!("open chunk: {e}") }
            }),
            HeadChunk::Late(samples) => {
                let start = samples.times.partition_point(|&t| t < range.start);
                let end = samples.times.partition_point(|&t| t < range.end);
                out.times.extend_from_slice(&samples.times[start..end]);
                out.values.extend_from_slice(&samples.values[start..end]);
                Ok(())
            }
            HeadChunk::Newest { time, value } => {
                if range.contains(*time) {
                    out.push(*time, *value);
                }
                Ok(())
            }
        }
    }
}

/// Sealed files that were asked for last: neighbouring series are in few, and each asks for some.
pub(crate) struct RecentFiles<'a> {
    store: &'a SealedStore,
    recent: Vec<Arc<SealedFile>>,
}

/// Files that are remembered.
const RECENT_FILES_MAX: usize = 8;

impl<'a> RecentFiles<'a> {
    pub(crate) fn new(store: &'a SealedStore) -> RecentFiles<'a> {
        RecentFiles { store, recent: Vec::new() }
    }

    fn get(&mut self, number: u32) -> Option<Arc<SealedFile>> {
        if let Some(found) = self.recent.iter().find(|file| file.number == number) {
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

/// Appends what of a series may lie in `range` to `out`, oldest first.
pub(crate) fn copy_chunks(
    stripe: &Stripe,
    files: &mut RecentFiles<'_>,
    hot: &Hot,
    range: TimeRange,
    out: &mut Vec<HeadChunk>,
) {
    let first = out.len();
    for node in stripe.nodes.list(hot.sealed) {
        if range.overlaps_inclusive(node.min_time, node.max_time())
            && let Some(file) = files.get(node.place.file)
        {
            out.push(HeadChunk::Sealed { file, node: *node });
        }
    }
    if !hot.open.is_none() && range.overlaps_inclusive(hot.open_min, hot.xor.time()) {
        let mut bytes = Vec::new();
        stripe.copy_open(hot, &mut bytes);
        out.push(HeadChunk::Open {
            bytes: bytes.into(),
            min_time: hot.open_min,
            max_time: hot.xor.time(),
            count: hot.xor.count(),
        });
    }
    if hot.late != NONE {
        let samples = stripe.late.samples_in(hot.late, range);
        if !samples.is_empty() {
            out.push(HeadChunk::Late(Box::new(samples)));
        }
    }
    out[first..].sort_by_key(HeadChunk::min_time);
}

/// The newest sample of a series in `range`, if that is known without its chunks: it is the last one of the open
/// chunk, and none came late.
pub(crate) fn newest(hot: &Hot, range: TimeRange) -> Option<HeadChunk> {
    let time = hot.xor.time();
    let is_known = !hot.open.is_none() && hot.late == NONE && range.contains(time);
    is_known.then(|| HeadChunk::Newest { time, value: f64::from_bits(hot.xor.value_bits()) })
}

/// Whether a series has a chunk that may have samples in `range`.
pub(crate) fn overlaps(stripe: &Stripe, hot: &Hot, range: TimeRange) -> bool {
    let open = !hot.open.is_none() && range.overlaps_inclusive(hot.open_min, hot.xor.time());
    let late = hot.late != NONE && stripe.late.overlaps(hot.late, range);
    open || late || stripe.nodes.list(hot.sealed).any(|n| range.overlaps_inclusive(n.min_time, n.max_time()))
}

/// Length of the run of chunks at the start of `chunks` (sorted by first time) that overlap each other.
pub(crate) fn overlapping_len(chunks: &[HeadChunk]) -> usize {
    let mut max_time = chunks.first().map_or(i64::MIN, HeadChunk::max_time);
    let mut len = 1;
    while let Some(chunk) = chunks.get(len).filter(|c| c.min_time() <= max_time) {
        max_time = max_time.max(chunk.max_time());
        len += 1;
    }
    len
}

/// Appends the samples of chunks that overlap, one a time.
pub(crate) fn merge_chunks(
    disk: &dyn Disk,
    chunks: &[HeadChunk],
    range: TimeRange,
    out: &mut Columns,
) -> Result<(), QueryError> {
    let mut ranked: Vec<&HeadChunk> = chunks.iter().collect();
    ranked.sort_by_key(|c| c.rank());
    let mut all = Columns::default();
    for chunk in ranked {
        chunk.decode(disk, range, &mut all)?;
    }
    let mut order: Vec<u32> = (0..all.len() as u32).collect();
    // Stable: of equal times the one decoded first, of the smaller rank, comes first.
    order.sort_by_key(|&i| all.times[i as usize]);
    let mut last = None;
    for at in order.into_iter().map(|i| i as usize) {
        if last != Some(all.times[at]) {
            last = Some(all.times[at]);
            out.push(all.times[at], all.values[at]);
        }
    }
    Ok(())
}

/// Chunks of series that were selected together.
pub(crate) struct SelectedChunks {
    pub(crate) chunks: Vec<HeadChunk>,
    pub(crate) disk: Arc<dyn Disk>,
    /// Memory of all of them, and of the labels of their series.
    pub(crate) _memory: Reservation,
}

impl SelectedChunks {
    /// Bytes that `chunks` take.
    pub(crate) fn heap_bytes(chunks: &[HeadChunk]) -> u64 {
        chunks.iter().map(|c| c.heap_bytes() as u64).sum()
    }
}

/// A selected series of the head.
pub(crate) struct HeadSamples {
    pub(crate) selected: Arc<SelectedChunks>,
    /// Its chunks among them.
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl HeadSamples {
    fn chunks(&self) -> &[HeadChunk] {
        &self.selected.chunks[self.start as usize..self.end as usize]
    }
}

impl SampleSource for HeadSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let disk = &*self.selected.disk;
        let mut rest = self.chunks();
        while !rest.is_empty() {
            let (group, behind) = rest.split_at(overlapping_len(rest));
            rest = behind;
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
