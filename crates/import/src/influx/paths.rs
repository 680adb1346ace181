//! Directories of an InfluxDB, and the target of a store.

use std::path::{Path, PathBuf};

/// Database with the metrics of InfluxDB itself.
pub(crate) const INTERNAL_DATABASE: &str = "_internal";

/// Directories of an InfluxDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfluxPaths {
    /// Directory of databases with TSM files.
    pub data_dir: PathBuf,
    /// Directory of databases with WAL segments.
    pub wal_dir: PathBuf,
    /// Directory of `meta.db`.
    pub meta_dir: PathBuf,
}

impl InfluxPaths {
    /// The directories below `dir` in InfluxDB's own layout.
    #[must_use]
    pub fn below(dir: &Path) -> InfluxPaths {
        InfluxPaths { data_dir: dir.join("data"), wal_dir: dir.join("wal"), meta_dir: dir.join("meta") }
    }
}

/// Target of the points of one shard.
#[derive(Debug, Clone)]
pub struct StoreTarget {
    /// Directory of the blocks of the store.
    pub blocks_dir: PathBuf,
    /// File that lists the imported files of the store. Its directory is created if it is missing.
    pub state_path: PathBuf,
}
