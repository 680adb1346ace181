//! Ranges of bytes in the files of a block.

use std::path::{Path, PathBuf};

use chronolith_format::block::chunks::segment_name;
use chronolith_format::block::rollup::{ROLLUPS_DIR, file_name};
use chronolith_format::bucket::catalogue::RollupObject;
use chronolith_format::bucket::sidecar::{FileSum, SIDECAR_OBJECT, SidecarFile, SidecarHead};
use chronolith_model::rollup::RollupSpan;

use crate::layout::{CHUNKS_DIR, INDEX_FILE, TOMBSTONES_FILE, segment_path};

/// A file of a block of which ranges are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockFile {
    /// The index.
    Index,
    /// The chunk segment with this number, from 0.
    Segment(u32),
    /// The deletions of a block that is read by its sidecar.
    Tombstones,
    /// The sidecar.
    Sidecar,
    /// The roll-ups of the archive with this span and slot.
    Rollup(RollupSpan),
}

impl BlockFile {
    /// Path of the file below the directory of its block, with slashes. Tombstones may have another one:
    /// [`BlockFiles::name`].
    #[must_use]
    pub fn name(self) -> String {
        match self {
            BlockFile::Index => INDEX_FILE.to_owned(),
            BlockFile::Segment(idx) => format!("{CHUNKS_DIR}/{}", segment_name(idx)),
            BlockFile::Tombstones => TOMBSTONES_FILE.to_owned(),
            BlockFile::Sidecar => SIDECAR_OBJECT.to_owned(),
            BlockFile::Rollup(span) => format!("{ROLLUPS_DIR}/{}", file_name(span)),
        }
    }
}

/// The files of a block of which ranges are read.
#[derive(Debug, Clone)]
pub struct BlockFiles {
    dir: PathBuf,
    index_bytes: u64,
    segment_bytes: Vec<u64>,
    tombstones: Option<TombstonesFile>,
    sidecar_bytes: Option<u64>,
    rollups: Vec<RollupObject>,
}

/// File with the deletions of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TombstonesFile {
    /// Name below the directory of the block.
    pub name: String,
    /// Length in bytes.
    pub len: u64,
}

impl BlockFiles {
    /// The files of the block in `dir`, with the length of the index and of each segment.
    #[must_use]
    pub fn new(dir: PathBuf, index_bytes: u64, segment_bytes: Vec<u64>) -> BlockFiles {
        BlockFiles {
            dir,
            index_bytes,
            segment_bytes,
            tombstones: None,
            sidecar_bytes: None,
            rollups: Vec::new(),
        }
    }

    /// The files of the block in `dir` as the head of its sidecar has them, with the length of the sidecar.
    /// Returns `None` if the head has no index.
    #[must_use]
    pub fn of_sidecar(dir: PathBuf, head: &SidecarHead, sidecar_bytes: u64) -> Option<BlockFiles> {
        let index_bytes = head.file(SidecarFile::Index)?.len;
        let is_segment = |sum: &&FileSum| matches!(sum.file, SidecarFile::Segment(_));
        let segment_bytes = head.files.iter().filter(is_segment).map(|sum| sum.len).collect();
        let tombstones = head.file(SidecarFile::Tombstones);
        let tombstones =
            tombstones.map(|sum| TombstonesFile { name: TOMBSTONES_FILE.to_owned(), len: sum.len });
        let sidecar_bytes = Some(sidecar_bytes);
        Some(BlockFiles { tombstones, sidecar_bytes, ..BlockFiles::new(dir, index_bytes, segment_bytes) })
    }

    /// With other deletions than those that the block was written with; `None` without any.
    #[must_use]
    pub fn with_tombstones(self, tombstones: Option<TombstonesFile>) -> BlockFiles {
        BlockFiles { tombstones, ..self }
    }

    /// With a sidecar of `len` bytes.
    #[must_use]
    pub fn with_sidecar(self, len: u64) -> BlockFiles {
        BlockFiles { sidecar_bytes: Some(len), ..self }
    }

    /// With roll-up files.
    #[must_use]
    pub fn with_rollups(self, rollups: Vec<RollupObject>) -> BlockFiles {
        BlockFiles { rollups, ..self }
    }

    /// Lengths of all chunk segments in bytes.
    #[must_use]
    pub fn segment_lens(&self) -> &[u64] {
        &self.segment_bytes
    }

    /// Path of a file below the directory of its block, with slashes.
    #[must_use]
    pub fn name(&self, file: BlockFile) -> String {
        match (file, &self.tombstones) {
            (BlockFile::Tombstones, Some(tombstones)) => tombstones.name.clone(),
            _ => file.name(),
        }
    }

    /// Directory of the block, or the location that errors name.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of a file, for errors.
    #[must_use]
    pub fn path(&self, file: BlockFile) -> PathBuf {
        match file {
            BlockFile::Index => self.dir.join(INDEX_FILE),
            BlockFile::Segment(idx) => segment_path(&self.dir, idx),
            BlockFile::Tombstones | BlockFile::Sidecar | BlockFile::Rollup(_) => {
                self.dir.join(self.name(file))
            }
        }
    }

    /// Length of a file in bytes; `None` if there is no such file.
    #[must_use]
    pub fn len(&self, file: BlockFile) -> Option<u64> {
        match file {
            BlockFile::Index => Some(self.index_bytes),
            BlockFile::Segment(idx) => self.segment_bytes.get(idx as usize).copied(),
            BlockFile::Tombstones => self.tombstones.as_ref().map(|file| file.len),
            BlockFile::Sidecar => self.sidecar_bytes,
            BlockFile::Rollup(span) => {
                self.rollups.iter().find(|rollup| rollup.span == span).map(|rollup| rollup.len)
            }
        }
    }

    /// Ends ranges where their files end; drops those that begin there.
    pub fn clip(&self, ranges: &mut Vec<ByteRange>) {
        for range in &mut *ranges {
            range.end = range.end.min(self.len(range.file).unwrap_or(0));
        }
        ranges.retain(|range| !range.is_empty());
    }

    /// Number of chunk segments.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.segment_bytes.len()
    }

    /// Bytes of all chunk segments.
    #[must_use]
    pub fn chunks_bytes(&self) -> u64 {
        self.segment_bytes.iter().sum()
    }
}

/// Part of a file: from `start` up to, and without, `end`. It may go on after the end of the file, where
/// nothing is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    /// File.
    pub file: BlockFile,
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl ByteRange {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Returns true if no byte is in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Sorts ranges and joins those that overlap or have at most `gap_bytes` between them: bytes of gaps are read
/// in vain, but cost less than a request.
pub fn coalesce(ranges: &mut Vec<ByteRange>, gap_bytes: u64) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = next.file == last.file && next.start <= last.end.saturating_add(gap_bytes);
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(file: BlockFile, start: u64, end: u64) -> ByteRange {
        ByteRange { file, start, end }
    }

    #[test]
    fn ranges_near_each_other_are_joined_within_a_file() {
        let (index, segment) = (BlockFile::Index, BlockFile::Segment(0));
        let mut ranges = vec![
            range(segment, 10, 20),
            range(index, 100, 120),
            range(index, 0, 50),
            range(index, 60, 70),
            range(index, 65, 66),
        ];
        let mut joined = ranges.clone();
        coalesce(&mut joined, 10);
        assert_eq!(joined, [range(index, 0, 70), range(index, 100, 120), range(segment, 10, 20)]);
        coalesce(&mut ranges, 0);
        let apart = [range(index, 0, 50), range(index, 60, 70), range(index, 100, 120)];
        assert_eq!(ranges[..3], apart);
        coalesce(&mut ranges, u64::MAX);
        assert_eq!(ranges, [range(index, 0, 120), range(segment, 10, 20)]);
    }
}
