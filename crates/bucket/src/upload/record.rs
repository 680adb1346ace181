//! Record of a block for the catalogue, and its `meta.json` in the bucket.

use std::collections::BTreeMap;

use bytes::Bytes;
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::block::rollup::{ROLLUPS_DIR, file_name};
use chronolith_format::bucket::catalogue::{
    Ancestry, BlockCounts, BlockFiles, BlockFolder, BucketBlock, EtagSums, RollupObject,
};
use chronolith_format::bucket::mimir::{ThanosFile, ThanosMeta};
use chronolith_format::bucket::sidecar::SIDECAR_OBJECT;

use super::local::{LocalBlock, LocalFile, META};
use crate::external_labels::ExternalLabels;

/// `meta.json` with the Thanos section, by which other programs know the files of the block. It gets the
/// external labels of `writer`; without one, those that the block has stay. `upload_time` is in RFC 3339.
///
/// Thanos takes a block for a duplicate if another one of the same labels has all its sources, so a block
/// that a compaction split by series is a source of its own there.
pub(super) fn meta_in_bucket(
    local: &LocalBlock,
    writer: Option<&ExternalLabels>,
    upload_time: String,
) -> Bytes {
    let listed = |name: &str, size_bytes| ThanosFile { rel_path: name.to_owned(), size_bytes };
    let is_own = |name: &str| name == SIDECAR_OBJECT || name.starts_with(ROLLUPS_DIR);
    let of_block = local.files.iter().filter(|file| !is_own(&file.name));
    let mut files: Vec<ThanosFile> = of_block.map(|file| listed(&file.name, file.len)).collect();
    files.push(listed(META, 0));
    files.sort_by(|a, b| a.rel_path.cmp(&b.rel_path));
    let mut thanos = local.thanos.clone().unwrap_or_else(|| ThanosMeta::of_upload(Vec::new()));
    thanos.files = files;
    thanos.segment_files = Vec::new();
    thanos.upload_time = upload_time;
    if let Some(writer) = writer {
        thanos.set_producer(writer.to_map());
    }
    let mut meta = local.meta.clone();
    if writer.is_some() && meta.compaction.split_set.is_some() {
        meta.compaction.sources.push(meta.ulid);
    }
    thanos.put_into(&mut meta);
    let mut text = Vec::new();
    meta.encode(&mut text);
    text.into()
}

/// The record of a block without tombstones; `meta_bytes` is the size of its `meta.json` in the bucket.
pub(super) fn record(local: &LocalBlock, meta_bytes: u64, uploaded_ms: i64) -> BucketBlock {
    let len_of = |file: &LocalFile| file.len;
    let files = BlockFiles {
        index: local.index().map_or(0, len_of),
        segments: local.segments().map(len_of).collect(),
        meta: meta_bytes,
        rollups: local.rollups.clone(),
    };
    BucketBlock { sidecar: local.sidecar, uploaded_ms, ..record_of_meta(&local.meta, files) }
}

/// ETags of the objects of a block, by the names of its files.
pub(super) fn etag_sums(local: &LocalBlock, etags: &BTreeMap<&str, u32>) -> EtagSums {
    let of_name = |name: &str| etags.get(name).copied().unwrap_or(0);
    let rollup = |object: &RollupObject| of_name(&format!("{ROLLUPS_DIR}/{}", file_name(object.span)));
    // Readers take a sum by the position of its file.
    assert_eq!(etags.len(), local.files.len(), "each file of a block was sent");
    EtagSums {
        index: local.index().map_or(0, |file| of_name(&file.name)),
        segments: local.segments().map(|file| of_name(&file.name)).collect(),
        rollups: local.rollups.iter().map(rollup).collect(),
        sidecar: of_name(SIDECAR_OBJECT),
    }
}

/// The record of a block without tombstones and sidecar, uploaded at an unknown time.
pub(super) fn record_of_meta(meta: &BlockMeta, files: BlockFiles) -> BucketBlock {
    let stats = &meta.stats;
    BucketBlock {
        ulid: meta.ulid,
        folder: BlockFolder::Mimir,
        time_unit: meta.time_unit(),
        range: meta.range(),
        counts: BlockCounts {
            series: stats.num_series,
            chunks: stats.num_chunks,
            samples: stats.num_samples,
            tombstones: stats.num_tombstones,
        },
        files,
        etags: EtagSums::default(),
        sidecar: None,
        tombstones: None,
        ancestry: ancestry(meta),
        uploaded_ms: 0,
    }
}

/// The blocks that a block was made of.
fn ancestry(meta: &BlockMeta) -> Ancestry {
    let compaction = &meta.compaction;
    let mut sources = compaction.sources.clone();
    sources.sort_unstable();
    let parents: Vec<Ulid> = compaction.parents.iter().map(|parent| parent.ulid).collect();
    Ancestry {
        level: compaction.level,
        oldest_source: sources.first().copied().unwrap_or(meta.ulid),
        sources,
        parents,
        split_set: compaction.split_set,
        split_blocks: compaction.split_blocks.clone(),
        is_compaction_failed: compaction.failed,
    }
}
