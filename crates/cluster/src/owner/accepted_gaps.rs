//! Lost records that an operator has accepted, recorded for those who look for them later.
//!
//! Invariant: a gap is passed over only after it is recorded.
//! Not here: the decision that records are lost (the parent).

use std::ops::Range;

use bytes::Bytes;
use chronolith_base::utc::rfc3339_ms;
use chronolith_bucket::BucketError;
use chronolith_model::log_position::LogPartition;

use super::kept_objects::KeptObjects;
use crate::folder::CLUSTER_FOLDER;

/// Accepted gaps in the bucket: `cluster/accepted-gaps/PARTITION/FROM-TO`, each with a line of text.
pub(super) struct AcceptedGaps {
    kept: KeptObjects,
}

impl AcceptedGaps {
    /// Gaps as objects of `kept`.
    pub(super) fn new(kept: KeptObjects) -> AcceptedGaps {
        AcceptedGaps { kept }
    }

    /// Records a gap of `partition` with the reason for its loss, and logs it. The same gap may be recorded
    /// again. Blocks the thread.
    ///
    /// # Errors
    /// As other requests.
    pub(super) fn record(
        &self,
        partition: LogPartition,
        lost: &Range<u64>,
        why: &str,
    ) -> Result<(), BucketError> {
        let accepted = rfc3339_ms(self.kept.now_ms());
        let text = format!("accepted at {accepted} by --owner.accept-gap: {why}\n");
        let key = key_of(partition, lost);
        self.kept.put(&key, Bytes::from(text))?;
        tracing::error!(%partition, from = lost.start, to = lost.end, why, "skipping lost records, as accepted by --owner.accept-gap");
        Ok(())
    }
}

fn key_of(partition: LogPartition, lost: &Range<u64>) -> String {
    format!("{CLUSTER_FOLDER}/accepted-gaps/{}/{}-{}", partition.number, lost.start, lost.end)
}
