//! Objects of a block without a record in a catalogue: its folder is listed, and `meta.json` and both ends of
//! the index are read at the same time, as most such blocks have no sidecar.
//!
//! Invariants: a block that lacks its index or a chunk segment is unavailable; ends of the index are used
//! only if they belong to an index of the listed length.
//! Not here: blocks of a catalogue (`recorded`), the header that is made of both ends (`crate::block`).

use std::path::PathBuf;

use bytes::Bytes;
use chronolith_block::source::{BlockFile, BlockFiles, TombstonesFile};
use chronolith_block::{INDEX_END_BYTES, INDEX_START_BYTES};
use chronolith_format::block::meta::BlockMeta;
use chronolith_format::block::tombstones;
use chronolith_format::bucket::sidecar::SIDECAR_OBJECT;
use chronolith_model::QueryError;

use super::recorded::BlockObjects;
use crate::cache::disk::FileVersions;
use crate::object_tags::ObjectTags;
use crate::remote::{Remote, query_error};
use crate::store::ObjectBytes;
use crate::store::list::{ListOptions, ListedObject};
use crate::store::read::ReadRange;

const META: &str = "meta.json";
const TOMBSTONES: &str = "tombstones";
const INDEX: &str = "index";
const CHUNKS: &str = "chunks/";

/// Part of an index, from an offset on.
pub(super) struct IndexPart {
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

/// Reads the objects that opening the block needs, below the key of `remote`: `meta.json` unless `known_meta`
/// has it, and both ends of its index only if `reads_index`.
///
/// # Errors
/// [`QueryError::Unavailable`], [`QueryError::Corrupt`] if `meta.json` is damaged.
pub(super) async fn objects(
    remote: &Remote,
    known_meta: Option<BlockMeta>,
    reads_index: bool,
    deadline_ns: u64,
) -> Result<(BlockObjects, Vec<IndexPart>), QueryError> {
    let options = ListOptions { prefix: remote.key.clone(), ..ListOptions::default() };
    let request = remote.request(deadline_ns);
    let listed = remote.store.list(&request, &options);
    let ends = async {
        match reads_index {
            true => read_ends(remote, deadline_ns).await,
            false => Vec::new(),
        }
    };
    let meta = async {
        match known_meta {
            Some(meta) => Ok(meta),
            None => read_meta(remote, deadline_ns).await,
        }
    };
    let (meta, listed, ends) = futures_util::future::join3(meta, listed, ends).await;
    let listed = listed.map_err(query_error)?;
    let objects = block_objects(&remote.key, meta?, &listed.objects)?;
    let index_bytes = objects.files.len(BlockFile::Index);
    let tags = ObjectTags::new(objects.versions.etags().clone());
    let is_of_listing = |end: &ObjectBytes| {
        let is_compared = objects.versions.etags().contains_key(&BlockFile::Index);
        Some(end.object_bytes) == index_bytes
            && (!is_compared || tags.is_known(BlockFile::Index, end.etag.as_deref()))
    };
    let ends: Vec<IndexPart> = ends
        .into_iter()
        .filter(is_of_listing)
        .map(|end| IndexPart { start: end.offset, bytes: end.bytes })
        .collect();
    Ok((objects, ends))
}

/// Reads both ends of the index. They only save a round, so the reads that follow report failures.
async fn read_ends(remote: &Remote, deadline_ns: u64) -> Vec<ObjectBytes> {
    let key = remote.key_of(INDEX);
    let request = remote.request(deadline_ns);
    let read = |range| remote.store.read(&request, &key, range, None);
    let start = read(ReadRange::Prefix(INDEX_START_BYTES));
    let (start, end) = futures_util::future::join(start, read(ReadRange::Suffix(INDEX_END_BYTES))).await;
    [start, end].into_iter().filter_map(Result::ok).collect()
}

/// Objects of the block below `key`, of which `listed` are in its folder.
fn block_objects(key: &str, meta: BlockMeta, listed: &[ListedObject]) -> Result<BlockObjects, QueryError> {
    let find = |name: &str| listed.iter().find(|object| name_below(key, object) == Some(name));
    let len_of = |name: &str| find(name).map(|object| object.object_bytes);
    let mut versions = FileVersions::default();
    let mut add_version = |file: BlockFile| {
        if let Some(object) = find(&file.name()) {
            versions.add_etag(file, object.object_bytes, object.etag.as_deref());
        }
    };
    add_version(BlockFile::Index);
    add_version(BlockFile::Tombstones);
    let mut segments = Vec::new();
    for number in 1..=listed.len() {
        let Some(len) = len_of(&format!("{CHUNKS}{number:06}")) else { break };
        segments.push(len);
        add_version(BlockFile::Segment(number as u32 - 1));
    }
    let is_segment =
        |object: &&ListedObject| name_below(key, object).is_some_and(|name| name.starts_with(CHUNKS));
    versions
        .add_etag_alone(BlockFile::Sidecar, find(SIDECAR_OBJECT).and_then(|object| object.etag.as_deref()));
    let segment_count = listed.iter().filter(is_segment).count();
    let lacks_segments = segments.len() < segment_count || (segments.is_empty() && meta.stats.num_chunks > 0);
    let Some(index_bytes) = len_of(INDEX).filter(|_| !lacks_segments) else {
        let what = format!("block {key} is incomplete: its index or a chunk segment is missing");
        return Err(QueryError::Unavailable { what });
    };
    // Prometheus writes the file also without deletions; one without intervals is not worth a request.
    let has_deletions = |len: &u64| *len != tombstones::EMPTY_BYTES || meta.stats.num_tombstones > 0;
    let tombstones = len_of(TOMBSTONES).filter(has_deletions);
    let tombstones = tombstones.map(|len| TombstonesFile { name: TOMBSTONES.to_owned(), len });
    Ok(BlockObjects {
        meta,
        has_sidecar: len_of(SIDECAR_OBJECT).is_some(),
        files: BlockFiles::new(PathBuf::from(key), index_bytes, segments),
        versions,
        tombstones,
    })
}

/// Name of an object below the folder `key`.
fn name_below<'a>(key: &str, object: &'a ListedObject) -> Option<&'a str> {
    object.key.strip_prefix(key)?.strip_prefix('/')
}

/// Reads `meta.json`, once more if it is damaged: the transfer may have caused the damage.
async fn read_meta(remote: &Remote, deadline_ns: u64) -> Result<BlockMeta, QueryError> {
    let read = async || {
        let text = remote.read_whole(META, deadline_ns).await.map_err(query_error)?;
        BlockMeta::decode(&text).map_err(|error| {
            let path = format!("{}/{META}", remote.key);
            QueryError::Corrupt { path, what: error.to_string() }
        })
    };
    match read().await {
        Err(QueryError::Corrupt { .. }) => read().await,
        result => result,
    }
}
