//! Ticks: records without content that let the time of a partition pass where nothing is written.
//!
//! Invariant: a partition that is named gets a record of this gateway between two calls of
//! [`Ticks::append_due`], or a tick by the later one. Drained partitions are among them for a time: without
//! ticks their time would stand still, and their last windows would never be cut.

use bytes::Bytes;
use chronolith_base::hash::HashSet;
use chronolith_format::record::{Record, encode_event};
use chronolith_replicated_log::{LogError, PartitionId, ReplicatedLog, Ticket};
use parking_lot::Mutex;

/// Partitions with a record of this gateway since the last ticks.
#[derive(Default)]
pub(super) struct Ticks {
    written: Mutex<HashSet<PartitionId>>,
}

impl Ticks {
    /// Adds partitions that get a record; there are at most as many as the map has.
    pub(super) fn note_written(&self, partitions: impl Iterator<Item = PartitionId>) {
        self.written.lock().extend(partitions);
    }

    /// Appends a tick to each partition of `partitions` without a record since the last call, and waits for
    /// them; returns their number. Blocks the thread.
    ///
    /// # Errors
    /// [`LogError`] of the first tick that is not acknowledged; the others are appended.
    pub(super) fn append_due(
        &self,
        log: &dyn ReplicatedLog,
        partitions: &[PartitionId],
        arrival_ms: i64,
    ) -> Result<usize, LogError> {
        let written = std::mem::take(&mut *self.written.lock());
        let mut record = Vec::new();
        encode_event(&Record::Tick { arrival_ms }, &mut record).expect("a tick has a few bytes");
        let record = Bytes::from(record);
        let idle = partitions.iter().copied().filter(|partition| !written.contains(partition));
        let tickets: Vec<Result<Ticket, LogError>> =
            idle.map(|partition| log.append(partition, record.clone())).collect();
        let count = tickets.len();
        let waited = tickets.into_iter().map(|ticket| ticket.and_then(Ticket::wait).map(drop));
        // All are waited for, so that the next call finds room in the log.
        let failures: Vec<LogError> = waited.filter_map(Result::err).collect();
        failures.into_iter().next().map_or(Ok(count), Err)
    }
}
