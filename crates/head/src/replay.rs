//! Starting: definitions and slices of the checkpoint, then the log behind them, on all cores.
//!
//! Holds: nothing is logged; loading twice the same gives the same; damage is contained, and named in notes. What
//! is read passes through bounded buffers, so a start needs no more memory than the head that it builds.
//! Steps: files, sealed files, definitions beside slices, tables, log, cut the torn tail.

mod copies;
mod definitions;
mod files;
mod histograms;
mod log;
mod positions;
mod sealed;
mod skip;
mod slices;
mod starts;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::Env;
use chronolith_base::hash::HashMap;
use chronolith_base::thread::core_count;
use parking_lot::{Mutex, RwLock};

use crate::checkpoint::{CheckpointStats, Pace, Rolling, Spot, slice_of};
use crate::head::{Counters, Head, Series};
use crate::ids::SeriesIds;
use crate::key_hash::KeyHash;
use crate::memory_limit::MemoryLimit;
use crate::options::{HeadError, HeadOptions};
use crate::progress::{ReplayProgress, ReplayReport};
use crate::raw_keys::RawKeys;
use crate::sealed::SealedVerification;
use crate::stripe::{HistogramBudget, STRIPE_COUNT, Stripe};
use crate::sync;
use crate::tenant::Tenants;
use crate::wal::{Wal, WalStart, wal_dir};

use definitions::LoadedDefinitions;
use files::{LogFiles, SegmentEnd};
use log::LogReplay;
use positions::Positions;
use slices::{LoadedSlices, SliceLoader};

/// Bytes of log below which the time of their replay is no measure.
const MEASURED_BYTES_MIN: u64 = 8 << 20;

/// What the parts of a start come to.
struct Opened {
    series: Arc<Series>,
    tenants: Tenants,
    raw_keys: RawKeys,
    next_id: u32,
    start: WalStart,
    rolling: Rolling,
    /// Frames of the log that were read; the newest slices do not have them.
    has_tail: bool,
    report: ReplayReport,
}

/// What was read of the log.
struct Tail {
    ends: Vec<SegmentEnd>,
    bytes: u64,
    /// Position up to which it may define series anew under other ids; 0 if it does not.
    alias_sequence: u64,
}

/// Makes a head from what is on disk.
pub(crate) fn open(env: &Env, options: HeadOptions, progress: &ReplayProgress) -> Result<Head, HeadError> {
    let start_ns = env.clock.mono_ns();
    let mut report = ReplayReport::default();
    let files = LogFiles::find(env, &options.dir, &mut report)?;
    announce(&files, progress);
    let sealed = sealed::open_all(env, &options)?;
    let stripes = (0..STRIPE_COUNT).map(|_| sync::Mutex::new(Stripe::new())).collect();
    let series = Arc::new(Series {
        stripes,
        store: sealed.store,
        histograms: HistogramBudget::new(options.histogram_bytes_max),
        env: env.clone(),
        window_ms: options.window_ms,
    });
    let tenants = Mutex::new(Tenants::default());
    let (mut slices, mut definitions) = load_checkpoint(env, &files, &series, &tenants, progress)?;
    report.notes.append(&mut slices.notes);
    report.notes.append(&mut definitions.notes);
    report.repaired.append(&mut slices.repaired);
    report.repaired.append(&mut definitions.repaired);
    report.bytes += slices.bytes + definitions.bytes;
    let tenants = tenants.into_inner();
    let keys = std::mem::take(&mut definitions.raw_keys);
    let (aliases, raw_keys) = definitions::finish(&files, &series, &tenants, keys, &mut slices, &mut report);
    put_windows(env, &tenants, &mut slices);
    sealed::finish(env, &options, &series.store, sealed.unusable, &slices, &mut report)?;
    let positions = positions_of(&series, &slices, &definitions);
    let log_start_ns = env.clock.mono_ns();
    let next_id = next_id_of(&series, &slices, &definitions);
    let mut log = LogReplay::new(&files, &series, &positions, tenants, aliases, raw_keys, next_id);
    let ends = log.run(progress, &mut report)?;
    let LogReplay { tenants, aliases, raw_keys, next_id, defined_count, has_reused, .. } = log;
    note_lost_tail(&files, &slices, &ends, &mut report);
    let newest = slices.spots.values().map(|s| s.sequence).max().unwrap_or(0);
    files.note_lost(&ends, positions.oldest.saturating_add(1), &mut report);
    let start = files.finish(env, &options, &ends, newest.max(definitions.mark.sequence))?;
    let log_bytes: u64 = ends.iter().map(|e| e.end).sum();
    let log_ns = env.clock.mono_ns().saturating_sub(log_start_ns);
    let measured = (log_bytes >= MEASURED_BYTES_MIN && positions.oldest == 0).then_some((log_bytes, log_ns));
    let pace = Pace::new(env.clock.mono_ns(), core_count(), measured);
    let has_tail = ends.iter().any(|e| e.last_sequence > positions.oldest);
    let alias_sequence = if aliases.into_inner().is_empty() { 0 } else { start.sequence };
    let tail = Tail { ends, bytes: log_bytes, alias_sequence };
    // What the file lacks is told by the order of ids.
    definitions.file.is_broken |= has_reused;
    let rolling = rolling_of(&series, slices, definitions, &tail, next_id, pace);
    let tenants = tenants.into_inner();
    report.series = tenants.all().map(|t| t.tables.read().live_count() as u64).sum();
    report.duration_ns = env.clock.mono_ns().saturating_sub(start_ns);
    let opened = Opened { series, tenants, raw_keys, next_id, start, rolling, has_tail, report };
    let head = build(env, options, opened);
    if defined_count > 0 {
        head.settle_definitions_of_log()?;
    }
    head.cut_finished_log()?;
    head.forget_tenants();
    if let Err(error) = head.reclaim_ids_at_start() {
        tracing::error!(%error, "ids of departed series cannot be used again yet; it is tried again");
    }
    Ok(head)
}

/// Reads definitions and slices side by side.
fn load_checkpoint(
    env: &Env,
    files: &LogFiles,
    series: &Series,
    tenants: &Mutex<Tenants>,
    progress: &ReplayProgress,
) -> Result<(LoadedSlices, LoadedDefinitions), HeadError> {
    let loader = SliceLoader::new(files, series, tenants, progress);
    let definitions = std::thread::scope(|scope| {
        for _ in 0..loader.helper_count() {
            // Without another thread this one does all.
            let thread = std::thread::Builder::new().name("replay-slices".to_owned());
            let _ = thread.spawn_scoped(scope, || loader.run());
        }
        let definitions = definitions::load(env, files, tenants);
        loader.run();
        definitions
    })?;
    Ok((loader.finish()?, definitions))
}

/// Tells how much there is to do.
fn announce(files: &LogFiles, progress: &ReplayProgress) {
    let number = |s: Option<&files::Segment>| s.map_or(0, |s| s.number);
    progress.segment_first.store(number(files.segments.first()), Ordering::Relaxed);
    progress.segment_last.store(number(files.segments.last()), Ordering::Relaxed);
    progress.segment_now.store(number(files.segments.first()), Ordering::Relaxed);
    let bytes: u64 = files.segments.iter().map(|s| s.len).sum();
    progress.bytes_total.store(bytes, Ordering::Relaxed);
}

/// Above all ids that the checkpoint speaks of.
fn next_id_of(series: &Series, slices: &LoadedSlices, definitions: &LoadedDefinitions) -> u32 {
    let sliced = slices.id_ends.values().copied().max().unwrap_or(0);
    // A slice may end before series of it, whose ids were given before those of other pages were given again.
    let last = series.stripes.iter().enumerate().filter_map(|(idx, stripe)| stripe.lock().last_id(idx)).max();
    definitions.next_id.max(sliced).max(last.map_or(0, |last| last + 1))
}

/// Counts what the slices have by window.
fn put_windows(env: &Env, tenants: &Tenants, slices: &mut LoadedSlices) {
    let now_ms = env.clock.now_ms();
    for tenant in tenants.all() {
        let Some(tally) = slices.tallies.get_mut(tenant.idx as usize) else { continue };
        tenant.windows.lock().merge_known(tally, &slices.arrivals, tenant.idx, now_ms);
    }
}

/// Slices of the series that are there.
fn occupied_slices(series: &Series) -> Vec<u32> {
    let mut out = Vec::new();
    let mut ids = Vec::new();
    for (stripe_idx, stripe) in series.stripes.iter().enumerate() {
        let stripe = stripe.lock();
        for page in 0.. {
            ids.clear();
            let Some(()) = stripe.page_ids(stripe_idx, page, &mut ids) else { break };
            out.extend(ids.first().map(|&id| slice_of(id)));
        }
    }
    out.sort_unstable();
    out.dedup();
    out
}

fn positions_of(series: &Series, slices: &LoadedSlices, definitions: &LoadedDefinitions) -> Positions {
    let mut by_slice = HashMap::default();
    for (&slice, spot) in &slices.spots {
        by_slice.insert(slice, spot.sequence);
    }
    let is_whole = |slice: u32| slices.spots.get(&slice).is_some_and(Spot::is_whole);
    // Series that only the log defines, because the file has lost them, may be of slices that were never written.
    let is_complete = slices.id_ends.values().all(|&id_end| id_end <= definitions.mark.next_id);
    let all_whole = definitions.is_whole
        && is_complete
        && slices.spots.values().all(Spot::is_whole)
        && occupied_slices(series).into_iter().all(is_whole);
    let oldest = slices.spots.values().map(|s| s.sequence).min().filter(|_| all_whole).unwrap_or(0);
    Positions::new(by_slice, oldest, definitions.mark.sequence, definitions.mark.next_id)
}

/// Notes slices whose log is not there any more: their newest copy was damaged, the one before is too old.
fn note_lost_tail(files: &LogFiles, slices: &LoadedSlices, ends: &[SegmentEnd], report: &mut ReplayReport) {
    let newest = slices.spots.values().map(|s| s.sequence).max().unwrap_or(0);
    let first = ends.iter().find(|e| e.last_sequence > 0).map_or(newest + 1, |e| e.first_sequence);
    for (slice, spot) in slices.spots.iter().filter(|(_, spot)| spot.sequence + 1 < first) {
        let path = crate::checkpoint::slice_path(&files.dir, *slice, spot.place.unwrap_or(0));
        let (from, to) = (spot.sequence + 1, first - 1);
        report
            .notes
            .push(format!("{}: frames {from} to {to} behind it are missing in the log", path.display()));
    }
    if slices.damaged_count > 0 {
        let count = slices.damaged_count;
        report.notes.push(format!("checkpoint: {count} chunks cannot be used and are left out"));
    }
}

fn rolling_of(
    series: &Series,
    slices: LoadedSlices,
    definitions: LoadedDefinitions,
    tail: &Tail,
    next_id: u32,
    pace: Pace,
) -> Rolling {
    let mut spots: BTreeMap<u32, Spot> = slices.spots;
    let (ends, alias_sequence) = (&tail.ends, tail.alias_sequence);
    let tail = -tail.bytes.cast_signed();
    let before = ends.iter().find(|e| e.last_sequence > 0).map_or(0, |e| e.first_sequence - 1);
    let newest = spots.values().map(|s| s.sequence).max().unwrap_or(0);
    let last = ends.iter().map(|e| e.last_sequence).max().unwrap_or(0).max(newest);
    for spot in spots.values_mut() {
        // Bytes behind the position, as if frames were of one length.
        let behind = last.saturating_sub(spot.sequence.max(before)) as f64;
        let all = last.saturating_sub(before).max(1) as f64;
        spot.log_bytes = (tail as f64 * (behind / all).min(1.0)) as i64;
    }
    for slice in occupied_slices(series) {
        spots.entry(slice).or_insert_with(|| Spot::unwritten(before, tail));
    }
    Rolling::new(spots, definitions.file, pace, next_id, last, alias_sequence)
}

fn build(env: &Env, options: HeadOptions, opened: Opened) -> Head {
    let dir = wal_dir(&options.dir);
    let kept_bytes = opened.start.kept.iter().map(|s| s.bytes).sum();
    // Slices may have more than the log, and stand in the kernel's cache only.
    let relogs = opened.has_tail || !opened.rolling.slices.is_empty();
    let relog_before = if relogs { opened.start.sequence.max(1) } else { 0 };
    let (key, id_limit) = (opened.start.key, options.series_id_limit);
    let wal = Wal::new(env, &options, dir, opened.start);
    wal.counters.segment_bytes.store(kept_bytes, Ordering::Relaxed);
    let counters =
        Counters { checkpoint_bytes: AtomicU64::new(opened.rolling.bytes()), ..Counters::default() };
    counters.series_live.store(opened.report.series, Ordering::Relaxed);
    let memory_limit = MemoryLimit::new(options.memory_bytes_max);
    let sealed_verification = SealedVerification::new(opened.series.store.finished_files());
    Head {
        env: env.clone(),
        options,
        series: opened.series,
        tenants: RwLock::new(opened.tenants),
        raw_keys: sync::RwLock::new(opened.raw_keys),
        stale_keys: Mutex::default(),
        key_hash: KeyHash::new(key),
        ids: SeriesIds::new(opened.next_id, id_limit),
        reclaim: Mutex::default(),
        wal,
        gate: RwLock::new(()),
        maintenance: Mutex::new(()),
        rolling: Mutex::new(opened.rolling),
        relog_before: AtomicU64::new(relog_before),
        scratch: Mutex::new(Vec::new()),
        memory_limit,
        counters,
        sealed_verification: Mutex::new(sealed_verification),
        replay: opened.report,
    }
}

impl Head {
    /// Brings definitions that were read from the log to a file of their own: repeats of samples are logged again
    /// until all slices are written, and must find their series after the next start.
    fn settle_definitions_of_log(&self) -> Result<(), HeadError> {
        let _alone = self.maintenance.lock();
        let mut rolling = self.rolling.lock();
        let moment = self.moment(self.wal.ticket().0);
        match self.extend_definitions(&mut rolling, moment, &mut CheckpointStats::default()) {
            Err(HeadError::Io { error, .. }) if error.kind() == std::io::ErrorKind::StorageFull => {
                self.wal.enter_disk_full();
                Ok(())
            }
            other => other,
        }
    }
    /// Removes the segments that a crash has left behind slices which were finished.
    fn cut_finished_log(&self) -> Result<(), HeadError> {
        let _alone = self.maintenance.lock();
        let mut rolling = self.rolling.lock();
        let kept = rolling.kept_sequence().unwrap_or(0);
        if self.wal.has_segment_through(kept) {
            self.cut_log(&mut rolling)?;
        }
        Ok(())
    }
}
