//! State that the threads of a replay share: series, positions of the checkpoint, counts and findings.
//!
//! Invariant: each worker alone reads and writes its own sequence.
//! Not here: applying frames (`frames`, `by_series`), threads (`workers`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_wal::FrameBlock;
use parking_lot::{Mutex, RwLock};

use crate::index::tenant::Tenants;
use crate::options::HeadError;
use crate::recovery::positions::Positions;
use crate::recovery::threads::replay_thread_count;
use crate::series::SeriesStore;
use crate::series::windows::WindowTally;

/// A block with the index of its segment.
pub(super) type SegmentBlock = (FrameBlock, usize);

/// State shared by all threads.
pub(super) struct Shared<'a> {
    pub(super) series: &'a SeriesStore,
    pub(super) positions: &'a Positions,
    pub(super) tenants: &'a RwLock<Tenants>,
    pub(super) aliases: &'a RwLock<HashMap<u32, u32>>,
    pub(super) sample_count: AtomicU64,
    pub(super) unknown_count: AtomicU64,
    /// Above every id of the WAL that has no series record.
    pub(super) unknown_end: AtomicU32,
    pub(super) notes: Mutex<Vec<String>>,
    pub(super) failure: Mutex<Option<HeadError>>,
    /// Sequence of the last frame that each worker has seen, or from which on frames are needed; 0 if
    /// unknown.
    pub(super) worker_sequences: Vec<AtomicU64>,
}

impl<'a> Shared<'a> {
    pub(super) fn new(
        series: &'a SeriesStore,
        positions: &'a Positions,
        tenants: &'a RwLock<Tenants>,
        aliases: &'a RwLock<HashMap<u32, u32>>,
    ) -> Shared<'a> {
        let worker_count = replay_thread_count().max(1);
        Shared {
            series,
            positions,
            tenants,
            aliases,
            sample_count: AtomicU64::new(0),
            unknown_count: AtomicU64::new(0),
            unknown_end: AtomicU32::new(0),
            notes: Mutex::default(),
            failure: Mutex::default(),
            worker_sequences: (0..worker_count).map(|_| AtomicU64::new(positions.oldest)).collect(),
        }
    }

    /// Counts samples of a series without a record.
    pub(super) fn note_unknown(&self, id: u32, sample_count: usize) {
        let count = if self.positions.is_known_dead(id) { 0 } else { sample_count as u64 };
        self.unknown_count.fetch_add(count, Ordering::Relaxed);
        self.sample_count.fetch_add(count, Ordering::Relaxed);
        self.unknown_end.fetch_max(id.saturating_add(1), Ordering::Relaxed);
    }

    /// Adds the counts of `tally` to the windows of a tenant.
    pub(super) fn put_windows(&self, tenant: Option<u32>, tally: &mut WindowTally, arrival_ms: i64) {
        let Some(idx) = tenant else { return };
        let tenant = self.tenants.read().by_idx(idx).cloned();
        if let Some(tenant) = tenant {
            tenant.windows.lock().merge(tally, arrival_ms);
        }
    }

    /// Returns true if frames are missing between those that worker `worker` has seen and the end of `blocks`.
    pub(super) fn has_gap(&self, blocks: &[SegmentBlock], worker: usize) -> bool {
        let mut before = self.worker_sequences.get(worker).map_or(0, |last| last.load(Ordering::Relaxed));
        let frames = blocks.iter().flat_map(|(block, _)| &block.frames);
        frames.map(|frame| frame.header.sequence).any(|sequence| {
            let is_gap = before > 0 && sequence > before + 1;
            before = sequence.max(before);
            is_gap
        })
    }
}
