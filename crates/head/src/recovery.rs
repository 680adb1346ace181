//! Recovery at startup: loads series file and slices of the checkpoint, then replays the WAL after them, on
//! all cores.
//!
//! Invariants: nothing is logged; recovery is idempotent; damage is contained, and reported in notes. Input
//! passes through bounded buffers, so startup needs no more memory than the head that it builds. [`recover`]
//! lists the steps in their order.

mod copies;
mod definitions;
mod files;
mod log;
pub(crate) mod log_cache;
mod overflow;
mod positions;
pub(crate) mod progress;
mod restore;
mod sealed;
mod slices;
mod tallies;
mod texts;
mod threads;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use chronolith_base::Env;
use chronolith_base::hash::HashMap;
use chronolith_base::thread::core_count;
use chronolith_wal::{Recovery, SegmentEnd, Wal};
use parking_lot::Mutex;

use crate::checkpoint::{CheckpointState, Pace, SliceState, slice_of};
use crate::counters::{Counter, Counters};
use crate::index::HeadIndex;
use crate::index::ids::SeriesIds;
use crate::index::key_hash::KeyHash;
use crate::index::series_keys::SeriesKeyCache;
use crate::index::tenant::Tenants;
use crate::log_cache::LogCache;
use crate::options::{HeadError, HeadOptions};
use crate::recovery::progress::{ReplayProgress, ReplayReport};
use crate::series::SeriesStore;
use crate::state::HeadState;
use crate::text_cleanup::{lost, unused};
use crate::texts::TextStore;

use definitions::{LiveSeries, LoadedDefinitions};
use files::CheckpointFiles;
use log::{KnownSeries, LogReplay, ReplayedLog};
use log_cache::Loaded;
use overflow::LoadedOverflow;
use positions::{Positions, SlicePosition};
use sealed::OpenedSealed;
use slices::{LoadedSlices, SliceLoader};

/// Bytes of WAL below which its replay time is no measure.
const MEASURED_BYTES_MIN: u64 = 8 << 20;

/// Files of the checkpoint, and the WAL.
struct FoundFiles {
    files: CheckpointFiles,
    log: Recovery,
}

/// Content of the checkpoint.
struct LoadedCheckpoint {
    tenants: Tenants,
    slices: LoadedSlices,
    definitions: LoadedDefinitions,
}

/// Everything that the state of the head is built from.
struct Restored {
    series: Arc<SeriesStore>,
    tenants: Tenants,
    series_keys: SeriesKeyCache,
    next_id: u32,
    wal: Wal,
    texts: TextStore,
    overflow: LoadedOverflow,
    log_cache: Option<LogCache>,
    relog_before: u64,
    series_count: u64,
}

/// State of the head that startup has restored.
pub(crate) struct Recovered {
    pub(crate) state: Arc<HeadState>,
    pub(crate) rolling: CheckpointState,
    pub(crate) report: ReplayReport,
    has_defined: bool,
}

impl Recovered {
    /// Returns true if the WAL created series that the series file does not have.
    pub(crate) fn has_defined(&self) -> bool {
        self.has_defined
    }
}

/// Restores the state of the head from disk.
pub(crate) fn recover(
    env: &Env,
    options: HeadOptions,
    progress: &ReplayProgress,
) -> Result<Recovered, HeadError> {
    let start_ns = env.clock.mono_ns();
    let mut report = ReplayReport::default();
    let FoundFiles { files, mut log } = find_files(env, &options, progress, &mut report)?;
    let note_count = report.notes.len();
    let OpenedSealed { store, unusable } = sealed::open_all(env, &options)?;
    let series = Arc::new(SeriesStore::new(env, options.window_ms, store, options.histogram_bytes_max));
    let mut checkpoint = load_checkpoint(env, &files, &series, progress, &mut report)?;
    let live = index_live_series(env, &files, &series, &mut checkpoint, &mut report);
    let texts = texts::load(env, &files, options.text_bytes_max, &mut checkpoint.tenants, &mut report)?;
    sealed::finish(env, &options, &series.store, unusable, &checkpoint.slices, &mut report)?;
    let positions = positions_of(&series, &checkpoint);
    let overflow = overflow::load(env, &files, &mut checkpoint.tenants, &mut report)?;
    let loss = report.notes.get(note_count).cloned();
    let loaded = Loaded { slices: &checkpoint.slices, positions: &positions, overflow: &overflow, loss };
    let position = log_cache::cut_after_position(env, options.log, &mut log, &loaded, &mut report)?;
    let log_start_ns = env.clock.mono_ns();
    let known = known_series(&series, &mut checkpoint, live);
    let replayed =
        LogReplay::new(&log, &series, &positions, &overflow, known).run(&texts, progress, &mut report)?;
    note_lost_frames(&files, &log, &positions, &checkpoint.slices, &replayed.ends, &mut report);
    overflow.note_missing(&replayed.tenants, &replayed.ends, &mut report);
    let wal = continue_log(env, &options, log, &checkpoint, overflow.newest(), &replayed.ends)?;
    let log_cache = options.log.map(|partition| LogCache::new(partition, position.as_ref(), &wal));
    let pace = measured_pace(env, log_start_ns, &positions, &replayed.ends);
    let rolling = rolling_of(&series, checkpoint, &replayed, &wal, pace);
    let relog_before = relog_before(&wal, &rolling, &positions, &replayed.ends);
    let has_overflow_changes = overflow.has_changes();
    let ReplayedLog { tenants, series_keys, next_id, defined_count, .. } = replayed;
    report.series = tenants.all().map(|t| t.tables.read().live_count() as u64).sum();
    report.duration_ns = env.clock.mono_ns().saturating_sub(start_ns);
    let series_count = report.series;
    let restored = Restored {
        series,
        tenants,
        series_keys,
        next_id,
        wal,
        texts,
        overflow,
        log_cache,
        relog_before,
        series_count,
    };
    let state = build(env, options, restored);
    let lost_texts = remove_unusable_texts(&state, &mut report);
    log_cache::check_replay(&report, lost_texts)?;
    save_texts(&state)?;
    if has_overflow_changes {
        save_overflow(&state)?;
    }
    log_cache::settle(&state)?;
    Ok(Recovered { state, rolling, report, has_defined: defined_count > 0 })
}

/// Lists the files of the checkpoint, and opens the WAL, whose amount is published in `progress`.
fn find_files(
    env: &Env,
    options: &HeadOptions,
    progress: &ReplayProgress,
    report: &mut ReplayReport,
) -> Result<FoundFiles, HeadError> {
    let mut files = CheckpointFiles::find(env, &options.dir)?;
    let known_key = files.known_key(&*env.disk)?;
    let log = Recovery::open(env, &files.dir, known_key, &mut report.notes)?;
    log_cache::check_marker(env, options, &files, &log)?;
    files.key = log.key();
    announce(&log, progress);
    Ok(FoundFiles { files, log })
}

/// Determines the live series of the checkpoint, builds the indexes, and counts samples by window.
fn index_live_series(
    env: &Env,
    files: &CheckpointFiles,
    series: &SeriesStore,
    checkpoint: &mut LoadedCheckpoint,
    report: &mut ReplayReport,
) -> LiveSeries {
    let LoadedCheckpoint { tenants, slices, definitions } = checkpoint;
    let keys = std::mem::take(&mut definitions.series_keys);
    let live = definitions::finish(files, series, tenants, keys, slices, report);
    put_windows(env, tenants, slices);
    live
}

/// Returns the series that the replay starts with; the tenants move there.
fn known_series(series: &SeriesStore, checkpoint: &mut LoadedCheckpoint, live: LiveSeries) -> KnownSeries {
    let next_id = next_id_of(series, &checkpoint.slices, &checkpoint.definitions);
    let LiveSeries { aliases, series_keys } = live;
    KnownSeries { tenants: std::mem::take(&mut checkpoint.tenants), aliases, series_keys, next_id }
}

/// Notes frames of the WAL that slices need and that are missing.
fn note_lost_frames(
    files: &CheckpointFiles,
    log: &Recovery,
    positions: &Positions,
    slices: &LoadedSlices,
    ends: &[SegmentEnd],
    report: &mut ReplayReport,
) {
    note_lost_tail(files, slices, ends, report);
    log.note_lost(ends, positions.oldest.saturating_add(1), &mut report.notes);
}

/// Cuts the torn tail of the WAL and opens it for appending, after all sequences of WAL and checkpoint.
fn continue_log(
    env: &Env,
    options: &HeadOptions,
    log: Recovery,
    checkpoint: &LoadedCheckpoint,
    overflow_sequence: u64,
    ends: &[SegmentEnd],
) -> Result<Wal, HeadError> {
    let newest = newest_sequence(&checkpoint.slices).max(overflow_sequence);
    Ok(log.finish(env, &options.wal(), ends, newest.max(checkpoint.definitions.mark.sequence))?)
}

/// Returns the pace of checkpoints, by the speed of the replay if the WAL was long enough to measure it.
fn measured_pace(env: &Env, log_start_ns: u64, positions: &Positions, ends: &[SegmentEnd]) -> Pace {
    let log_bytes = bytes_of(ends);
    let log_ns = env.clock.mono_ns().saturating_sub(log_start_ns);
    let measured = (log_bytes >= MEASURED_BYTES_MIN && positions.oldest == 0).then_some((log_bytes, log_ns));
    Pace::new(env.clock.mono_ns(), core_count(), measured)
}

/// Returns the sequence before which known series are logged again with their next samples; 0 for none.
fn relog_before(wal: &Wal, rolling: &CheckpointState, positions: &Positions, ends: &[SegmentEnd]) -> u64 {
    let has_tail = ends.iter().any(|end| end.last_sequence > positions.oldest);
    // Slices may have more than the WAL, and may be in the page cache only.
    if has_tail || rolling.has_slices() { wal.position().0.max(1) } else { 0 }
}

fn bytes_of(ends: &[SegmentEnd]) -> u64 {
    ends.iter().map(|end| end.end).sum()
}

/// Returns the newest sequence of the slices; 0 if there is none.
fn newest_sequence(slices: &LoadedSlices) -> u64 {
    slices.slices.values().map(SliceState::sequence).max().unwrap_or(0)
}

/// Loads series file and slices in parallel.
fn load_checkpoint(
    env: &Env,
    files: &CheckpointFiles,
    series: &SeriesStore,
    progress: &ReplayProgress,
    report: &mut ReplayReport,
) -> Result<LoadedCheckpoint, HeadError> {
    let tenants = Mutex::new(Tenants::default());
    let loader = SliceLoader::new(files, series, &tenants, progress);
    let definitions = std::thread::scope(|scope| {
        for _ in 0..loader.helper_count() {
            // If no thread can be started, this one loads all slices.
            let thread = std::thread::Builder::new().name("replay-slices".to_owned());
            let _ = thread.spawn_scoped(scope, || loader.run());
        }
        let definitions = definitions::load(env, files, &tenants);
        loader.run();
        definitions
    });
    let mut definitions = definitions?;
    let mut slices = loader.finish()?;
    report.notes.append(&mut slices.notes);
    report.notes.append(&mut definitions.notes);
    report.repaired.append(&mut slices.repaired);
    report.repaired.append(&mut definitions.repaired);
    report.bytes += slices.bytes + definitions.bytes;
    Ok(LoadedCheckpoint { tenants: tenants.into_inner(), slices, definitions })
}

/// Publishes the amount of WAL to replay.
fn announce(recovery: &Recovery, progress: &ReplayProgress) {
    let segments = recovery.segments();
    let first = segments.first().map_or(0, |segment| segment.number);
    let last = segments.last().map_or(0, |segment| segment.number);
    progress.segment_first.store(first, Ordering::Relaxed);
    progress.segment_last.store(last, Ordering::Relaxed);
    progress.segment_now.store(first, Ordering::Relaxed);
    let bytes: u64 = segments.iter().map(|segment| segment.len).sum();
    progress.bytes_total.store(bytes, Ordering::Relaxed);
}

/// Returns an id above all ids in the checkpoint.
fn next_id_of(series: &SeriesStore, slices: &LoadedSlices, definitions: &LoadedDefinitions) -> u32 {
    let sliced = slices.id_ends.values().copied().max().unwrap_or(0);
    // The id end of a slice may be below some of its series, if ids of other pages were reused after theirs
    // were assigned.
    let last =
        series.stripes().iter().enumerate().filter_map(|(idx, stripe)| stripe.lock().last_id(idx)).max();
    definitions.next_id.max(sliced).max(last.map_or(0, |last| last + 1))
}

/// Counts the samples of the slices by window.
fn put_windows(env: &Env, tenants: &Tenants, slices: &mut LoadedSlices) {
    let now_ms = env.clock.now_ms();
    for tenant in tenants.all() {
        let Some(tally) = slices.tallies.get_mut(tenant.idx) else { continue };
        tenant.windows.lock().merge_known(tally, &slices.arrivals, tenant.idx, now_ms);
    }
}

/// Returns the slices of existing series.
fn occupied_slices(series: &SeriesStore) -> Vec<u32> {
    let mut out = Vec::new();
    let mut ids = Vec::new();
    for (stripe_idx, stripe) in series.stripes().iter().enumerate() {
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

/// Returns the WAL sequences that the checkpoint covers.
fn positions_of(series: &SeriesStore, checkpoint: &LoadedCheckpoint) -> Positions {
    let LoadedCheckpoint { slices, definitions, .. } = checkpoint;
    let mut by_slice = HashMap::default();
    for (&slice, slice_state) in &slices.slices {
        let sequence = slice_state.sequence();
        let copied_until = slices.copied_until.get(&slice).copied().unwrap_or(sequence);
        by_slice.insert(slice, SlicePosition { sequence, copied_until });
    }
    let is_whole = |slice: u32| slices.slices.get(&slice).is_some_and(SliceState::is_whole);
    // Series that only the WAL defines, because the series file lost them, may belong to slices that were
    // never written.
    let is_complete = slices.id_ends.values().all(|&id_end| id_end <= definitions.mark.next_id);
    let all_whole = definitions.is_whole
        && is_complete
        && slices.slices.values().all(SliceState::is_whole)
        && occupied_slices(series).into_iter().all(is_whole);
    let oldest = slices.slices.values().map(SliceState::sequence).min().filter(|_| all_whole).unwrap_or(0);
    Positions::new(by_slice, oldest, definitions.mark.sequence, definitions.mark.next_id)
}

/// Notes slices with a gap in the WAL after them: their newest copy was damaged, and the older one is too
/// old.
fn note_lost_tail(
    files: &CheckpointFiles,
    slices: &LoadedSlices,
    ends: &[SegmentEnd],
    report: &mut ReplayReport,
) {
    let newest = newest_sequence(slices);
    let first = ends.iter().find(|e| e.last_sequence > 0).map_or(newest + 1, |e| e.first_sequence);
    for (slice, slice_state) in
        slices.slices.iter().filter(|(_, slice_state)| slice_state.sequence() + 1 < first)
    {
        let path = crate::checkpoint::slice_path(&files.dir, *slice, slice_state.copy_idx().unwrap_or(0));
        let (from, to) = (slice_state.sequence() + 1, first - 1);
        report
            .notes
            .push(format!("{}: frames {from} to {to} after it are missing in the WAL", path.display()));
    }
    if slices.damaged_count > 0 {
        let count = slices.damaged_count;
        report.notes.push(format!("checkpoint: {count} chunks cannot be used and are left out"));
    }
}

/// Returns the state of the rolling checkpoint, with the WAL bytes after each slice.
fn rolling_of(
    series: &SeriesStore,
    checkpoint: LoadedCheckpoint,
    replayed: &ReplayedLog,
    wal: &Wal,
    pace: Pace,
) -> CheckpointState {
    let mut definitions = checkpoint.definitions.file;
    // The series file finds missing series by id order, which reused ids break: it must be rewritten.
    if replayed.has_reused {
        definitions.set_broken();
    }
    let alias_sequence = if replayed.has_aliases { wal.position().0 } else { 0 };
    let ends = &replayed.ends;
    let tail = -bytes_of(ends).cast_signed();
    let before = ends.iter().find(|e| e.last_sequence > 0).map_or(0, |e| e.first_sequence - 1);
    let newest = newest_sequence(&checkpoint.slices);
    let last = ends.iter().map(|e| e.last_sequence).max().unwrap_or(0).max(newest);
    let mut slices: BTreeMap<u32, SliceState> = checkpoint.slices.slices;
    for slice_state in slices.values_mut() {
        // Estimates the WAL bytes after the position, as if all frames had one length.
        let after = last.saturating_sub(slice_state.sequence().max(before)) as f64;
        let all = last.saturating_sub(before).max(1) as f64;
        slice_state.set_log_bytes((tail as f64 * (after / all).min(1.0)) as i64);
    }
    for slice in occupied_slices(series) {
        slices.entry(slice).or_insert_with(|| SliceState::unwritten(before, tail));
    }
    CheckpointState::new(slices, definitions, pace, replayed.next_id, last, alias_sequence)
}

/// Returns the state of the head; it accepts no writes before [`crate::Head::open`] has returned.
fn build(env: &Env, options: HeadOptions, restored: Restored) -> Arc<HeadState> {
    let key_hash = KeyHash::new(restored.wal.key());
    let ids = SeriesIds::new(restored.next_id, options.series_id_limit);
    let counters = Counters::default();
    counters.set(Counter::SeriesLive, restored.series_count);
    Arc::new(HeadState {
        env: env.clone(),
        options,
        index: HeadIndex::new(
            restored.tenants,
            restored.series_keys,
            key_hash,
            ids,
            restored.overflow.into_files(),
        ),
        series: restored.series,
        wal: restored.wal,
        texts: restored.texts,
        log_cache: restored.log_cache,
        field_history: OnceLock::new(),
        is_typed: AtomicBool::new(false),
        maintenance: Mutex::new(()),
        relog_before: AtomicU64::new(restored.relog_before),
        counters,
    })
}

/// Deletes samples whose texts are lost, and frees texts that no sample names. Returns the number of deleted
/// samples.
fn remove_unusable_texts(state: &HeadState, report: &mut ReplayReport) -> u64 {
    crate::checkpoint::texts::note_found(state);
    let mut lost_count = 0;
    if !report.notes.is_empty() {
        lost_count = lost::delete_all(state);
        if lost_count > 0 {
            report.notes.push(format!("{lost_count} samples are left out: their texts are lost"));
        }
    }
    unused::free_all_unused(state);
    lost_count
}

/// Makes changes of overflow tables durable that the WAL had: a repeat of a folded sample is acknowledged
/// without a frame, and the WAL that was read may be in the page cache only.
fn save_overflow(state: &HeadState) -> Result<(), HeadError> {
    match crate::checkpoint::overflow::save(state) {
        Err(HeadError::Io { error, .. }) if error.kind() == std::io::ErrorKind::StorageFull => {
            state.wal.enter_disk_full();
            Ok(())
        }
        other => other,
    }
}

/// Makes texts of the WAL durable: samples that name known texts are logged without them, and the WAL that
/// was read may be in the page cache only.
fn save_texts(state: &HeadState) -> Result<(), HeadError> {
    match crate::checkpoint::texts::save(state) {
        Err(HeadError::Io { error, .. }) if error.kind() == std::io::ErrorKind::StorageFull => {
            state.wal.enter_disk_full();
            Ok(())
        }
        other => other,
    }
}
