//! Slices of the checkpoint: reads the newest valid copy of each and restores its pages, on all cores.
//!
//! Invariants: a copy is used whole or not at all; a chunk outside of its file or window, or that does not
//! decode, is left out and counted. Memory in addition to the head: one slice per thread.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_format::chunk::xor::{self, XorState};
use chronolith_format::head::slice::{
    EntryReader, FILE_HEADER_BYTES, KIND_SERIES, KIND_TENANTS, SeriesEntry, SliceHeader, decode_slice,
    decode_tenants,
};
use chronolith_model::{Columns, TenantId, TimeRange};
use parking_lot::Mutex;

use super::files::{CheckpointFiles, read_head};
use super::histograms;
use super::starts;
use super::threads::replay_thread_count;
use crate::checkpoint::{Durability, SliceState, slice_of, slice_path};
use crate::index::tenant::Tenants;
use crate::options::HeadError;
use crate::recovery::progress::ReplayProgress;
use crate::series::SeriesStore;
use crate::series::chunk_buffer::ChunkBuffer;
use crate::series::sealed::ChunkRef;
use crate::series::stripe::{NONE, SealedChunk, Stripe, stripe_of};
use crate::series::windows::WindowTally;

/// Result of loading the slices.
#[derive(Default)]
pub(super) struct LoadedSlices {
    pub(super) slices: BTreeMap<u32, SliceState>,
    /// Per slice, the id from which on series are not in the copy.
    pub(super) id_ends: HashMap<u32, u32>,
    /// First arrival by tenant and window start.
    pub(super) arrivals: HashMap<(u32, i64), i64>,
    pub(super) tallies: Vec<WindowTally>,
    /// Sealed files that copies reference and that do not exist.
    pub(super) missing_files: BTreeSet<u32>,
    pub(super) damaged_count: u64,
    pub(super) bytes: u64,
    pub(super) notes: Vec<String>,
    /// Damaged copies; their content is in the other copy and the WAL, unless the WAL ends before (see
    /// `notes`).
    pub(super) repaired: Vec<String>,
}

/// State shared by all threads.
pub(super) struct SliceLoader<'a> {
    pub(super) files: &'a CheckpointFiles,
    pub(super) series: &'a SeriesStore,
    pub(super) tenants: &'a Mutex<Tenants>,
    pub(super) progress: &'a ReplayProgress,
    numbers: Vec<u32>,
    next: AtomicUsize,
    found: Mutex<LoadedSlices>,
    failure: Mutex<Option<HeadError>>,
}

/// State of one thread.
struct Work {
    bytes: Vec<u8>,
    tallies: Vec<WindowTally>,
    missing_files: BTreeSet<u32>,
    damaged_count: u64,
}

impl<'a> SliceLoader<'a> {
    pub(super) fn new(
        files: &'a CheckpointFiles,
        series: &'a SeriesStore,
        tenants: &'a Mutex<Tenants>,
        progress: &'a ReplayProgress,
    ) -> SliceLoader<'a> {
        SliceLoader {
            files,
            series,
            tenants,
            progress,
            numbers: files.slices.keys().copied().collect(),
            next: AtomicUsize::new(0),
            found: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Returns the number of useful threads in addition to the caller.
    pub(super) fn helper_count(&self) -> usize {
        (replay_thread_count() - 1).min(self.numbers.len())
    }

    /// Loads slices until there are none left. Any number of threads may call it.
    pub(super) fn run(&self) {
        let mut work =
            Work { bytes: Vec::new(), tallies: Vec::new(), missing_files: BTreeSet::new(), damaged_count: 0 };
        while let Some(&slice) = self.numbers.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = self.load_slice(slice, &mut work) {
                *self.failure.lock() = Some(error);
                return;
            }
        }
        let mut found = self.found.lock();
        found.damaged_count += work.damaged_count;
        found.missing_files.extend(work.missing_files);
        for (idx, mut tally) in work.tallies.into_iter().enumerate() {
            let all = tally_of(&mut found.tallies, idx, self.series.window_ms);
            all.merge(&mut tally);
        }
    }

    pub(super) fn finish(self) -> Result<LoadedSlices, HeadError> {
        match self.failure.into_inner() {
            Some(error) => Err(error),
            None => Ok(self.found.into_inner()),
        }
    }

    fn load_slice(&self, slice: u32, work: &mut Work) -> Result<(), HeadError> {
        let disk = &*self.series.env.disk;
        let exists = self.files.slices.get(&slice).copied().unwrap_or_default();
        let mut copies = Vec::new();
        let mut notes = Vec::new();
        for copy_idx in (0..2).filter(|&copy_idx| exists[copy_idx]) {
            let path = slice_path(&self.files.dir, slice, copy_idx);
            let head = read_head(disk, &path, FILE_HEADER_BYTES)?;
            match SliceHeader::decode(&head) {
                Ok(header) if header.slice == slice && header.key == self.files.key => {
                    copies.push((header, copy_idx, path));
                }
                Ok(_) => notes.push(format!("{}: belongs to another WAL or slice", path.display())),
                Err(error) => notes.push(format!("{}: {error}", path.display())),
            }
        }
        copies.sort_by_key(|copy| std::cmp::Reverse(copy.0.generation));
        let newest = copies.first().map_or(0, |copy| copy.0.generation);
        // A newest copy that is not valid cannot serve as the older one either.
        let older_sequence = copies.get(1).map_or(0, |copy| copy.0.sequence);
        let mut bytes = std::mem::take(&mut work.bytes);
        let mut slice_state =
            SliceState { exists, generation: newest, ..SliceState::unwritten(0, i64::MIN / 2) };
        slice_state.durability = Durability::Unknown;
        for (idx, (_, copy_idx, path)) in copies.into_iter().enumerate() {
            read_whole(disk, &path, &mut bytes)?;
            match decode_slice(&bytes) {
                Ok((header, frames)) => {
                    slice_state.copy_idx = Some(copy_idx);
                    slice_state.older_sequence = if idx == 0 { older_sequence } else { 0 };
                    (slice_state.sequence, slice_state.bytes) = (header.sequence, header.byte_len);
                    slice_state.series_count = header.series_count;
                    self.put_slice(&header, &frames, work, &path);
                    break;
                }
                Err(error) => notes.push(format!("{}: {error}", path.display())),
            }
        }
        work.bytes = bytes;
        // A single file is left if a crash came between the first writes of both copies, or if the other file
        // is lost.
        if let Some(copy_idx) =
            slice_state.copy_idx.filter(|copy_idx| !exists[1 - copy_idx] && slice_state.generation > 1)
        {
            notes.push(format!("{}: is missing", slice_path(&self.files.dir, slice, 1 - copy_idx).display()));
        }
        let mut found = self.found.lock();
        found
            .repaired
            .extend(notes.into_iter().map(|note| format!("{note}; the other copy and the WAL are used")));
        found.bytes += slice_state.bytes;
        self.progress.bytes_done.fetch_add(slice_state.bytes, Ordering::Relaxed);
        found.slices.insert(slice, slice_state);
        Ok(())
    }

    /// Restores the series of a valid copy.
    fn put_slice(&self, header: &SliceHeader, frames: &[(u8, &[u8])], work: &mut Work, path: &Path) {
        let mut tenants = Vec::new();
        let mut arrivals = Vec::new();
        for (_, payload) in frames.iter().filter(|(kind, _)| *kind == KIND_TENANTS) {
            let Ok(found) = decode_tenants(payload) else { continue };
            for (name, windows) in found {
                let idx = self.tenant(name);
                tenants.push(idx);
                arrivals.extend(windows.into_iter().map(|w| ((idx, w.start), w.first_arrival_ms)));
            }
        }
        let mut entry = SeriesEntry::default();
        for (_, payload) in frames.iter().filter(|(kind, _)| *kind == KIND_SERIES) {
            let mut reader = EntryReader::new(payload);
            let mut stripe = self.series.stripes()[stripe_of_slice(header.slice)].lock();
            loop {
                match reader.next(&mut entry) {
                    Ok(false) => break,
                    Ok(true) => {
                        let tenant = tenants.get(entry.tenant as usize).copied().unwrap_or(NONE);
                        if slice_of(entry.id) != header.slice || tenant == NONE {
                            work.damaged_count += 1;
                            continue;
                        }
                        put_series(&mut stripe, self.series, &entry, tenant, work);
                    }
                    Err(error) => {
                        // The checksums match, so a faulty writer wrote this.
                        self.found.lock().notes.push(format!("{}: {error}", path.display()));
                        break;
                    }
                }
            }
        }
        let mut found = self.found.lock();
        found.id_ends.insert(header.slice, header.id_end);
        for (window, first) in arrivals {
            let known = found.arrivals.entry(window).or_insert(first);
            *known = first.min(*known);
        }
    }

    fn tenant(&self, name: &str) -> u32 {
        let Ok(id) = TenantId::new(name) else { return NONE };
        let seed = self.series.env.rng.next_u64();
        self.tenants.lock().get_or_create(&id, seed).map_or(NONE, |t| t.idx)
    }
}

fn stripe_of_slice(slice: u32) -> usize {
    slice as usize % crate::series::stripe::STRIPE_COUNT
}

fn read_whole(disk: &dyn chronolith_base::Disk, path: &Path, out: &mut Vec<u8>) -> Result<(), HeadError> {
    let mut read = || {
        let file = disk.open(path)?;
        let len = usize::try_from(file.len()?).map_err(std::io::Error::other)?;
        out.resize(len, 0);
        file.read_at(out, 0)
    };
    read().map_err(HeadError::io(path))
}

fn tally_of(tallies: &mut Vec<WindowTally>, tenant: usize, window_ms: i64) -> &mut WindowTally {
    if tallies.len() <= tenant {
        tallies.resize_with(tenant + 1, || WindowTally::new(window_ms));
    }
    &mut tallies[tenant]
}

/// Adds one entry to its series, which is created if missing; unusable parts are counted.
fn put_series(
    stripe: &mut Stripe,
    series: &SeriesStore,
    entry: &SeriesEntry<'_>,
    tenant: u32,
    work: &mut Work,
) {
    debug_assert_eq!(stripe_of(entry.id), stripe_of_slice(slice_of(entry.id)));
    if stripe.series(entry.id).is_none() {
        stripe.create(entry.id, tenant);
    }
    let tally = tally_of(&mut work.tallies, tenant as usize, series.window_ms);
    let Some(mut sealed) = stripe.series(entry.id).map(|record| record.sealed) else { return };
    for chunk in &entry.sealed {
        let record_len = u64::from(chunk.len) + chronolith_format::head::sealed::RECORD_OVERHEAD_BYTES as u64;
        let file = series.store.file(chunk.file).filter(|f| u64::from(chunk.offset) + record_len <= f.len());
        let first = chunk.min_time.clamp(TimeRange::ALL.start, TimeRange::ALL.end - 1);
        let window = TimeRange::window_of(first, series.window_ms);
        let within = window.contains(chunk.min_time)
            && chunk.min_time.checked_add(i64::from(chunk.span_ms)).is_some_and(|t| window.contains(t));
        let Some(file) = file.filter(|_| within) else {
            work.missing_files.insert(chunk.file);
            work.damaged_count += 1;
            continue;
        };
        file.live_count.fetch_add(1, Ordering::Relaxed);
        let max_time = chunk.min_time.saturating_add(i64::from(chunk.span_ms));
        tally.add_chunk(chunk.min_time, max_time, i64::from(chunk.count));
        let chunk_ref = ChunkRef { file: chunk.file, offset: chunk.offset };
        let node = SealedChunk::restored(chunk_ref, chunk.min_time, chunk.span_ms, chunk.len, chunk.count);
        sealed = stripe.sealed_chunks.push(node, sealed);
    }
    let mut state = entry.last.map_or(XorState::new(), |(time, value)| XorState::ended(time, value));
    let (mut open, mut open_min, mut window_end) = (ChunkBuffer::NONE, 0, 0);
    if let Some((resumed, first, bytes)) = entry.open {
        match TimeRange::ALL.contains(first).then(|| TimeRange::window_of(first, series.window_ms)) {
            Some(window) if first <= resumed.time() && window.contains(resumed.time()) => {
                open = stripe.chunk_buffers.store(bytes);
                tally.add_chunk(first, resumed.time(), i64::from(resumed.count()));
                (state, open_min, window_end) = (resumed, first, window.end);
            }
            _ => work.damaged_count += 1,
        }
    }
    let mut ooo = NONE;
    if !entry.late.is_empty() {
        let mut samples = Columns::default();
        match xor::decode(entry.late, TimeRange::ALL, &mut samples) {
            Ok(()) if !samples.is_empty() => {
                samples.times.iter().for_each(|&t| tally.add(t, 1));
                ooo = stripe.ooo.store(&samples);
            }
            _ => work.damaged_count += 1,
        }
    }
    if let Some(record) = stripe.series_mut(entry.id) {
        (record.xor, record.open, record.open_min, record.window_end) = (state, open, open_min, window_end);
        (record.sealed, record.ooo) = (sealed, ooo);
    }
    if !entry.histograms.is_empty() {
        histograms::restore(stripe, series, entry, tally, &mut work.missing_files, &mut work.damaged_count);
    }
    if !entry.starts.is_empty() {
        starts::restore(stripe, entry.id, entry.starts, &mut work.damaged_count);
    }
}

/// Removes a series with all its samples from its stripe.
pub(super) fn discard(stripe: &mut Stripe, series: &SeriesStore, id: u32, tally: &mut WindowTally) {
    let Some(record) = stripe.series(id).cloned() else { return };
    stripe.sealed_chunks.remove(record.sealed, |node| {
        tally.add(node.min_time, -i64::from(node.count));
        if let Some(file) = series.store.file(node.chunk_ref.file) {
            file.live_count.fetch_sub(1, Ordering::Relaxed);
        }
        true
    });
    if !record.open.is_none() {
        tally.add(record.open_min, -i64::from(record.xor.count()));
        stripe.chunk_buffers.free(record.open);
    }
    if record.ooo != NONE {
        stripe.ooo.samples(record.ooo).times.iter().for_each(|&t| tally.add(t, -1));
        stripe.ooo.free(record.ooo);
    }
    if let Some(record) = stripe.series_mut(id) {
        (record.open, record.sealed, record.ooo) = (ChunkBuffer::NONE, NONE, NONE);
    }
    histograms::discard(stripe, series, id, tally);
    stripe.remove(id);
}
