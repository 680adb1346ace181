//! Result of a write request: what the store took, and what did not come as far.

use chronolith_cluster::gateway::LogOffsets;
use chronolith_ingest::remote_write::Refused;
use chronolith_model::{ExemplarReject, WriteOutcome};

use super::message::Message;

/// Result of a write request of which something may be stored.
pub(super) struct Written {
    pub(super) message: Message,
    pub(super) outcome: WriteOutcome,
    /// Samples that were refused before the store.
    pub(super) refused: Refused,
    /// Offsets in the replicated log, if the samples went there.
    pub(super) offsets: LogOffsets,
    /// A gateway has refused series that are new.
    pub(super) is_full: bool,
}

impl Written {
    /// Reason why the answer is 400, if it is.
    pub(super) fn fault(&self) -> Option<String> {
        let outcome = &self.outcome;
        let rejected = outcome.rejected_count();
        let mut lines = Vec::new();
        if let Some((kind, series, time_ms)) = &outcome.first_reject {
            let total = rejected + outcome.accepted_count;
            let why = outcome.message(*kind);
            lines.push(format!(
                "{rejected} of {total} samples rejected: first: {why}: series {series} time {time_ms}"
            ));
        }
        lines.extend(self.refused.first.clone());
        // Senders of 1.0 repeat their exemplars and get no count that they could compare. Other exemplars
        // that are not stored do not fail a request, as in Prometheus.
        let late_count = outcome.exemplars_rejected.of(ExemplarReject::OutOfOrder);
        if late_count > 0 && self.message == Message::V2 {
            lines.push(format!("out of order exemplar: {late_count} exemplars rejected"));
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}
