//! Head of the sidecar of a block in the bucket: found by the record of the block or, without a record, by
//! its name; read in one request, together with the rest of a sidecar that costs less than another request.
//!
//! Invariants: a sidecar of another block, of other files or with damage is refused; a head longer than the
//! last bytes that are read at first costs a second request.
//! Not here: the other parts of a sidecar (`block`), the reader that takes its place (`crate::block`).

use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use chronolith_base::DecodeError;
use chronolith_block::source::{BlockFile, BlockFiles, ByteRange, TombstonesFile};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BucketBlock, SidecarObject};
use chronolith_format::bucket::sidecar::{SIDECAR_OBJECT, SUFFIX_BYTES, SidecarFile, SidecarHead, head_len};
use chronolith_model::QueryError;

use crate::BucketError;
use crate::cache::disk::FileVersions;
use crate::cache::{CachedObjects, DiskCache};
use crate::remote::{Remote, RemoteFiles};
use crate::store::ObjectBytes;
use crate::store::read::ReadRange;

/// Head of a sidecar, with the lengths of all files of the block.
pub(crate) struct HeadRead {
    pub(crate) head: SidecarHead,
    pub(crate) files: BlockFiles,
    pub(crate) versions: FileVersions,
    /// Offset of `read`, which goes to the end of the sidecar.
    pub(crate) read_from: u64,
    pub(crate) read: Bytes,
}

/// Longest sidecar that is read as a whole.
const WHOLE_BYTES_MAX: f64 = (4 << 20) as f64;

/// Reason why a head could not be read.
pub(crate) enum HeadError {
    /// The sidecar cannot be used, whenever it is read.
    Damaged(String),
    /// The bucket does not answer.
    Bucket(BucketError),
}

/// Reads the head of the sidecar of block `ulid` below the key of `remote`; `None` if it has no sidecar.
/// `record` is the catalogue's record of the block, if there is one.
pub(crate) async fn read_head(
    remote: &Remote,
    ulid: Ulid,
    record: Option<&BucketBlock>,
    disk: Option<&Arc<DiskCache>>,
    deadline_ns: u64,
) -> Result<Option<HeadRead>, HeadError> {
    let range = match record.map(|record| record.sidecar) {
        None => ReadRange::Suffix(SUFFIX_BYTES),
        Some(None) => return Ok(None),
        Some(Some(place)) => {
            let is_whole = place.len as f64 <= remote.speed().latency_bytes().min(WHOLE_BYTES_MAX);
            let head_start = place.len.saturating_sub(u64::from(place.head_len));
            let start = if is_whole { 0 } else { head_start };
            ReadRange::Part { range: start..place.len, object_bytes: place.len }
        }
    };
    let key = format!("{}/{SIDECAR_OBJECT}", remote.key);
    let request = remote.request(deadline_ns);
    let cached = match (disk, record.and_then(|record| record.sidecar)) {
        (Some(disk), Some(place)) => Some(CachedHead::new(disk, remote, place)),
        _ => None,
    };
    let end = match read_end(remote, &key, range, cached.as_ref(), deadline_ns).await {
        Ok(end) => end,
        // A recorded one that is gone was removed with its block, or by someone else.
        Err(BucketError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(head_error(error)),
    };
    let damaged = |error: chronolith_base::DecodeError| HeadError::Damaged(error.to_string());
    let head_len = u64::from(head_len(&end.bytes).map_err(damaged)?);
    let head_start = end.object_bytes.saturating_sub(head_len);
    let mut read = end.bytes;
    let mut read_from = end.offset;
    if head_start < read_from {
        let range = ReadRange::Exact(head_start..read_from);
        let before = remote.store.read(&request, &key, range, None).await.map_err(head_error)?.bytes;
        read = joined(&before, &read);
        read_from = head_start;
    }
    let head = SidecarHead::decode(&read).map_err(damaged)?;
    if head.block != ulid {
        return Err(HeadError::Damaged(format!("it is that of block {}", head.block)));
    }
    let versions = versions(&head, record, &end.etag, end.object_bytes);
    let dir = PathBuf::from(&remote.key);
    let files = BlockFiles::of_sidecar(dir, &head, end.object_bytes);
    let files = files.ok_or_else(|| HeadError::Damaged("it names no index".to_owned()))?;
    let files = match record {
        Some(record) => recorded_files(files, record)?,
        None => files,
    };
    Ok(Some(HeadRead { head, files, versions, read_from, read }))
}

/// Reads the head of the local sidecar of block `ulid` from the cache; `None` if that does not have all of
/// it, or it is damaged.
///
/// # Errors
/// [`QueryError::Canceled`] if the runtime ends.
pub(crate) async fn read_local_head(
    files: &RemoteFiles,
    ulid: Ulid,
    deadline_ns: u64,
) -> Result<Option<SidecarHead>, QueryError> {
    let Some(end) = files.sidecar_bytes() else { return Ok(None) };
    let mut bytes = SUFFIX_BYTES;
    // The trailer has the length of a head that is longer.
    for _ in 0..2 {
        let range = ByteRange { file: BlockFile::Sidecar, start: end.saturating_sub(bytes), end };
        let found = match files.read_exact(range, deadline_ns).await {
            Ok(found) => found,
            Err(QueryError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        match SidecarHead::decode(&found) {
            Ok(head) => return Ok(Some(head).filter(|head| head.block == ulid && head.is_of_index_alone())),
            Err(DecodeError::Short { needed, .. }) if needed as u64 > bytes => bytes = needed as u64,
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// Head of a sidecar in the cache directory, which the catalogue records.
struct CachedHead {
    objects: Arc<CachedObjects>,
    place: SidecarObject,
}

impl CachedHead {
    fn new(disk: &Arc<DiskCache>, remote: &Remote, place: SidecarObject) -> CachedHead {
        let mut versions = FileVersions::default();
        versions.add_checksum(BlockFile::Sidecar, place.len, place.crc);
        let files = BlockFiles::new(PathBuf::from(&remote.key), 0, Vec::new());
        let objects = CachedObjects::new(disk, &remote.folder(disk.bucket()), &files, &versions);
        CachedHead { objects, place }
    }

    fn range(&self) -> ByteRange {
        let SidecarObject { len, head_len, .. } = self.place;
        ByteRange { file: BlockFile::Sidecar, start: len.saturating_sub(u64::from(head_len)), end: len }
    }

    /// `None` unless the directory has all of it.
    async fn read(&self) -> Option<ObjectBytes> {
        let range = self.range();
        let (cached, _) = self.objects.split(&[range]);
        let part = self.objects.read(cached).await.ok()?.0.pop();
        let bytes = part.filter(|part| part.bytes.len() as u64 == range.len())?.bytes;
        Some(ObjectBytes { bytes, offset: range.start, etag: None, object_bytes: range.end })
    }
}

/// Reads the last bytes of a sidecar, from the cache directory if it has them.
async fn read_end(
    remote: &Remote,
    key: &str,
    range: ReadRange,
    cached: Option<&CachedHead>,
    deadline_ns: u64,
) -> Result<ObjectBytes, BucketError> {
    if let Some(cached) = cached
        && let Some(end) = cached.read().await
    {
        return Ok(end);
    }
    let end = remote.store.read(&remote.request(deadline_ns), key, range, None).await?;
    if let Some(cached) = cached {
        let start = end.offset;
        let read = ByteRange { file: BlockFile::Sidecar, start, end: start + end.bytes.len() as u64 };
        cached.objects.write(read, &end.bytes);
    }
    Ok(end)
}

/// Versions of the files that a head describes.
fn versions(
    head: &SidecarHead,
    record: Option<&BucketBlock>,
    etag: &Option<String>,
    object_bytes: u64,
) -> FileVersions {
    let mut versions = FileVersions::default();
    for sum in &head.files {
        let file = match sum.file {
            SidecarFile::Index => BlockFile::Index,
            SidecarFile::Segment(idx) => BlockFile::Segment(idx),
            // Deletions may change without the block; they are a few bytes.
            SidecarFile::Tombstones | SidecarFile::Meta => continue,
        };
        versions.add_sum(file, sum, record);
    }
    match record.and_then(|record| record.sidecar) {
        Some(place) => versions.add_checksum(BlockFile::Sidecar, place.len, place.crc),
        None => versions.add_etag(BlockFile::Sidecar, object_bytes, etag.as_deref()),
    }
    if let Some(tombstones) = record.and_then(|record| record.tombstones.as_ref()) {
        versions.add_checksum(BlockFile::Tombstones, tombstones.len, tombstones.crc);
    }
    versions
}

/// The files with the deletions of the record, which may be later than the sidecar.
fn recorded_files(files: BlockFiles, record: &BucketBlock) -> Result<BlockFiles, HeadError> {
    let is_same_block = files.len(BlockFile::Index) == Some(record.files.index)
        && files.segment_lens() == record.files.segments.as_slice();
    if !is_same_block {
        return Err(HeadError::Damaged("it has other sizes of files than the catalogue".to_owned()));
    }
    if record.tombstones.is_none() && record.counts.tombstones > 0 {
        return Err(HeadError::Damaged("the deletions of the catalogue are missing".to_owned()));
    }
    let tombstones = record.tombstones.as_ref();
    let tombstones = tombstones.map(|object| TombstonesFile { name: object.name.clone(), len: object.len });
    Ok(files.with_tombstones(tombstones))
}

fn joined(before: &[u8], after: &[u8]) -> Bytes {
    let mut joined = BytesMut::with_capacity(before.len() + after.len());
    joined.extend_from_slice(before);
    joined.extend_from_slice(after);
    joined.freeze()
}

/// An object that is not as described is damage; the index may be read nevertheless.
fn head_error(error: BucketError) -> HeadError {
    match error {
        BucketError::Corrupt { .. }
        | BucketError::Refused { .. }
        | BucketError::Denied { .. }
        | BucketError::NotFound { .. }
        | BucketError::Changed { .. } => HeadError::Damaged(error.to_string()),
        other => HeadError::Bucket(other),
    }
}
