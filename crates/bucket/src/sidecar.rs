//! Head of the sidecar of a block in the bucket: found by the record of the block or, without a record, by
//! its name; read in one request, together with the rest of a sidecar that costs less than another request.
//!
//! Invariants: a sidecar of another block, of other files or with damage is refused; a head longer than the
//! last bytes that are read at first costs a second request.
//! Not here: the other parts of a sidecar (`block`), the reader that takes its place (`crate::block`).

use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use chronolith_block::source::{BlockFile, BlockFiles, TombstonesFile};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::BucketBlock;
use chronolith_format::bucket::sidecar::{SIDECAR_OBJECT, SUFFIX_BYTES, SidecarHead, head_len};

use crate::BucketError;
use crate::remote::Remote;
use crate::store::read::ReadRange;

/// Head of a sidecar, with the lengths of all files of the block.
pub(crate) struct HeadRead {
    pub(crate) head: SidecarHead,
    pub(crate) files: BlockFiles,
    /// What was read of the sidecar, from this offset to its end.
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
/// `record` is that of the catalogue, if the block has one.
pub(crate) async fn read_head(
    remote: &Remote,
    ulid: Ulid,
    record: Option<&BucketBlock>,
    deadline_ns: u64,
) -> Result<Option<HeadRead>, HeadError> {
    let range = match record.map(|record| record.sidecar) {
        None => ReadRange::Suffix(SUFFIX_BYTES),
        Some(None) => return Ok(None),
        Some(Some(place)) if place.len as f64 <= remote.speed().latency_bytes().min(WHOLE_BYTES_MAX) => {
            ReadRange::Exact(0..place.len)
        }
        Some(Some(place)) => ReadRange::Exact(place.len.saturating_sub(u64::from(place.head_len))..place.len),
    };
    let key = format!("{}/{SIDECAR_OBJECT}", remote.key);
    let request = remote.request(deadline_ns);
    let end = match remote.store.read(&request, &key, range, None).await {
        Ok(end) => end,
        // A recorded one that is gone was removed with its block, or by someone else.
        Err(BucketError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(head_error(error)),
    };
    let damaged = |error: chronolith_base::DecodeError| HeadError::Damaged(error.to_string());
    let head_len = u64::from(head_len(&end.bytes).map_err(damaged)?);
    let head_start = end.object_bytes.saturating_sub(head_len);
    let (mut read, mut read_from) = (end.bytes, end.offset);
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
    let dir = PathBuf::from(&remote.key);
    let files = BlockFiles::of_sidecar(dir, &head, end.object_bytes);
    let files = files.ok_or_else(|| HeadError::Damaged("it names no index".to_owned()))?;
    let files = match record {
        Some(record) => recorded_files(files, record)?,
        None => files,
    };
    Ok(Some(HeadRead { head, files, read_from, read }))
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
