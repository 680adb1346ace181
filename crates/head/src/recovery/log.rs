//! Replay of the WAL after the slices: one reader thread reads blocks of frames and applies series records,
//! workers append the samples of their stripes.
//!
//! Invariants: a stripe belongs to one worker, so its frames are applied in order; a series record is applied
//! before the block with its first samples is passed on. After the first series with two ids (it left the
//! head and returned), replay is single-threaded: its frames may lie in two stripes and must apply in WAL
//! order. At most [`QUEUED_BLOCKS`] blocks are queued per worker, whatever the length of the WAL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::ScopedJoinHandle;

use chronolith_base::hash::HashMap;
use chronolith_format::head::wal::{
    DeletesRef, FrameRef, KIND_DELETES, KIND_SERIES, Samples, SeriesRef, decode_samples, is_samples,
};
use chronolith_model::{Labels, TenantId, TimeRange};
use chronolith_wal::{FrameBlock, Recovery, Segment, SegmentEnd};
use parking_lot::{Mutex, RwLock};

use super::positions::Positions;
use super::threads::replay_thread_count;
use crate::index::series_keys::SeriesKeyCache;
use crate::index::tenant::{TenantHead, Tenants};
use crate::options::HeadError;
use crate::recovery::progress::{ReplayProgress, ReplayReport};
use crate::series::SeriesStore;
use crate::series::decide::{AppendOutcome, Value};
use crate::series::stripe::stripe_of;
use crate::series::windows::WindowTally;

/// Blocks queued per worker.
const QUEUED_BLOCKS: usize = 2;

/// State of the reader thread.
pub(super) struct LogReplay<'a> {
    pub(super) wal: &'a Recovery,
    pub(super) series: &'a SeriesStore,
    pub(super) positions: &'a Positions,
    pub(super) tenants: RwLock<Tenants>,
    /// Maps ids of series that left the head and returned under another id to the id in use.
    pub(super) aliases: RwLock<HashMap<u32, u32>>,
    pub(super) series_keys: SeriesKeyCache,
    pub(super) next_id: u32,
    /// Number of series that the WAL created.
    pub(super) defined_count: u64,
    /// Set if some of them have reused ids.
    pub(super) has_reused: bool,
    has_ceiling: bool,
    members: Vec<u32>,
}

/// State shared by all threads.
struct Shared<'a> {
    pub(super) series: &'a SeriesStore,
    pub(super) positions: &'a Positions,
    tenants: &'a RwLock<Tenants>,
    pub(super) aliases: &'a RwLock<HashMap<u32, u32>>,
    pub(super) sample_count: AtomicU64,
    pub(super) unknown_count: AtomicU64,
    /// Above every id of the WAL that has no series record.
    pub(super) unknown_end: AtomicU32,
    notes: Mutex<Vec<String>>,
    failure: Mutex<Option<HeadError>>,
    /// Sequence of the last frame that each worker has seen, or from which on frames are needed; 0 if
    /// unknown.
    worker_sequences: Vec<AtomicU64>,
}

/// A block with the index of its segment.
type Part = (Arc<FrameBlock>, usize);

/// Distribution of blocks.
enum Workers<'scope> {
    /// One thread per residue of stripe indexes; the reader does the share of a thread that could not be
    /// started.
    Parallel(Vec<Option<Worker<'scope>>>),
    /// The reader thread replays everything.
    Alone,
}

/// A thread that replays its stripes.
struct Worker<'scope> {
    sender: SyncSender<Part>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl Workers<'_> {
    /// Waits until all queued blocks are replayed and the threads have ended.
    fn end(&mut self) {
        let Workers::Parallel(workers) = std::mem::replace(self, Workers::Alone) else { return };
        for Worker { sender, thread } in workers.into_iter().flatten() {
            drop(sender);
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }

    fn take(&mut self, block: FrameBlock, idx: usize, segment: &Segment, shared: &Shared<'_>) {
        if !shared.aliases.read().is_empty() {
            self.end();
        }
        let mut samples = Samples::default();
        let workers = match self {
            Workers::Alone => return take_block(&block, segment, shared, 0, 1, &mut samples),
            Workers::Parallel(workers) => workers,
        };
        let (block, worker_count) = (Arc::new(block), workers.len());
        for (number, worker) in workers.iter().enumerate() {
            match worker {
                // A worker ends only after the reader.
                Some(worker) => drop(worker.sender.send((block.clone(), idx))),
                None => take_block(&block, segment, shared, number, worker_count, &mut samples),
            }
        }
    }
}

impl<'a> LogReplay<'a> {
    pub(super) fn new(
        wal: &'a Recovery,
        series: &'a SeriesStore,
        positions: &'a Positions,
        tenants: Tenants,
        aliases: HashMap<u32, u32>,
        series_keys: SeriesKeyCache,
        next_id: u32,
    ) -> LogReplay<'a> {
        LogReplay {
            wal,
            series,
            positions,
            tenants: RwLock::new(tenants),
            aliases: RwLock::new(aliases),
            series_keys,
            next_id,
            defined_count: 0,
            has_reused: false,
            has_ceiling: false,
            members: Vec::new(),
        }
    }

    /// Appends all samples to memory; returns the extent of each segment.
    pub(super) fn run(
        &mut self,
        progress: &ReplayProgress,
        report: &mut ReplayReport,
    ) -> Result<Vec<SegmentEnd>, HeadError> {
        let (tenants, aliases) = (std::mem::take(&mut self.tenants), std::mem::take(&mut self.aliases));
        let shared = Shared {
            series: self.series,
            positions: self.positions,
            tenants: &tenants,
            aliases: &aliases,
            sample_count: AtomicU64::new(0),
            unknown_count: AtomicU64::new(0),
            unknown_end: AtomicU32::new(0),
            notes: Mutex::default(),
            failure: Mutex::default(),
            worker_sequences: (0..replay_thread_count().max(1))
                .map(|_| AtomicU64::new(self.positions.oldest))
                .collect(),
        };
        let worker_count = replay_thread_count();
        let segments = self.wal.segments();
        let ends = std::thread::scope(|scope| {
            let mut workers = Vec::new();
            // A single worker is replaced by the reader.
            for worker in (0..worker_count).filter(|_| worker_count > 1) {
                let (sender, receiver): (SyncSender<Part>, Receiver<Part>) = sync_channel(QUEUED_BLOCKS);
                let shared = &shared;
                let work = move || {
                    let mut samples = Samples::default();
                    while let Ok((block, segment)) = receiver.recv() {
                        take_block(&block, &segments[segment], shared, worker, worker_count, &mut samples);
                    }
                };
                let thread = std::thread::Builder::new().name("replay".to_owned());
                // If no thread can be started, the reader does its share.
                let spawned = thread.spawn_scoped(scope, work).ok();
                workers.push(spawned.map(|thread| Worker { sender, thread }));
            }
            let workers = if workers.is_empty() { Workers::Alone } else { Workers::Parallel(workers) };
            self.read_segments(workers, &shared, progress, report)
        })?;
        if let Some(failure) = shared.failure.into_inner() {
            return Err(failure);
        }
        report.samples = shared.sample_count.into_inner();
        report.samples_unknown = shared.unknown_count.into_inner();
        report.notes.extend(shared.notes.into_inner());
        self.next_id = self.next_id.max(shared.unknown_end.into_inner());
        (self.tenants, self.aliases) = (tenants, aliases);
        if report.samples_unknown > 0 {
            let count = report.samples_unknown;
            report.notes.push(format!("WAL: {count} samples of unknown series are left out"));
        }
        self.series.store.write_all()?;
        Ok(ends)
    }

    fn read_segments(
        &mut self,
        mut workers: Workers<'_>,
        shared: &Shared<'_>,
        progress: &ReplayProgress,
        report: &mut ReplayReport,
    ) -> Result<Vec<SegmentEnd>, HeadError> {
        let wal = self.wal;
        let series = self.series;
        let needed_after = self.positions.oldest.min(self.positions.defined_sequence);
        let mut notes = Vec::new();
        let ends = wal.replay_after(&*series.env.disk, needed_after, &mut notes, |idx, block| {
            let segment = &wal.segments()[idx];
            note_progress(wal.segments(), idx, progress);
            report.bytes += block.frame_bytes() as u64;
            for frame in block.frames.iter().filter(|f| f.header.kind == KIND_SERIES) {
                if frame.header.sequence > self.positions.defined_sequence {
                    self.load_series(block.payload(frame), segment, &block, frame, shared, report);
                }
            }
            workers.take(block, idx, segment, shared);
            Ok::<(), HeadError>(())
        })?;
        note_progress(wal.segments(), wal.segments().len(), progress);
        report.notes.append(&mut notes);
        Ok(ends)
    }

    fn load_series(
        &mut self,
        payload: &[u8],
        segment: &Segment,
        block: &FrameBlock,
        frame: &FrameRef,
        shared: &Shared<'_>,
        report: &mut ReplayReport,
    ) {
        if let Err(what) = self.try_load_series(payload, shared) {
            let (path, offset) = (segment.path.display(), block.offset + frame.payload.start as u64);
            report.notes.push(format!("{path} offset {offset}: series records: {what}"));
        }
    }

    fn try_load_series(&mut self, payload: &[u8], shared: &Shared<'_>) -> Result<(), String> {
        let mut series = SeriesRef::decode(payload).map_err(|e| e.to_string())?;
        let tenant = TenantId::new(series.tenant).ok().and_then(|id| {
            let seed = self.series.env.rng.next_u64();
            shared.tenants.write().get_or_create(&id, seed)
        });
        let Some(tenant) = tenant else { return Err(format!("tenant {:?} is not valid", series.tenant)) };
        let mut tables = tenant.tables.write();
        let mut pairs = Vec::new();
        while let Some(record) = series.next(&mut pairs).map_err(|e| e.to_string())? {
            let id = record.id;
            if id == u32::MAX || pairs.is_empty() {
                return Err(format!("series {id} is not valid"));
            }
            let canonical = match tables.find(pairs.iter().copied(), &mut self.members) {
                Some(known) => known,
                None if !tables.has_row(id) => {
                    let mut stripe = self.series.lock(id);
                    if stripe.series(id).is_some() {
                        return Err(format!("series {id} belongs to two tenants"));
                    }
                    stripe.create(id, tenant.idx);
                    drop(stripe);
                    tables.insert(id, pairs.iter().copied(), &mut self.members);
                    self.defined_count += 1;
                    self.has_reused |= self.positions.is_reused(id);
                    id
                }
                None => {
                    drop(tables);
                    let labels = Labels::from_pairs(pairs.iter().copied());
                    let fresh = self.admit_straggler(&tenant, &labels).map_err(|e| e.to_string())?;
                    tables = tenant.tables.write();
                    fresh
                }
            };
            if canonical != id {
                shared.aliases.write().insert(id, canonical);
            }
            self.next_id = self.next_id.max(id.saturating_add(1));
            self.series_keys.insert(record.raw_hash, canonical, usize::MAX);
        }
        Ok(())
    }

    /// Creates a series whose id is used by a dead one in the index (its record was damaged elsewhere) under
    /// an id above all others: its samples in the WAL are then replayed under that id.
    #[cold]
    fn admit_straggler(&mut self, tenant: &TenantHead, labels: &Labels) -> Result<u32, HeadError> {
        if !self.has_ceiling {
            self.next_id = self.next_id.max(id_ceiling(self.series, self.wal)?);
            self.has_ceiling = true;
        }
        let fresh = self.next_id;
        self.next_id = self.next_id.saturating_add(1);
        self.series.lock(fresh).create(fresh, tenant.idx);
        tenant.tables.write().insert(fresh, labels.iter(), &mut self.members);
        self.defined_count += 1;
        Ok(fresh)
    }
}

/// Publishes the progress: the reader is at segment `idx`.
fn note_progress(segments: &[Segment], idx: usize, progress: &ReplayProgress) {
    let done: u64 = segments.iter().take(idx).map(|segment| segment.len).sum();
    progress.bytes_done.store(done, Ordering::Relaxed);
    if let Some(segment) = segments.get(idx) {
        progress.segment_now.store(segment.number, Ordering::Relaxed);
    }
}

/// Returns an id above all series ids in the WAL.
fn id_ceiling(series: &SeriesStore, wal: &Recovery) -> Result<u32, HeadError> {
    let mut ceiling = 0;
    let mut samples = Samples::default();
    // Damage is noted by the running replay, not here.
    wal.replay_after(&*series.env.disk, 0, &mut Vec::new(), |_, block| {
        for frame in &block.frames {
            let payload = block.payload(frame);
            let kind = frame.header.kind;
            if is_samples(kind) && decode_samples(kind, payload, &mut samples).is_ok() {
                ceiling = samples.ids.iter().fold(ceiling, |c, id| c.max(id.saturating_add(1)));
            } else if frame.header.kind == KIND_SERIES
                && let Ok(mut series) = SeriesRef::decode(payload)
            {
                let mut pairs = Vec::new();
                while let Ok(Some(record)) = series.next(&mut pairs) {
                    ceiling = ceiling.max(record.id.saturating_add(1));
                }
            }
        }
        Ok::<(), HeadError>(())
    })?;
    Ok(ceiling)
}

/// Replays the frames of the stripes that are `worker` modulo `worker_count`.
fn take_block(
    block: &FrameBlock,
    segment: &Segment,
    shared: &Shared<'_>,
    worker: usize,
    worker_count: usize,
    samples: &mut Samples,
) {
    let is_mine = |f: &&FrameRef| {
        let is_due = f.header.sequence > shared.positions.oldest;
        is_due && usize::from(f.header.stripe) % worker_count == worker
    };
    for frame in &block.frames {
        note_sequence(frame.header.sequence, shared, worker, worker_count);
        if !is_mine(&frame) {
            continue;
        }
        let (payload, sequence) = (block.payload(frame), frame.header.sequence);
        let outcome = match frame.header.kind {
            kind if is_samples(kind) => {
                decode_samples(kind, payload, samples).map(|()| apply_samples(samples, sequence, shared))
            }
            KIND_DELETES => DeletesRef::decode(payload).map(|d| apply_deletes(&d, sequence, shared)),
            // Series records are applied by the reader, kinds of later versions are ignored.
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            let (path, offset) = (segment.path.display(), block.offset + frame.payload.start as u64);
            shared.notes.lock().push(format!("{path}: frame at offset {offset}: {error}"));
        }
    }
    if let Err(error) = shared.series.store.write_if_many() {
        *shared.failure.lock() = Some(error);
    }
}

/// Records the sequence of the next frame of worker `worker`. Where frames are missing, start timestamps that
/// they may have changed end: an earlier start would be wrong for the samples after the gap.
fn note_sequence(sequence: u64, shared: &Shared<'_>, worker: usize, worker_count: usize) {
    let Some(last) = shared.worker_sequences.get(worker) else { return };
    // Only this worker reads and writes it.
    let before = last.load(Ordering::Relaxed);
    last.store(sequence.max(before), Ordering::Relaxed);
    if before == 0 || sequence <= before + 1 {
        return;
    }
    for stripe in shared.series.stripes().iter().skip(worker).step_by(worker_count) {
        let mut position = shared.positions.cursor();
        stripe.lock().forget_later_starts(|id| position.of(id) + 1 < sequence);
    }
}

/// Appends the samples of a frame under the duplicate policy under which they were accepted: samples that a
/// slice has beyond its position are duplicates here.
fn apply_samples(samples: &Samples, sequence: u64, shared: &Shared<'_>) {
    let series = shared.series;
    let mut cx = series.context(samples.duplicates);
    // Duplicates that are not looked up cost memory until their window is flushed, but are not wrong.
    let mut lookups_left = u32::try_from(samples.ids.len()).unwrap_or(u32::MAX);
    let aliases = shared.aliases.read();
    let mut tenant = None;
    let (mut unknown, mut applied_count) = (0, 0);
    let mut at = 0;
    let mut histograms = samples.histograms.iter().peekable();
    let target = |id: u32| if aliases.is_empty() { id } else { aliases.get(&id).copied().unwrap_or(id) };
    let mut position = shared.positions.cursor();
    while let Some(&first) = samples.ids.get(at) {
        let stripe_idx = stripe_of(target(first));
        let mut stripe = series.stripes()[stripe_idx].lock();
        while let Some(&id) = samples.ids.get(at) {
            let canonical = target(id);
            if stripe_of(canonical) != stripe_idx {
                break;
            }
            let idx = at;
            let (time, bits) = (samples.times[idx], samples.values.get(idx).copied());
            let histogram = histograms.next_if(|(of, _)| *of as usize == idx);
            at += 1;
            // Samples in the slice of the series are not applied again: later frames that the slice also
            // covers would not follow to revert a change made here.
            let slice = position.slice_of(canonical);
            if sequence <= slice.sequence {
                continue;
            }
            let owner = stripe.series(canonical).map(|record| record.tenant);
            if owner.is_none() || !TimeRange::ALL.contains(time) {
                unknown += u64::from(bits.is_some() && !shared.positions.is_known_dead(id));
                shared.unknown_end.fetch_max(id.saturating_add(1), Ordering::Relaxed);
                continue;
            }
            if tenant != owner {
                put_windows(shared, tenant, &mut cx.windows, samples.arrival_ms);
                tenant = owner;
            }
            if let Some(bits) = bits {
                let value = histogram.map_or(Value::Word(bits), |(_, one)| Value::Histogram(one));
                // Only samples that were appended while the slice was copied may be in it already.
                let is_looked_up = sequence <= slice.copied_until;
                cx.lookups_left = if is_looked_up { lookups_left } else { 0 };
                let outcome = stripe.append(&mut cx, canonical, time, value);
                if is_looked_up {
                    lookups_left = cx.lookups_left;
                }
                debug_assert!(outcome != AppendOutcome::SeriesGone, "the stripe is locked");
                applied_count += 1;
            }
            if let Some(&start_ms) = samples.start_times.get(idx)
                // A series without start timestamps needs none that is unknown. Only frames of start
                // timestamps alone, which come before the samples, must record which of the samples have
                // none.
                && (start_ms != 0 || bits.is_none() || stripe.starts_of(canonical).is_some())
            {
                stripe.set_start(canonical, time, start_ms);
            }
        }
    }
    put_windows(shared, tenant, &mut cx.windows, samples.arrival_ms);
    shared.sample_count.fetch_add(applied_count + unknown, Ordering::Relaxed);
    shared.unknown_count.fetch_add(unknown, Ordering::Relaxed);
}

/// Deletes at the same point of the order as when the frame was written.
fn apply_deletes(deletes: &DeletesRef, sequence: u64, shared: &Shared<'_>) {
    let series = shared.series;
    let mut cx = series.replay_context();
    let aliases = shared.aliases.read();
    let mut position = shared.positions.cursor();
    for &id in &deletes.ids {
        let id = aliases.get(&id).copied().unwrap_or(id);
        if sequence <= position.of(id) {
            continue;
        }
        let mut stripe = series.lock(id);
        // An unknown series has lost its record, or left the head with all its samples.
        let Some(tenant) = stripe.series(id).map(|record| record.tenant) else { continue };
        stripe.erase(&mut cx, id, deletes.range);
        put_windows(shared, Some(tenant), &mut cx.windows, i64::MAX);
    }
}

fn put_windows(shared: &Shared<'_>, tenant: Option<u32>, tally: &mut WindowTally, arrival_ms: i64) {
    let Some(idx) = tenant else { return };
    let tenant = shared.tenants.read().by_idx(idx).cloned();
    if let Some(tenant) = tenant {
        tenant.windows.lock().merge(tally, arrival_ms);
    }
}
