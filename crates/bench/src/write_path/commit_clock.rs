//! The real disk with a stopwatch on the log: how long each commit takes, from its first write to the end of
//! its sync.
//! Holds: measured outside of the store, so that binaries of all versions are measured alike.
//! Not here: what a batch waits besides (`writer`).

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use chronolith_base::disk::{DirEntry, LockGuard};
use chronolith_base::{Disk, DiskFile, Mapped, RealDisk};
use chronolith_format::wal::FRAME_HEADER_BYTES;

/// Durations of commits.
#[derive(Default)]
pub(super) struct CommitClock {
    commit_us: Mutex<Vec<u32>>,
}

impl CommitClock {
    /// Durations of the commits since the last call, in microseconds.
    pub(super) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.commit_us.lock().expect("no thread panics while it adds a number")
    }
}

/// See the module.
pub(super) struct TimedDisk {
    inner: RealDisk,
    clock: Arc<CommitClock>,
}

impl TimedDisk {
    /// The real disk; `clock` measures the commits.
    pub(super) fn new(clock: Arc<CommitClock>) -> TimedDisk {
        TimedDisk { inner: RealDisk::new(), clock }
    }

    fn timed(&self, path: &Path, inner: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let is_log = path.parent().is_some_and(|dir| dir.ends_with("wal"));
        let clock = self.clock.clone();
        if is_log { Box::new(TimedFile { inner, clock, started: Mutex::new(None) }) } else { inner }
    }
}

/// A file of the log's directory. Commits are writes of frames; headers and the zeros of prepared segments
/// are none.
struct TimedFile {
    inner: Box<dyn DiskFile>,
    clock: Arc<CommitClock>,
    started: Mutex<Option<Instant>>,
}

impl TimedFile {
    fn started(&self) -> MutexGuard<'_, Option<Instant>> {
        self.started.lock().expect("no thread panics while it sets a time")
    }
}

impl DiskFile for TimedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let has_frames = offset > 0 && bytes.iter().take(FRAME_HEADER_BYTES).any(|&byte| byte != 0);
        if has_frames {
            self.started().get_or_insert_with(Instant::now);
        }
        self.inner.write_at(bytes, offset)
    }
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(out, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.inner.allocate(len)
    }
    fn start_writeback(&self) {
        self.inner.start_writeback();
    }
    fn sync_data(&self) -> io::Result<()> {
        let done = self.inner.sync_data();
        if let Some(started) = self.started().take() {
            self.clock.lock().push(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        done
    }
}

impl Disk for TimedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.timed(path, self.inner.create(path)?))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.timed(path, self.inner.open(path)?))
    }
    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.inner.open_read(path)
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inner.read(path)
    }
    fn map(&self, path: &Path) -> io::Result<Mapped> {
        self.inner.map(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }
    fn exists(&self, path: &Path) -> bool {
        self.inner.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.hard_link(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }
    fn free_bytes(&self, path: &Path) -> Option<u64> {
        self.inner.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path)
    }
}
