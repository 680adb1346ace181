//! Cache directory: byte ranges of objects on local disk, found again after a restart. A log of segments; the
//! oldest one is evicted, and its entries that were read are written again (FIFO with reinsertion).
//!
//! Invariants: the files never have more than `bytes_max` bytes; bytes that fail a checksum are a miss; an
//! error of the disk turns the cache off, and fails no query. Bytes that were fetched before a damaged range
//! was removed are not written after that.
//! Not here: bytes of a segment (`format`), memory (`cache`), requests for missing ranges
//! (`remote::through`).

mod counters;
mod index;
mod keys;
mod log;
mod queue;
mod recover;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use chronolith_base::disk::Disk;
use chronolith_format::bucket::cache_segment::{decode_entry, entry_len};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use counters::Counters;
pub use counters::DiskCacheSnapshot;
use index::{FoundEntry, Index};
pub(crate) use keys::{FileVersions, ObjectFolder};
use log::{Geometry, SegmentLog};
use queue::{QueuedWrite, WriteQueue};

/// File that the process with the directory holds.
const LOCK_FILE: &str = "lock";

/// Options of a cache directory.
#[derive(Debug, Clone)]
pub struct DiskCacheOptions {
    /// Directory, which is the cache's own.
    pub dir: PathBuf,
    /// Bytes of its files at most.
    pub bytes_max: u64,
    /// Name of the bucket: a directory may have served another one before.
    pub bucket: String,
}

/// Ranges of objects in a directory.
pub struct DiskCache {
    bucket: String,
    bytes_max: u64,
    index: Mutex<Index>,
    /// Held while segments are written.
    log: Mutex<SegmentLog>,
    queue: WriteQueue,
    counters: Counters,
    is_off: AtomicBool,
    handle: Handle,
}

impl DiskCache {
    /// Opens the cache in the directory of `options`; reads the tables of its segments. Writes run on the
    /// runtime of `handle`.
    ///
    /// # Errors
    /// `WouldBlock` if another process uses the directory; else as the disk returns.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: &DiskCacheOptions,
        handle: Handle,
    ) -> io::Result<Arc<DiskCache>> {
        let geometry = Geometry::new(options.bytes_max);
        DiskCache::open_with(disk, &options.dir, geometry, &options.bucket, handle)
    }

    fn open_with(
        disk: Arc<dyn Disk>,
        dir: &Path,
        geometry: Geometry,
        bucket: &str,
        handle: Handle,
    ) -> io::Result<Arc<DiskCache>> {
        disk.create_dir_all(dir)?;
        let lock = disk.lock(&dir.join(LOCK_FILE))?;
        let recovered = recover::recover(&*disk, dir, &geometry)?;
        let counters = Counters::default();
        counters.damages.store(recovered.damages, Ordering::Relaxed);
        let log = SegmentLog::new(disk, dir, geometry, recovered.closed, lock);
        counters.file_bytes.store(log.file_bytes(), Ordering::Relaxed);
        Ok(Arc::new(DiskCache {
            bucket: bucket.to_owned(),
            bytes_max: geometry.bytes_max,
            index: Mutex::new(recovered.index),
            log: Mutex::new(log),
            queue: WriteQueue::default(),
            counters,
            is_off: AtomicBool::new(false),
            handle,
        }))
    }

    /// Returns the sub-ranges of `start..end` that the directory lacks.
    pub(super) fn gaps(&self, key: &str, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.index.lock().gaps(key, start, end)
    }

    /// Returns the end of the last range of an object that the directory has.
    pub(super) fn end_of(&self, key: &str) -> Option<u64> {
        self.index.lock().end_of(key)
    }

    /// Bytes of its files at most; 0 after an error of the disk.
    pub(crate) fn bytes_max(&self) -> u64 {
        if self.is_off.load(Ordering::Relaxed) { 0 } else { self.bytes_max }
    }

    /// Reads a range; `None` unless all of its bytes are there and sound. Waits for the disk.
    pub(super) fn read(&self, key: &str, start: u64, end: u64) -> Option<Bytes> {
        let mut entries = self.index.lock().find(key, start, end);
        let mut out = Vec::with_capacity(usize::try_from(end.checked_sub(start)?).ok()?);
        let mut entry_bytes = Vec::new();
        for entry in entries.drain(..) {
            let at = start + out.len() as u64;
            if entry.start > at {
                return None;
            }
            let bytes = self.read_entry(&entry, &mut entry_bytes)?;
            let from = usize::try_from(at - entry.start).ok()?;
            let until = usize::try_from(end.min(entry.end()) - entry.start).ok()?;
            out.extend_from_slice(bytes.get(from..until)?);
        }
        if out.len() as u64 != end - start {
            return None;
        }
        self.counters.note_hit(out.len() as u64);
        Some(out.into())
    }

    /// Reads the bytes of an entry to `out`; removes the entry if they are not sound.
    fn read_entry<'a>(&self, entry: &FoundEntry, out: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        out.resize(usize::try_from(entry_len(&entry.key, entry.len)).ok()?, 0);
        match entry.file.read_at(out, u64::from(entry.offset)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => {
                self.turn_off(&error);
                return None;
            }
        }
        let is_same = |found: &chronolith_format::bucket::cache_segment::Entry<'_>| {
            found.key == &*entry.key && found.start == entry.start && found.bytes.len() == entry.len as usize
        };
        let found = decode_entry(out).ok().filter(is_same).map(|found| found.bytes);
        if found.is_none() {
            self.counters.damages.fetch_add(1, Ordering::Relaxed);
            self.index.lock().remove_range(&entry.key, entry.start, entry.end());
        }
        found
    }

    /// Writes a range in the background; drops it if too many bytes wait.
    pub(super) fn write(self: &Arc<DiskCache>, key: &Arc<str>, start: u64, bytes: &Bytes) {
        if bytes.is_empty() || self.is_off.load(Ordering::Relaxed) {
            return;
        }
        let removal_count = self.index.lock().removal_count();
        let write = QueuedWrite { key: key.clone(), start, bytes: bytes.clone(), removal_count };
        let queued = self.queue.push(write);
        self.counters.dropped_writes.fetch_add(u64::from(!queued.is_kept), Ordering::Relaxed);
        if queued.needs_writer {
            let cache = self.clone();
            self.handle.spawn_blocking(move || cache.write_queued());
        }
    }

    /// Writes a range, and waits for it. Returns false if the directory lacks some of it then.
    pub(super) fn write_and_wait(&self, key: &Arc<str>, start: u64, bytes: &Bytes) -> bool {
        let removal_count = self.index.lock().removal_count();
        self.write_one(&QueuedWrite { key: key.clone(), start, bytes: bytes.clone(), removal_count });
        self.gaps(key, start, start + bytes.len() as u64).is_empty()
    }

    /// Writes until nothing waits.
    fn write_queued(&self) {
        while let Some(write) = self.queue.pop() {
            self.write_one(&write);
        }
    }

    fn write_one(&self, write: &QueuedWrite) {
        if self.is_off.load(Ordering::Relaxed) {
            return;
        }
        let mut log = self.log.lock();
        if let Err(error) = self.write_now(&mut log, write) {
            self.turn_off(&error);
        }
        self.counters.file_bytes.store(log.file_bytes(), Ordering::Relaxed);
    }

    /// Writes what of a range is not in the directory yet, in pieces.
    fn write_now(&self, log: &mut SegmentLog, write: &QueuedWrite) -> io::Result<()> {
        let QueuedWrite { key, start, bytes, removal_count } = write;
        let gaps = self.index.lock().gaps(key, *start, start + bytes.len() as u64);
        for (gap_start, gap_end) in gaps {
            let mut at = gap_start;
            while at < gap_end {
                let end = gap_end.min(at + log.piece_bytes_max().max(1));
                let range = (at - start) as usize..(end - start) as usize;
                let piece = bytes.get(range).unwrap_or_default();
                let len = piece.len() as u32;
                if !log.has_room(key, len, false) {
                    self.start_segment(log)?;
                }
                if !log.has_room(key, len, false) {
                    return Ok(());
                }
                // Bytes that were fetched before a damaged range was removed may be damaged as well.
                if self.index.lock().removal_count() != *removal_count {
                    return Ok(());
                }
                let position = log.append(key, at, piece)?;
                let mut index = self.index.lock();
                if index.removal_count() != *removal_count {
                    return Ok(());
                }
                index.insert(key, at, len, position);
                self.counters.written_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
                at = end;
            }
        }
        Ok(())
    }

    /// Begins the next segment, and removes the oldest ones until one more would fit.
    fn start_segment(&self, log: &mut SegmentLog) -> io::Result<()> {
        let (number, file) = log.start_segment()?;
        self.index.lock().add_segment(number, file);
        while let Some(oldest) = log.excess() {
            let kept = self.index.lock().worth_keeping(oldest);
            self.reinsert(log, kept)?;
            let evicted = self.index.lock().remove_segment(oldest);
            self.counters.evictions.fetch_add(evicted, Ordering::Relaxed);
            log.remove_oldest()?;
        }
        Ok(())
    }

    /// Copies entries of a segment that goes to the active one, of which half stays free.
    fn reinsert(&self, log: &mut SegmentLog, entries: Vec<FoundEntry>) -> io::Result<()> {
        let mut buffer = Vec::new();
        for entry in entries {
            if !log.has_room(&entry.key, entry.len, true) {
                continue;
            }
            let Some(bytes) = self.read_entry(&entry, &mut buffer) else { continue };
            let position = log.append(&entry.key, entry.start, bytes)?;
            self.index.lock().move_entry(&entry, position);
        }
        Ok(())
    }

    /// Removes ranges, as a reader found them damaged.
    pub(super) fn remove_range(&self, key: &str, start: u64, end: u64) {
        self.index.lock().remove_range(key, start, end);
    }

    /// Removes all objects of a folder, as one of them is damaged.
    pub(crate) fn remove_folder(&self, folder: &ObjectFolder) {
        self.index.lock().remove_objects(folder.prefix());
    }

    /// Counts ranges that have to be requested.
    pub(super) fn note_misses(&self, count: usize) {
        self.counters.note_misses(count);
    }

    /// Runtime whose threads read and write.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Bucket whose objects it has.
    pub(crate) fn bucket(&self) -> &str {
        &self.bucket
    }

    fn turn_off(&self, error: &io::Error) {
        if !self.is_off.swap(true, Ordering::Relaxed) {
            *self.index.lock() = Index::default();
            tracing::error!(%error, "disk of the cache directory failed, going on without it until a restart");
        }
    }

    /// Counters.
    #[must_use]
    pub fn snapshot(&self) -> DiskCacheSnapshot {
        let index = self.index.lock();
        let mut snapshot = self.counters.snapshot();
        snapshot.is_on = !self.is_off.load(Ordering::Relaxed);
        snapshot.entry_count = index.entry_count();
        snapshot.index_bytes = index.heap_bytes();
        snapshot.waiting_bytes = self.queue.bytes();
        snapshot
    }
}
