//! Ranges of a block's files that were read into memory.

use std::sync::Arc;

use bytes::Bytes;
use chronolith_base::Reservation;
use chronolith_model::QueryError;

use super::range::{BlockFile, BlockFiles, ByteRange};

/// Bytes of one range, up to the end of the file.
pub struct FetchedPart {
    /// File.
    pub file: BlockFile,
    /// Offset of the first byte in the file.
    pub start: u64,
    /// The bytes; they may be shared with a cache.
    pub bytes: Bytes,
}

/// Parts that were read at once.
pub struct FetchedBatch {
    /// By file and offset; none lies within another.
    parts: Vec<FetchedPart>,
    /// Memory of the parts.
    _memory: Reservation,
}

impl FetchedBatch {
    /// A batch of `parts`, none of which lies within another, with the reservation of their memory.
    #[must_use]
    pub fn new(mut parts: Vec<FetchedPart>, memory: Reservation) -> FetchedBatch {
        parts.sort_unstable_by_key(|part| (part.file, part.start));
        FetchedBatch { parts, _memory: memory }
    }

    fn at(&self, file: BlockFile, offset: u64) -> &[u8] {
        let next = self.parts.partition_point(|part| (part.file, part.start) <= (file, offset));
        let part = next.checked_sub(1).and_then(|idx| self.parts.get(idx)).filter(|part| part.file == file);
        let bytes = part.and_then(|part| part.bytes.get((offset - part.start) as usize..));
        bytes.unwrap_or_default()
    }
}

/// Reads further ranges of a block for a thread that decodes it.
pub trait Reread: Send + Sync {
    /// Reads `ranges` from the storage; caches drop the bytes that they have of them. May wait for requests.
    ///
    /// # Errors
    /// As [`ByteSource::read`](super::ByteSource::read).
    fn reread(&self, ranges: Vec<ByteRange>) -> Result<FetchedBatch, QueryError>;

    /// Reads `ranges`, from caches as well. May wait for requests.
    ///
    /// # Errors
    /// As [`Reread::reread`].
    fn fetch(&self, ranges: Vec<ByteRange>) -> Result<FetchedBatch, QueryError>;
}

/// The ranges of one wave, in one batch or, where items are longer than expected or refer to others, several.
pub struct FetchedRanges {
    files: Arc<BlockFiles>,
    batches: Vec<FetchedBatch>,
    /// Other waves with ranges that items of this one refer to.
    others: Vec<Arc<FetchedRanges>>,
    reread: Option<Arc<dyn Reread>>,
}

impl FetchedRanges {
    /// Without any range.
    #[must_use]
    pub fn new(files: Arc<BlockFiles>) -> FetchedRanges {
        FetchedRanges { files, batches: Vec::new(), others: Vec::new(), reread: None }
    }

    /// The ranges of several waves; an item that fails its checksum is read once more by the first wave that
    /// can read again.
    pub(crate) fn joined(files: Arc<BlockFiles>, others: Vec<Arc<FetchedRanges>>) -> FetchedRanges {
        let reread = others.iter().find_map(|other| other.reread.clone());
        FetchedRanges { files, batches: Vec::new(), others, reread }
    }

    /// Bytes that may come from a cache: an item that fails its checksum is read once more by `reread`.
    #[must_use]
    pub fn with_reread(self, reread: Arc<dyn Reread>) -> FetchedRanges {
        FetchedRanges { reread: Some(reread), ..self }
    }

    /// The second read, and ranges of the same files without any bytes; `None` if these bytes are what the
    /// storage has.
    pub(super) fn rereader(&self) -> Option<(&dyn Reread, FetchedRanges)> {
        Some((self.reread.as_deref()?, FetchedRanges::new(self.files.clone())))
    }

    /// Adds ranges that were read.
    pub fn push(&mut self, batch: FetchedBatch) {
        self.batches.push(batch);
    }

    /// Paths and lengths of the files.
    #[must_use]
    pub fn files(&self) -> &Arc<BlockFiles> {
        &self.files
    }

    /// Bytes of all ranges.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        let parts = self.batches.iter().flat_map(|batch| &batch.parts);
        let others: u64 = self.others.iter().map(|other| other.byte_count()).sum();
        parts.map(|part| part.bytes.len() as u64).sum::<u64>() + others
    }

    /// Bytes of a file from `offset` on that were read without a gap.
    #[must_use]
    pub fn at(&self, file: BlockFile, offset: u64) -> &[u8] {
        let others = self.others.iter().map(|other| other.at(file, offset));
        let found = self.batches.iter().map(|batch| batch.at(file, offset)).chain(others);
        found.max_by_key(|bytes| bytes.len()).unwrap_or_default()
    }

    /// Returns the range of the item at `offset`, which has `item_bytes` bytes, if not all of them were read
    /// that the file has.
    #[must_use]
    pub fn missing(&self, file: BlockFile, offset: u64, item_bytes: u64) -> Option<ByteRange> {
        let end = offset.saturating_add(item_bytes).min(self.files.len(file).unwrap_or(0));
        let read_end = offset + self.at(file, offset).len() as u64;
        (read_end < end).then_some(ByteRange { file, start: offset, end })
    }
}
