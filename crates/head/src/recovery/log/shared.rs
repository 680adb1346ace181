//! State that the threads of a replay share: series, positions of the checkpoint, counts and findings.
//!
//! Not here: applying frames (`frames`, `by_series`), threads (`workers`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_format::head::wal::Samples;
use chronolith_model::TimeUnit;
use chronolith_wal::FrameBlock;
use parking_lot::{Mutex, RwLock};

use crate::index::tenant::Tenants;
use crate::options::HeadError;
use crate::recovery::positions::Positions;
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
    /// Start timestamps by series and timestamp, from frames of WAL versions 1 and 2, in which they come
    /// before their samples.
    old_starts: Mutex<HashMap<(u32, i64), i64>>,
}

impl<'a> Shared<'a> {
    pub(super) fn new(
        series: &'a SeriesStore,
        positions: &'a Positions,
        tenants: &'a RwLock<Tenants>,
        aliases: &'a RwLock<HashMap<u32, u32>>,
    ) -> Shared<'a> {
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
            old_starts: Mutex::default(),
        }
    }

    /// Counts samples of a series without a record.
    pub(super) fn note_unknown(&self, id: u32, sample_count: usize) {
        let count = if self.positions.is_known_dead(id) { 0 } else { sample_count as u64 };
        self.unknown_count.fetch_add(count, Ordering::Relaxed);
        self.sample_count.fetch_add(count, Ordering::Relaxed);
        self.unknown_end.fetch_max(id.saturating_add(1), Ordering::Relaxed);
    }

    /// Returns the unit of the times of a tenant.
    pub(super) fn unit_of(&self, tenant: u32) -> TimeUnit {
        self.tenants.read().by_idx(tenant).map_or(TimeUnit::Milli, |tenant| tenant.unit)
    }

    /// Returns the width of the windows of a tenant.
    pub(super) fn width_of(&self, tenant: u32) -> i64 {
        self.series.window_width(self.unit_of(tenant))
    }

    /// Adds the counts of `tally` to the windows of a tenant.
    pub(super) fn put_windows(&self, tenant: Option<u32>, tally: &mut WindowTally, arrival_ms: i64) {
        let Some(idx) = tenant else { return };
        let tenant = self.tenants.read().by_idx(idx).cloned();
        if let Some(tenant) = tenant {
            tenant.windows.lock().merge(tally, arrival_ms);
        }
    }

    /// Adds the start timestamps of earlier frames to the samples of a frame of WAL versions 1 and 2.
    pub(super) fn join_old_starts(&self, samples: &mut Samples) {
        let mut starts = self.old_starts.lock();
        let keys = samples.ids.iter().copied().zip(samples.times.iter().copied());
        if samples.values.is_empty() {
            starts.extend(keys.zip(samples.start_times.iter().copied()));
        } else if !starts.is_empty() {
            samples.start_times = keys.map(|key| starts.get(&key).copied().unwrap_or(0)).collect();
        }
    }
}
