//! Writes the blocks of `many-blocks`: one series, one sample each, by the crate's writer on a disk that does
//! not sync.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use chronolith_base::disk::{DirEntry, LockGuard, OpenDir};
use chronolith_base::{Disk, DiskFile, Env, Mapped, RealDisk};
use chronolith_block::{BlockSource, BlockWriter};
use chronolith_model::{Labels, TenantId, TimeRange};
use chronolith_tsdb::tenant_dir;

use super::{HOUR_MS, Shape};

/// The tenant with blocks of two hours.
pub(super) const ONE: &str = "one";
const DAY_MS: i64 = 24 * HOUR_MS;
/// Samples lie this far after the start of their block.
const INTO_MS: i64 = HOUR_MS;

/// Name of tenant `n`.
pub(super) fn tenant(n: usize) -> String {
    format!("tenant-{n:05}")
}

/// The sample of tenant `n`'s block of day `day`.
pub(super) fn day_sample(shape: Shape, n: usize, day: usize) -> (i64, usize) {
    (day_range(shape, day).start + INTO_MS, n * 1000 + day)
}

/// The sample of window `window` of [`ONE`].
pub(super) fn window_sample(shape: Shape, window: usize) -> (i64, usize) {
    (window_range(shape, window).start + INTO_MS, window)
}

fn day_range(shape: Shape, day: usize) -> TimeRange {
    let today = TimeRange::window_of(shape.now_ms, DAY_MS).start;
    let start = today - (shape.days - day) as i64 * DAY_MS;
    TimeRange::new(start, start + DAY_MS)
}

fn window_range(shape: Shape, window: usize) -> TimeRange {
    let today = TimeRange::window_of(shape.now_ms, DAY_MS).start;
    let start = today - (shape.windows - window) as i64 * 2 * HOUR_MS;
    TimeRange::new(start, start + 2 * HOUR_MS)
}

/// Writes all blocks below the data directory.
pub(super) fn fill(data_dir: &Path, shape: Shape) -> Result<()> {
    let env = Env { disk: Arc::new(UnsyncedDisk(RealDisk::new())), ..Env::real() };
    for n in 0..shape.tenants {
        let dir = tenant_dir(data_dir, &TenantId::new(&tenant(n))?.into());
        for day in 0..shape.days {
            put(&env, &dir, day_range(shape, day), day_sample(shape, n, day))?;
        }
    }
    let dir = tenant_dir(data_dir, &TenantId::new(ONE)?.into());
    for window in 0..shape.windows {
        put(&env, &dir, window_range(shape, window), window_sample(shape, window))?;
    }
    Ok(())
}

fn put(env: &Env, dir: &Path, range: TimeRange, (time_ms, value): (i64, usize)) -> Result<()> {
    let mut writer = BlockWriter::create(env, dir)?;
    let labels = Labels::from_pairs([("__name__", "m"), ("instance", "host-1"), ("job", "bench")]);
    writer.add_samples(&labels, &[time_ms], &[value as f64])?;
    writer.finish(BlockSource::head(range))?;
    Ok(())
}

/// Real files without syncs: what a benchmark writes need not survive a power cut.
struct UnsyncedDisk(RealDisk);

struct UnsyncedFile(Box<dyn DiskFile>);

impl DiskFile for UnsyncedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(out, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

struct UnsyncedDir;

impl OpenDir for UnsyncedDir {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for UnsyncedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(UnsyncedFile(self.0.create(path)?)))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(UnsyncedFile(self.0.open(path)?)))
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.read(path)
    }
    fn map(&self, path: &Path) -> io::Result<Mapped> {
        self.0.map(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.0.list(dir)
    }
    fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir_all(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }
    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }
    fn open_dir(&self, _dir: &Path) -> io::Result<Box<dyn OpenDir>> {
        Ok(Box::new(UnsyncedDir))
    }
    fn free_bytes(&self, path: &Path) -> Option<u64> {
        self.0.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.0.lock(path)
    }
    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.0.is_locked(path)
    }
}
