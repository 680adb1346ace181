//! Bucket index of a tenant: the list of its blocks that Mimir's compactor writes every 15 minutes.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::file::{MimirError, gunzip};
use crate::block::meta::Ulid;

/// Name of the file in the folder of a tenant.
pub const BUCKET_INDEX: &str = "bucket-index.json.gz";
const VERSIONS: std::ops::RangeInclusive<i64> = 1..=3;

/// Content of the file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct BucketIndex {
    /// 1, 2 or 3.
    pub version: i64,
    /// Complete blocks, in no order.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub blocks: Vec<IndexedBlock>,
    /// Deletion marks, in no order; their blocks are among `blocks` until they are removed.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub block_deletion_marks: Vec<IndexedMark>,
    /// Seconds since 1970 at which it was written.
    #[serde(default)]
    pub updated_at: i64,
}

/// A block of the index.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct IndexedBlock {
    /// Name of the block.
    pub block_id: Ulid,
    /// First millisecond of its samples.
    pub min_time: i64,
    /// First millisecond after its samples.
    pub max_time: i64,
    /// `1b6d` if the segments are `000001` and so on; empty if their names are not known.
    #[serde(default)]
    pub segments_format: String,
    /// Number of segments if their names are known.
    #[serde(default)]
    pub segments_num: u32,
    /// Seconds since 1970 at which its upload was complete.
    #[serde(default)]
    pub uploaded_at: i64,
    /// Shard of the series that Mimir's compactor put into it, as `1_of_4`; since version 2.
    #[serde(default)]
    pub compactor_shard_id: String,
    /// Program that uploaded it.
    #[serde(default)]
    pub source: String,
    /// Level of the compaction that wrote it; 0 if not recorded.
    #[serde(default)]
    pub compaction_level: u32,
    /// Set if it has out-of-order samples.
    #[serde(default)]
    pub out_of_order: bool,
    /// External labels of its meta.json.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A deletion mark of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct IndexedMark {
    /// Name of the block.
    pub block_id: Ulid,
    /// Seconds since 1970 at which it was marked.
    pub deletion_time: i64,
}

// Go writes `null` for a slice or map that was never filled.
fn null_as_empty<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

impl BucketIndex {
    /// Reads the file, which is compressed by gzip.
    ///
    /// # Errors
    /// [`MimirError`].
    pub fn decode(bytes: &[u8]) -> Result<BucketIndex, MimirError> {
        let text = gunzip(BUCKET_INDEX, bytes)?;
        let index: BucketIndex =
            serde_json::from_slice(&text).map_err(|error| MimirError::Json { file: BUCKET_INDEX, error })?;
        if !VERSIONS.contains(&index.version) {
            let found = index.version;
            return Err(MimirError::Version { file: BUCKET_INDEX, expected: "1 to 3", found });
        }
        Ok(index)
    }
}
