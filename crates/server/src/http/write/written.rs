//! Result of a write request: what the store took, and what did not come as far.

use chronolith_ingest::remote_write::Refused;
use chronolith_model::WriteOutcome;

/// Result of a write request of which something may be stored.
pub(super) struct Written {
    pub(super) outcome: WriteOutcome,
    /// What did not come as far as the store.
    pub(super) refused: Refused,
}

impl Written {
    /// Why the answer is 400, if it is.
    pub(super) fn fault(&self) -> Option<String> {
        let outcome = &self.outcome;
        let rejected = outcome.rejected_count();
        let mut lines = Vec::new();
        if let Some((kind, series, time_ms)) = &outcome.first_reject {
            let total = rejected + outcome.accepted_count;
            let why = kind.message();
            lines.push(format!(
                "{rejected} of {total} samples rejected: first: {why}: series {series} time {time_ms}"
            ));
        }
        lines.extend(self.refused.first.clone());
        if outcome.exemplars_late > 0 {
            lines.push(format!("out of order exemplar: {} exemplars rejected", outcome.exemplars_late));
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}
