//! Records that were appended and not acknowledged yet, and the offsets that they get.
//!
//! Invariant: [`PendingRecords::wait`] succeeds only if the log has acknowledged every record.

use std::collections::BTreeMap;
use std::fmt;

use chronolith_base::Reservation;
use chronolith_model::WriteOutcome;
use chronolith_model::min_offsets::PARTITIONS_NAMED_MAX;
use chronolith_replicated_log::{PartitionId, Position, Ticket, TopicId};

use super::error::GatewayError;

/// Newest offsets of a request, one per partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogOffsets {
    topic: Option<TopicId>,
    newest: BTreeMap<PartitionId, u64>,
}

impl LogOffsets {
    /// Adds the position of a record.
    pub(super) fn note(&mut self, position: Position) {
        self.topic = Some(position.topic);
        let newest = self.newest.entry(position.partition).or_insert(position.offset);
        *newest = position.offset.max(*newest);
    }

    /// Adds the offsets of a later request.
    pub(super) fn join(&mut self, later: LogOffsets) {
        self.topic = later.topic.or(self.topic);
        for (partition, offset) in later.newest {
            let newest = self.newest.entry(partition).or_insert(offset);
            *newest = offset.max(*newest);
        }
    }

    /// Returns `TOPIC:PARTITION:OFFSET`, separated by commas; `None` without records, and for more than 100
    /// partitions.
    #[must_use]
    pub fn to_header(&self) -> Option<String> {
        let is_shown = (1..=PARTITIONS_NAMED_MAX).contains(&self.newest.len());
        is_shown.then(|| self.to_string())
    }
}

impl fmt::Display for LogOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(topic) = self.topic else { return Ok(()) };
        for (idx, (partition, offset)) in self.newest.iter().enumerate() {
            let comma = if idx == 0 { "" } else { "," };
            write!(f, "{comma}{topic}:{partition}:{offset}")?;
        }
        Ok(())
    }
}

/// Records of a request that the log has acknowledged.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// Samples in the log, and samples that the gateway refused.
    pub outcome: WriteOutcome,
    /// Newest offset per partition.
    pub offsets: LogOffsets,
}

/// Records of a request that the log has taken.
#[must_use = "a request is acknowledged once its records are"]
pub struct PendingRecords {
    tickets: Vec<Ticket>,
    outcome: WriteOutcome,
    held: Vec<Reservation>,
}

impl PendingRecords {
    pub(super) fn new(tickets: Vec<Ticket>, outcome: WriteOutcome, held: Reservation) -> PendingRecords {
        PendingRecords { tickets, outcome, held: vec![held] }
    }

    /// Joins the records of a later batch of the same request.
    pub fn join(mut self, later: PendingRecords) -> PendingRecords {
        self.tickets.extend(later.tickets);
        self.outcome.add(later.outcome);
        self.held.extend(later.held);
        self
    }

    /// Waits for the outcome of each record, and stops at the first one that is not acknowledged. Blocks the
    /// thread, at most the acknowledgement timeout of the log.
    ///
    /// # Errors
    /// [`GatewayError::Log`].
    pub fn wait(self) -> Result<Acknowledged, GatewayError> {
        let PendingRecords { tickets, outcome, held } = self;
        let record_count = tickets.len();
        let mut offsets = LogOffsets::default();
        for ticket in tickets {
            match ticket.wait() {
                Ok(position) => offsets.note(position),
                Err(error) => return Err(GatewayError::of_log(error, record_count > 1)),
            }
        }
        drop(held);
        Ok(Acknowledged { outcome, offsets })
    }
}
