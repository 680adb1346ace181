//! Slices of the checkpoint: reads the newest valid copy of each and restores its pages, on all cores.
//!
//! Invariants: a copy is used whole or not at all. Memory in addition to the head: one slice per thread.
//! Not here: the series of a slice (`restore`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_format::head::slice::{
    EntryReader, FILE_HEADER_BYTES, KIND_TENANTS, LATER_FRAMES_UNKNOWN, OooPayload, SeriesEntry, SliceHeader,
    decode_slice, decode_tenants, is_series,
};
use chronolith_format::head::wal::Samples;
use chronolith_format::parse_store_name;
use chronolith_model::TimeUnit;
use parking_lot::Mutex;

use super::files::{CheckpointFiles, read_head};
use super::restore::{Damage, finish, restore};
use super::tallies::TenantTallies;
use super::threads::replay_thread_count;
use crate::checkpoint::{SliceState, slice_of, slice_path};
use crate::index::tenant::Tenants;
use crate::options::HeadError;
use crate::recovery::progress::ReplayProgress;
use crate::series::SeriesStore;
use crate::series::stripe::NONE;

/// Result of loading the slices.
#[derive(Default)]
pub(super) struct LoadedSlices {
    pub(super) slices: BTreeMap<u32, SliceState>,
    /// Per slice, the id from which on series are not in the copy.
    pub(super) id_ends: HashMap<u32, u32>,
    /// Per slice, the sequence after which it has no samples.
    pub(super) copied_until: HashMap<u32, u64>,
    /// First arrival by tenant and window start.
    pub(super) arrivals: HashMap<(u32, i64), i64>,
    pub(super) tallies: TenantTallies,
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
#[derive(Default)]
struct Work {
    bytes: Vec<u8>,
    tallies: TenantTallies,
    damage: Damage,
    samples: Samples,
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
        let mut work = Work::default();
        while let Some(&slice) = self.numbers.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = self.load_slice(slice, &mut work) {
                *self.failure.lock() = Some(error);
                return;
            }
        }
        let mut found = self.found.lock();
        found.damaged_count += work.damage.count;
        found.missing_files.extend(work.damage.missing_files);
        found.tallies.merge(work.tallies);
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
                Err(error) if SliceHeader::is_of_later_version(&error) => {
                    return Err(HeadError::Corrupt { path, what: error.to_string() });
                }
                Err(error) => notes.push(format!("{}: {error}", path.display())),
            }
        }
        copies.sort_by_key(|copy| std::cmp::Reverse(copy.0.generation));
        let newest = copies.first().map_or(0, |copy| copy.0.generation);
        // A newest copy that is not valid cannot serve as the older one either.
        let older_sequence = copies.get(1).map_or(0, |copy| copy.0.sequence);
        let mut bytes = std::mem::take(&mut work.bytes);
        let mut slice_state = SliceState::found(exists, newest);
        for (idx, (_, copy_idx, path)) in copies.into_iter().enumerate() {
            read_whole(disk, &path, &mut bytes)?;
            match decode_slice(&bytes) {
                Ok((header, frames)) => {
                    slice_state.set_copy(copy_idx, &header, if idx == 0 { older_sequence } else { 0 });
                    let copied_until = match header.later_frames {
                        LATER_FRAMES_UNKNOWN => u64::MAX,
                        count => header.sequence.saturating_add(u64::from(count)),
                    };
                    self.found.lock().copied_until.insert(slice, copied_until);
                    self.put_slice(&header, &frames, work, &path);
                    break;
                }
                Err(error) => notes.push(format!("{}: {error}", path.display())),
            }
        }
        work.bytes = bytes;
        if let Some(copy_idx) = slice_state.missing_copy() {
            notes.push(format!("{}: is missing", slice_path(&self.files.dir, slice, copy_idx).display()));
        }
        let mut found = self.found.lock();
        found
            .repaired
            .extend(notes.into_iter().map(|note| format!("{note}; the other copy and the WAL are used")));
        found.bytes += slice_state.bytes();
        self.progress.bytes_done.fetch_add(slice_state.bytes(), Ordering::Relaxed);
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
                let (idx, unit) = self.tenant(name);
                tenants.push((idx, self.series.window_width(unit)));
                arrivals.extend(windows.into_iter().map(|w| ((idx, w.start), w.first_arrival_ms)));
            }
        }
        let mut entry = SeriesEntry::default();
        let mut with_ooo: Vec<(u32, u32, i64)> = Vec::new();
        for &(kind, payload) in frames.iter().filter(|(kind, _)| is_series(*kind)) {
            let mut reader = EntryReader::new(kind, payload);
            let mut stripe = self.series.stripes()[stripe_of_slice(header.slice)].lock();
            loop {
                match reader.next(&mut entry) {
                    Ok(false) => break,
                    Ok(true) => {
                        let (tenant, width) =
                            tenants.get(entry.tenant as usize).copied().unwrap_or((NONE, 0));
                        if slice_of(entry.id) != header.slice || tenant == NONE {
                            work.damage.count += 1;
                            continue;
                        }
                        if stripe.series(entry.id).is_none() {
                            stripe.create(entry.id, tenant);
                        }
                        if !matches!(entry.ooo, OooPayload::None) {
                            with_ooo.push((entry.id, tenant, width));
                        }
                        let tally = work.tallies.of(tenant, width);
                        let (damage, samples) = (&mut work.damage, &mut work.samples);
                        restore(&mut stripe, self.series, &entry, tally, damage, samples);
                    }
                    Err(error) => {
                        // The checksums match, so a faulty writer wrote this.
                        self.found.lock().notes.push(format!("{}: {error}", path.display()));
                        break;
                    }
                }
            }
        }
        // A series may have several entries, and its chunks are in the last one.
        with_ooo.dedup_by_key(|one| one.0);
        let mut stripe = self.series.stripes()[stripe_of_slice(header.slice)].lock();
        for (id, tenant, width) in with_ooo {
            finish(&mut stripe, self.series, id, work.tallies.of(tenant, width));
        }
        drop(stripe);
        let mut found = self.found.lock();
        found.id_ends.insert(header.slice, header.id_end);
        for (window, first) in arrivals {
            let known = found.arrivals.entry(window).or_insert(first);
            *known = first.min(*known);
        }
    }

    /// Returns index and unit of a tenant; [`NONE`] for a name that is none.
    fn tenant(&self, name: &str) -> (u32, TimeUnit) {
        let Ok(id) = parse_store_name(name) else { return (NONE, TimeUnit::Milli) };
        let seed = self.series.env.rng.next_u64();
        let tenant = self.tenants.lock().get_or_create(&id, seed);
        (tenant.map_or(NONE, |tenant| tenant.idx), id.time_unit())
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
