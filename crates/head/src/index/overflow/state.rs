//! Overflow table of a tenant with its lock, and memory for the samples of one batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_base::hash::HashSet;
use chronolith_base::sync::{Mutex, MutexGuard};
use chronolith_format::head::wal::{
    KIND_OVERFLOW, KIND_OVERFLOW_HISTOGRAMS, OVERFLOW_SAMPLES_MAX, OverflowChanges, OverflowHistogram,
    OverflowHistogramChanges, OverflowSample, STRIPE_NONE,
};
use chronolith_model::Histogram;
use chronolith_wal::Wal;

use super::label_values::LabelValues;
use super::table::OverflowTable;

/// Overflow table of a tenant.
///
/// The lock is taken before the lock of the index.
pub(crate) struct TenantOverflow {
    state: Mutex<OverflowState>,
    /// Set once the table had a series.
    is_used: AtomicBool,
    /// Series that the table got since startup.
    insert_count: AtomicU64,
    /// Samples folded since startup.
    sample_count: AtomicU64,
}

impl Default for TenantOverflow {
    fn default() -> Self {
        TenantOverflow {
            state: Mutex::new(OverflowState::default()),
            is_used: AtomicBool::new(false),
            insert_count: AtomicU64::new(0),
            sample_count: AtomicU64::new(0),
        }
    }
}

/// Table, and changes that are not queued for the WAL yet.
#[derive(Default)]
pub(crate) struct OverflowState {
    table: OverflowTable,
    label_values: LabelValues,
    changes: OverflowChanges,
    histogram_changes: OverflowHistogramChanges,
    payload: Vec<u8>,
    /// Number of the frame that is being filled; 0 before the first change.
    frame: u64,
    /// Slots of the group of samples that is being folded.
    touched: Vec<usize>,
    group: u64,
}

impl TenantOverflow {
    /// Returns true if the table may have series or totals. Cost: an atomic read.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Records that the table is about to get a series; the caller holds its lock and the lock of
    /// the index, unless it replays.
    pub(crate) fn note_used(&self) {
        self.insert_count.fetch_add(1, Ordering::AcqRel);
        self.is_used.store(true, Ordering::Release);
    }

    /// Returns the number of series that the table got since startup. Cost: an atomic read.
    ///
    /// Under the write lock of the index the number does not change, so a series that was not in the table
    /// when it was the same is not in it.
    pub(crate) fn insert_count(&self) -> u64 {
        self.insert_count.load(Ordering::Acquire)
    }

    /// Counts folded samples.
    pub(crate) fn add_samples(&self, count: u64) {
        self.sample_count.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number of samples folded since startup.
    pub(crate) fn sample_count(&self) -> u64 {
        self.sample_count.load(Ordering::Relaxed)
    }

    /// Locks the table.
    pub(crate) fn lock(&self) -> MutexGuard<'_, OverflowState> {
        self.state.lock()
    }

    /// Returns true if the table has neither a series nor a total.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_used() || self.lock().table.is_empty()
    }

    /// Returns the bytes of heap memory, and the number of folded series.
    pub(crate) fn memory(&self) -> (u64, u64) {
        if !self.is_used() {
            return (0, 0);
        }
        let state = self.lock();
        let changes = state.changes.heap_bytes() + state.histogram_changes.heap_bytes();
        let bytes =
            state.table.heap_bytes() + state.label_values.heap_bytes() + changes + state.payload.capacity();
        (bytes as u64, state.table.series_count() as u64)
    }

    /// Returns the bytes of native histograms, and the number of folded series that have one.
    pub(crate) fn histogram_memory(&self) -> (u64, u64) {
        if !self.is_used() {
            return (0, 0);
        }
        let state = self.lock();
        (state.table.histogram_bytes() as u64, state.table.histogram_count() as u64)
    }
}

impl OverflowState {
    /// Returns the table.
    pub(crate) fn table(&self) -> &OverflowTable {
        &self.table
    }

    /// Returns the table for changes that the caller queues.
    pub(crate) fn table_mut(&mut self) -> &mut OverflowTable {
        &mut self.table
    }

    /// Returns the estimates of label values.
    pub(crate) fn label_values(&self) -> &LabelValues {
        &self.label_values
    }

    /// Returns the estimates of label values to add to them; they are only in checkpoints.
    pub(crate) fn label_values_mut(&mut self) -> &mut LabelValues {
        &mut self.label_values
    }

    /// Queues the changes for the WAL.
    pub(crate) fn queue_changes(&mut self, wal: &Wal, tenant: &str) {
        if !self.changes.is_empty() {
            self.changes.encode(tenant, &mut self.payload);
            wal.append(KIND_OVERFLOW, STRIPE_NONE, &self.payload);
        }
        if !self.histogram_changes.is_empty() {
            self.histogram_changes.encode(tenant, &mut self.payload);
            wal.append(KIND_OVERFLOW_HISTOGRAMS, STRIPE_NONE, &self.payload);
        }
        self.changes.clear();
        self.histogram_changes.clear();
        self.frame += 1;
    }

    /// Returns true if the changes must be queued before there are more.
    pub(crate) fn is_full(&self) -> bool {
        self.changes.samples.len() >= OVERFLOW_SAMPLES_MAX || self.histogram_changes.is_full()
    }

    /// Removes series that became series of the head, and queues the removal.
    pub(crate) fn remove(&mut self, wal: &Wal, tenant: &str, keys: &[u128]) {
        self.changes.removed = self.table.remove(keys);
        self.queue_changes(wal, tenant);
    }

    /// Starts a group of samples whose sums are written together.
    pub(crate) fn begin_group(&mut self) {
        self.touched.clear();
        self.group += 1;
    }

    /// Returns the slots that samples of the group have changed.
    pub(crate) fn touched(&self) -> &[usize] {
        &self.touched
    }

    /// Adds a sample that has changed its entry to the changes and to the group.
    pub(crate) fn note_changed(&mut self, entry: usize, time: i64, value: f64) {
        let key = self.table.key_of(entry);
        let Some(slot) = self.note_slot(entry) else { return };
        self.changes.samples.push(OverflowSample { slot, key, time, value });
    }

    /// As [`OverflowState::note_changed`], for a histogram.
    pub(crate) fn note_histogram(&mut self, entry: usize, time: i64, histogram: Arc<Histogram>) {
        let key = self.table.key_of(entry);
        let Some(slot) = self.note_slot(entry) else { return };
        self.histogram_changes.push(OverflowHistogram { slot, key, time, histogram });
    }

    /// Adds the slot of a repeated sample to the group, once after startup: a crash may have lost the sums
    /// whose changes are in the log.
    pub(crate) fn note_repeated(&mut self, entry: usize) {
        let slot_idx = self.table.slot_of(entry);
        if let Some(slot) = self.table.slot_mut(slot_idx).filter(|slot| slot.last_group == 0) {
            slot.last_group = self.group;
            self.touched.push(slot_idx);
        }
    }

    /// Adds the slot of an entry to the changes and to the group; returns its number in the changes.
    fn note_slot(&mut self, entry: usize) -> Option<u32> {
        let slot_idx = self.table.slot_of(entry);
        let slot = self.table.slot_mut(slot_idx)?;
        // Frames and groups count from 1, since a new slot has 0.
        if slot.last_frame != self.frame + 1 {
            slot.last_frame = self.frame + 1;
            slot.number_in_frame = match slot.histograms {
                None => self.changes.push_slot(&slot.as_stored()),
                Some(_) => self.histogram_changes.push_slot(&slot.as_stored()),
            };
        }
        if slot.last_group != self.group {
            slot.last_group = self.group;
            self.touched.push(slot_idx);
        }
        Some(slot.number_in_frame)
    }

    /// Removes series without a sample since `before`, and queues the removal.
    pub(crate) fn remove_idle(&mut self, wal: &Wal, tenant: &str, before: i64) {
        self.table.remove_idle(before);
        if self.label_values.all().len() > 0 {
            let used: HashSet<&str> = self.table.slots().map(|slot| slot.metric()).collect();
            self.label_values.retain(|metric| used.contains(metric));
        }
        self.changes.removed_before = Some(before);
        self.queue_changes(wal, tenant);
    }
}
