//! State of an owner for readiness, pages and metrics.

use std::time::Duration;

use chronolith_format::record::Record;
use chronolith_model::WriteOutcome;
use chronolith_replicated_log::Bounds;
use parking_lot::Mutex;

use super::windows::WindowCounts;
use crate::deletions::DeletionsSnapshot;

/// Time by which the clock of a gateway may be ahead of the log's; a record further ahead does not move the
/// time of the partition.
const CLOCK_AHEAD_MS_MAX: i64 = 600_000;

/// State of an owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerStatus {
    /// Offset of the next record; `None` before the first read.
    pub next_offset: Option<u64>,
    /// First offset of the log.
    pub log_start: u64,
    /// Offset that the next record of the log gets.
    pub log_end: u64,
    /// Age of the last applied record while there are later ones, else 0.
    pub lag_ms: i64,
    /// Time of the partition: the greatest arrival time, of clocks that are not far ahead.
    pub log_time_ms: Option<i64>,
    /// Records applied since the start.
    pub applied_count: u64,
    /// Records since the start that could not be applied; they are in the bucket.
    pub refused_count: u64,
    /// Offset of the last record that could not be applied.
    pub last_refused: Option<u64>,
    /// Samples accepted since the start, repeats included.
    pub accepted_count: u64,
    /// Samples rejected since the start.
    pub rejected_count: u64,
    /// Records since the start that were passed over, as their store was dropped after they were written.
    pub dropped_store_count: u64,
    /// Records whose arrival time is far ahead of the log's time.
    pub ahead_count: u64,
    /// Reason why the owner waits or has stopped.
    pub fault: Option<OwnerFault>,
    /// Windows and their publication.
    pub cuts: CutStatus,
    /// Deletions of the cluster, as this owner has read their list.
    pub deletions: DeletionStatus,
}

/// Reason why an owner does not apply records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerFault {
    /// The reason.
    pub text: String,
    /// Set while the log cannot be read, if the owner had been ready until then.
    pub is_log_away: bool,
}

/// Open deletions of the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeletionStatus {
    /// Deletions that are open.
    pub open_count: usize,
    /// Clock of the process that created the oldest one of them, milliseconds since 1970.
    pub oldest_ms: Option<i64>,
    /// Deletions in the list, those that are done and kept included.
    pub listed_count: usize,
}

impl DeletionStatus {
    /// Returns the state of a list.
    #[must_use]
    pub fn of(list: &DeletionsSnapshot) -> DeletionStatus {
        DeletionStatus {
            open_count: list.open().count(),
            oldest_ms: list.open().map(|deletion| deletion.created_ms).min(),
            listed_count: list.deletions.len(),
        }
    }
}

/// Windows of an owner and their publication.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CutStatus {
    /// Windows with samples that were not cut.
    pub open_window_count: usize,
    /// Cuts whose samples are in the head, published or not.
    pub held_cut_count: usize,
    /// Oldest record with a sample in no live block, as this owner knows; `None` before the first look.
    pub resume: Option<u64>,
    /// Blocks that this owner has published since the start.
    pub published_block_count: u64,
    /// Number of the open deletion for which a cut waits.
    pub waits_for_deletion: Option<u64>,
    /// Reason why the last publication failed; reads and writes go on.
    pub fault: Option<String>,
}

/// Reason why an owner is not ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// Nothing was read yet.
    #[error("the log has not been read yet")]
    NotStarted,
    /// The owner waits or has stopped.
    #[error("{0}")]
    Fault(String),
    /// The owner had read the log to its end, or nearly, and cannot read it now: it answers without samples
    /// that were acknowledged since.
    #[error("{0}")]
    LogAway(String),
    /// The owner is catching up.
    #[error(
        "lag of {lag_ms} ms at offset {next_offset} of {log_end}, at most {ready_lag_ms} ms (owner.ready-lag)"
    )]
    Lag {
        /// Age of the last applied record.
        lag_ms: i64,
        /// Offset of the next record.
        next_offset: u64,
        /// End of the log.
        log_end: u64,
        /// Limit.
        ready_lag_ms: u128,
    },
}

impl OwnerStatus {
    fn is_near_end(&self, ready_lag: Duration) -> bool {
        self.next_offset.is_some() && u128::from(self.lag_ms.unsigned_abs()) < ready_lag.as_millis()
    }
}

/// State that the thread of the owner changes.
#[derive(Default)]
pub(super) struct StatusState(Mutex<OwnerStatus>);

impl StatusState {
    pub(super) fn snapshot(&self) -> OwnerStatus {
        self.0.lock().clone()
    }

    pub(super) fn refused_count(&self) -> u64 {
        self.0.lock().refused_count
    }

    pub(super) fn set_fault(&self, fault: Option<String>) {
        self.0.lock().fault = fault.map(|text| OwnerFault { text, is_log_away: false });
    }

    /// Notes that the log cannot be read. An owner that was ready until then still answers.
    pub(super) fn set_log_away(&self, why: &str, ready_lag: Duration) {
        let mut status = self.0.lock();
        let is_log_away = match &status.fault {
            Some(fault) => fault.is_log_away,
            None => status.is_near_end(ready_lag),
        };
        status.fault = Some(OwnerFault { text: why.to_owned(), is_log_away });
    }

    /// Counts a record that the log took at `timestamp_ms`.
    pub(super) fn note_applied(&self, record: &Record, timestamp_ms: i64, outcome: Option<&WriteOutcome>) {
        let arrival_ms = match record {
            Record::Samples { origin, .. } | Record::Delete { origin, .. } => origin.arrival_ms,
            Record::Tick { arrival_ms } => *arrival_ms,
            Record::Cut(cut) => cut.arrival_ms,
        };
        let mut status = self.0.lock();
        status.applied_count += 1;
        if arrival_ms <= timestamp_ms.saturating_add(CLOCK_AHEAD_MS_MAX) {
            status.log_time_ms = status.log_time_ms.max(Some(arrival_ms));
        } else {
            status.ahead_count += 1;
        }
        if let Some(outcome) = outcome {
            status.accepted_count += outcome.accepted_count;
            status.rejected_count += outcome.rejected_count();
        }
    }

    /// Time of the partition.
    pub(super) fn log_time_ms(&self) -> Option<i64> {
        self.0.lock().log_time_ms
    }

    /// Returns true if the lag is below `ready_lag`.
    pub(super) fn is_near_end(&self, ready_lag: Duration) -> bool {
        self.0.lock().is_near_end(ready_lag)
    }

    pub(super) fn note_windows(&self, counts: WindowCounts, waits_for_deletion: Option<u64>) {
        let mut status = self.0.lock();
        let CutStatus { published_block_count, ref mut fault, .. } = status.cuts;
        let WindowCounts { open_window_count, held_cut_count, resume } = counts;
        let fault = fault.take();
        let resume = Some(resume);
        status.cuts = CutStatus {
            open_window_count,
            held_cut_count,
            resume,
            published_block_count,
            waits_for_deletion,
            fault,
        };
    }

    pub(super) fn note_deletions(&self, deletions: DeletionStatus) {
        self.0.lock().deletions = deletions;
    }

    pub(super) fn note_published(&self, block_count: usize) {
        self.0.lock().cuts.published_block_count += block_count as u64;
    }

    pub(super) fn set_publication_fault(&self, fault: Option<String>) {
        self.0.lock().cuts.fault = fault;
    }

    pub(super) fn note_refused(&self, offset: u64) {
        let mut status = self.0.lock();
        status.refused_count += 1;
        status.last_refused = Some(offset);
    }

    /// Counts an applied record whose store was dropped.
    pub(super) fn note_dropped(&self) {
        self.0.lock().dropped_store_count += 1;
    }

    pub(super) fn note_lag(&self, next_offset: u64, bounds: Bounds, lag_ms: i64) {
        let mut status = self.0.lock();
        (status.next_offset, status.lag_ms) = (Some(next_offset), lag_ms);
        (status.log_start, status.log_end) = (bounds.start, bounds.end);
    }

    pub(super) fn check_ready(&self, ready_lag: Duration) -> Result<(), NotReady> {
        let status = self.0.lock();
        if let Some(fault) = &status.fault {
            let text = fault.text.clone();
            return Err(if fault.is_log_away { NotReady::LogAway(text) } else { NotReady::Fault(text) });
        }
        let Some(next_offset) = status.next_offset else { return Err(NotReady::NotStarted) };
        let OwnerStatus { lag_ms, log_end, .. } = *status;
        let ready_lag_ms = ready_lag.as_millis();
        if u128::from(lag_ms.unsigned_abs()) >= ready_lag_ms {
            return Err(NotReady::Lag { lag_ms, next_offset, log_end, ready_lag_ms });
        }
        Ok(())
    }
}
