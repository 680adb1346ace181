//! Counters of uploads by outcome, bytes and time.
//!
//! Invariant: each upload that starts ends with one outcome, also one whose future is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::{Clock, Env};

/// End of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum UploadOutcome {
    /// All objects are in the bucket.
    Completed,
    /// An error ended it.
    Failed,
    /// The future of the upload was dropped.
    Canceled,
}

impl UploadOutcome {
    /// All outcomes, in the order of their numbers.
    pub const ALL: [UploadOutcome; 3] =
        [UploadOutcome::Completed, UploadOutcome::Failed, UploadOutcome::Canceled];

    /// Label value in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            UploadOutcome::Completed => "completed",
            UploadOutcome::Failed => "failed",
            UploadOutcome::Canceled => "canceled",
        }
    }
}

/// Counters of uploads since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UploadSnapshot {
    /// Uploads that began.
    pub started: u64,
    /// Uploads by outcome, in the order of [`UploadOutcome::ALL`].
    pub ended: [u64; UploadOutcome::ALL.len()],
    /// Time of the uploads by outcome, ns.
    pub duration_ns: [u64; UploadOutcome::ALL.len()],
    /// Bytes of objects that were sent.
    pub sent_bytes: u64,
    /// Bytes of objects that an earlier attempt had sent.
    pub present_bytes: u64,
    /// Blocks that were added to the catalogue.
    pub published: u64,
    /// Blocks that were not added because others had replaced them, or the inputs of their merge.
    pub dropped: u64,
}

#[derive(Default)]
pub(super) struct UploadCounters {
    started: AtomicU64,
    ended: [AtomicU64; UploadOutcome::ALL.len()],
    duration_ns: [AtomicU64; UploadOutcome::ALL.len()],
    sent_bytes: AtomicU64,
    present_bytes: AtomicU64,
    published: AtomicU64,
    dropped: AtomicU64,
}

impl UploadCounters {
    /// Begins one upload. Dropping the record without an outcome counts it as canceled.
    pub(super) fn start(&self, env: &Env) -> StartedUpload<'_> {
        self.started.fetch_add(1, Ordering::Relaxed);
        let clock = env.clock.clone();
        let start_ns = clock.mono_ns();
        StartedUpload { counters: self, clock, start_ns, outcome: UploadOutcome::Canceled }
    }

    pub(super) fn add_sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_present(&self, bytes: u64) {
        self.present_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_published(&self, blocks: usize) {
        self.published.fetch_add(blocks as u64, Ordering::Relaxed);
    }

    pub(super) fn add_dropped(&self, blocks: usize) {
        self.dropped.fetch_add(blocks as u64, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> UploadSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        UploadSnapshot {
            started: load(&self.started),
            ended: self.ended.each_ref().map(load),
            duration_ns: self.duration_ns.each_ref().map(load),
            sent_bytes: load(&self.sent_bytes),
            present_bytes: load(&self.present_bytes),
            published: load(&self.published),
            dropped: load(&self.dropped),
        }
    }
}

/// One upload in progress.
pub(super) struct StartedUpload<'c> {
    counters: &'c UploadCounters,
    clock: Arc<dyn Clock>,
    start_ns: u64,
    outcome: UploadOutcome,
}

impl StartedUpload<'_> {
    pub(super) fn finish(mut self, outcome: UploadOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for StartedUpload<'_> {
    fn drop(&mut self) {
        let duration_ns = self.clock.mono_ns().saturating_sub(self.start_ns);
        let add = |counters: &[AtomicU64; UploadOutcome::ALL.len()], value| {
            if let Some(counter) = counters.get(self.outcome as usize) {
                counter.fetch_add(value, Ordering::Relaxed);
            }
        };
        add(&self.counters.ended, 1);
        add(&self.counters.duration_ns, duration_ns);
    }
}
