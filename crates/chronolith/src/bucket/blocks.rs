//! Blocks of a tenant in the bucket: objects, `meta.json`, deletion mark, reason why queries leave them out.
//!
//! Invariant: the reasons equal the reasons in the server's listing.
//! Not here: printing (`ls`, `inspect`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use chronolith_bucket::snapshots::SnapshotReader;
use chronolith_bucket::store::list::ListOptions;
use chronolith_bucket::store::read::ReadRange;
use chronolith_bucket::{BucketError, BucketLayout, decode_meta, reason_left_out};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::bucket::catalogue::{self, Snapshot};
use chronolith_format::bucket::mimir::{DELETION_MARK, MARKERS_FOLDER, ThanosMeta, deletion_marker_of};
use chronolith_model::TenantId;

use super::context::Bucket;

const META: &str = "meta.json";

/// An object of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockObject {
    /// Name below the key of the block.
    pub(super) name: String,
    pub(super) bytes: u64,
}

/// A block as the bucket has it.
pub(super) struct BlockInBucket {
    pub(super) ulid: Ulid,
    pub(super) objects: Vec<BlockObject>,
    /// `None` if it is missing or damaged.
    pub(super) meta: Option<BlockMeta>,
    pub(super) thanos: Option<ThanosMeta>,
    /// Record of the catalogue of the tenant, if it has one that names the block.
    pub(super) record: Option<catalogue::BucketBlock>,
    pub(super) is_marked: bool,
    /// True without a `meta.json`: an upload that has not ended.
    pub(super) is_incomplete: bool,
    /// Reason why queries leave it out.
    pub(super) left_out: Option<String>,
}

impl BlockInBucket {
    /// Bytes of all objects.
    pub(super) fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }
}

/// Tenants of the bucket, ascending.
pub(super) fn tenants(bucket: &Bucket) -> anyhow::Result<Vec<TenantId>> {
    if *bucket.store.layout() != BucketLayout::Mimir {
        return Ok(vec![TenantId::anonymous()]);
    }
    let options = ListOptions { is_delimited: true, ..ListOptions::default() };
    let request = bucket.request(&TenantId::anonymous());
    let page = bucket.runtime.block_on(bucket.store.list(&request, &options));
    let page = page.context("listing the tenants; check the URL, the credentials and the right to list")?;
    let tenant = |key: &String| TenantId::new(key.trim_end_matches('/')).ok();
    Ok(page.prefixes.iter().filter_map(tenant).collect())
}

/// Names of the blocks of `tenant`, ascending. Cost: one request per 1000 blocks.
pub(super) fn ulids(bucket: &Bucket, tenant: &TenantId) -> anyhow::Result<Vec<Ulid>> {
    let keys = bucket.block_keys(tenant);
    let prefix = keys.prefix().to_owned();
    let options = ListOptions { prefix, is_delimited: true, ..ListOptions::default() };
    let page = bucket.runtime.block_on(bucket.store.list(&bucket.request(tenant), &options));
    let page = page.with_context(|| format!("listing the blocks of tenant {tenant}"))?;
    let ulid = |key: &String| keys.below(key)?.trim_end_matches('/').parse().ok();
    Ok(page.prefixes.iter().filter_map(ulid).collect())
}

/// Objects of a tenant that decide which of its blocks queries read.
pub(super) struct TenantMarks {
    /// Blocks whose deletion marker is in the folder of markers.
    pub(super) markers: BTreeSet<Ulid>,
    pub(super) catalogue: Option<Arc<Snapshot>>,
    /// Blocks of the catalogue.
    records: BTreeMap<Ulid, catalogue::BucketBlock>,
}

/// Reads the markers and the catalogue of `tenant`.
pub(super) fn marks(bucket: &Bucket, tenant: &TenantId) -> anyhow::Result<TenantMarks> {
    let prefix = format!("{tenant}/{}", MARKERS_FOLDER.trim_end_matches('/'));
    let options = ListOptions { prefix, is_delimited: true, ..ListOptions::default() };
    let page = bucket.runtime.block_on(bucket.store.list(&bucket.request(tenant), &options));
    let page = page.with_context(|| format!("listing the markers of tenant {tenant}"))?;
    let below = format!("{tenant}/");
    let marker = |key: &str| deletion_marker_of(key.strip_prefix(&below)?);
    let markers = page.objects.iter().filter_map(|object| marker(&object.key)).collect();
    let catalogue = catalogue(bucket, tenant)?;
    let recorded = catalogue.iter().flat_map(|snapshot| &snapshot.blocks);
    let records = recorded.map(|record| (record.ulid, record.clone())).collect();
    Ok(TenantMarks { markers, catalogue, records })
}

/// Newest catalogue snapshot of `tenant`.
pub(super) fn catalogue(bucket: &Bucket, tenant: &TenantId) -> anyhow::Result<Option<Arc<Snapshot>>> {
    let reader = SnapshotReader::new(bucket.store.clone(), bucket.env.clock.clone());
    let request = bucket.request(tenant);
    let latest = bucket.runtime.block_on(reader.read_latest(&request));
    let latest = latest.with_context(|| format!("reading the catalogue of tenant {tenant}"))?;
    Ok(latest.map(|latest| latest.snapshot))
}

impl TenantMarks {
    /// Blocks of the catalogue, ascending.
    pub(super) fn recorded(&self) -> impl Iterator<Item = Ulid> {
        self.records.keys().copied()
    }

    /// Returns true if the block waits for its removal.
    fn is_marked(&self, ulid: Ulid) -> bool {
        let mut marks = self.catalogue.iter().flat_map(|snapshot| &snapshot.deletion_marks);
        self.markers.contains(&ulid) || marks.any(|mark| mark.ulid == ulid)
    }

    /// Reason for which queries leave a block out; `own` is the reason that its own objects give. `has_mark`
    /// is true if a mark in its folder counts.
    fn left_out(&self, ulid: Ulid, has_mark: bool, own: Option<String>) -> Option<String> {
        let is_marked = has_mark || self.markers.contains(&ulid);
        match (&self.catalogue, self.records.contains_key(&ulid)) {
            (None, _) => is_marked.then(|| "marked for deletion".to_owned()).or(own),
            (Some(_), true) => own.map(|why| format!("queries over it fail: {why}")),
            (Some(_), false) if self.is_marked(ulid) => Some("marked for deletion".to_owned()),
            (Some(_), false) => Some("not in the catalogue".to_owned()),
        }
    }
}

/// Looks at one block. Cost: two requests.
pub(super) fn look(
    bucket: &Bucket,
    tenant: &TenantId,
    ulid: Ulid,
    marks: &TenantMarks,
) -> anyhow::Result<BlockInBucket> {
    let key = bucket.block_key(tenant, ulid);
    let options = ListOptions { prefix: key.clone(), ..ListOptions::default() };
    let page = bucket.runtime.block_on(bucket.store.list(&bucket.request(tenant), &options));
    let page = page.with_context(|| format!("listing the objects of block {key}"))?;
    let object = |key_of: &str, bytes| {
        Some(BlockObject { name: key_of.strip_prefix(&key)?.strip_prefix('/')?.to_owned(), bytes })
    };
    let objects: Vec<BlockObject> =
        page.objects.iter().filter_map(|found| object(&found.key, found.object_bytes)).collect();
    let is_marked = marks.is_marked(ulid) || objects.iter().any(|object| object.name == DELETION_MARK);
    let (meta, thanos, why) = match read_meta(bucket, tenant, &key)? {
        None => (None, None, Some("incomplete: it has no meta.json".to_owned())),
        Some(text) => match decode_meta(ulid, &text) {
            Ok((meta, thanos)) => {
                let why = reason_left_out(thanos.as_ref());
                (Some(meta), thanos, why)
            }
            Err(why) => (None, None, Some(format!("{META}: {why}"))),
        },
    };
    let is_incomplete = !objects.iter().any(|object| object.name == META);
    let record = marks.records.get(&ulid).cloned();
    let has_mark = bucket.store.layout().is_flat(&tenant.into()) && is_marked && record.is_none();
    let left_out = marks.left_out(ulid, has_mark, why);
    Ok(BlockInBucket { ulid, objects, meta, thanos, record, is_marked, is_incomplete, left_out })
}

/// Text of `meta.json`; `None` if the block has none.
fn read_meta(bucket: &Bucket, tenant: &TenantId, key: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let request = bucket.request(tenant);
    let key = format!("{key}/{META}");
    let read = bucket.store.read(&request, &key, ReadRange::Whole, None);
    match bucket.runtime.block_on(read) {
        Ok(read) => Ok(Some(read.bytes.to_vec())),
        Err(BucketError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {key}")),
    }
}
