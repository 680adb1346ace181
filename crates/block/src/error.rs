//! Errors of writing and opening blocks.

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::DecodeError;
use chronolith_format::block::index::IndexWriteError;
use chronolith_format::block::meta::{MetaError, Ulid};
use chronolith_format::bucket::sidecar::SidecarError;
use chronolith_model::{QueryError, TimeRange};

/// Error of writing or opening a block.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// A disk operation failed. Writing may be tried again once the disk has room; nothing of the block is
    /// left.
    #[error("{path}: {error}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The source of its bytes failed.
    #[error("{0}")]
    Source(QueryError),
    /// Bytes are damaged; the block has to be restored or removed.
    #[error("{path}: {error}")]
    Corrupt {
        /// File.
        path: PathBuf,
        /// Item, offset, expected and found.
        error: DecodeError,
    },
    /// `meta.json` is damaged or from a newer version.
    #[error("{path}: {error}")]
    Meta {
        /// File.
        path: PathBuf,
        /// Field or version at fault.
        error: MetaError,
    },
    /// The files are not those that the block catalogue has recorded.
    #[error("{path}: {what}: expected {expected} as in the block catalogue, found {found}")]
    Mismatch {
        /// File, or the directory of chunk segments.
        path: PathBuf,
        /// Compared quantity.
        what: &'static str,
        /// In the catalogue.
        expected: i64,
        /// In the file.
        found: i64,
    },
    /// `meta.json` names another block than the directory does.
    #[error("{path}: expected the ULID of its directory, found {found}")]
    OtherBlock {
        /// `meta.json`.
        path: PathBuf,
        /// Name of that block.
        found: Ulid,
    },
    /// A chunk segment between others is missing.
    #[error("{path}: chunk segment is missing")]
    SegmentMissing {
        /// Expected path.
        path: PathBuf,
    },
    /// `meta.json` counts deleted intervals, but their file is missing. Restore the file, or set
    /// `numTombstones` in `meta.json` to 0 to have the deleted samples back.
    #[error(
        "{path}: tombstones file is missing, {count} deleted intervals expected: deleted samples would come back"
    )]
    TombstonesMissing {
        /// Expected path.
        path: PathBuf,
        /// Intervals that it had.
        count: u64,
    },
    /// Blocks that are being read leave no room for another one.
    #[error(
        "{path}: limit of open blocks reached: {maps_max} memory maps (open-block-maps) or {bytes_max} bytes (open-block-memory)"
    )]
    TooManyOpen {
        /// The block.
        path: PathBuf,
        /// Maps that all open blocks may take.
        maps_max: u64,
        /// Heap bytes that all open blocks may take.
        bytes_max: u64,
    },
    /// More than the format can hold; write several blocks.
    #[error("{path}: {what} exceeds {limit}")]
    TooLarge {
        /// File.
        path: PathBuf,
        /// Item that is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A series of the block cannot be in a sidecar; readers take it from the index.
    #[error("{path}: {error}")]
    Sidecar {
        /// Index of the block.
        path: PathBuf,
        /// Series and limit.
        error: SidecarError,
    },
    /// Samples are outside of the range that the block covers, so readers would not look for them.
    #[error("samples from {first} to {last} lie outside the block range {}..{}", range.start, range.end)]
    OutsideRange {
        /// First sample.
        first: i64,
        /// Last sample.
        last: i64,
        /// The window.
        range: TimeRange,
    },
}

/// Error numbers of Linux: too many open files (process, system), and no memory (no map left).
const EXHAUSTED: [i32; 3] = [24, 23, 12];

impl BlockError {
    /// Returns true if the block itself is at fault: trying again fails the same way.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            BlockError::Io { error, .. } => error.kind() == io::ErrorKind::NotFound,
            BlockError::Corrupt { .. }
            | BlockError::Meta { .. }
            | BlockError::Mismatch { .. }
            | BlockError::OtherBlock { .. }
            | BlockError::SegmentMissing { .. }
            | BlockError::TombstonesMissing { .. } => true,
            BlockError::Source(_)
            | BlockError::TooManyOpen { .. }
            | BlockError::TooLarge { .. }
            | BlockError::Sidecar { .. }
            | BlockError::OutsideRange { .. } => false,
        }
    }

    /// The file or directory at fault, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            BlockError::Io { path, .. }
            | BlockError::Corrupt { path, .. }
            | BlockError::Meta { path, .. }
            | BlockError::Mismatch { path, .. }
            | BlockError::OtherBlock { path, .. }
            | BlockError::SegmentMissing { path }
            | BlockError::TombstonesMissing { path, .. }
            | BlockError::TooManyOpen { path, .. }
            | BlockError::TooLarge { path, .. }
            | BlockError::Sidecar { path, .. } => Some(path),
            BlockError::Source(_) | BlockError::OutsideRange { .. } => None,
        }
    }

    /// Returns true if a file or directory of the block is missing.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, BlockError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// Returns true if the process is short of descriptors, maps or memory: it may be tried again later.
    #[must_use]
    pub fn is_exhaustion(&self) -> bool {
        let number = match self {
            BlockError::Io { error, .. } => error.raw_os_error(),
            _ => None,
        };
        number.is_some_and(|number| EXHAUSTED.contains(&number))
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> BlockError {
        let path = path.to_owned();
        move |error| BlockError::Io { path, error }
    }

    pub(crate) fn corrupt(path: &Path) -> impl FnOnce(DecodeError) -> BlockError {
        let path = path.to_owned();
        move |error| BlockError::Corrupt { path, error }
    }

    pub(crate) fn index(path: &Path) -> impl FnOnce(IndexWriteError) -> BlockError {
        let path = path.to_owned();
        move |error| match error {
            IndexWriteError::Io(error) => BlockError::Io { path, error },
            IndexWriteError::TooLarge { what, limit, .. } => BlockError::TooLarge { path, what, limit },
        }
    }
}

/// Damage met while answering a query.
pub(crate) fn query_error(path: &Path, error: &DecodeError) -> QueryError {
    QueryError::Corrupt { path: path.display().to_string(), what: error.to_string() }
}
