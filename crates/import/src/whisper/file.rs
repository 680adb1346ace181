//! Bytes of a whisper file: header and archives as whisper 1.1.10 writes them.
//!
//! Invariant: a file that was built is read again by `points` with the same points.
//! Not here: the points of each archive (`rollup`), writing files to disk (the caller).

use chronolith_ingest::carbon::{AggregationMethod, Archive};

use super::header::{POINT_BYTES, method_number};

/// Bytes of the header before the table of archives.
const HEADER_BYTES: usize = 16;
/// Bytes of an archive in the table.
const ENTRY_BYTES: usize = 12;

/// A file under construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBuilder {
    bytes: Vec<u8>,
    archives: Vec<(usize, Archive)>,
}

impl FileBuilder {
    /// A file without points; `None` for a method that whisper does not have, and without archives.
    #[must_use]
    pub fn new(method: AggregationMethod, x_files_factor: f32, archives: &[Archive]) -> Option<FileBuilder> {
        let max_retention_s = archives.iter().map(Archive::retention_s).max()?;
        let header = [
            method_number(method)?,
            u32::try_from(max_retention_s).ok()?,
            x_files_factor.to_bits(),
            u32::try_from(archives.len()).ok()?,
        ];
        let mut bytes: Vec<u8> = header.into_iter().flat_map(u32::to_be_bytes).collect();
        let mut offset = HEADER_BYTES + ENTRY_BYTES * archives.len();
        let mut placed = Vec::new();
        for archive in archives {
            let entry = [u32::try_from(offset).ok()?, archive.step_s, archive.point_count];
            bytes.extend(entry.into_iter().flat_map(u32::to_be_bytes));
            placed.push((offset, *archive));
            offset = offset.checked_add(archive.point_count as usize * POINT_BYTES)?;
        }
        bytes.resize(offset, 0);
        Some(FileBuilder { bytes, archives: placed })
    }

    /// Number of archives.
    #[must_use]
    pub fn archive_count(&self) -> usize {
        self.archives.len()
    }

    /// Writes the points of an archive, times in seconds and ascending. Times are rounded down to the step;
    /// of more points than the archive has, the last ones stay. The first point is at the first slot.
    pub fn put_points(&mut self, archive_idx: usize, points: impl IntoIterator<Item = (u32, f64)>) {
        let Some(&(offset, archive)) = self.archives.get(archive_idx) else { return };
        let mut base = None;
        for (time_s, value) in points {
            let time_s = time_s - time_s % archive.step_s;
            let base = *base.get_or_insert(time_s);
            let slot = (time_s.saturating_sub(base) / archive.step_s) % archive.point_count;
            let start = offset + slot as usize * POINT_BYTES;
            let Some(out) = self.bytes.get_mut(start..start + POINT_BYTES) else { return };
            let (time_out, value_out) = out.split_at_mut(size_of::<u32>());
            time_out.copy_from_slice(&time_s.to_be_bytes());
            value_out.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// The file.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
