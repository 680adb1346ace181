//! Why a block cannot be written or opened.

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::DecodeError;
use chronolith_format::index::IndexWriteError;
use chronolith_format::meta::MetaError;
use chronolith_model::{QueryError, TimeRange};

/// Why a block cannot be written or opened.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The disk refused. Writing may be tried again once it has room; nothing of the block is left.
    #[error("{path}: {error}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// As the operating system says.
        error: io::Error,
    },
    /// Bytes are damaged; the block has to be restored or removed.
    #[error("{path}: {error}")]
    Corrupt {
        /// File.
        path: PathBuf,
        /// What, where, expected and found.
        error: DecodeError,
    },
    /// `meta.json` is damaged or from a newer version.
    #[error("{path}: {error}")]
    Meta {
        /// File.
        path: PathBuf,
        /// What is wrong.
        error: MetaError,
    },
    /// A chunk segment between others is not there.
    #[error("{path}: chunk segment is missing")]
    SegmentMissing {
        /// Where it should be.
        path: PathBuf,
    },
    /// More than the format can hold; write several blocks.
    #[error("{path}: {what} exceeds {limit}")]
    TooLarge {
        /// File.
        path: PathBuf,
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The samples do not lie in the window that the block is to cover, so readers would not look for them.
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

impl BlockError {
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
