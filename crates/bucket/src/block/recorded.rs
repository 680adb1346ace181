//! Objects of a block by its record in the catalogue: no request for `meta.json`, no listing.

use std::path::PathBuf;

use chronolith_block::source::{BlockFile, BlockFiles, TombstonesFile};
use chronolith_format::block::meta::{BlockDesc, BlockMeta, BlockStats, Compaction, VERSION};
use chronolith_format::bucket::catalogue::BucketBlock;

use crate::cache::disk::FileVersions;

/// Objects of a block.
pub(super) struct BlockObjects {
    pub(super) meta: BlockMeta,
    pub(super) files: BlockFiles,
    pub(super) versions: FileVersions,
    /// File with its deletions; `None` without any.
    pub(super) tombstones: Option<TombstonesFile>,
    /// False if it is known that there is none.
    pub(super) has_sidecar: bool,
}

/// Objects of the block below `key`.
pub(super) fn objects(record: &BucketBlock, key: &str) -> BlockObjects {
    let files = &record.files;
    let mut versions = FileVersions::default();
    versions.add_recorded(BlockFile::Index, files.index, record);
    for (idx, len) in (0..).zip(&files.segments) {
        versions.add_recorded(BlockFile::Segment(idx), *len, record);
    }
    if let Some(tombstones) = &record.tombstones {
        versions.add_checksum(BlockFile::Tombstones, tombstones.len, tombstones.crc);
    }
    versions.add_recorded_etags(record);
    BlockObjects {
        meta: meta(record),
        files: BlockFiles::new(PathBuf::from(key), files.index, files.segments.clone()),
        has_sidecar: record.sidecar.is_some(),
        versions,
        tombstones: record
            .tombstones
            .as_ref()
            .map(|object| TombstonesFile { name: object.name.clone(), len: object.len }),
    }
}

/// The part of `meta.json` that the record has.
fn meta(record: &BucketBlock) -> BlockMeta {
    let counts = &record.counts;
    let ancestry = &record.ancestry;
    // The range of parents is in their own `meta.json`; nothing reads it from here.
    let parent = |ulid: &_| BlockDesc { ulid: *ulid, min_time: 0, max_time: 0 };
    let mut meta = BlockMeta {
        ulid: record.ulid,
        min_time: 0,
        max_time: 0,
        stats: BlockStats {
            num_samples: counts.samples,
            num_series: counts.series,
            num_chunks: counts.chunks,
            num_tombstones: counts.tombstones,
            ..BlockStats::default()
        },
        compaction: Compaction {
            level: ancestry.level,
            sources: ancestry.sources.clone(),
            failed: ancestry.is_compaction_failed,
            parents: ancestry.parents.iter().map(parent).collect(),
            split_set: ancestry.split_set,
            split_blocks: ancestry.split_blocks.clone(),
            ..Compaction::default()
        },
        version: VERSION,
        chronolith: None,
        unknown: Default::default(),
    };
    meta.set_range(record.time_unit, record.range);
    meta
}
