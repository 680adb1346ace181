//! Stopwatch on the log: duration of each commit, from its first write to the end of its sync.
//! Not here: other waits of a batch (`writer`).

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use chronolith_format::head::wal::FRAME_HEADER_BYTES;

use crate::observed_disk::{DiskObserver, FileObserver};

/// Durations of commits, for an [`crate::observed_disk::ObservedDisk`].
#[derive(Default, Clone)]
pub(super) struct CommitClock {
    commit_ms: Arc<Mutex<Vec<f64>>>,
}

impl CommitClock {
    /// Durations of the commits since the last call, in milliseconds.
    pub(super) fn take(&self) -> Vec<f64> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<f64>> {
        self.commit_ms.lock().expect("no thread panics while it adds a number")
    }
}

impl DiskObserver for CommitClock {
    fn observe_file(&self, path: &Path) -> Option<Box<dyn FileObserver>> {
        let is_log = path.parent().is_some_and(|dir| dir.ends_with("wal"));
        is_log.then(|| {
            Box::new(CommitTimer { clock: self.clone(), started: Mutex::new(None) }) as Box<dyn FileObserver>
        })
    }
}

/// Times the commits of one file of the log's directory. Commits are writes of frames; headers and the zeros
/// of prepared segments are none.
struct CommitTimer {
    clock: CommitClock,
    started: Mutex<Option<Instant>>,
}

impl CommitTimer {
    fn started(&self) -> MutexGuard<'_, Option<Instant>> {
        self.started.lock().expect("no thread panics while it sets a time")
    }
}

impl FileObserver for CommitTimer {
    fn writes(&self, bytes: &[u8], offset: u64) {
        if offset > 0 && bytes.iter().take(FRAME_HEADER_BYTES).any(|&byte| byte != 0) {
            self.started().get_or_insert_with(Instant::now);
        }
    }

    fn synced(&self) {
        if let Some(started) = self.started().take() {
            self.clock.lock().push(started.elapsed().as_secs_f64() * 1e3);
        }
    }
}
