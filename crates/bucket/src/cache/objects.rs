//! Files of one block in the cache directory.
//!
//! Invariant: a file of which no version is known is not in the directory.
//! Not here: requests to the bucket for missing ranges (`remote::round`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use chronolith_block::source::{BlockFile, BlockFiles, ByteRange, FetchedPart, coalesce};
use chronolith_model::QueryError;
use tokio::runtime::Handle;

use super::disk::{DiskCache, FileVersions, ObjectFolder};

/// Files of one block of which versions are known, in the cache directory.
pub(crate) struct CachedObjects {
    cache: Arc<DiskCache>,
    keys: BTreeMap<BlockFile, Arc<str>>,
}

impl CachedObjects {
    pub(crate) fn new(
        cache: &Arc<DiskCache>,
        folder: &ObjectFolder,
        files: &BlockFiles,
        versions: &FileVersions,
    ) -> Arc<CachedObjects> {
        let keys = folder.keys(versions, |file| files.name(file));
        Arc::new(CachedObjects { cache: cache.clone(), keys })
    }

    /// Splits `ranges` into those that the directory has, joined where they touch, and the rest.
    pub(crate) fn split(&self, ranges: &[ByteRange]) -> (Vec<ByteRange>, Vec<ByteRange>) {
        let mut cached = Vec::new();
        let mut missing = Vec::new();
        for range in ranges {
            let gaps = match self.keys.get(&range.file) {
                Some(key) => self.cache.gaps(key, range.start, range.end),
                None => vec![(range.start, range.end)],
            };
            let mut at = range.start;
            for (start, end) in gaps {
                cached.push(ByteRange { start: at, end: start, ..*range });
                missing.push(ByteRange { start, end, ..*range });
                at = end;
            }
            cached.push(ByteRange { start: at, ..*range });
        }
        cached.retain(|range| !range.is_empty());
        coalesce(&mut cached, 0);
        self.cache.note_misses(missing.len());
        (cached, missing)
    }

    /// Writes the bytes of a range in the background.
    pub(crate) fn write(&self, range: ByteRange, bytes: &Bytes) {
        if let Some(key) = self.keys.get(&range.file) {
            self.cache.write(key, range.start, bytes);
        }
    }

    /// Writes the bytes of a range, and waits for it. Returns false if the directory lacks some of it then.
    pub(crate) fn write_and_wait(&self, range: ByteRange, bytes: &Bytes) -> bool {
        self.keys.get(&range.file).is_some_and(|key| self.cache.write_and_wait(key, range.start, bytes))
    }

    /// Returns the end of the last range of `file` that the directory has.
    pub(crate) fn end_of(&self, file: BlockFile) -> Option<u64> {
        self.cache.end_of(self.keys.get(&file)?)
    }

    /// Returns true if the version of `file` is known, so that the directory may have it.
    pub(crate) fn has_version(&self, file: BlockFile) -> bool {
        self.keys.contains_key(&file)
    }

    /// Returns true if the directory has all of `range`.
    pub(crate) fn has(&self, range: ByteRange) -> bool {
        let key = self.keys.get(&range.file);
        key.is_some_and(|key| self.cache.gaps(key, range.start, range.end).is_empty())
    }

    /// Removes ranges that a reader found damaged.
    pub(crate) fn remove_ranges(&self, ranges: &[ByteRange]) {
        for range in ranges {
            if let Some(key) = self.keys.get(&range.file) {
                self.cache.remove_range(key, range.start, range.end);
            }
        }
    }

    /// Runtime whose threads read the directory.
    pub(crate) fn handle(&self) -> &Handle {
        self.cache.handle()
    }

    /// Reads a range; `None` unless the directory has it. Waits for the disk.
    pub(crate) fn read_now(&self, range: ByteRange) -> Option<Bytes> {
        self.cache.read(self.keys.get(&range.file)?, range.start, range.end)
    }

    /// Reads ranges; those that cannot be read are returned as well.
    ///
    /// # Errors
    /// [`QueryError::Canceled`] if the runtime ends.
    pub(crate) async fn read(
        self: &Arc<CachedObjects>,
        ranges: Vec<ByteRange>,
    ) -> Result<(Vec<FetchedPart>, Vec<ByteRange>), QueryError> {
        if ranges.is_empty() {
            return Ok(Default::default());
        }
        let objects = self.clone();
        let read = move || {
            let mut parts = Vec::new();
            let mut failed = Vec::new();
            for range in ranges {
                match objects.read_now(range) {
                    Some(bytes) => parts.push(FetchedPart { file: range.file, start: range.start, bytes }),
                    None => failed.push(range),
                }
            }
            (parts, failed)
        };
        self.cache.handle().spawn_blocking(read).await.map_err(|_| QueryError::Canceled)
    }
}
