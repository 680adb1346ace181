//! Download of a block to the local disk, to be compacted there.
//!
//! Invariants: files have the sizes of the record, the tombstones those that it names; at most
//! [`PARTS_AT_ONCE`] parts are in memory. A directory of a download that failed is not complete.
//! Not here: the content of the files, which their readers verify (`block`).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_base::crc::crc32c;
use chronolith_block::source::BlockFile;
use chronolith_format::bucket::catalogue::BucketBlock;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::META;
use crate::cache::disk::FileVersions;
use crate::object_tags::ObjectTags;
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
/// [`BucketError::NotFound`] and [`BucketError::Corrupt`] if objects differ from the record.
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
    let index = Some(BlockFile::Index);
    let mut files =
        vec![(None, META.to_owned(), record.files.meta), (index, INDEX.to_owned(), record.files.index)];
    let segments = (0..).zip(&record.files.segments);
    files.extend(
        segments
            .map(|(idx, bytes)| (Some(BlockFile::Segment(idx)), format!("{CHUNKS}/{:06}", idx + 1), *bytes)),
    );
    let mut versions = FileVersions::default();
    versions.add_recorded_etags(record);
    let tags = ObjectTags::new(versions.etags().clone());
    let source = Source { store, request, tags: &tags };
    for (file, name, bytes) in files {
        let key = format!("{folder}/{name}");
        source.fetch_file(env, file, &key, bytes, &dir.join(name)).await?;
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

/// Objects of a block, from which files are made.
struct Source<'a> {
    store: &'a Store,
    request: &'a RequestContext,
    tags: &'a ObjectTags,
}

impl Source<'_> {
    /// Downloads an object to `path`. Each part is compared by the ETag of its answer: the bytes of another
    /// object would be stored in the block that is made of this one. `meta.json`, which is no file of reads,
    /// names its block.
    async fn fetch_file(
        &self,
        env: &Env,
        file: Option<BlockFile>,
        key: &str,
        file_bytes: u64,
        path: &Path,
    ) -> Result<(), DownloadError> {
        let created = env.disk.create(path);
        let out = created.map_err(|error| DownloadError::Disk { path: path.to_owned(), error })?;
        let starts = (0..file_bytes.div_ceil(PART_BYTES)).map(|idx| idx * PART_BYTES);
        let reads = starts.map(|start| {
            let range = ReadRange::Exact(start..file_bytes.min(start + PART_BYTES));
            self.store.read(self.request, key, range, None)
        });
        let mut reads = stream::iter(reads).buffered(PARTS_AT_ONCE);
        while let Some(part) = reads.try_next().await? {
            if part.object_bytes != file_bytes {
                let expected = file_bytes.to_string();
                let found = part.object_bytes.to_string();
                let key = key.to_owned();
                return Err(BucketError::Corrupt { key, what: "size", expected, found }.into());
            }
            if let Some(file) = file {
                self.tags.check(self.store, self.request, file, key, part.etag.as_deref()).await?;
            }
            let written = out.write_at(&part.bytes, part.offset);
            written.map_err(|error| DownloadError::Disk { path: path.to_owned(), error })?;
        }
        Ok(())
    }
}
