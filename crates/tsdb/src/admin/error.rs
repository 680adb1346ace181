//! Error of an admin request.
//!
//! Not here: HTTP status codes (`server`).

use chronolith_block::{BlockError, CompactError, DeleteError};
use chronolith_head::HeadError;
use chronolith_model::QueryError;

use crate::maintenance::flush::writer::FlushError;

/// Error of an admin request. Steps before the failure stay done; the request may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The series cannot be found, or samples cannot be read.
    #[error("{0}")]
    Read(#[from] QueryError),
    /// A block cannot be written.
    #[error("{0}")]
    Block(#[from] BlockError),
    /// The head cannot be read or flushed.
    #[error("head: {0}")]
    Head(#[from] HeadError),
    /// A chunk of the head is damaged.
    #[error("chunk of the head: {0}")]
    Chunk(#[from] chronolith_base::DecodeError),
    /// A block cannot be rewritten.
    #[error("{0}")]
    Compact(#[from] CompactError),
    /// A disk operation failed.
    #[error("{path}: {error}")]
    Io {
        /// File or directory.
        path: std::path::PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// Rewriting a block needs more disk space than is free.
    #[error("too little free space to rewrite block {0}")]
    NoSpace(chronolith_format::block::meta::Ulid),
    /// The bucket did not answer, or others change it at the same time.
    #[error("bucket: {0}")]
    Bucket(String),
    /// The database catalogue cannot be written.
    #[error("{0}")]
    Catalog(String),
    /// The database is closing.
    #[error("the store is closed")]
    Closed,
}

impl From<DeleteError> for AdminError {
    fn from(error: DeleteError) -> AdminError {
        match error {
            DeleteError::Read(error) => AdminError::Read(error),
            DeleteError::Write(error) => AdminError::Block(error),
        }
    }
}

impl From<FlushError> for AdminError {
    fn from(error: FlushError) -> AdminError {
        match error {
            FlushError::Head(error) => AdminError::Head(error),
            FlushError::Block(error) => AdminError::Block(error),
            FlushError::Chunk(error) => AdminError::Chunk(error),
            FlushError::Io(error) => AdminError::Io { path: "tenants".into(), error },
        }
    }
}
