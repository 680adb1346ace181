//! Recovery at startup: loads series file and slices of the checkpoint, then replays the WAL after them, on
//! all cores.
//!
//! Invariants: nothing is logged; recovery is idempotent; damage is contained, and reported in notes. Input
//! passes through bounded buffers, so startup needs no more memory than the head that it builds. Steps: list
//! files, open sealed files, load series file and slices in parallel, build indexes, replay the WAL, cut its
//! torn tail.

mod copies;
mod definitions;
mod files;
mod log;
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
use crate::options::{HeadError, HeadOptions};
use crate::recovery::progress::{ReplayProgress, ReplayReport};
use crate::series::SeriesStore;
use crate::state::HeadState;
use crate::text_cleanup::{lost, unused};
use crate::texts::TextStore;

use definitions::LoadedDefinitions;
use files::CheckpointFiles;
use log::LogReplay;
use positions::{Positions, SlicePosition};
use slices::{LoadedSlices, SliceLoader};

/// Bytes of WAL below which its replay time is no measure.
const MEASURED_BYTES_MIN: u64 = 8 << 20;

/// Results of the steps of a startup.
struct Opened {
    series: Arc<SeriesStore>,
    tenants: Tenants,
    series_keys: SeriesKeyCache,
    next_id: u32,
    wal: Wal,
    texts: TextStore,
    rolling: CheckpointState,
    /// Set if WAL frames were read that the newest slices do not have.
    has_tail: bool,
    report: ReplayReport,
}

/// Result of the WAL replay.
struct Tail {
    ends: Vec<SegmentEnd>,
    bytes: u64,
    /// Sequence up to which the WAL may redefine series under other ids; 0 if it does not.
    alias_sequence: u64,
}

/// State of the head that startup has restored.
pub(crate) struct Recovered {
    pub(crate) state: Arc<HeadState>,
    pub(crate) rolling: CheckpointState,
    pub(crate) report: ReplayReport,
    /// Set if the WAL created series that the series file does not have.
    pub(crate) has_defined: bool,
}

/// Restores the state of the head from disk.
pub(crate) fn recover(
    env: &Env,
    options: HeadOptions,
    progress: &ReplayProgress,
) -> Result<Recovered, HeadError> {
    let start_ns = env.clock.mono_ns();
    let mut report = ReplayReport::default();
    let mut files = CheckpointFiles::find(env, &options.dir)?;
    let known_key = files.known_key(&*env.disk)?;
    let recovery = Recovery::open(env, &files.dir, known_key, &mut report.notes)?;
    files.key = recovery.key();
    announce(&recovery, progress);
    let sealed = sealed::open_all(env, &options)?;
    let series =
        Arc::new(SeriesStore::new(env, options.window_ms, sealed.store, options.histogram_bytes_max));
    let tenants = Mutex::new(Tenants::default());
    let (mut slices, mut definitions) = load_checkpoint(env, &files, &series, &tenants, progress)?;
    report.notes.append(&mut slices.notes);
    report.notes.append(&mut definitions.notes);
    report.repaired.append(&mut slices.repaired);
    report.repaired.append(&mut definitions.repaired);
    report.bytes += slices.bytes + definitions.bytes;
    let mut tenants = tenants.into_inner();
    let keys = std::mem::take(&mut definitions.series_keys);
    let (aliases, series_keys) =
        definitions::finish(&files, &series, &tenants, keys, &mut slices, &mut report);
    put_windows(env, &tenants, &mut slices);
    let texts = texts::load(env, &files, options.text_bytes_max, &mut tenants, &mut report)?;
    sealed::finish(env, &options, &series.store, sealed.unusable, &slices, &mut report)?;
    let positions = positions_of(&series, &slices, &definitions);
    let log_start_ns = env.clock.mono_ns();
    let next_id = next_id_of(&series, &slices, &definitions);
    let mut log = LogReplay::new(&recovery, &series, &positions, tenants, aliases, series_keys, next_id);
    let ends = log.run(&texts, progress, &mut report)?;
    let LogReplay { tenants, aliases, series_keys, next_id, defined_count, has_reused, .. } = log;
    note_lost_tail(&files, &slices, &ends, &mut report);
    let newest = slices.slices.values().map(SliceState::sequence).max().unwrap_or(0);
    recovery.note_lost(&ends, positions.oldest.saturating_add(1), &mut report.notes);
    let wal = recovery.finish(env, &options.wal(), &ends, newest.max(definitions.mark.sequence))?;
    let log_bytes: u64 = ends.iter().map(|e| e.end).sum();
    let log_ns = env.clock.mono_ns().saturating_sub(log_start_ns);
    let measured = (log_bytes >= MEASURED_BYTES_MIN && positions.oldest == 0).then_some((log_bytes, log_ns));
    let pace = Pace::new(env.clock.mono_ns(), core_count(), measured);
    let has_tail = ends.iter().any(|e| e.last_sequence > positions.oldest);
    let alias_sequence = if aliases.into_inner().is_empty() { 0 } else { wal.position().0 };
    let tail = Tail { ends, bytes: log_bytes, alias_sequence };
    // The series file finds missing series by id order, which reused ids break: it must be rewritten.
    if has_reused {
        definitions.file.set_broken();
    }
    let rolling = rolling_of(&series, slices, definitions, &tail, next_id, pace);
    let tenants = tenants.into_inner();
    report.series = tenants.all().map(|t| t.tables.read().live_count() as u64).sum();
    report.duration_ns = env.clock.mono_ns().saturating_sub(start_ns);
    let opened = Opened { series, tenants, series_keys, next_id, wal, texts, rolling, has_tail, report };
    let recovered = build(env, options, opened, defined_count > 0);
    save_texts(&recovered.state)?;
    Ok(recovered)
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

/// Loads series file and slices in parallel.
fn load_checkpoint(
    env: &Env,
    files: &CheckpointFiles,
    series: &SeriesStore,
    tenants: &Mutex<Tenants>,
    progress: &ReplayProgress,
) -> Result<(LoadedSlices, LoadedDefinitions), HeadError> {
    let loader = SliceLoader::new(files, series, tenants, progress);
    let definitions = std::thread::scope(|scope| {
        for _ in 0..loader.helper_count() {
            // If no thread can be started, this one loads all slices.
            let thread = std::thread::Builder::new().name("replay-slices".to_owned());
            let _ = thread.spawn_scoped(scope, || loader.run());
        }
        let definitions = definitions::load(env, files, tenants);
        loader.run();
        definitions
    })?;
    Ok((loader.finish()?, definitions))
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

fn positions_of(series: &SeriesStore, slices: &LoadedSlices, definitions: &LoadedDefinitions) -> Positions {
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
    let newest = slices.slices.values().map(SliceState::sequence).max().unwrap_or(0);
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

fn rolling_of(
    series: &SeriesStore,
    slices: LoadedSlices,
    definitions: LoadedDefinitions,
    tail: &Tail,
    next_id: u32,
    pace: Pace,
) -> CheckpointState {
    let mut slices: BTreeMap<u32, SliceState> = slices.slices;
    let (ends, alias_sequence) = (&tail.ends, tail.alias_sequence);
    let tail = -tail.bytes.cast_signed();
    let before = ends.iter().find(|e| e.last_sequence > 0).map_or(0, |e| e.first_sequence - 1);
    let newest = slices.values().map(SliceState::sequence).max().unwrap_or(0);
    let last = ends.iter().map(|e| e.last_sequence).max().unwrap_or(0).max(newest);
    for slice_state in slices.values_mut() {
        // Estimates the WAL bytes after the position, as if all frames had one length.
        let after = last.saturating_sub(slice_state.sequence().max(before)) as f64;
        let all = last.saturating_sub(before).max(1) as f64;
        slice_state.set_log_bytes((tail as f64 * (after / all).min(1.0)) as i64);
    }
    for slice in occupied_slices(series) {
        slices.entry(slice).or_insert_with(|| SliceState::unwritten(before, tail));
    }
    CheckpointState::new(slices, definitions.file, pace, next_id, last, alias_sequence)
}

fn build(env: &Env, options: HeadOptions, opened: Opened, has_defined: bool) -> Recovered {
    // Slices may have more than the WAL, and may be in the page cache only.
    let relogs = opened.has_tail || opened.rolling.has_slices();
    let relog_before = if relogs { opened.wal.position().0.max(1) } else { 0 };
    let key_hash = KeyHash::new(opened.wal.key());
    let ids = SeriesIds::new(opened.next_id, options.series_id_limit);
    let counters = Counters::default();
    counters.set(Counter::SeriesLive, opened.report.series);
    let state = Arc::new(HeadState {
        env: env.clone(),
        options,
        index: HeadIndex::new(opened.tenants, opened.series_keys, key_hash, ids),
        series: opened.series,
        wal: opened.wal,
        texts: opened.texts,
        field_history: OnceLock::new(),
        is_typed: AtomicBool::new(false),
        maintenance: Mutex::new(()),
        relog_before: AtomicU64::new(relog_before),
        counters,
    });
    crate::checkpoint::texts::note_found(&state);
    let mut report = opened.report;
    if !report.notes.is_empty() {
        let lost_count = lost::delete_all(&state);
        if lost_count > 0 {
            report.notes.push(format!("{lost_count} samples are left out: their texts are lost"));
        }
    }
    unused::free_all_unused(&state);
    Recovered { state, rolling: opened.rolling, report, has_defined }
}
