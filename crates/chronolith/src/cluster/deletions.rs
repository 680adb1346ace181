//! Open deletions of samples of a cluster: number, store, age, and the partitions that have not passed their
//! records.
//!
//! Not here: their steps (`cluster::deletions`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_bucket::{BucketError, Store};
use chronolith_cluster::PartitionId;
use chronolith_cluster::deletions::{ClusterDeletion, Deletions};
use serde_json::{Value, json};
use tokio::runtime::Handle;

/// An open deletion.
pub(super) struct OpenDeletion {
    number: u64,
    tenant: String,
    age_s: i64,
    missing: Vec<PartitionId>,
}

/// Reads the open deletions, and their marks. Cost: a request per partition of each.
///
/// # Errors
/// As other requests; damaged objects are named.
pub(super) fn open_deletions(
    bucket: &Arc<Store>,
    env: &Env,
    handle: &Handle,
) -> Result<Vec<OpenDeletion>, BucketError> {
    let deletions = Deletions::new(bucket.clone(), env, handle.clone());
    let list = deletions.read()?;
    let now_ms = env.clock.now_ms();
    list.open().map(|deletion| OpenDeletion::of(&deletions, deletion, now_ms)).collect()
}

impl OpenDeletion {
    fn of(
        deletions: &Deletions,
        deletion: &ClusterDeletion,
        now_ms: i64,
    ) -> Result<OpenDeletion, BucketError> {
        let marks = deletions.marks(deletion)?;
        let each = deletion.partitions.iter().zip(marks);
        Ok(OpenDeletion {
            number: deletion.number,
            tenant: deletion.tenant.as_str().to_owned(),
            age_s: (now_ms - deletion.created_ms).max(0) / 1000,
            missing: each.filter(|(_, mark)| mark.is_none()).map(|(number, _)| *number).collect(),
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns true if a partition has not passed its record.
    pub(super) fn waits_for(&self, partition: PartitionId) -> bool {
        self.missing.contains(&partition)
    }

    pub(super) fn line(&self) -> String {
        let OpenDeletion { number, tenant, age_s, missing } = self;
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let waits = match missing.is_empty() {
            true => "all partitions have passed it".to_owned(),
            false => format!("waits for partitions {}", missing.join(", ")),
        };
        format!("deletion {number} of tenant {tenant} is open since {age_s} s: {waits}\n")
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "number": self.number,
            "tenant": self.tenant,
            "ageSeconds": self.age_s,
            "missingPartitions": self.missing.iter().map(|partition| partition.0).collect::<Vec<_>>(),
        })
    }
}
