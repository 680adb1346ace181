//! Segment that is appended to: its file and where the next record goes.
//!
//! Invariant: records are at `len`, which counts written bytes, durable or not.

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::{DiskFile, Env};
use chronolith_format::replicated_log::directory::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_name};

use super::scan::ScanPoint;
use crate::error::LogError;
use crate::position::{PartitionId, TopicId};

/// A segment that is appended to.
pub(super) struct OpenSegment {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    len: u64,
    next_offset: u64,
}

impl OpenSegment {
    /// Makes a segment; returns the bytes of its header, too.
    ///
    /// # Errors
    /// [`LogError::File`].
    pub(super) fn create(
        env: &Env,
        dir: &Path,
        topic: TopicId,
        partition: PartitionId,
        first_offset: u64,
    ) -> Result<(u64, OpenSegment), LogError> {
        let path = dir.join(segment_name(first_offset));
        let header = SegmentHeader { topic: topic.0, partition: partition.0, first_offset };
        let make = || -> io::Result<Box<dyn DiskFile>> {
            let file = env.disk.create(&path)?;
            file.write_at(&header.encode(), 0)?;
            file.sync_data()?;
            env.disk.sync_dir(dir)?;
            Ok(file)
        };
        let file = make().map_err(LogError::at(&path))?;
        let len = SEGMENT_HEADER_BYTES as u64;
        Ok((len, OpenSegment { path, file, len, next_offset: first_offset }))
    }

    /// Opens a segment to append at `end`, and cuts off the bytes after it.
    ///
    /// # Errors
    /// [`LogError::File`].
    pub(super) fn open(
        env: &Env,
        path: PathBuf,
        end: ScanPoint,
        has_cut_end: bool,
    ) -> Result<OpenSegment, LogError> {
        let open = || -> io::Result<Box<dyn DiskFile>> {
            let file = env.disk.open(&path)?;
            if has_cut_end {
                file.set_len(end.at)?;
            }
            // The process before may have ended between a write and its sync.
            file.sync_data()?;
            Ok(file)
        };
        let file = open().map_err(LogError::at(&path))?;
        Ok(OpenSegment { path, file, len: end.at, next_offset: end.offset })
    }

    /// Writes `record_count` records with these bytes after the ones before.
    ///
    /// # Errors
    /// As the disk reports; part of the bytes may be there.
    pub(super) fn write(&mut self, bytes: &[u8], record_count: usize) -> io::Result<()> {
        self.file.write_at(bytes, self.len)?;
        self.len += bytes.len() as u64;
        self.next_offset = self.next_offset.saturating_add(record_count as u64);
        Ok(())
    }

    /// Removes what a failed write has left, durably.
    ///
    /// # Errors
    /// As the disk reports; it may be there.
    pub(super) fn undo_failed_write(&self) -> io::Result<()> {
        self.file.set_len(self.len)?;
        self.file.sync_data()
    }

    /// Makes everything that was written durable.
    ///
    /// # Errors
    /// As the disk reports; nothing that was written since the last sync is known to be durable then.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Returns true if no record was written.
    pub(super) fn is_empty(&self) -> bool {
        self.len == SEGMENT_HEADER_BYTES as u64
    }

    /// Returns the path, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes of the segment.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the offset of the next record.
    pub(super) fn next_offset(&self) -> u64 {
        self.next_offset
    }
}
