//! A source of bytes and the waves that are read from it.

use std::sync::Arc;

use chronolith_base::MemoryBudget;
use chronolith_model::QueryError;

use super::fetched::{FetchedBatch, FetchedRanges, Reread};
use super::mapped::MappedFiles;
use super::range::{BlockFile, BlockFiles, ByteRange};

/// Rounds of a wave at most: ranges as named, longer chunks, chunks that these refer to, longer ones of
/// those.
pub const ROUND_COUNT_MAX: usize = 4;

/// Items of a block that are read together.
pub trait Wave: Send + Sync {
    /// Appends the ranges of all items, from the facts known before the wave is read. A range may be shorter
    /// than its item where the length is only known on average.
    fn ranges(&self, out: &mut Vec<ByteRange>);

    /// Appends the ranges that `fetched` shows to be missing: items that are longer than their ranges, and
    /// items that others refer to.
    fn missing(&self, fetched: &FetchedRanges, out: &mut Vec<ByteRange>);
}

/// Index and chunk segments of one block.
pub trait ByteSource: Send + Sync {
    /// Paths and lengths of the files.
    fn files(&self) -> &BlockFiles;

    /// Reads the items of `wave`. Bytes after the end of a file are left out: decoding finds them missing.
    /// Memory of copies is reserved from `budget` until the bytes are dropped.
    ///
    /// # Errors
    /// [`QueryError::Io`] if a file cannot be read, [`QueryError::Memory`] without room in the budget.
    fn read(&self, wave: &dyn Wave, budget: &MemoryBudget) -> Result<RangeBytes, QueryError>;

    /// Bytes that one wave should read at most; `None` if a wave copies nothing.
    fn wave_bytes_max(&self) -> Option<u64>;

    /// Returns true if bytes that the source returned are in use and keep files open.
    fn has_readers(&self) -> bool;
}

/// Bytes of a wave. Cheap to clone; they stay readable whatever becomes of the block.
#[derive(Clone)]
pub enum RangeBytes {
    /// All bytes of the files.
    Mapped(Arc<MappedFiles>),
    /// The ranges of the wave.
    Fetched(Arc<FetchedRanges>),
}

impl RangeBytes {
    /// Bytes of a file from `offset` on that are in memory.
    #[must_use]
    pub fn at(&self, file: BlockFile, offset: u64) -> &[u8] {
        match self {
            RangeBytes::Mapped(files) => files.at(file, offset),
            RangeBytes::Fetched(ranges) => ranges.at(file, offset),
        }
    }

    /// Bytes that were copied into memory for it; 0 for a map.
    #[must_use]
    pub fn fetched_bytes(&self) -> u64 {
        match self {
            RangeBytes::Mapped(_) => 0,
            RangeBytes::Fetched(ranges) => ranges.byte_count(),
        }
    }

    /// Reads items of `wave` once more, as one of them failed its checksum; `None` if these bytes are what
    /// the storage has.
    ///
    /// # Errors
    /// As [`ByteSource::read`].
    pub(crate) fn reread(&self, wave: &dyn Wave) -> Result<Option<RangeBytes>, QueryError> {
        self.read_again(wave, |reread, ranges| reread.reread(ranges))
    }

    /// Reads deferred items of `wave`; `None` for bytes without a storage to read from.
    ///
    /// # Errors
    /// As [`ByteSource::read`].
    pub(crate) fn fetch(&self, wave: &dyn Wave) -> Result<Option<RangeBytes>, QueryError> {
        self.read_again(wave, |reread, ranges| reread.fetch(ranges))
    }

    fn read_again(
        &self,
        wave: &dyn Wave,
        read: impl Fn(&dyn Reread, Vec<ByteRange>) -> Result<FetchedBatch, QueryError>,
    ) -> Result<Option<RangeBytes>, QueryError> {
        let RangeBytes::Fetched(before) = self else { return Ok(None) };
        let Some((reread, mut fetched)) = before.rereader() else { return Ok(None) };
        let mut ranges = Vec::new();
        wave.ranges(&mut ranges);
        for _ in 0..ROUND_COUNT_MAX {
            self.files().clip(&mut ranges);
            if ranges.is_empty() {
                break;
            }
            fetched.push(read(reread, std::mem::take(&mut ranges))?);
            wave.missing(&fetched, &mut ranges);
        }
        Ok(Some(RangeBytes::Fetched(Arc::new(fetched))))
    }

    /// Paths and lengths of the files.
    #[must_use]
    pub fn files(&self) -> &BlockFiles {
        match self {
            RangeBytes::Mapped(files) => files.files(),
            RangeBytes::Fetched(ranges) => ranges.files(),
        }
    }
}

impl ByteSource for Arc<MappedFiles> {
    fn files(&self) -> &BlockFiles {
        MappedFiles::files(self)
    }

    fn read(&self, _wave: &dyn Wave, _budget: &MemoryBudget) -> Result<RangeBytes, QueryError> {
        Ok(RangeBytes::Mapped(self.clone()))
    }

    fn wave_bytes_max(&self) -> Option<u64> {
        None
    }

    fn has_readers(&self) -> bool {
        Arc::strong_count(self) > 1
    }
}
