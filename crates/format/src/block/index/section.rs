//! Bytes of an index file that contain one of its sections: the whole file, mapped, or a part that was read.

use std::ops::Range;

use chronolith_base::Mapped;

/// Bytes of an index file from a known offset on. Cheap to clone.
#[derive(Clone)]
pub struct SectionBytes {
    bytes: Mapped,
    file_offset: u64,
}

impl SectionBytes {
    /// Bytes of the file from `file_offset` on.
    #[must_use]
    pub fn new(bytes: Mapped, file_offset: u64) -> SectionBytes {
        SectionBytes { bytes, file_offset }
    }

    pub(super) fn file_offset(&self) -> u64 {
        self.file_offset
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes at `range`, which counts from the start of the slice.
    pub(super) fn get(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// Index within the slice of the byte at `offset` of the file; beyond the end if it is not in the slice.
    pub(super) fn idx_of(&self, offset: u64) -> usize {
        offset.checked_sub(self.file_offset).and_then(|idx| usize::try_from(idx).ok()).unwrap_or(usize::MAX)
    }
}
