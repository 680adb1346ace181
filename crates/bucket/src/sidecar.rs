//! Head of the sidecar of a block in the bucket: found by its record or by its name, read in one request.
//!
//! Invariants: a sidecar of another block or with damage is refused; a head longer than the last bytes that
//! are read at first costs a second request.
//! Not here: the other parts of a sidecar (`block`), the reader that takes its place (`crate::block`).

use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use chronolith_block::source::{BlockFiles, TombstonesFile};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue;
use chronolith_format::bucket::sidecar::{SIDECAR_OBJECT, SUFFIX_BYTES, SidecarHead, head_len};

use crate::BucketError;
use crate::remote::Remote;
use crate::store::read::ReadRange;

/// Position of the sidecar of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SidecarPlace {
    /// Not known: it is looked for by its name.
    #[default]
    Unknown,
    /// The block has none.
    Nowhere,
    /// Recorded in the catalogue.
    Recorded {
        /// Size in bytes.
        len: u64,
        /// Bytes of the head, which are the last ones.
        head_len: u32,
    },
}

/// Objects of a block whose place a record may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockObjects {
    /// Its sidecar.
    pub sidecar: SidecarPlace,
    /// Its deletions, if there are later ones than those in the files of the block.
    pub tombstones: Option<TombstonesFile>,
}

impl BlockObjects {
    /// The objects that a record of the catalogue names.
    #[must_use]
    pub fn of_record(record: &catalogue::BucketBlock) -> BlockObjects {
        let sidecar = match record.sidecar {
            Some(sidecar) => SidecarPlace::Recorded { len: sidecar.len, head_len: sidecar.head_len },
            None => SidecarPlace::Nowhere,
        };
        let later = record.tombstones.as_ref();
        let tombstones = later.map(|object| TombstonesFile { name: object.name.clone(), len: object.len });
        BlockObjects { sidecar, tombstones }
    }
}

/// Head of a sidecar, with the lengths of all files of the block.
pub(crate) struct HeadRead {
    pub(crate) head: SidecarHead,
    pub(crate) files: BlockFiles,
}

/// Reason why a head could not be read.
pub(crate) enum HeadError {
    /// The sidecar cannot be used, whenever it is read.
    Damaged(String),
    /// The bucket does not answer.
    Bucket(BucketError),
}

/// Reads the head of the sidecar of block `ulid` below the key of `remote`; `None` if it has no sidecar.
pub(crate) async fn read_head(
    remote: &Remote,
    ulid: Ulid,
    objects: &BlockObjects,
    deadline_ns: u64,
) -> Result<Option<HeadRead>, HeadError> {
    let range = match objects.sidecar {
        SidecarPlace::Nowhere => return Ok(None),
        SidecarPlace::Unknown => ReadRange::Suffix(SUFFIX_BYTES),
        SidecarPlace::Recorded { len, head_len } => {
            ReadRange::Exact(len.saturating_sub(u64::from(head_len))..len)
        }
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
    let mut bytes = end.bytes;
    if head_start < end.offset {
        let range = ReadRange::Exact(head_start..end.offset);
        let before = remote.store.read(&request, &key, range, None).await.map_err(head_error)?.bytes;
        bytes = joined(&before, &bytes);
    }
    let head = SidecarHead::decode(&bytes).map_err(damaged)?;
    if head.block != ulid {
        return Err(HeadError::Damaged(format!("it is that of block {}", head.block)));
    }
    let dir = PathBuf::from(&remote.key);
    let files = BlockFiles::of_sidecar(dir, &head, end.object_bytes, objects.tombstones.clone());
    let files = files.ok_or_else(|| HeadError::Damaged("it names no index".to_owned()))?;
    Ok(Some(HeadRead { head, files }))
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
