//! The log behind the slices: one thread reads blocks of frames and takes the definitions in, the others append the
//! samples of their stripes.
//!
//! Holds: a stripe belongs to one thread, so its frames are applied in order; a definition is taken in before the
//! block with its first samples is handed on. Once a series has two numbers, which may be of two stripes, the reading
//! thread does all that follows itself: their frames apply in the order of the log. At most [`QUEUED_BLOCKS`] blocks wait for a thread, whatever the
//! length of the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::ScopedJoinHandle;

use chronolith_base::hash::HashMap;
use chronolith_format::wal::{
    DeletesRef, FrameRef, HistogramsRef, KIND_DELETES, KIND_HISTOGRAMS, KIND_SAMPLES, KIND_SERIES,
    KIND_STARTS, SEGMENT_HEADER_BYTES, SamplesRef, SeriesRef,
};
use chronolith_model::{Labels, TenantId, TimeRange};
use parking_lot::{Mutex, RwLock};

use super::files::{LogFiles, Segment, SegmentEnd};
use super::histograms;
use super::positions::Positions;
use super::skip;
use super::starts;
use super::stream::{Block, FrameStream};
use crate::head::{Series, replay_thread_count};
use crate::options::HeadError;
use crate::progress::{ReplayProgress, ReplayReport};
use crate::raw_keys::RawKeys;
use crate::stripe::{Applied, stripe_of};
use crate::tenant::{TenantHead, Tenants};
use crate::windows::WindowTally;

/// Blocks that wait for one thread.
const QUEUED_BLOCKS: usize = 2;

/// What the reading thread changes.
pub(super) struct LogReplay<'a> {
    pub(super) files: &'a LogFiles,
    pub(super) series: &'a Series,
    pub(super) positions: &'a Positions,
    pub(super) tenants: RwLock<Tenants>,
    /// Ids of series that left the head and came back under another id, to the one that counts.
    pub(super) aliases: RwLock<HashMap<u32, u32>>,
    pub(super) raw_keys: RawKeys,
    pub(super) next_id: u32,
    /// Definitions that were taken in from the log.
    pub(super) defined_count: u64,
    /// Whether some of them have ids that were given before.
    pub(super) has_reused: bool,
    has_ceiling: bool,
    members: Vec<u32>,
}

/// What all threads share.
pub(super) struct Shared<'a> {
    pub(super) series: &'a Series,
    pub(super) positions: &'a Positions,
    tenants: &'a RwLock<Tenants>,
    pub(super) aliases: &'a RwLock<HashMap<u32, u32>>,
    pub(super) sample_count: AtomicU64,
    pub(super) unknown_count: AtomicU64,
    /// Above every id without definition that the log speaks of.
    pub(super) unknown_end: AtomicU32,
    notes: Mutex<Vec<String>>,
    failure: Mutex<Option<HeadError>>,
    /// Sequence of the frame that each lane met last; 0 before the first.
    lane_sequences: Vec<AtomicU64>,
}

/// A block and where it comes from.
type Part = (Arc<Block>, usize);

/// Where blocks go.
enum Lanes<'scope> {
    /// To a thread for every so many stripes; without one the reading thread does its part.
    Parallel(Vec<Option<Lane<'scope>>>),
    /// To the reading thread, all of them.
    Alone,
}

/// A thread that replays its stripes.
struct Lane<'scope> {
    sender: SyncSender<Part>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl Lanes<'_> {
    /// Returns once all blocks that were handed on are replayed; the threads have ended then.
    fn end(&mut self) {
        let Lanes::Parallel(lanes) = std::mem::replace(self, Lanes::Alone) else { return };
        for Lane { sender, thread } in lanes.into_iter().flatten() {
            drop(sender);
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }

    fn take(&mut self, block: Block, idx: usize, segment: &Segment, shared: &Shared<'_>) {
        if !shared.aliases.read().is_empty() {
            self.end();
        }
        let mut samples = SamplesRef::default();
        let lanes = match self {
            Lanes::Alone => return take_block(&block, segment, shared, 0, 1, &mut samples),
            Lanes::Parallel(lanes) => lanes,
        };
        let (block, lane_count) = (Arc::new(block), lanes.len());
        for (number, lane) in lanes.iter().enumerate() {
            match lane {
                // A lane ends only with this thread.
                Some(lane) => drop(lane.sender.send((block.clone(), idx))),
                None => take_block(&block, segment, shared, number, lane_count, &mut samples),
            }
        }
    }
}

impl<'a> LogReplay<'a> {
    pub(super) fn new(
        files: &'a LogFiles,
        series: &'a Series,
        positions: &'a Positions,
        tenants: Tenants,
        aliases: HashMap<u32, u32>,
        raw_keys: RawKeys,
        next_id: u32,
    ) -> LogReplay<'a> {
        LogReplay {
            files,
            series,
            positions,
            tenants: RwLock::new(tenants),
            aliases: RwLock::new(aliases),
            raw_keys,
            next_id,
            defined_count: 0,
            has_reused: false,
            has_ceiling: false,
            members: Vec::new(),
        }
    }

    /// Appends all samples to memory; gives what it found of each segment.
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
            lane_sequences: (0..replay_thread_count().max(1)).map(|_| AtomicU64::new(0)).collect(),
        };
        let lane_count = replay_thread_count();
        let files = self.files;
        let ends = std::thread::scope(|scope| {
            let mut lanes = Vec::new();
            // One thread alone needs no other.
            for lane in (0..lane_count).filter(|_| lane_count > 1) {
                let (sender, receiver): (SyncSender<Part>, Receiver<Part>) = sync_channel(QUEUED_BLOCKS);
                let shared = &shared;
                let work = move || {
                    let mut samples = SamplesRef::default();
                    while let Ok((block, segment)) = receiver.recv() {
                        take_block(&block, &files.segments[segment], shared, lane, lane_count, &mut samples);
                    }
                };
                let thread = std::thread::Builder::new().name("replay".to_owned());
                // Without another thread this one takes the lane's blocks itself.
                let spawned = thread.spawn_scoped(scope, work).ok();
                lanes.push(spawned.map(|thread| Lane { sender, thread }));
            }
            let lanes = if lanes.is_empty() { Lanes::Alone } else { Lanes::Parallel(lanes) };
            self.read_segments(lanes, &shared, progress, report)
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
            report.notes.push(format!("log: {count} samples of series without definition are left out"));
        }
        self.series.store.write_all()?;
        Ok(ends)
    }

    fn read_segments(
        &mut self,
        mut lanes: Lanes<'_>,
        shared: &Shared<'_>,
        progress: &ReplayProgress,
        report: &mut ReplayReport,
    ) -> Result<Vec<SegmentEnd>, HeadError> {
        let mut ends: Vec<SegmentEnd> = Vec::with_capacity(self.files.segments.len());
        let skipped = skip::ends_of_skipped(self.series, self.files, self.positions)?;
        for ((idx, segment), skipped) in self.files.segments.iter().enumerate().zip(skipped) {
            progress.segment_now.store(segment.number, Ordering::Relaxed);
            if let Some(end) = skipped {
                progress.bytes_done.fetch_add(segment.len, Ordering::Relaxed);
                ends.push(end);
                continue;
            }
            let before = ends.iter().map(|end| end.last_sequence).max().unwrap_or(0);
            let mut stream = open_segment(self.series, self.files, segment, before)?;
            while let Some(block) = stream.next()? {
                for frame in block.frames.iter().filter(|f| f.header.kind == KIND_SERIES) {
                    if frame.header.sequence > self.positions.defined_sequence {
                        self.load_series(block.payload(frame), segment, &block, frame, shared, report);
                    }
                }
                lanes.take(block, idx, segment, shared);
            }
            progress.bytes_done.fetch_add(segment.len, Ordering::Relaxed);
            report.bytes += stream.end;
            let is_last = idx + 1 == self.files.segments.len();
            ends.push(note_damage(&stream, segment, is_last, report));
        }
        note_gaps(self.files, &ends, report);
        Ok(ends)
    }

    fn load_series(
        &mut self,
        payload: &[u8],
        segment: &Segment,
        block: &Block,
        frame: &FrameRef,
        shared: &Shared<'_>,
        report: &mut ReplayReport,
    ) {
        if let Err(what) = self.try_load_series(payload, shared) {
            let (path, offset) = (segment.path.display(), block.offset + frame.payload.start as u64);
            report.notes.push(format!("{path} offset {offset}: series definitions: {what}"));
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
                    let mut stripe = self.series.stripes[stripe_of(id)].lock();
                    if stripe.hot(id).is_some() {
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
            self.raw_keys.insert(record.raw_hash, canonical, usize::MAX);
        }
        Ok(())
    }

    /// Gives a series whose id is that of a dead one in the tables (its definition was damaged elsewhere) an
    /// id above all others: its samples in the log are then replayed under it.
    #[cold]
    fn admit_straggler(&mut self, tenant: &TenantHead, labels: &Labels) -> Result<u32, HeadError> {
        if !self.has_ceiling {
            self.next_id = self.next_id.max(id_ceiling(self.series, self.files)?);
            self.has_ceiling = true;
        }
        let fresh = self.next_id;
        self.next_id = self.next_id.saturating_add(1);
        self.series.stripes[stripe_of(fresh)].lock().create(fresh, tenant.idx);
        tenant.tables.write().insert(fresh, labels.iter(), &mut self.members);
        self.defined_count += 1;
        Ok(fresh)
    }
}

/// The frames of a segment, of which those before end with `before`.
fn open_segment<'a>(
    series: &'a Series,
    files: &LogFiles,
    segment: &Segment,
    before: u64,
) -> Result<FrameStream<'a>, HeadError> {
    let key = segment.header.map_or(files.key, |header| header.key);
    let stale_sequence = files.stale_sequence(segment, before);
    FrameStream::open_recycled(&*series.env.disk, &segment.path, key, SEGMENT_HEADER_BYTES, stale_sequence)
}

/// Above all ids that the log speaks of.
fn id_ceiling(series: &Series, files: &LogFiles) -> Result<u32, HeadError> {
    let (mut ceiling, mut before) = (0, 0);
    let (mut samples, mut histograms) = (SamplesRef::default(), HistogramsRef::default());
    for segment in &files.segments {
        let mut stream = open_segment(series, files, segment, before)?;
        while let Some(block) = stream.next()? {
            for frame in &block.frames {
                let payload = block.payload(frame);
                if frame.header.kind == KIND_SAMPLES && samples.decode(payload).is_ok() {
                    ceiling = samples.ids.iter().fold(ceiling, |c, id| c.max(id.saturating_add(1)));
                } else if frame.header.kind == KIND_HISTOGRAMS && histograms.decode(payload).is_ok() {
                    ceiling = histograms.ids.iter().fold(ceiling, |c, id| c.max(id.saturating_add(1)));
                } else if frame.header.kind == KIND_SERIES
                    && let Ok(mut series) = SeriesRef::decode(payload)
                {
                    let mut pairs = Vec::new();
                    while let Ok(Some(record)) = series.next(&mut pairs) {
                        ceiling = ceiling.max(record.id.saturating_add(1));
                    }
                }
            }
        }
        before = stream.last_sequence().max(before);
    }
    Ok(ceiling)
}

fn note_damage(
    stream: &FrameStream<'_>,
    segment: &Segment,
    is_last: bool,
    report: &mut ReplayReport,
) -> SegmentEnd {
    let path = segment.path.display();
    for damage in &stream.damage {
        let (offset, len) = (damage.offset, damage.len);
        let what = if is_last && !damage.followed { "torn tail" } else { "damaged" };
        report.notes.push(format!("{path}: {what} at offset {offset}: {len} bytes are left out"));
    }
    SegmentEnd {
        first_sequence: stream.first_sequence,
        last_sequence: stream.last_sequence(),
        end: stream.end,
        is_damaged: !stream.damage.is_empty(),
        is_torn: stream.damage.iter().any(|damage| !damage.followed),
    }
}

/// Notes frames that are missing between segments.
fn note_gaps(files: &LogFiles, ends: &[SegmentEnd], report: &mut ReplayReport) {
    let mut before = None;
    for (segment, end) in files.segments.iter().zip(ends).filter(|(_, end)| end.last_sequence > 0) {
        if let Some(before) = before
            && end.first_sequence > before + 1
        {
            let (path, missing) = (segment.path.display(), end.first_sequence - before - 1);
            report.notes.push(format!("{path}: {missing} frames are missing before it"));
        }
        before = Some(end.last_sequence);
    }
}

/// Replays the frames of the stripes that are `lane` modulo `lane_count`.
fn take_block(
    block: &Block,
    segment: &Segment,
    shared: &Shared<'_>,
    lane: usize,
    lane_count: usize,
    samples: &mut SamplesRef,
) {
    let is_mine = |f: &&FrameRef| {
        let is_due = f.header.sequence > shared.positions.oldest;
        is_due && usize::from(f.header.stripe) % lane_count == lane
    };
    for frame in &block.frames {
        note_sequence(frame.header.sequence, shared, lane, lane_count);
        if !is_mine(&frame) {
            continue;
        }
        let (payload, sequence) = (block.payload(frame), frame.header.sequence);
        let applied = match frame.header.kind {
            KIND_SAMPLES => samples.decode(payload).map(|()| apply(samples, sequence, shared)),
            KIND_HISTOGRAMS => histograms::apply(payload, sequence, shared),
            KIND_STARTS => starts::apply(payload, sequence, shared),
            KIND_DELETES => DeletesRef::decode(payload).map(|d| apply_deletes(&d, sequence, shared)),
            // Definitions are taken in by the reading thread, kinds of later versions by nobody.
            _ => Ok(()),
        };
        if let Err(error) = applied {
            let (path, offset) = (segment.path.display(), block.offset + frame.payload.start as u64);
            shared.notes.lock().push(format!("{path}: frame at offset {offset}: {error}"));
        }
    }
    if let Err(error) = shared.series.store.write_if_many() {
        *shared.failure.lock() = Some(error);
    }
}

/// Notes the sequence of the next frame that lane `lane` meets. Where frames are missing, start times that they may have
/// changed end: an earlier start would be wrong for the samples behind.
fn note_sequence(sequence: u64, shared: &Shared<'_>, lane: usize, lane_count: usize) {
    let Some(last) = shared.lane_sequences.get(lane) else { return };
    // Only this lane reads and writes it.
    let before = last.load(Ordering::Relaxed);
    last.store(sequence, Ordering::Relaxed);
    if before == 0 || sequence <= before + 1 {
        return;
    }
    for stripe in shared.series.stripes.iter().skip(lane).step_by(lane_count) {
        let mut position = shared.positions.cursor();
        stripe.lock().forget_later_starts(|id| position.of(id) + 1 < sequence);
    }
}

fn apply(samples: &SamplesRef, sequence: u64, shared: &Shared<'_>) {
    let series = shared.series;
    let world = series.world();
    let aliases = shared.aliases.read();
    let mut tally = WindowTally::new(series.window_ms);
    let mut tenant = None;
    let (mut unknown, mut applied_count) = (0, 0);
    let mut at = 0;
    let target = |id: u32| if aliases.is_empty() { id } else { aliases.get(&id).copied().unwrap_or(id) };
    let mut position = shared.positions.cursor();
    while let Some(&first) = samples.ids.get(at) {
        let stripe_idx = stripe_of(target(first));
        let mut stripe = series.stripes[stripe_idx].lock();
        while let Some(&id) = samples.ids.get(at) {
            let canonical = target(id);
            if stripe_of(canonical) != stripe_idx {
                break;
            }
            let (time, bits) = (samples.times[at], samples.values[at]);
            at += 1;
            // What the slice of the series holds is not applied again: later frames that are in it as well would
            // not follow to set right what this one changes.
            if sequence <= position.of(canonical) {
                continue;
            }
            let owner = stripe.hot(canonical).map(|hot| hot.tenant);
            if owner.is_none() || !TimeRange::ALL.contains(time) {
                unknown += u64::from(!shared.positions.is_known_dead(id));
                shared.unknown_end.fetch_max(id.saturating_add(1), Ordering::Relaxed);
                continue;
            }
            if tenant != owner {
                put_windows(shared, tenant, &mut tally, samples.arrival_ms);
                tenant = owner;
            }
            // What a slice holds beyond its position comes back as a repeat. Of two values for a time the later one
            // counts, whatever the tenant's policy: the log has only what was accepted, in order.
            let applied = stripe.append(&world, &mut tally, canonical, time, bits);
            debug_assert!(applied != Applied::Gone, "the stripe is locked");
            applied_count += 1;
        }
    }
    put_windows(shared, tenant, &mut tally, samples.arrival_ms);
    shared.sample_count.fetch_add(applied_count + unknown, Ordering::Relaxed);
    shared.unknown_count.fetch_add(unknown, Ordering::Relaxed);
}

/// Deletes at the same point of the order as when the frame was written.
fn apply_deletes(deletes: &DeletesRef, sequence: u64, shared: &Shared<'_>) {
    let series = shared.series;
    let world = series.world();
    let aliases = shared.aliases.read();
    let mut tally = WindowTally::new(series.window_ms);
    let mut position = shared.positions.cursor();
    for &id in &deletes.ids {
        let id = aliases.get(&id).copied().unwrap_or(id);
        if sequence <= position.of(id) {
            continue;
        }
        let mut stripe = series.stripes[stripe_of(id)].lock();
        // A series that is not known has lost its definition, or left the head with all its samples.
        let Some(tenant) = stripe.hot(id).map(|hot| hot.tenant) else { continue };
        stripe.erase(&world, &mut tally, id, deletes.range);
        put_windows(shared, Some(tenant), &mut tally, i64::MAX);
    }
}

pub(super) fn put_windows(
    shared: &Shared<'_>,
    tenant: Option<u32>,
    tally: &mut WindowTally,
    arrival_ms: i64,
) {
    let Some(idx) = tenant else { return };
    let tenant = shared.tenants.read().by_idx(idx).cloned();
    if let Some(tenant) = tenant {
        tenant.windows.lock().merge(tally, arrival_ms);
    }
}
