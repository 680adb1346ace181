//! Cuts in the log: an owner appends one when a window is due, and applies the cuts of all owners.
//!
//! Invariant: windows are due by the time of the partition, whatever the clock of the owner.
//! Not here: windows (`windows`), their publication (`publish`).

use std::sync::Arc;

use bytes::Bytes;
use chronolith_base::Clock;
use chronolith_format::record::{Cut, Record, encode_event};
use chronolith_model::StoreId;
use chronolith_model::log_position::LogPartition;
use chronolith_replicated_log::ReplicatedLog;
use chronolith_tsdb::Cuts;
use parking_lot::Mutex;

use super::windows::{OwnerWindows, end_ms};

/// Time after which a cut that this owner has appended counts as lost.
const LOST_AFTER_NS: u64 = 30_000_000_000;

/// Cut that this owner has appended and not applied yet.
#[derive(Clone, Copy)]
struct Sent {
    before_ms: i64,
    at_ns: u64,
}

/// Appends cuts to a partition.
pub(super) struct CutSender {
    log: Arc<dyn ReplicatedLog>,
    clock: Arc<dyn Clock>,
    partition: LogPartition,
    sent: Mutex<Option<Sent>>,
}

impl CutSender {
    pub(super) fn new(
        log: Arc<dyn ReplicatedLog>,
        clock: Arc<dyn Clock>,
        partition: LogPartition,
    ) -> CutSender {
        CutSender { log, clock, partition, sent: Mutex::default() }
    }

    /// Appends a cut if a window has ended, and was opened, `delay_ms` before `log_ms`. A failure is logged,
    /// and the cut appended again later.
    pub(super) fn send_if_due(&self, windows: &OwnerWindows, log_ms: i64, delay_ms: i64) {
        let now_ns = self.clock.mono_ns();
        let mut sent = self.sent.lock();
        let is_waiting = sent.is_some_and(|sent| now_ns.saturating_sub(sent.at_ns) < LOST_AFTER_NS);
        if is_waiting || !windows.is_cut_due(log_ms, delay_ms) {
            return;
        }
        let before_ms = log_ms.saturating_sub(delay_ms);
        let mut bytes = Vec::new();
        let cut = Record::Cut(Cut { arrival_ms: log_ms, before_ms, scope: None });
        encode_event(&cut, &mut bytes).expect("a cut is short");
        *sent = Some(Sent { before_ms, at_ns: now_ns });
        drop(sent);
        // No caller waits for the acknowledgement: the record is seen when it is read.
        if let Err(error) = self.log.append(self.partition.number, Bytes::from(bytes)) {
            tracing::warn!(partition = %self.partition, %error, "appending a cut failed, it is tried again");
        }
    }

    /// Notes that a cut of windows that end at `before_ms` or earlier was applied.
    pub(super) fn note_applied(&self, before_ms: i64) {
        self.sent.lock().take_if(|sent| sent.before_ms <= before_ms);
    }
}

/// Returns the test for windows that a cut takes, by store and start.
pub(super) fn windows_of<'a>(cut: &'a Cut, cuts: &Cuts<'_>) -> impl Fn(&StoreId, i64) -> bool + 'a {
    // A store that is not known here has no windows.
    let scope = cut.scope.as_ref().map(|scope| cuts.store_of(&scope.tenant, scope.store));
    move |store, start| {
        let is_in_scope = scope.as_ref().is_none_or(|only| only.as_ref() == Some(store));
        is_in_scope && end_ms(store, start) <= cut.before_ms
    }
}
