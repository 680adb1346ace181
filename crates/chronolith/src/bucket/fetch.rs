//! Fetches the files of a block into a directory.
//!
//! Invariants: the block has its name only once all of its files are synced; a file has its name only once it
//! is complete, so another run keeps it. At most 4 parts of 8 MiB are in memory.
//! Not here: choice of the blocks (`download`, `verify`).

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chronolith_base::DiskFile;
use chronolith_block::{SUFFIX_CREATING, block_dir};
use chronolith_bucket::store::read::ReadRange;
use chronolith_model::TenantId;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::blocks::{BlockInBucket, BlockObject};
use super::context::Bucket;

/// Bytes of one request.
const PART_BYTES: u64 = 8 << 20;
/// Parts that are requested at the same time.
const PARTS_AT_ONCE: usize = 4;
/// Suffix of a file that is not complete.
const SUFFIX_PART: &str = ".part";

/// Name of the tombstones of a local block.
const TOMBSTONES: &str = "tombstones";

/// Files of a block that its readers need; marks and index headers of other programs are not among them. Of
/// several tombstones they are those that the catalogue names.
pub(super) fn files_of(block: &BlockInBucket) -> impl Iterator<Item = &BlockObject> {
    let tombstones = match &block.record {
        Some(record) => record.tombstones.as_ref().map(|object| object.name.as_str()),
        None => Some(TOMBSTONES),
    };
    block.objects.iter().filter(move |object| {
        let name = object.name.as_str();
        let is_segment = |number: &str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        ["meta.json", "index"].contains(&name)
            || name.strip_prefix("chunks/").is_some_and(is_segment)
            || tombstones == Some(name)
    })
}

/// Name of the file of an object in the directory of a block.
fn file_name(object: &BlockObject) -> &str {
    if object.name.starts_with(TOMBSTONES) { TOMBSTONES } else { &object.name }
}

/// Fetches `block` into a directory below `parent_dir`, which has the name of the block at the end.
/// `progress` gets the bytes of each part that has arrived, also of files that an earlier run has fetched.
pub(super) fn fetch_block(
    bucket: &Bucket,
    tenant: &TenantId,
    block: &BlockInBucket,
    parent_dir: &Path,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<PathBuf> {
    let disk = &bucket.env.disk;
    let name = block.ulid.to_string();
    let partial_dir = parent_dir.join(format!("{name}{SUFFIX_CREATING}"));
    let chunks_dir = partial_dir.join("chunks");
    disk.create_dir_all(&chunks_dir).with_context(|| format!("creating {}", chunks_dir.display()))?;
    for object in files_of(block) {
        let path = partial_dir.join(file_name(object));
        if is_complete(bucket, &path, object.bytes) {
            progress(object.bytes);
            continue;
        }
        fetch_file(
            bucket,
            tenant,
            &format!("{}/{}", bucket.block_key(tenant, block.ulid), object.name),
            object.bytes,
            &path,
            progress,
        )?;
    }
    let dir = block_dir(parent_dir, block.ulid);
    let synced = disk.sync_dir(&chunks_dir).and_then(|()| disk.sync_dir(&partial_dir));
    let renamed = synced.and_then(|()| disk.rename(&partial_dir, &dir));
    renamed
        .and_then(|()| disk.sync_dir(parent_dir))
        .with_context(|| format!("completing {}", dir.display()))?;
    Ok(dir)
}

/// Returns true if the file exists with this length.
pub(super) fn is_complete(bucket: &Bucket, path: &Path, bytes: u64) -> bool {
    bucket.env.disk.open_read(path).and_then(|file| file.len()).is_ok_and(|len| len == bytes)
}

fn fetch_file(
    bucket: &Bucket,
    tenant: &TenantId,
    key: &str,
    object_bytes: u64,
    path: &Path,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<()> {
    let disk = &bucket.env.disk;
    let mut partial = path.as_os_str().to_owned();
    partial.push(SUFFIX_PART);
    let partial = PathBuf::from(partial);
    let writing = || format!("writing {}", partial.display());
    let file = disk.create(&partial).with_context(writing)?;
    bucket.runtime.block_on(fetch_parts(bucket, tenant, key, object_bytes, &*file, progress))?;
    file.sync_data().and_then(|()| disk.rename(&partial, path)).with_context(writing)
}

async fn fetch_parts(
    bucket: &Bucket,
    tenant: &TenantId,
    key: &str,
    object_bytes: u64,
    file: &dyn DiskFile,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<()> {
    let parts = (0..object_bytes.div_ceil(PART_BYTES)).map(|idx| {
        let start = idx * PART_BYTES;
        start..object_bytes.min(start + PART_BYTES)
    });
    // Every part has to belong to one object: an ETag that differs shows that it was replaced meanwhile.
    let etag = match object_bytes {
        0 => None,
        _ => bucket.store.head(&bucket.request(tenant), key).await?.etag,
    };
    let etag = etag.as_deref();
    let reads = parts.map(|part| async move {
        let request = bucket.request(tenant);
        bucket.store.read(&request, key, ReadRange::Exact(part), etag).await
    });
    let mut reads = stream::iter(reads).buffered(PARTS_AT_ONCE);
    while let Some(part) = reads.try_next().await? {
        file.write_at(&part.bytes, part.offset).with_context(|| format!("writing the bytes of {key}"))?;
        progress(part.bytes.len() as u64);
    }
    Ok(())
}
