//! Counters and levels of the head since startup, each an atomic number.
//!
//! Not here: counters of the WAL (`wal`), sizes that are counted when asked for (`statistics`).

use std::sync::atomic::{AtomicU64, Ordering};

/// Index of a number in [`Counters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    SamplesAppended,
    SamplesOutOfOrder,
    SamplesRepeated,
    SamplesReplaced,
    SamplesWithStart,
    SamplesDeleted,
    SeriesCreated,
    /// Level: series in the head.
    SeriesLive,
    Checkpoints,
    /// Level: bytes of the newest copies of all slices, and of the series file.
    CheckpointBytes,
    Slices,
    SliceBytes,
    /// Level: bytes of WAL that a restart would replay.
    TailBytes,
    /// Level: estimated duration of that replay.
    TailNs,
    /// Changes without a frame in the WAL: dropped windows, sealed files found without chunks.
    Changes,
}

const COUNTER_COUNT: usize = Counter::Changes as usize + 1;

/// Values by counter; relaxed atomics.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; COUNTER_COUNT]);

impl Counters {
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, counter: Counter, value: u64) {
        self.0[counter as usize].store(value, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, counter: Counter, count: u64) {
        self.0[counter as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, counter: Counter, count: u64) {
        self.0[counter as usize].fetch_sub(count, Ordering::Relaxed);
    }
}
