//! Slices of the checkpoint: the newest good copy of each is read and put into its pages, on all cores.
//!
//! Holds: a copy counts only whole; a chunk that is out of its file or window, or no chunk, is left out and counted.
//! Memory besides the head's: one slice a thread.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_format::slice::{
    EntryReader, FILE_HEADER_BYTES, KIND_SERIES, KIND_TENANTS, SeriesEntry, SliceHeader, decode_slice,
    decode_tenants,
};
use chronolith_format::xor::{self, XorState};
use chronolith_model::{Columns, TenantId, TimeRange};
use parking_lot::Mutex;

use super::files::{LogFiles, read_head};
use super::histograms;
use super::starts;
use crate::chain::Chain;
use crate::checkpoint::{Durability, Spot, slice_of, slice_path};
use crate::head::{Series, replay_thread_count};
use crate::options::HeadError;
use crate::progress::ReplayProgress;
use crate::sealed::SealedPlace;
use crate::stripe::{NONE, SealedNode, Stripe, stripe_of};
use crate::tenant::Tenants;
use crate::windows::WindowTally;

/// What the slices gave.
#[derive(Default)]
pub(super) struct LoadedSlices {
    pub(super) spots: BTreeMap<u32, Spot>,
    /// Series from this id on are not in the copy, by slice.
    pub(super) id_ends: HashMap<u32, u32>,
    /// First arrival by tenant and window start.
    pub(super) arrivals: HashMap<(u32, i64), i64>,
    pub(super) tallies: Vec<WindowTally>,
    /// Sealed files that copies name and that are not there.
    pub(super) missing_files: BTreeSet<u32>,
    pub(super) damaged_count: u64,
    pub(super) bytes: u64,
    pub(super) notes: Vec<String>,
    /// Damaged copies; what they held is in the other copy and the log, unless the log ends before (see `notes`).
    pub(super) repaired: Vec<String>,
}

/// What all threads share.
pub(super) struct SliceLoader<'a> {
    pub(super) files: &'a LogFiles,
    pub(super) series: &'a Series,
    pub(super) tenants: &'a Mutex<Tenants>,
    pub(super) progress: &'a ReplayProgress,
    numbers: Vec<u32>,
    next: AtomicUsize,
    found: Mutex<LoadedSlices>,
    failure: Mutex<Option<HeadError>>,
}

/// What one thread needs while it loads.
struct Work {
    bytes: Vec<u8>,
    tallies: Vec<WindowTally>,
    missing_files: BTreeSet<u32>,
    damaged_count: u64,
}

impl<'a> SliceLoader<'a> {
    pub(super) fn new(
        files: &'a LogFiles,
        series: &'a Series,
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

    /// Threads that are worth it besides the caller's.
    pub(super) fn helper_count(&self) -> usize {
        (replay_thread_count() - 1).min(self.numbers.len())
    }

    /// Takes slices until there are none left. For any number of threads.
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
        for place in (0..2).filter(|&place| exists[place]) {
            let path = slice_path(&self.files.dir, slice, place);
            let head = read_head(disk, &path, FILE_HEADER_BYTES)?;
            match SliceHeader::decode(&head) {
                Ok(header) if header.slice == slice && header.key == self.files.key => {
                    copies.push((header, place, path));
                }
                Ok(_) => notes.push(format!("{}: is of another log or slice", path.display())),
                Err(error) => notes.push(format!("{}: {error}", path.display())),
            }
        }
        copies.sort_by_key(|copy| std::cmp::Reverse(copy.0.generation));
        let newest = copies.first().map_or(0, |copy| copy.0.generation);
        // A newest copy that is not whole is no older one either.
        let older_sequence = copies.get(1).map_or(0, |copy| copy.0.sequence);
        let mut bytes = std::mem::take(&mut work.bytes);
        let mut spot = Spot { exists, generation: newest, ..Spot::unwritten(0, i64::MIN / 2) };
        spot.durability = Durability::Unknown;
        for (idx, (_, place, path)) in copies.into_iter().enumerate() {
            read_whole(disk, &path, &mut bytes)?;
            match decode_slice(&bytes) {
                Ok((header, frames)) => {
                    spot.place = Some(place);
                    spot.older_sequence = if idx == 0 { older_sequence } else { 0 };
                    (spot.sequence, spot.bytes) = (header.sequence, header.byte_len);
                    spot.series_count = header.series_count;
                    self.put_slice(&header, &frames, work, &path);
                    break;
                }
                Err(error) => notes.push(format!("{}: {error}", path.display())),
            }
        }
        work.bytes = bytes;
        // One file alone is left where a crash came between the first writes of both copies, or where the other is lost.
        if let Some(place) = spot.place.filter(|place| !exists[1 - place] && spot.generation > 1) {
            notes.push(format!("{}: is missing", slice_path(&self.files.dir, slice, 1 - place).display()));
        }
        let mut found = self.found.lock();
        found
            .repaired
            .extend(notes.into_iter().map(|note| format!("{note}; the other copy and the WAL are used")));
        found.bytes += spot.bytes;
        self.progress.bytes_done.fetch_add(spot.bytes, Ordering::Relaxed);
        found.spots.insert(slice, spot);
        Ok(())
    }

    /// Puts the series of a good copy into their pages.
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
            let mut stripe = self.series.stripes[stripe_of_slice(header.slice)].lock();
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
                        // The checksums fit, so this is what a faulty writer left.
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
    slice as usize % crate::stripe::STRIPE_COUNT
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

/// Puts one entry into the record of its series, which is made if it is not there; what cannot be used is counted.
fn put_series(stripe: &mut Stripe, series: &Series, entry: &SeriesEntry<'_>, tenant: u32, work: &mut Work) {
    debug_assert_eq!(stripe_of(entry.id), stripe_of_slice(slice_of(entry.id)));
    if stripe.hot(entry.id).is_none() {
        stripe.create(entry.id, tenant);
    }
    let tally = tally_of(&mut work.tallies, tenant as usize, series.window_ms);
    let Some(mut sealed) = stripe.hot(entry.id).map(|hot| hot.sealed) else { return };
    for chunk in &entry.sealed {
        let record_len = u64::from(chunk.len) + chronolith_format::sealed::RECORD_OVERHEAD_BYTES as u64;
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
        let place = SealedPlace { file: chunk.file, offset: chunk.offset };
        let node = SealedNode::restored(place, chunk.min_time, chunk.span_ms, chunk.len, chunk.count);
        sealed = stripe.nodes.push(node, sealed);
    }
    let mut state = entry.last.map_or(XorState::new(), |(time, value)| XorState::ended(time, value));
    let (mut open, mut open_min, mut window_end) = (Chain::NONE, 0, 0);
    if let Some((resumed, first, bytes)) = entry.open {
        match TimeRange::ALL.contains(first).then(|| TimeRange::window_of(first, series.window_ms)) {
            Some(window) if first <= resumed.time() && window.contains(resumed.time()) => {
                open = stripe.chains.store(bytes);
                tally.add_chunk(first, resumed.time(), i64::from(resumed.count()));
                (state, open_min, window_end) = (resumed, first, window.end);
            }
            _ => work.damaged_count += 1,
        }
    }
    let mut late = NONE;
    if !entry.late.is_empty() {
        let mut samples = Columns::default();
        match xor::decode(entry.late, TimeRange::ALL, &mut samples) {
            Ok(()) if !samples.is_empty() => {
                samples.times.iter().for_each(|&t| tally.add(t, 1));
                late = stripe.late.store(&samples);
            }
            _ => work.damaged_count += 1,
        }
    }
    if let Some(hot) = stripe.hot_mut(entry.id) {
        (hot.xor, hot.open, hot.open_min, hot.window_end) = (state, open, open_min, window_end);
        (hot.sealed, hot.late) = (sealed, late);
    }
    if !entry.histograms.is_empty() {
        histograms::restore(stripe, series, entry, tally, &mut work.missing_files, &mut work.damaged_count);
    }
    if !entry.starts.is_empty() {
        starts::restore(stripe, entry.id, entry.starts, &mut work.damaged_count);
    }
}

/// Takes all that is stored of a series, and the series, out of its stripe.
pub(super) fn discard(stripe: &mut Stripe, series: &Series, id: u32, tally: &mut WindowTally) {
    let Some(hot) = stripe.hot(id).cloned() else { return };
    stripe.nodes.remove(hot.sealed, |node| {
        tally.add(node.min_time, -i64::from(node.count));
        if let Some(file) = series.store.file(node.place.file) {
            file.live_count.fetch_sub(1, Ordering::Relaxed);
        }
        true
    });
    if !hot.open.is_none() {
        tally.add(hot.open_min, -i64::from(hot.xor.count()));
        stripe.chains.free(hot.open);
    }
    if hot.late != NONE {
        stripe.late.samples(hot.late).times.iter().for_each(|&t| tally.add(t, -1));
        stripe.late.free(hot.late);
    }
    if let Some(hot) = stripe.hot_mut(id) {
        (hot.open, hot.sealed, hot.late) = (Chain::NONE, NONE, NONE);
    }
    histograms::discard(stripe, series, id, tally);
    stripe.remove(id);
}
