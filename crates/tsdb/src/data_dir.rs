//! Data directory: created durably, locked by one process.
//!
//! Invariants: the names of all created directories are durable before the storage uses them.
//! Not here: the files below it.

use std::path::Path;
use std::time::Duration;

use chronolith_base::disk::LockGuard;
use chronolith_base::{Disk, Env};

use crate::options::OpenError;

/// Name of the lock file in the data directory.
const LOCK_FILE: &str = "lock";
/// Time that a start waits for the lock of a process that is just stopping.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// Makes `dir` and the missing directories above it, durably.
///
/// # Errors
/// As the disk reports.
pub(crate) fn make_dir(disk: &dyn Disk, dir: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|path| !disk.exists(path)).collect();
    disk.create_dir_all(dir)?;
    // The parent of an existing `dir` is synced, too: a process may have ended between making and syncing it.
    for parent in std::iter::once(dir).chain(missing).filter_map(Path::parent) {
        // The parent of a relative path of one part has the empty name.
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        disk.sync_dir(parent)?;
    }
    Ok(())
}

/// Returns true if a process has the data directory open.
///
/// # Errors
/// As the operating system reports.
pub fn is_data_dir_locked(env: &Env, data_dir: &Path) -> std::io::Result<bool> {
    env.disk.is_locked(&data_dir.join(LOCK_FILE))
}

/// Takes the lock of a data directory, which keeps other Chronolith processes out of it until it is dropped.
/// For tools that change a directory which no server has open.
///
/// # Errors
/// [`OpenError::Locked`] if another process keeps the lock for longer than a stop takes.
pub fn lock_data_dir(env: &Env, data_dir: &Path) -> Result<Box<dyn LockGuard>, OpenError> {
    let path = data_dir.join(LOCK_FILE);
    let mut waited = Duration::ZERO;
    loop {
        match env.disk.lock(&path) {
            Ok(lock) => return Ok(lock),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && waited < LOCK_WAIT => {
                env.clock.sleep(LOCK_RETRY);
                waited += LOCK_RETRY;
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                return Err(OpenError::Locked(data_dir.to_owned()));
            }
            Err(error) => return Err(OpenError::Io { path, error }),
        }
    }
}
