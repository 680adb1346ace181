//! The query log: one line of JSON in a file for each query that was evaluated, with Prometheus's field
//! names.
//! Invariants: the file is opened again by a reload, so that it can be rotated; a line that cannot be written
//! is counted and delays no other query. Not here: the slow query log (`slow`).

use std::path::{Path, PathBuf};

use chronolith_base::{Disk, DiskFile};
use parking_lot::Mutex;

use crate::counter::Counter;

/// The file of `query.log-file`, and a count of lines that could not be written.
#[derive(Default)]
pub struct QueryLog {
    path: Option<PathBuf>,
    file: Mutex<Option<Box<dyn DiskFile>>>,
    /// Lines that could not be written.
    pub failures: Counter,
}

impl QueryLog {
    /// A log that is not opened yet; `None` is one that is off.
    pub fn new(path: Option<PathBuf>) -> QueryLog {
        QueryLog { path, ..QueryLog::default() }
    }

    /// Returns true if queries are logged.
    pub fn is_on(&self) -> bool {
        self.path.is_some()
    }

    /// Opens the file, or opens it again after it was renamed.
    ///
    /// # Errors
    /// Names the file. Lines go to the file that was open before.
    pub fn open(&self, disk: &dyn Disk) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let opened = open_or_create(disk, path);
        let opened = opened.map_err(|error| format!("query.log-file {}: {error}", path.display()))?;
        *self.file.lock() = Some(opened);
        Ok(())
    }

    /// Appends a line.
    pub fn write(&self, mut line: String) {
        line.push('\n');
        let file = self.file.lock();
        let Some(file) = &*file else { return };
        // The length is read each time: rotation by copying truncates the file.
        let written = file.len().and_then(|len| file.write_at(line.as_bytes(), len));
        if let Err(error) = written {
            if self.failures.get() == 0 {
                tracing::error!(%error, "writing the query log failed; further failures are only counted (chronolith_query_log_failures_total)");
            }
            self.failures.add(1);
        }
    }
}

fn open_or_create(disk: &dyn Disk, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
    match disk.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => disk.create(path),
        opened => opened,
    }
}
