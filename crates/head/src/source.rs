//! Samples of one series as a reader holds them: open and late ones copied, sealed ones by place.
//!
//! Start times stand beside all chunks. Holds: what is read is what was there when the series was selected; chunks that overlap are merged, and of
//! equal times the younger one wins: a late sample has the time of another only if it has replaced it.

use std::sync::Arc;

use chronolith_base::{Disk, Reservation};
use chronolith_format::histogram;
use chronolith_format::starts::{self, StartRun};
use chronolith_format::xor::{self, ENCODING_XOR, EncodedChunk};
use chronolith_model::{Columns, QueryError, SampleSource, TimeRange};

use crate::sealed::{SealedFile, SealedPlace, SealedStore};
use crate::stripe::{HistogramNode, Hot, NONE, SealedNode, Stripe};

/// One chunk of a series.
pub(crate) enum HeadChunk {
    /// In a sealed file.
    Sealed { file: Arc<SealedFile>, node: SealedNode },
    /// A copy of the open chunk.
    Open { bytes: Box<[u8]>, min_time: i64, max_time: i64, count: u16 },
    /// A copy of late samples, never empty.
    Late(Box<Columns>),
    /// Histograms in a sealed file.
    SealedHistograms { file: Arc<SealedFile>, node: HistogramNode },
    /// A copy of the open chunk of histograms.
    OpenHistograms(Box<EncodedChunk>),
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
            HeadChunk::SealedHistograms { node, .. } => node.min_time,
            HeadChunk::OpenHistograms(chunk) => chunk.min_time,
        }
    }

    pub(crate) fn max_time(&self) -> i64 {
        match self {
            HeadChunk::Sealed { node, .. } => node.max_time(),
            HeadChunk::Open { max_time, .. } => *max_time,
            HeadChunk::Late(samples) => samples.times.last().copied().unwrap_or(i64::MIN),
            HeadChunk::Newest { time, .. } => *time,
            HeadChunk::SealedHistograms { node, .. } => node.max_time,
            HeadChunk::OpenHistograms(chunk) => chunk.max_time,
        }
    }

    fn count(&self) -> usize {
        match self {
            HeadChunk::Sealed { node, .. } => usize::from(node.count),
            HeadChunk::Open { count, .. } => usize::from(*count),
            HeadChunk::Late(samples) => samples.len(),
            HeadChunk::Newest { .. } => 1,
            HeadChunk::SealedHistograms { node, .. } => usize::from(node.count),
            HeadChunk::OpenHistograms(chunk) => usize::from(chunk.count),
        }
    }

    /// Where a sealed chunk is.
    pub(crate) fn place(&self) -> Option<SealedPlace> {
        match self {
            HeadChunk::Sealed { node, .. } => Some(node.place),
            HeadChunk::SealedHistograms { node, .. } => Some(node.place),
            _ => None,
        }
    }

    /// A copy of a sealed chunk.
    pub(crate) fn sealed(&self, disk: &dyn Disk) -> Result<Option<EncodedChunk>, QueryError> {
        let (file, encoding, count, len) = match self {
            HeadChunk::Sealed { file, node } => (file, ENCODING_XOR, node.count, usize::from(node.len)),
            HeadChunk::SealedHistograms { file, node } => {
                (file, node.encoding, node.count, node.len as usize)
            }
            _ => return Ok(None),
        };
        let Some(place) = self.place() else { return Ok(None) };
        let bytes = file.read_chunk(disk, place.offset, len, <[u8]>::to_vec)?;
        let (min_time, max_time) = (self.min_time(), self.max_time());
        Ok(Some(EncodedChunk { encoding, min_time, max_time, count, bytes }))
    }

    /// Which chunk wins at equal times: the smaller rank.
    fn rank(&self) -> (u8, u64) {
        match self {
            HeadChunk::Late(_) => (0, 0),
            HeadChunk::Open { .. } | HeadChunk::Newest { .. } | HeadChunk::OpenHistograms(_) => (1, 0),
            HeadChunk::Sealed { .. } | HeadChunk::SealedHistograms { .. } => {
                let place = self.place().map_or(0, |p| u64::from(p.file) << 32 | u64::from(p.offset));
                (2, u64::MAX - place)
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        size_of::<HeadChunk>()
            + match self {
                HeadChunk::Sealed { .. } | HeadChunk::SealedHistograms { .. } | HeadChunk::Newest { .. } => 0,
                HeadChunk::OpenHistograms(chunk) => size_of::<EncodedChunk>() + chunk.bytes.len(),
                HeadChunk::Open { bytes, .. } => bytes.len(),
                HeadChunk::Late(samples) => {
                    size_of::<Columns>() + 16 * samples.len() + samples.histogram_bytes()
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
            HeadChunk::Sealed { file, node } => {
                let len = usize::from(node.len);
                file.read_chunk(disk, node.place.offset, len, |bytes| xor::decode(bytes, range, out))?
                    .map_err(|e| file.corrupt(format!("chunk at offset {}: {e}", node.place.offset)))
            }
            HeadChunk::Open { bytes, .. } => xor::decode(bytes, range, out).map_err(|e| {
                QueryError::Corrupt { path: "head memory".to_owned(), what: format!("open chunk: {e}") }
            }),
            HeadChunk::Late(samples) => {
                out.extend_from(samples, samples.places(range));
                Ok(())
            }
            HeadChunk::SealedHistograms { file, node } => {
                let decode = |bytes: &[u8]| histogram::decode(node.encoding, bytes, range, out);
                file.read_chunk(disk, node.place.offset, node.len as usize, decode)?
                    .map_err(|e| file.corrupt(format!("chunk at offset {}: {e}", node.place.offset)))
            }
            HeadChunk::OpenHistograms(chunk) => histogram::decode(chunk.encoding, &chunk.bytes, range, out)
                .map_err(|e| {
                    let what = format!("open chunk of histograms: {e}");
                    QueryError::Corrupt { path: "head memory".to_owned(), what }
                }),
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

/// Appends copies of what of the histograms of a series may lie in `range` to `out`, in no order.
pub(crate) fn copy_histograms(
    stripe: &Stripe,
    files: &mut RecentFiles<'_>,
    id: u32,
    range: TimeRange,
    out: &mut Vec<HeadChunk>,
) {
    let Some(track) = stripe.histograms_of(id) else { return };
    for node in track.sealed.overlapping(range) {
        if let Some(file) = files.get(node.place.file) {
            out.push(HeadChunk::SealedHistograms { file, node: *node });
        }
    }
    if let Some(open) = &track.open
        && range.overlaps_inclusive(open.times().0, open.times().1)
    {
        out.push(HeadChunk::OpenHistograms(Box::new(open.encoded())));
    }
    let mut late = Columns::default();
    for (&time, histogram) in track.late.range(range.start..range.end.max(range.start)) {
        late.push_histogram(time, histogram.clone());
    }
    if !late.is_empty() {
        out.push(HeadChunk::Late(Box::new(late)));
    }
}

/// The start times that concern samples in `range` of `chunks`, if some are known.
pub(crate) fn copy_starts(
    stripe: &Stripe,
    id: u32,
    chunks: &[HeadChunk],
    range: TimeRange,
) -> Option<Arc<[StartRun]>> {
    stripe.starts_of(id)?;
    let range = match chunks {
        [] => return None,
        [HeadChunk::Newest { time, .. }] => TimeRange::inclusive(*time, *time),
        _ => range,
    };
    let runs = stripe.copy_starts(id, range);
    (!runs.is_empty()).then(|| runs.into())
}

/// Whether a series has a chunk of floats that may have samples in `range`.
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
    if let Some(late) = late_alone(chunks) {
        return merge_late(disk, chunks, late, range, out);
    }
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
            out.push_apart(&all, at);
        }
    }
    Ok(())
}

/// The late samples among `chunks` (sorted by first time), if they are all that overlaps the others. That is how it is but
/// for damage and histograms.
fn late_alone(chunks: &[HeadChunk]) -> Option<&Columns> {
    let (mut late, mut end) = (None, None);
    for chunk in chunks {
        match chunk {
            HeadChunk::Late(samples) if late.is_none() && samples.histograms.is_empty() => {
                late = Some(&**samples);
            }
            HeadChunk::Sealed { .. } | HeadChunk::Open { .. }
                if end.is_none_or(|end| end < chunk.min_time()) =>
            {
                end = Some(chunk.max_time());
            }
            _ => return None,
        }
    }
    late
}

/// Appends the samples of chunks of which only the late ones overlap others; of equal times the late one wins.
// PERF: what lies between two late samples is copied as it is, and nothing is sorted: with a tenth late, reading takes 11.1 ns a
// sample instead of 20.2.
//   cargo run --release -p chronolith-head --example late_speed -- 4000 1440 10 withheld 60000
fn merge_late(
    disk: &dyn Disk,
    chunks: &[HeadChunk],
    late: &Columns,
    range: TimeRange,
    out: &mut Columns,
) -> Result<(), QueryError> {
    let others = || chunks.iter().filter(|chunk| !matches!(chunk, HeadChunk::Late(_)));
    let mut in_time = Columns::default();
    let count = others().map(HeadChunk::count).sum();
    in_time.times.reserve(count);
    in_time.values.reserve(count);
    for chunk in others().filter(|chunk| range.overlaps_inclusive(chunk.min_time(), chunk.max_time())) {
        chunk.decode(disk, range, &mut in_time)?;
    }
    out.times.reserve(in_time.len());
    out.values.reserve(in_time.len());
    let mut done = 0;
    for at in late.places(range) {
        let time = late.times[at];
        let rest = &in_time.times[done..];
        // The next late sample is mostly a few samples away.
        let mut width = 1;
        while rest.get(width).is_some_and(|&other| other < time) {
            width *= 2;
        }
        let near = &rest[..rest.len().min(width + 1)];
        let end = done + near.partition_point(|&other| other < time);
        out.extend_from(&in_time, done..end);
        out.push_from(late, at);
        done = end + usize::from(in_time.times.get(end) == Some(&time));
    }
    out.extend_from(&in_time, done..in_time.len());
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
    /// Its start times, if some are known.
    pub(crate) starts: Option<Arc<[StartRun]>>,
}

impl HeadSamples {
    fn chunks(&self) -> &[HeadChunk] {
        &self.selected.chunks[self.start as usize..self.end as usize]
    }

    fn read_chunks(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
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
}

impl SampleSource for HeadSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let first = out.len();
        let done = self.read_chunks(range, out);
        if let Some(runs) = &self.starts {
            starts::fill(runs, first, out);
        }
        done
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
