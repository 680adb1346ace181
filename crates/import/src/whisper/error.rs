//! Errors that end an import of whisper files.

use std::path::PathBuf;

use chronolith_block::BlockError;

use crate::ImportError;

/// Reason why an import ended early. Complete parts stay; running the import again resumes it.
#[derive(Debug, thiserror::Error)]
pub enum WhisperError {
    /// A directory cannot be listed.
    #[error("{path}: {error}")]
    Io {
        /// Directory.
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// There is no whisper file.
    #[error("{0} has no whisper files")]
    Empty(PathBuf),
    /// More files than one import takes.
    #[error("{path} has more than {limit} whisper files: import its directories one by one")]
    TooMany {
        /// Directory.
        path: PathBuf,
        /// Files at most.
        limit: usize,
    },
    /// The state of earlier imports, or a directory of our own.
    #[error("{0}")]
    Target(#[from] ImportError),
    /// A block cannot be written.
    #[error("{0}")]
    Block(#[from] BlockError),
    /// A block that was written cannot be read again.
    #[error("reading written blocks again: {0}")]
    Compare(String),
    /// A worker panicked.
    #[error("a worker of the import failed")]
    Worker,
}
