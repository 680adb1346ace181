//! Writing one slice: its pages are copied one after another under the lock of their stripe, then the copy replaces
//! the older of the two on disk.

use std::path::{Path, PathBuf};

use chronolith_base::hash::HashMap;
use chronolith_format::slice::{
    FILE_HEADER_BYTES, FRAME_COUNT_MAX, HistogramsEntry, KIND_SERIES, KIND_TENANTS, SealedEntry,
    SealedHistogramEntry, SeriesEntry, SliceHeader, WindowEntry, encode_entry, encode_tenants,
};
use chronolith_format::wal::{FrameHeader, HistogramsWriter, STRIPE_NONE};
use chronolith_format::{starts, xor};

use super::{CheckpointStats, Moment, Rolling};
use crate::head::Head;
use crate::options::HeadError;
use crate::sealed::SealedPlace;
use crate::stripe::{NONE, PAGE_SLOTS, STRIPE_COUNT, Stripe};
use crate::wal::wal_dir;

/// Pages of a stripe that make a slice: some 2.5 MB at 300 bytes a series.
pub(crate) const SLICE_PAGES: usize = 8;
/// Bytes of a frame's payload after which the next frame starts.
const FRAME_BYTES: usize = 1 << 20;
/// Sealed chunks of one entry; a series with more has several.
const ENTRY_SEALED_MAX: usize = 1 << 14;
/// The buffer of a larger slice is given back.
const BUFFER_BYTES_MAX: usize = 4 << 20;

/// The slice of a series.
pub(crate) fn slice_of(id: u32) -> u32 {
    let page = id / PAGE_SLOTS as u32;
    let stripes = STRIPE_COUNT as u32;
    page / stripes / SLICE_PAGES as u32 * stripes + page % stripes
}

/// The pages of a slice, counted over all stripes.
pub(crate) fn pages_of(slice: u32) -> impl Iterator<Item = u32> {
    let (stripes, pages) = (STRIPE_COUNT as u32, SLICE_PAGES as u32);
    let first = slice / stripes * pages;
    (first..first + pages).map(move |page| page * stripes + slice % stripes)
}

/// Path of one of the two copies of a slice.
pub(crate) fn slice_path(dir: &Path, slice: u32, place: usize) -> PathBuf {
    dir.join(format!("{slice:08}.slice{place}"))
}

/// How far the newest copy of a slice is from being durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// An earlier process wrote it: neither bytes nor name may be durable.
    Unknown,
    /// Its bytes are durable, its name is not before the directory is synced.
    Renamed,
    Durable,
}

/// What is on disk of one slice: the newest copy, and the older one that replaces it if it is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Position up to which the newest copy (or the lack of one) speaks for the log.
    pub(crate) sequence: u64,
    /// Bytes of the log at that position.
    pub(crate) log_bytes: i64,
    pub(crate) generation: u64,
    /// Which copy is the newest; `None` if there is no good one.
    pub(crate) place: Option<usize>,
    /// Which files exist.
    pub(crate) exists: [bool; 2],
    pub(crate) durability: Durability,
    pub(crate) bytes: u64,
    pub(crate) series_count: u32,
    /// Changes before it was written that the log does not tell of.
    pub(crate) change_count: u64,
    /// Position from which the log restores the slice together with the older copy, or without a copy if there is no
    /// older one; 0 if the older one is not usable.
    pub(crate) older_sequence: u64,
    /// As `change_count`, of the older copy; `None` if it is older than this process.
    pub(crate) older_change_count: Option<u64>,
}

impl Spot {
    /// A slice without copies, of which the log before `sequence` has no samples.
    pub(crate) fn unwritten(sequence: u64, log_bytes: i64) -> Spot {
        Spot {
            sequence,
            log_bytes,
            generation: 0,
            place: None,
            exists: [false; 2],
            durability: Durability::Durable,
            bytes: 0,
            series_count: 0,
            change_count: 0,
            older_sequence: sequence,
            older_change_count: None,
        }
    }

    /// Whether writing the slice anew would change nothing.
    pub(super) fn is_current(&self, moment: Moment) -> bool {
        self.is_whole() && self.sequence >= moment.sequence && self.change_count == moment.change_count
    }

    /// Returns true if writing it twice would change nothing: both copies are as new as `moment`.
    pub(super) fn is_mirrored(&self, moment: Moment) -> bool {
        self.is_current(moment)
            && self.older_sequence >= moment.sequence
            && self.older_change_count == Some(moment.change_count)
    }

    /// Returns true if both copies were written after change number `change`.
    pub(super) fn is_after_change(&self, change: u64) -> bool {
        self.is_whole()
            && self.change_count >= change
            && self.older_change_count.is_some_and(|older| older >= change)
    }

    /// Position before which neither copy needs the log.
    pub(crate) fn kept_sequence(&self) -> u64 {
        self.sequence.min(self.older_sequence)
    }

    /// Whether there is a good copy.
    pub(crate) fn is_whole(&self) -> bool {
        self.place.is_some()
    }
}

/// A slice while it is copied.
struct Copy<'a> {
    key: u128,
    generation: u64,
    buffer: &'a mut Vec<u8>,
    payload: Vec<u8>,
    last_id: u32,
    frame_count: u32,
    series_count: u32,
    sample_count: u64,
    /// Tenants of the slice, by their number in the process, and their place in its list.
    tenants: HashMap<u32, u32>,
    order: Vec<u32>,
    sealed_end: SealedPlace,
    open: Vec<u8>,
}

impl Copy<'_> {
    fn put_frame(&mut self, kind: u8) {
        assert!(self.frame_count < FRAME_COUNT_MAX, "a slice has few frames");
        let mut header = FrameHeader::for_payload(kind, STRIPE_NONE, &self.payload);
        header.sequence = SliceHeader::frame_sequence(self.generation, self.frame_count);
        header.put_frame(self.key, &self.payload, self.buffer);
        self.frame_count += 1;
        self.payload.clear();
        self.last_id = 0;
    }

    fn put_entry(&mut self, entry: &SeriesEntry<'_>) {
        encode_entry(entry, self.last_id, &mut self.payload);
        self.last_id = entry.id;
        if self.payload.len() >= FRAME_BYTES {
            self.put_frame(KIND_SERIES);
        }
    }

    fn put_series(&mut self, stripe: &Stripe, id: u32) {
        let Some(hot) = stripe.hot(id) else { return };
        let next = self.order.len() as u32;
        let tenant = *self.tenants.entry(hot.tenant).or_insert_with(|| {
            self.order.push(hot.tenant);
            next
        });
        let mut sealed: Vec<SealedEntry> = Vec::new();
        for node in stripe.nodes.list(hot.sealed) {
            self.sealed_end = self.sealed_end.max(node.place);
            self.sample_count += u64::from(node.count);
            sealed.push(SealedEntry {
                file: node.place.file,
                offset: node.place.offset,
                len: node.len,
                count: node.count,
                min_time: node.min_time,
                span_ms: node.span_ms,
            });
        }
        sealed.reverse();
        let late_histograms = late_histograms(stripe, id);
        let histograms = self.histograms(stripe, id, tenant, &late_histograms);
        while sealed.len() > ENTRY_SEALED_MAX {
            let rest = sealed.split_off(ENTRY_SEALED_MAX);
            self.put_entry(&SeriesEntry { id, tenant, sealed, ..SeriesEntry::default() });
            sealed = rest;
        }
        let mut late = Vec::new();
        if hot.late != NONE {
            let samples = stripe.late.samples(hot.late);
            late = xor::encode_whole(&samples.times, &samples.values);
            self.sample_count += samples.len() as u64;
        }
        let starts = start_times(stripe, id);
        let mut entry = SeriesEntry {
            id,
            tenant,
            late: &late,
            sealed,
            histograms,
            starts: &starts,
            ..SeriesEntry::default()
        };
        let mut open = std::mem::take(&mut self.open);
        if hot.open.is_none() {
            entry.last = (hot.xor.count() > 0).then(|| (hot.xor.time(), hot.xor.value_bits()));
        } else {
            open.clear();
            stripe.copy_open(hot, &mut open);
            entry.open = Some((hot.xor, hot.open_min, &open));
            self.sample_count += u64::from(hot.xor.count());
        }
        self.put_entry(&entry);
        self.open = open;
        self.series_count += 1;
    }

    /// What a series has of histograms, `late` as a payload. Sealed chunks beyond those of one entry are put at once.
    fn histograms<'e>(
        &mut self,
        stripe: &'e Stripe,
        id: u32,
        tenant: u32,
        late: &'e [u8],
    ) -> HistogramsEntry<'e> {
        let Some(track) = stripe.histograms_of(id) else { return HistogramsEntry::default() };
        let mut sealed = Vec::with_capacity(track.sealed.len());
        for node in track.sealed.iter() {
            self.sealed_end = self.sealed_end.max(node.place);
            self.sample_count += u64::from(node.count);
            sealed.push(SealedHistogramEntry {
                file: node.place.file,
                offset: node.place.offset,
                len: node.len,
                count: node.count,
                encoding: node.encoding,
                min_time: node.min_time,
                span_ms: u32::try_from(node.max_time - node.min_time).expect("a chunk stays within a window"),
            });
        }
        while sealed.len() > ENTRY_SEALED_MAX {
            let rest = sealed.split_off(ENTRY_SEALED_MAX);
            let histograms = HistogramsEntry { sealed, ..HistogramsEntry::default() };
            self.put_entry(&SeriesEntry { id, tenant, histograms, ..SeriesEntry::default() });
            sealed = rest;
        }
        self.sample_count += track.late.len() as u64;
        self.sample_count += track.open.as_ref().map_or(0, |open| u64::from(open.count()));
        let open = track.open.as_ref().map(|open| (open.encoding(), open.bytes()));
        HistogramsEntry { open, late, sealed }
    }
}

/// The start times of a series as runs; empty if nothing is known.
fn start_times(stripe: &Stripe, id: u32) -> Vec<u8> {
    let (mut runs, mut bytes) = (Vec::new(), Vec::new());
    if let Some(track) = stripe.starts_of(id) {
        track.runs(&mut runs);
    }
    if !runs.is_empty() {
        starts::encode(&runs, &mut bytes);
    }
    bytes
}

/// The late histograms of a series as a payload of the log; empty if there are none.
fn late_histograms(stripe: &Stripe, id: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    let Some(track) = stripe.histograms_of(id).filter(|track| !track.late.is_empty()) else { return payload };
    let mut writer = HistogramsWriter::begin(0, &mut payload);
    track.late.iter().for_each(|(&time, histogram)| writer.put(id, time, histogram));
    payload
}

impl Head {
    /// Copies slice `slice` as it is now and brings the copy to disk; `moment` was taken before.
    pub(super) fn write_slice(
        &self,
        rolling: &mut Rolling,
        slice: u32,
        moment: Moment,
        stats: &mut CheckpointStats,
    ) -> Result<(), HeadError> {
        let Some(&spot) = rolling.slices.get(&slice) else { return Ok(()) };
        let mut buffer = std::mem::take(&mut rolling.buffer);
        let generation = spot.generation + 1;
        let (header, sealed_end) = self.copy_slice(slice, generation, moment, &mut buffer);
        let written = self.store_slice(rolling, slice, spot, sealed_end, &buffer);
        if buffer.capacity() <= BUFFER_BYTES_MAX {
            rolling.buffer = buffer;
        }
        let place = written?;
        stats.slice_count += 1;
        stats.bytes += header.byte_len;
        stats.series_count += u64::from(header.series_count);
        let spot = Spot {
            sequence: moment.sequence,
            log_bytes: moment.log_bytes,
            generation,
            place: Some(place),
            exists: [spot.exists[0] || place == 0, spot.exists[1] || place == 1],
            durability: Durability::Renamed,
            bytes: header.byte_len,
            series_count: header.series_count,
            change_count: moment.change_count,
            older_sequence: if spot.is_whole() { spot.sequence } else { spot.older_sequence },
            older_change_count: spot.is_whole().then_some(spot.change_count),
        };
        let is_first = rolling.slices.insert(slice, spot).is_none_or(|before| !before.is_whole());
        // A slice has two copies from the start, so that one that is missing is known to be lost.
        if is_first { self.write_slice(rolling, slice, moment, stats) } else { Ok(()) }
    }

    /// Writes the slice over `buffer`; gives its header, and the place of the newest sealed chunk that it names.
    fn copy_slice(
        &self,
        slice: u32,
        generation: u64,
        moment: Moment,
        buffer: &mut Vec<u8>,
    ) -> (SliceHeader, SealedPlace) {
        buffer.clear();
        buffer.resize(FILE_HEADER_BYTES, 0);
        let mut copy = Copy {
            key: self.wal.key,
            generation,
            buffer,
            payload: Vec::new(),
            last_id: 0,
            frame_count: 0,
            series_count: 0,
            sample_count: 0,
            tenants: HashMap::default(),
            order: Vec::new(),
            sealed_end: SealedPlace { file: 0, offset: 0 },
            open: Vec::new(),
        };
        let stripe_idx = slice as usize % STRIPE_COUNT;
        let first_page = slice as usize / STRIPE_COUNT * SLICE_PAGES;
        let given = self.ids.given_at(moment.ids);
        let mut ids = Vec::new();
        for page in first_page..first_page + SLICE_PAGES {
            ids.clear();
            // The lock is held for a page at a time, so that appends wait for microseconds only.
            let stripe = self.series.stripes[stripe_idx].lock();
            let Some(()) = stripe.page_ids(stripe_idx, page, &mut ids) else { break };
            ids.iter().filter(|&&id| given.has(id)).for_each(|&id| copy.put_series(&stripe, id));
        }
        if !copy.payload.is_empty() {
            copy.put_frame(KIND_SERIES);
        }
        self.put_tenants(&mut copy);
        let header = SliceHeader {
            slice,
            generation,
            sequence: moment.sequence,
            key: copy.key,
            id_end: given.end_in(pages_of(slice)),
            frame_count: copy.frame_count,
            byte_len: copy.buffer.len() as u64,
            series_count: copy.series_count,
            sample_count: copy.sample_count,
        };
        let sealed_end = copy.sealed_end;
        buffer[..FILE_HEADER_BYTES].copy_from_slice(&header.encode());
        (header, sealed_end)
    }

    fn put_tenants(&self, copy: &mut Copy<'_>) {
        let all = self.tenants.read();
        let tenants: Vec<_> = copy.order.iter().filter_map(|&idx| all.by_idx(idx).cloned()).collect();
        drop(all);
        assert_eq!(tenants.len(), copy.order.len(), "series have tenants");
        let windows = tenants.iter().map(|tenant| {
            let windows = tenant.windows.lock();
            let entry = |(&start, count): (&i64, &crate::windows::WindowCount)| WindowEntry {
                start,
                first_arrival_ms: count.first_arrival_ms,
            };
            (tenant.id.as_str(), windows.by_start.iter().map(entry).collect())
        });
        encode_tenants(windows, &mut copy.payload);
        copy.put_frame(KIND_TENANTS);
    }

    /// Replaces the older copy of `slice`; gives its place. Its name is durable once the directory is synced.
    fn store_slice(
        &self,
        rolling: &mut Rolling,
        slice: u32,
        spot: Spot,
        sealed_end: SealedPlace,
        bytes: &[u8],
    ) -> Result<usize, HeadError> {
        if sealed_end >= rolling.sealed_synced {
            let end = self.series.store.end();
            self.write_sealed()?;
            self.series.store.sync_all().inspect_err(|error| self.wal.poison(error.to_string()))?;
            rolling.sealed_synced = end;
        }
        let disk = &*self.env.disk;
        let place = spot.place.map_or(0, |place| 1 - place);
        let path = slice_path(&wal_dir(&self.options.dir), slice, place);
        // Not over the older copy in place: a kill would leave half of it, and the newest copy without a second one.
        let tmp = path.with_extension("tmp");
        let make = || {
            let file = disk.create(&tmp)?;
            file.write_at(bytes, 0)?;
            file.sync_data()?;
            disk.rename(&tmp, &path)
        };
        make().map_err(HeadError::io(&path))?;
        Ok(place)
    }

    /// Makes the newest copies durable, those of an earlier process as well.
    pub(super) fn sync_slices(&self, rolling: &mut Rolling) -> Result<(), HeadError> {
        let dir = wal_dir(&self.options.dir);
        let disk = &*self.env.disk;
        let mut due_count = 0;
        for (&slice, spot) in &rolling.slices {
            due_count += u64::from(spot.durability != Durability::Durable);
            if let (Durability::Unknown, Some(place)) = (spot.durability, spot.place) {
                let path = slice_path(&dir, slice, place);
                disk.open(&path).and_then(|file| file.sync_data()).map_err(HeadError::io(&path))?;
            }
        }
        if due_count > 0 {
            disk.sync_dir(&dir).map_err(HeadError::io(&dir))?;
            rolling.slices.values_mut().for_each(|spot| spot.durability = Durability::Durable);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stripe::stripe_of;

    #[test]
    fn slices_part_the_ids() {
        for id in (0..3_000_000).step_by(1024).chain([1, 1023, 16_383, 131_071, 131_072, u32::MAX - 1]) {
            let slice = slice_of(id);
            assert_eq!(slice as usize % STRIPE_COUNT, stripe_of(id));
            assert!(pages_of(slice).any(|page| page == id / PAGE_SLOTS as u32));
        }
        assert_eq!(slice_of(0), slice_of(16 * 1024 * 7));
        assert_ne!(slice_of(0), slice_of(16 * 1024 * 8));
    }
}
