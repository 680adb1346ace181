//! Files of a block that are mapped or, if small, copied into memory: all bytes are at hand.

use chronolith_base::Mapped;

use super::range::{BlockFile, BlockFiles};
use crate::open_counts::OpenPermit;

/// Index and chunk segments of a block, mapped or copied. The maps stay valid as long as this value, even
/// after the files were removed.
pub struct MappedFiles {
    files: BlockFiles,
    index: Mapped,
    segments: Vec<Mapped>,
    /// Given back after the files are closed.
    _permit: Option<OpenPermit>,
}

impl MappedFiles {
    /// `files` has the lengths of `index` and `segments`.
    pub(crate) fn new(
        files: BlockFiles,
        index: Mapped,
        segments: Vec<Mapped>,
        permit: Option<OpenPermit>,
    ) -> MappedFiles {
        MappedFiles { files, index, segments, _permit: permit }
    }

    /// Paths and lengths of the files.
    #[must_use]
    pub fn files(&self) -> &BlockFiles {
        &self.files
    }

    /// Bytes of a file from `offset` to its end; none if there is no such file or offset.
    #[must_use]
    pub fn at(&self, file: BlockFile, offset: u64) -> &[u8] {
        let bytes = match file {
            BlockFile::Index => Some(&self.index),
            BlockFile::Segment(idx) => self.segments.get(idx as usize),
            BlockFile::Tombstones | BlockFile::Sidecar | BlockFile::Rollup(_) => None,
        };
        bytes.and_then(|bytes| bytes.get(offset as usize..)).unwrap_or_default()
    }
}
