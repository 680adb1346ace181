//! Imports the data directory of a stopped Prometheus, or a copy of one, into blocks of a tenant, also the
//! directory of a stopped InfluxDB 1.x (`influx`) and Graphite's whisper files (`whisper`).
//!
//! Blocks are copied unchanged. The head (m-mapped chunks, checkpoint, WAL, WBL) becomes blocks in one pass
//! that bypasses our own head and WAL (ADR 0018).
//! Invariants: samples that are left out are counted in the report; an interrupted or repeated import stores
//! no sample twice.
//! Not here: the bytes of the files (`format`), locking the data directory (the caller).

mod collect;
mod import;
pub mod influx;
mod read;
pub mod whisper;
mod write;

use std::path::PathBuf;

use chronolith_base::Env;
use chronolith_block::BlockError;
use chronolith_model::BlockEncoding;

pub use read::walk::{LogEntry, walk_logs};
pub use write::report::{DAMAGES_NAMED_MAX, Damage, HeadCounts, ImportReport, SkippedSamples};

use import::Import;
use read::data_dir::DataDir;

/// Source and target of an import.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Prometheus's data directory.
    pub source: PathBuf,
    /// Directory of the tenant's blocks.
    pub blocks_dir: PathBuf,
    /// File that lists the imported blocks and segments of this tenant. Its directory is created if it is
    /// missing.
    pub state_path: PathBuf,
    /// Encoding of the blocks that are made of the head.
    pub encoding: BlockEncoding,
}

/// Progress of an import, in bytes of the source.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Bytes that have been read.
    pub done_bytes: u64,
    /// Bytes that will be read.
    pub total_bytes: u64,
}

/// Reason why an import ended early. Complete blocks stay; running the import again resumes it.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A directory or a file of our own cannot be used.
    #[error("{path}: {error}")]
    Io {
        /// Directory or file.
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The state of earlier imports is damaged.
    #[error("{path}: {what}; move it away to import everything again")]
    State {
        /// File.
        path: PathBuf,
        /// Reason.
        what: String,
    },
    /// The source is not a data directory of Prometheus.
    #[error("{0} has neither blocks nor a WAL of Prometheus")]
    Empty(PathBuf),
    /// A block cannot be written.
    #[error("{0}")]
    Block(#[from] BlockError),
    /// The reading thread panicked.
    #[error("reading the Prometheus WAL failed")]
    Reader,
}

/// Imports `options.source`. `progress` is called every few megabytes.
///
/// # Errors
/// [`ImportError`]. Damage in the source is not an error: it is listed in the report.
pub fn run(
    env: &Env,
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportReport, ImportError> {
    let source =
        DataDir::list(env, &options.source).map_err(|(path, error)| ImportError::Io { path, error })?;
    if source.blocks.is_empty() && source.head_bytes() == 0 {
        return Err(ImportError::Empty(options.source.clone()));
    }
    Import::begin(env, options, progress)?.run(&source)
}
