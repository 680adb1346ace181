//! Records that cannot be applied, kept for an operator.
//!
//! Invariant: a record is passed over only after it is kept.
//! Not here: the decision that a record cannot be applied (the parent).

use bytes::Bytes;
use chronolith_model::log_position::LogPartition;

use super::kept_objects::KeptObjects;
use crate::folder::CLUSTER_FOLDER;

/// Refused records in the bucket: `cluster/refused/PARTITION/OFFSET`.
pub(super) struct RefusedRecords {
    kept: KeptObjects,
}

impl RefusedRecords {
    /// Records as objects of `kept`.
    pub(super) fn new(kept: KeptObjects) -> RefusedRecords {
        RefusedRecords { kept }
    }

    /// Stores the bytes of a record durably. The same record may be stored again. Blocks the thread.
    ///
    /// # Errors
    /// The reason; the caller tries again later.
    pub(super) fn keep(&self, partition: LogPartition, offset: u64, record: &Bytes) -> Result<(), String> {
        let key = key_of(partition, offset);
        let put = self.kept.put(&key, record.clone());
        put.map_err(|error| format!("keeping a refused record as {key} failed: {error}"))
    }
}

/// Returns the key of a refused record.
fn key_of(partition: LogPartition, offset: u64) -> String {
    format!("{CLUSTER_FOLDER}/refused/{}/{offset}", partition.number)
}

#[cfg(test)]
mod tests;
