//! Catalogue of a bucket: numbered snapshots of the blocks of one tenant. Each is an object that is created
//! once, on top of the snapshot that its writer read.
//!
//! Invariants: equal content gives equal bytes; blocks and marks are sorted by ULID, cuts by partition, each
//! is there once; a snapshot without cuts has the bytes of the version without them; the checksum is verified
//! before anything is returned, and the number in the content equals the number in the name.
//! Not here: creating snapshots, deciding which blocks live (`bucket`). Layout: `docs/bucket/catalogue.md`.

mod decode;
mod encode;

use chronolith_base::DecodeError;
use chronolith_model::cut::may_publish;
use chronolith_model::log_position::{LogPartition, PartitionId};
use chronolith_model::rollup::RollupSpan;
use chronolith_model::{DuplicatePolicy, TimeRange, TimeUnit};

use super::numbered::{NumberedSnapshot, SnapshotKey, Stamp};
use crate::block::meta::{Provenance, Ulid};

/// First four bytes of a snapshot.
pub const MAGIC: [u8; 4] = *b"CLCS";
/// First version.
pub const VERSION_FIRST: u16 = 1;
/// Version whose objects are bound to no folder.
pub const VERSION_WITHOUT_FOLDER: u16 = 2;
/// Version without cuts, which is written if there are none.
pub const VERSION_WITHOUT_CUTS: u16 = 4;
/// Newest version that is read; it is written for snapshots with cuts.
pub const VERSION: u16 = 5;
/// Bytes before the packed records.
pub const HEADER_BYTES: usize = 52;
/// Bytes of the unpacked records, and of the random parts of all ULIDs: some 500,000 blocks.
pub const SNAPSHOT_RAW_BYTES_MAX: usize = 64 << 20;
/// Folder of the snapshots of a tenant.
pub const FOLDER: &str = "catalog/";

/// All blocks of a tenant at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Number: one more than in the snapshot before.
    pub number: u64,
    /// Random name of the process that wrote it, by which a writer recognizes its own snapshot.
    pub writer: [u8; 16],
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Policy for several samples with one timestamp.
    pub duplicates: DuplicatePolicy,
    /// Blocks to be queried.
    pub blocks: Vec<BucketBlock>,
    /// Blocks that wait for their removal. They may also be among `blocks`.
    pub deletion_marks: Vec<DeletionMark>,
    /// Per partition of the replicated log, the newest cut whose blocks are or were in a snapshot. Whatever
    /// changes blocks keeps them: an owner publishes the blocks of later cuts alone.
    pub cuts: Vec<LogCut>,
}

/// Newest published cut of a partition of the replicated log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogCut {
    /// The partition.
    pub partition: LogPartition,
    /// Offset of the record.
    pub offset: u64,
}

/// A block whose files are to be removed after a delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletionMark {
    /// Name of the block.
    pub ulid: Ulid,
    /// Milliseconds since 1970 at which it was marked.
    pub marked_ms: i64,
}

/// Position of the files of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockFolder {
    /// `<tenant>/<ULID>/`, as Mimir has it.
    Mimir,
    /// `<ULID>/`, as Thanos has it: external labels name the tenant.
    Thanos,
}

/// Record of a block in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketBlock {
    /// Name of the block.
    pub ulid: Ulid,
    /// Position of its files.
    pub folder: BlockFolder,
    /// Unit of its times.
    pub time_unit: TimeUnit,
    /// Times that it covers, in that unit.
    pub range: TimeRange,
    /// Counts of its content.
    pub counts: BlockCounts,
    /// Sizes of its files.
    pub files: BlockFiles,
    /// ETags of its objects.
    pub etags: EtagSums,
    /// Sidecar of the block; `None` for a block of another program.
    pub sidecar: Option<SidecarObject>,
    /// Deletions of the block that its `tombstones` does not have, if there are any.
    pub tombstones: Option<TombstonesObject>,
    /// Blocks that it was made of.
    pub ancestry: Ancestry,
    /// Milliseconds since 1970 at which its upload was complete.
    pub uploaded_ms: i64,
}

/// Counts of the content of a block, as its `meta.json` has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Series of the block.
    pub series: u64,
    /// Chunks of all series.
    pub chunks: u64,
    /// Samples, deleted ones included.
    pub samples: u64,
    /// Deleted intervals of all series.
    pub tombstones: u64,
}

/// Sizes of the files of a block, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockFiles {
    /// Size of `index`.
    pub index: u64,
    /// Sizes of `chunks/000001` and so on.
    pub segments: Vec<u64>,
    /// Size of `meta.json`.
    pub meta: u64,
    /// Roll-up files, which the block is complete without.
    pub rollups: Vec<RollupObject>,
}

/// Checksums of the ETags that the storage gave to the objects of a block, by which the answer of another
/// object is noticed; 0 for an ETag that is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtagSums {
    /// Sum of `index`.
    pub index: u32,
    /// Sums of the segments; shorter than their list if the rest is not known.
    pub segments: Vec<u32>,
    /// Sums of the roll-up files, likewise.
    pub rollups: Vec<u32>,
    /// Sum of the sidecar.
    pub sidecar: u32,
}

impl EtagSums {
    /// Returns true if no ETag is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let EtagSums { index, segments, rollups, sidecar } = self;
        segments.iter().chain(rollups).chain([index, sidecar]).all(|sum| *sum == 0)
    }
}

/// Returns the checksum of an ETag: CRC-32C of its text without `W/` and quotes, as proxies and listings add
/// and drop those. Never 0.
#[must_use]
pub fn etag_sum(etag: &str) -> u32 {
    let text = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
    chronolith_base::crc::crc32c(text.as_bytes()).max(1)
}

/// Roll-up file of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollupObject {
    /// Span and slot of its windows, which are its name.
    pub span: RollupSpan,
    /// Size in bytes.
    pub len: u64,
}

impl BlockFiles {
    /// Bytes of index and segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().fold(self.index, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// Sidecar of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidecarObject {
    /// Size in bytes.
    pub len: u64,
    /// Bytes of its head, which are its last ones.
    pub head_len: u32,
    /// CRC-32C of all its bytes.
    pub crc: u32,
}

/// Tombstones of a block, an object of its own: deletions may come after the upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TombstonesObject {
    /// Name within the folder of the block.
    pub name: String,
    /// Size in bytes.
    pub len: u64,
    /// CRC-32C of all its bytes.
    pub crc: u32,
}

/// Ancestry of a block, as its `meta.json` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestry {
    /// 1 when written from the head, else one more than the highest of the blocks merged.
    pub level: u32,
    /// The oldest head block that went in: decides which of two equal timestamps wins.
    pub oldest_source: Ulid,
    /// All head blocks that went in, ascending.
    pub sources: Vec<Ulid>,
    /// Blocks that it was merged from, which it replaces.
    pub parents: Vec<Ulid>,
    /// Name of the set of blocks that a compaction split by series, if it is of one.
    pub split_set: Option<Ulid>,
    /// All blocks that this compaction wrote: they count only together.
    pub split_blocks: Vec<Ulid>,
    /// `compaction.failed`: it is not compacted.
    pub is_compaction_failed: bool,
}

impl BucketBlock {
    /// Identity of the block and of the blocks from the head in it.
    #[must_use]
    pub fn provenance(&self) -> Provenance<'_> {
        let Ancestry { sources, split_set, .. } = &self.ancestry;
        Provenance { ulid: self.ulid, sources, split_set: *split_set }
    }

    /// Returns true if all samples of `older` are in this block and those that were written together with it,
    /// by the same rule as [`crate::block::meta::BlockMeta::replaces`].
    #[must_use]
    pub fn replaces(&self, older: &BucketBlock) -> bool {
        self.ancestry.parents.contains(&older.ulid) || self.provenance().has_samples_of(older.provenance())
    }
}

/// Reason for refusing to write a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A block, or a deletion mark, is there twice.
    #[error("block {0} is listed twice")]
    Repeated(Ulid),
    /// A partition has two cuts.
    #[error("partition {0} of the log has two cuts")]
    RepeatedCut(PartitionId),
    /// The content is longer than readers accept.
    #[error("catalogue of {0} bytes before compression, at most {SNAPSHOT_RAW_BYTES_MAX}")]
    TooLong(usize),
}

impl Snapshot {
    /// Offset of the newest published cut of a partition, if there is one.
    #[must_use]
    pub fn cut_of(&self, partition: LogPartition) -> Option<u64> {
        self.cuts.iter().find(|cut| cut.partition == partition).map(|cut| cut.offset)
    }

    /// Sets the newest published cut of a partition.
    ///
    /// # Panics
    /// If the snapshot has this cut or a later one: its blocks are live already
    /// ([`chronolith_model::cut::may_publish`]).
    pub fn set_cut(&mut self, partition: LogPartition, offset: u64) {
        assert!(may_publish(self.cut_of(partition), offset), "blocks of a cut are published once");
        self.cuts.retain(|cut| cut.partition != partition);
        self.cuts.push(LogCut { partition, offset });
        self.cuts.sort_unstable_by_key(|cut| cut.partition);
    }

    /// Name of snapshot `number`, within the folder of the tenant.
    #[must_use]
    pub fn object_name(number: u64) -> String {
        <Snapshot as NumberedSnapshot>::name_of(number)
    }

    /// Returns the number of the snapshot with this name; `None` for other objects.
    #[must_use]
    pub fn number_of(object_name: &str) -> Option<u64> {
        <Snapshot as NumberedSnapshot>::number_in(object_name)
    }
}

impl NumberedSnapshot for Snapshot {
    const FOLDER: &'static str = FOLDER;
    const WHAT: &'static str = "catalogue snapshot";
    type EncodeError = EncodeError;

    fn empty() -> Snapshot {
        Snapshot {
            number: 0,
            writer: [0; 16],
            created_ms: 0,
            duplicates: DuplicatePolicy::default(),
            blocks: Vec::new(),
            deletion_marks: Vec::new(),
            cuts: Vec::new(),
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp { number: self.number, writer: self.writer, created_ms: self.created_ms }
    }

    fn set_stamp(&mut self, stamp: Stamp) {
        Stamp { number: self.number, writer: self.writer, created_ms: self.created_ms } = stamp;
    }

    fn encode_object(&self, folder: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.encode(folder, out)
    }

    fn decode_object(bytes: &[u8], key: SnapshotKey<'_>) -> Result<Snapshot, DecodeError> {
        Snapshot::decode(bytes, key)
    }
}

#[cfg(test)]
mod tests;
