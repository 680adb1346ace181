//! Lock of the data directory: one process has it open.
//!
//! Not here: the files below it.

use std::path::Path;
use std::time::Duration;

use chronolith_base::Env;
use chronolith_base::disk::LockGuard;

use crate::options::OpenError;

/// Name of the lock file in the data directory.
const LOCK_FILE: &str = "lock";
/// Time that a start waits for the lock of a process that is just stopping.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(50);

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
