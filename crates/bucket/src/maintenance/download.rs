//! Download of a block to the local disk, to be compacted there.
//!
//! Invariants: files have the sizes of the record, the tombstones those that it names; at most
//! [`PARTS_AT_ONCE`] parts are in memory. A directory of a download that failed is not complete.
//! Not here: the content of the files, which their readers verify (`block`).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_base::crc::crc32c;
use chronolith_format::bucket::catalogue::BucketBlock;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::META;
use crate::store::read::ReadRange;
use crate::{BucketError, RequestContext, Store};

/// Bytes of one request.
const PART_BYTES: u64 = 8 << 20;
/// Parts that are requested at the same time.
const PARTS_AT_ONCE: usize = 4;
const INDEX: &str = "index";
const CHUNKS: &str = "chunks";
const TOMBSTONES: &str = "tombstones";

/// Reason why a block was not downloaded.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The bucket.
    #[error("{0}")]
    Bucket(#[from] BucketError),
    /// The local disk.
    #[error("writing {path}: {error}")]
    Disk {
        /// File or directory.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
}

/// Downloads the block of `record` to the directory with its name below `parent_dir`, which it returns. Files
/// are written on the calling thread and not synced.
///
/// Cost: a request per 8 MiB of each file.
///
/// # Errors
/// [`BucketError::NotFound`] and [`BucketError::Corrupt`] if objects are not those of the record.
pub async fn download_block(
    store: &Store,
    env: &Env,
    request: &RequestContext,
    record: &BucketBlock,
    parent_dir: &Path,
) -> Result<PathBuf, DownloadError> {
    let dir = parent_dir.join(record.ulid.to_string());
    let chunks = dir.join(CHUNKS);
    env.disk.create_dir_all(&chunks).map_err(|error| DownloadError::Disk { path: chunks, error })?;
    let folder = store.layout().block_keys(&request.folder).of_block(record.ulid);
    let segments = (1..).zip(&record.files.segments);
    let mut files = vec![(META.to_owned(), record.files.meta), (INDEX.to_owned(), record.files.index)];
    files.extend(segments.map(|(number, bytes)| (format!("{CHUNKS}/{number:06}"), *bytes)));
    for (name, bytes) in files {
        fetch_file(store, env, request, &format!("{folder}/{name}"), bytes, &dir.join(name)).await?;
    }
    if let Some(object) = &record.tombstones {
        let key = format!("{folder}/{}", object.name);
        let body = store.read(request, &key, ReadRange::Whole, None).await?.bytes;
        let found = (body.len() as u64, crc32c(&body));
        if found != (object.len, object.crc) {
            let expected = format!("{} bytes with CRC {:08x}", object.len, object.crc);
            let found = format!("{} bytes with CRC {:08x}", found.0, found.1);
            return Err(BucketError::Corrupt { key, what: "tombstones", expected, found }.into());
        }
        let path = dir.join(TOMBSTONES);
        let written = env.disk.create(&path).and_then(|file| file.write_at(&body, 0));
        written.map_err(|error| DownloadError::Disk { path, error })?;
    }
    Ok(dir)
}

async fn fetch_file(
    store: &Store,
    env: &Env,
    request: &RequestContext,
    key: &str,
    file_bytes: u64,
    path: &Path,
) -> Result<(), DownloadError> {
    let file = env.disk.create(path).map_err(|error| DownloadError::Disk { path: path.to_owned(), error })?;
    let starts = (0..file_bytes.div_ceil(PART_BYTES)).map(|idx| idx * PART_BYTES);
    let reads = starts.map(|start| {
        let range = ReadRange::Exact(start..file_bytes.min(start + PART_BYTES));
        store.read(request, key, range, None)
    });
    let mut reads = stream::iter(reads).buffered(PARTS_AT_ONCE);
    while let Some(part) = reads.try_next().await? {
        if part.object_bytes != file_bytes {
            let expected = file_bytes.to_string();
            let found = part.object_bytes.to_string();
            return Err(BucketError::Corrupt { key: key.to_owned(), what: "size", expected, found }.into());
        }
        let written = file.write_at(&part.bytes, part.offset);
        written.map_err(|error| DownloadError::Disk { path: path.to_owned(), error })?;
    }
    Ok(())
}
