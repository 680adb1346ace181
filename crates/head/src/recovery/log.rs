//! Replay of the WAL after the slices: one reader thread reads blocks of frames and applies series records,
//! workers append the samples of their stripes.
//!
//! Invariant: a series record is applied before the block with its first samples is passed on.
//! Not here: distribution of blocks over threads (`workers`), samples and deletions (`frames`).

mod by_series;
mod frames;
mod shared;
mod workers;

use std::sync::atomic::Ordering;

use chronolith_base::hash::HashMap;
use chronolith_format::head::wal::{
    FrameRef, KIND_SERIES, KIND_TEXTS, Samples, SeriesRef, TextsRef, decode_samples, is_samples,
};
use chronolith_format::parse_store_name;
use chronolith_model::{Labels, StoreId};
use chronolith_wal::{BlockBuffers, FrameBlock, Recovery, Segment, SegmentEnd};
use parking_lot::RwLock;

use shared::Shared;
use workers::Workers;

use super::overflow::{FrameChanges, LoadedOverflow};
use super::positions::Positions;
use super::texts;
use crate::index::series_keys::SeriesKeyCache;
use crate::index::tenant::{TenantHead, Tenants};
use crate::options::HeadError;
use crate::recovery::progress::{ReplayProgress, ReplayReport};
use crate::series::SeriesStore;
use crate::texts::TextStore;

/// Returns the sequence after which the WAL must be read.
pub(super) fn needed_after(positions: &Positions, overflow: &LoadedOverflow) -> u64 {
    positions.oldest.min(positions.defined_sequence).min(overflow.needed_after())
}

/// Series of the checkpoint, which the replay starts with.
pub(super) struct KnownSeries {
    pub(super) tenants: Tenants,
    /// Maps ids of series that left the head and returned under another id to the id in use.
    pub(super) aliases: HashMap<u32, u32>,
    pub(super) series_keys: SeriesKeyCache,
    /// Above all ids.
    pub(super) next_id: u32,
}

/// Result of the replay.
pub(super) struct ReplayedLog {
    pub(super) tenants: Tenants,
    pub(super) series_keys: SeriesKeyCache,
    /// Above all ids of checkpoint and WAL.
    pub(super) next_id: u32,
    /// Number of series that the WAL created.
    pub(super) defined_count: u64,
    /// Set if some of them have reused ids.
    pub(super) has_reused: bool,
    /// Set if the WAL may redefine series under other ids.
    pub(super) has_aliases: bool,
    /// Extent of each segment.
    pub(super) ends: Vec<SegmentEnd>,
}

/// State of the reader thread.
pub(super) struct LogReplay<'a> {
    wal: &'a Recovery,
    series: &'a SeriesStore,
    positions: &'a Positions,
    overflow: &'a LoadedOverflow,
    tenants: RwLock<Tenants>,
    aliases: RwLock<HashMap<u32, u32>>,
    series_keys: SeriesKeyCache,
    next_id: u32,
    defined_count: u64,
    has_reused: bool,
    has_ceiling: bool,
    members: Vec<u32>,
}

impl<'a> LogReplay<'a> {
    pub(super) fn new(
        wal: &'a Recovery,
        series: &'a SeriesStore,
        positions: &'a Positions,
        overflow: &'a LoadedOverflow,
        known: KnownSeries,
    ) -> LogReplay<'a> {
        let KnownSeries { tenants, aliases, series_keys, next_id } = known;
        LogReplay {
            wal,
            series,
            positions,
            overflow,
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

    /// Appends all samples to memory.
    pub(super) fn run(
        mut self,
        texts: &TextStore,
        progress: &ReplayProgress,
        report: &mut ReplayReport,
    ) -> Result<ReplayedLog, HeadError> {
        let (tenants, aliases) = (std::mem::take(&mut self.tenants), std::mem::take(&mut self.aliases));
        let shared = Shared::new(self.series, self.positions, &tenants, &aliases);
        let (segments, buffers) = (self.wal.segments(), BlockBuffers::default());
        let ends = std::thread::scope(|scope| {
            let workers = Workers::start(scope, segments, &shared, &buffers);
            self.read_segments(workers, &shared, texts, &buffers, progress, report)
        })?;
        if let Some(failure) = shared.failure.into_inner() {
            return Err(failure);
        }
        report.samples = shared.sample_count.into_inner();
        report.samples_unknown = shared.unknown_count.into_inner();
        report.notes.extend(shared.notes.into_inner());
        self.next_id = self.next_id.max(shared.unknown_end.into_inner());
        if report.samples_unknown > 0 {
            let count = report.samples_unknown;
            report.notes.push(format!("WAL: {count} samples of unknown series are left out"));
        }
        self.series.store.write_all()?;
        Ok(ReplayedLog {
            tenants: tenants.into_inner(),
            series_keys: self.series_keys,
            next_id: self.next_id,
            defined_count: self.defined_count,
            has_reused: self.has_reused,
            has_aliases: !aliases.into_inner().is_empty(),
            ends,
        })
    }

    fn read_segments(
        &mut self,
        mut workers: Workers<'_, '_>,
        shared: &Shared<'_>,
        texts: &TextStore,
        buffers: &BlockBuffers,
        progress: &ReplayProgress,
        report: &mut ReplayReport,
    ) -> Result<Vec<SegmentEnd>, HeadError> {
        let wal = self.wal;
        let series = self.series;
        let needed_after = needed_after(self.positions, self.overflow);
        let mut notes = Vec::new();
        let ends = wal.replay_after(&*series.env.disk, needed_after, buffers, &mut notes, |idx, block| {
            let segment = &wal.segments()[idx];
            note_progress(wal.segments(), idx, progress);
            report.bytes += block.frame_bytes() as u64;
            for frame in block.frames.iter().filter(|f| f.header.kind == KIND_SERIES) {
                if frame.header.sequence > self.positions.defined_sequence {
                    self.load_series(block.payload(frame), segment, &block, frame, shared, report);
                }
            }
            for frame in block.frames.iter().filter(|f| f.header.kind == KIND_TEXTS) {
                self.load_texts(block.payload(frame), texts, shared, report);
            }
            for frame in block.frames.iter().filter(|f| FrameChanges::is_in(f.header.kind)) {
                self.load_overflow(block.payload(frame), frame, shared, report);
            }
            workers.take(block, idx, self.next_id as usize);
            Ok::<(), HeadError>(())
        })?;
        workers.end();
        note_progress(wal.segments(), wal.segments().len(), progress);
        report.notes.append(&mut notes);
        Ok(ends)
    }

    /// Adds the texts of a frame, whatever its position: texts of frames before it may be in no file.
    fn load_texts(&self, payload: &[u8], texts: &TextStore, shared: &Shared<'_>, report: &mut ReplayReport) {
        let tenant = |id: &StoreId| {
            let seed = self.series.env.rng.next_u64();
            shared.tenants.write().get_or_create(id, seed)
        };
        let decoded = TextsRef::decode(payload).map_err(|error| error.to_string());
        let restored = decoded.and_then(|frame| texts::restore(frame, &texts.budget, false, tenant));
        report.notes.extend(restored.err().map(|what| format!("WAL: texts: {what}")));
    }

    /// Applies changes of an overflow table that the checkpoint of the table does not have.
    fn load_overflow(
        &self,
        payload: &[u8],
        frame: &FrameRef,
        shared: &Shared<'_>,
        report: &mut ReplayReport,
    ) {
        let sequence = frame.header.sequence;
        let tenant = |id: &StoreId| {
            let seed = self.series.env.rng.next_u64();
            shared.tenants.write().get_or_create(id, seed)
        };
        let decoded = FrameChanges::decode(frame.header.kind, payload).map_err(|error| error.to_string());
        let applied = decoded.and_then(|changes| self.overflow.apply(&changes, sequence, tenant));
        report.notes.extend(applied.err().map(|what| format!("WAL: overflow tables: {what}")));
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
        let tenant = parse_store_name(series.tenant).ok().and_then(|id| {
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
    let buffers = BlockBuffers::default();
    wal.replay_after(&*series.env.disk, 0, &buffers, &mut Vec::new(), |_, block| {
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
        buffers.put(block);
        Ok::<(), HeadError>(())
    })?;
    Ok(ceiling)
}
