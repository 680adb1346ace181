//! `meta.json` of a block: who it is, what it covers, what it was made of (`docs/block/meta.md`).
//!
//! Invariant: fields that this version does not know survive reading and writing, at every level; the text is
//! laid out as Go's `json.MarshalIndent` with a tab does.
//! Not here: deciding which blocks to merge (`tsdb`).

mod ulid;

use chronolith_model::{TimeRange, TimeUnit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use ulid::{Ulid, UlidError};

/// The only version there is.
pub const VERSION: u64 = 1;
/// A meta.json beyond this is refused: real ones have a few kilobytes.
pub const META_BYTES_MAX: usize = 16 << 20;

/// Content of `meta.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockMeta {
    /// Identity; the directory's name.
    pub ulid: Ulid,
    /// First millisecond that the block covers.
    pub min_time: i64,
    /// First millisecond after the time that the block covers.
    pub max_time: i64,
    /// Counts of its content.
    #[serde(default)]
    pub stats: BlockStats,
    /// Ancestry.
    pub compaction: Compaction,
    /// [`VERSION`].
    pub version: u64,
    /// Unit and exact range of a block of a store that is not in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chronolith: Option<StoreMeta>,
    /// Fields of others (Thanos, Mimir), kept as they are.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// Times of a block in the unit of its store; only nanoseconds are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreMeta {
    time_unit: StoredUnit,
    /// First tick that the block covers.
    min_ticks: i64,
    /// First tick after the time that the block covers.
    max_ticks: i64,
    /// Fields of later versions.
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// Unit that a block names. A name that is not in the list is refused: a later version wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum StoredUnit {
    #[serde(rename = "ns")]
    Nano,
}

/// Counts of a block's content.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockStats {
    /// Samples of all kinds.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_samples: u64,
    /// Float samples; absent in blocks of Prometheus before 3.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_float_samples: u64,
    /// Native histogram samples.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_histogram_samples: u64,
    /// Series.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_series: u64,
    /// Chunks.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_chunks: u64,
    /// Deleted intervals.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_tombstones: u64,
    /// Fields of others.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// Ancestry of a block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Compaction {
    /// 1 when written from the head, else one more than the highest of the blocks merged.
    pub level: u32,
    /// Blocks from the head that went in, the block itself if it is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub sources: Vec<Ulid>,
    /// Holds no samples any more and may go.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deletable: bool,
    /// Blocks that were merged directly.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub parents: Vec<BlockDesc>,
    /// Merging it failed; it is left alone.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failed: bool,
    /// Name of the set of blocks that a compaction split by series: no two blocks of a set share a series.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "splitSet")]
    pub split_set: Option<Ulid>,
    /// All blocks that one compaction wrote, this one included, in order of their series; empty if it wrote
    /// one.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "splitBlocks")]
    pub split_blocks: Vec<Ulid>,
    /// Hints for compaction, for example `from-out-of-order`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub hints: Vec<String>,
    /// Fields of others.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// A parent of a merged block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockDesc {
    /// Identity.
    pub ulid: Ulid,
    /// First millisecond covered.
    pub min_time: i64,
    /// First millisecond after its time.
    pub max_time: i64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

// Go writes `null` for a slice that was never filled.
fn null_as_empty<'de, D, T>(input: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

/// Reason for refusing a meta.json.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// Not JSON, or a field is missing or of another type.
    #[error("meta.json: {0}")]
    Json(#[from] serde_json::Error),
    /// Written by something newer.
    #[error("meta.json: unexpected meta file version {0}, expected 1")]
    Version(u64),
    /// The block ends before it starts.
    #[error("meta.json: maxTime {max_time} is before minTime {min_time}")]
    Times {
        /// Stored value.
        min_time: i64,
        /// Stored value.
        max_time: i64,
    },
    /// The exact range does not belong to the range in milliseconds.
    #[error(
        "meta.json: range from {min_ticks} to {max_ticks} of the store is not that of minTime and maxTime"
    )]
    Ticks {
        /// Stored value.
        min_ticks: i64,
        /// Stored value.
        max_ticks: i64,
    },
    /// Longer than [`META_BYTES_MAX`].
    #[error("meta.json: {0} bytes, at most {META_BYTES_MAX} expected")]
    TooLong(usize),
}

impl BlockMeta {
    /// Identity of the block and of the blocks from the head in it.
    #[must_use]
    pub fn provenance(&self) -> Provenance<'_> {
        let Compaction { sources, split_set, .. } = &self.compaction;
        Provenance { ulid: self.ulid, sources, split_set: *split_set }
    }

    /// Returns true if all samples of the block `older` are in this block and those that were written
    /// together with it: it was compacted or rewritten from it, be it in several steps.
    #[must_use]
    pub fn replaces(&self, older: Provenance<'_>) -> bool {
        let is_input = self.compaction.parents.iter().any(|parent| parent.ulid == older.ulid);
        is_input || self.provenance().has_samples_of(older)
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn decode(text: &[u8]) -> Result<BlockMeta, MetaError> {
        if text.len() > META_BYTES_MAX {
            return Err(MetaError::TooLong(text.len()));
        }
        let meta: BlockMeta = serde_json::from_slice(text)?;
        if meta.version != VERSION {
            return Err(MetaError::Version(meta.version));
        }
        if meta.max_time < meta.min_time {
            return Err(MetaError::Times { min_time: meta.min_time, max_time: meta.max_time });
        }
        if let Some(&StoreMeta { min_ticks, max_ticks, .. }) = meta.chronolith.as_ref() {
            let in_ms = TimeUnit::Nano.range_to_ms(TimeRange { start: min_ticks, end: max_ticks });
            if max_ticks < min_ticks || in_ms != (TimeRange { start: meta.min_time, end: meta.max_time }) {
                return Err(MetaError::Ticks { min_ticks, max_ticks });
            }
        }
        Ok(meta)
    }

    /// Unit of the times in index and chunks.
    #[must_use]
    pub fn time_unit(&self) -> TimeUnit {
        if self.chronolith.is_some() { TimeUnit::Nano } else { TimeUnit::Milli }
    }

    /// Range that the block covers, in its unit.
    #[must_use]
    pub fn range(&self) -> TimeRange {
        match &self.chronolith {
            Some(exact) => TimeRange { start: exact.min_ticks, end: exact.max_ticks },
            None => TimeRange { start: self.min_time, end: self.max_time },
        }
    }

    /// Sets unit and range: the exact one, and that in milliseconds around it.
    pub fn set_range(&mut self, unit: TimeUnit, range: TimeRange) {
        let in_ms = unit.range_to_ms(range);
        (self.min_time, self.max_time) = (in_ms.start, in_ms.end);
        self.chronolith = (unit == TimeUnit::Nano).then(|| StoreMeta {
            time_unit: StoredUnit::Nano,
            min_ticks: range.start,
            max_ticks: range.end,
            unknown: Map::new(),
        });
    }

    /// Appends the file's text.
    ///
    /// # Panics
    /// Never: every field has a JSON form and the sink is memory.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let layout = serde_json::ser::PrettyFormatter::with_indent(b"\t");
        let mut writer = serde_json::Serializer::with_formatter(out, layout);
        self.serialize(&mut writer).expect("meta has a JSON form");
    }
}

/// Identity of a block and of the blocks from the head in it.
#[derive(Debug, Clone, Copy)]
pub struct Provenance<'a> {
    /// Name of the block.
    pub ulid: Ulid,
    /// Blocks from the head that went in; empty if the program that wrote it records none.
    pub sources: &'a [Ulid],
    /// As [`Compaction::split_set`].
    pub split_set: Option<Ulid>,
}

impl Provenance<'_> {
    /// Returns true if this block was written later than `older` and has all its sources. Blocks of one split
    /// set have the same sources and different series, so none of them has the samples of another.
    pub(crate) fn has_samples_of(self, older: Provenance<'_>) -> bool {
        let is_of_same_set = self.split_set.is_some() && self.split_set == older.split_set;
        let has_all = || older.sources.iter().all(|source| self.sources.contains(source));
        self.ulid > older.ulid && !is_of_same_set && !older.sources.is_empty() && has_all()
    }
}

#[cfg(test)]
mod tests;
