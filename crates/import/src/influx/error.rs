//! Errors that end an import from InfluxDB.

use std::path::PathBuf;

use chronolith_block::BlockError;

use crate::ImportError;

/// Reason why an import ended early. Complete shards stay; running the import again resumes it.
#[derive(Debug, thiserror::Error)]
pub enum InfluxError {
    /// A directory or a file cannot be used.
    #[error("{path}: {error}")]
    Io {
        /// Directory or file.
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// `meta.db` is damaged.
    #[error(
        "{path}: {what}; without meta.db (--meta-dir DIR of an empty directory) databases are named by \
             their directories"
    )]
    Meta {
        /// File.
        path: PathBuf,
        /// Reason.
        what: String,
    },
    /// There is no data directory of InfluxDB.
    #[error("{0} has neither shards nor a meta.db of InfluxDB")]
    Empty(PathBuf),
    /// The state of earlier imports, or a directory of our own.
    #[error("{0}")]
    Target(#[from] ImportError),
    /// A block cannot be written.
    #[error("{0}")]
    Block(#[from] BlockError),
}
