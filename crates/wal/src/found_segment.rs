//! Segment files as a start finds them: name, size, header, and the extent of their frames.
//!
//! Not here: reading frames (`recovery`), segments that are written (`segment`).

use std::path::{Path, PathBuf};

use chronolith_base::Disk;
use chronolith_format::head::wal::SegmentHeader;

use crate::options::FileError;

/// A segment file found at startup.
pub struct Segment {
    /// Number in the file name, ascending.
    pub number: u64,
    /// The file.
    pub path: PathBuf,
    /// Size in bytes.
    pub len: u64,
    /// `None` if it cannot be read.
    header: Option<SegmentHeader>,
}

impl Segment {
    /// A file whose header was not read.
    pub(crate) fn new(number: u64, path: PathBuf, len: u64) -> Segment {
        Segment { number, path, len, header: None }
    }

    /// Returns its header, if it can be read.
    pub(crate) fn header(&self) -> Option<SegmentHeader> {
        self.header
    }

    /// Sets the header that was read from the file.
    pub(crate) fn set_header(&mut self, header: SegmentHeader) {
        self.header = Some(header);
    }

    /// Returns true if the file was used before: bytes after the last frame are then no damage.
    pub(crate) fn is_recycled(&self) -> bool {
        self.header.is_some_and(|header| header.stale_sequence > 0)
    }
}

/// Extent of the frames in a segment.
#[derive(Debug, Clone, Copy, Default)]
pub struct SegmentEnd {
    /// Sequence of its first frame; 0 if it has none.
    pub first_sequence: u64,
    /// Sequence of its last frame; 0 if it has none.
    pub last_sequence: u64,
    /// Offset after the last valid frame.
    pub end: u64,
    /// Set if bytes after that, or between frames, belong to no frame.
    pub is_damaged: bool,
    /// Set if those bytes are at the end only.
    pub is_torn: bool,
}

/// Returns the first `len` bytes of a file, fewer if it is shorter.
pub(crate) fn read_head(disk: &dyn Disk, path: &Path, len: usize) -> Result<Vec<u8>, FileError> {
    let file = disk.open(path).map_err(FileError::at(path))?;
    let file_len = file.len().map_err(FileError::at(path))?;
    let mut head = vec![0; len.min(usize::try_from(file_len).unwrap_or(len))];
    file.read_at(&mut head, 0).map_err(FileError::at(path))?;
    Ok(head)
}
