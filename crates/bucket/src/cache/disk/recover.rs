//! Opens the segments of a cache directory again: by the table of each, or entry by entry.
//!
//! Invariants: an entry of a later segment takes precedence over earlier ones; a segment without a table, as
//! a killed process leaves it, is cut after its last complete entry and gets one. Bytes of entries are not
//! read: they are verified when they are used.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use chronolith_base::disk::{Disk, DiskFile};
use chronolith_base::hash::HashMap;
use chronolith_format::bucket::cache_segment::{
    ENTRY_HEADER_BYTES, HEADER_BYTES, KEY_BYTES_MAX, SegmentTable, TRAILER_BYTES, Trailer, check_header,
    decode_entry_header,
};

use super::index::{Index, SegmentNumber};
use super::log::{ClosedSegment, Geometry, file_name, number_of};

/// Content of a cache directory.
#[derive(Default)]
pub(super) struct Recovered {
    pub(super) index: Index,
    /// The oldest one is the first.
    pub(super) closed: VecDeque<ClosedSegment>,
    /// Segments that failed a checksum, or whose last entry is not complete.
    pub(super) damages: u64,
}

/// Reads the segments in `dir`; removes the oldest ones beyond the sizes of `geometry`, and those without a
/// sound entry.
///
/// # Errors
/// As the disk returns.
pub(super) fn recover(disk: &dyn Disk, dir: &Path, geometry: &Geometry) -> io::Result<Recovered> {
    let mut segments: Vec<(SegmentNumber, u64)> = disk
        .list(dir)?
        .into_iter()
        .filter_map(|entry| Some((number_of(&entry.name).filter(|_| !entry.is_dir)?, entry.len)))
        .collect();
    segments.sort_unstable();
    let mut recovered = Recovered::default();
    let mut left_bytes = geometry.bytes_max.saturating_sub(2 * geometry.segment_bytes_max);
    let mut left_count = geometry.entry_count_max;
    for (number, file_bytes) in segments.into_iter().rev() {
        let path = dir.join(file_name(number));
        let fits = file_bytes <= left_bytes.min(u64::from(u32::MAX)) && left_count > 0;
        let file: Option<Arc<dyn DiskFile>> = if fits { Some(disk.open(&path)?.into()) } else { None };
        let read = match &file {
            Some(file) => read_segment(&**file, file_bytes, &mut recovered.damages)?,
            None => None,
        };
        let closed = match (&file, read) {
            (Some(file), Some((table, TableState::Sound))) => Some((file, table, file_bytes)),
            (Some(file), Some((table, TableState::Missing))) => {
                write_table(&**file, &table, geometry)?.map(|file_bytes| (file, table, file_bytes))
            }
            _ => None,
        };
        let Some((file, table, file_bytes)) = closed else {
            disk.remove_file(&path)?;
            // All earlier segments go as well: later ones are worth more.
            if !fits {
                left_bytes = 0;
            }
            continue;
        };
        recovered.index.add_segment(number, file.clone());
        recovered.index.insert_table(number, &table);
        let entry_count = table.entry_count() as u64;
        left_bytes = left_bytes.saturating_sub(file_bytes);
        left_count = left_count.saturating_sub(entry_count);
        recovered.closed.push_front(ClosedSegment { number, file_bytes, entry_count });
    }
    Ok(recovered)
}

/// State of the table at the end of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableState {
    Sound,
    Missing,
}

/// Reads the entries of a segment; `None` if there is no sound one.
fn read_segment(
    file: &dyn DiskFile,
    file_bytes: u64,
    damages: &mut u64,
) -> io::Result<Option<(SegmentTable, TableState)>> {
    let mut header = vec![0; HEADER_BYTES.min(usize::try_from(file_bytes).unwrap_or(usize::MAX))];
    file.read_at(&mut header, 0)?;
    if check_header(&header).is_err() {
        *damages += 1;
        return Ok(None);
    }
    let (table, state) = match read_table(file, file_bytes)? {
        Some(table) => (table, TableState::Sound),
        None => {
            let table = scan(file, file_bytes)?;
            *damages += u64::from(table.end() < file_bytes);
            (table, TableState::Missing)
        }
    };
    Ok(Some((table, state)).filter(|(table, _)| table.entry_count() > 0))
}

/// Reads the table at the end of a segment; `None` if it is missing or damaged.
fn read_table(file: &dyn DiskFile, file_bytes: u64) -> io::Result<Option<SegmentTable>> {
    let Some(table_end) = file_bytes.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let mut trailer = [0; TRAILER_BYTES];
    file.read_at(&mut trailer, table_end)?;
    let Ok(trailer) = Trailer::decode(&trailer) else { return Ok(None) };
    let Some(start) = table_end.checked_sub(u64::from(trailer.table_len)) else { return Ok(None) };
    let mut table = vec![0; trailer.table_len as usize];
    file.read_at(&mut table, start)?;
    Ok(SegmentTable::decode(&table, &trailer, start).ok())
}

/// Reads the header of each entry up to the first that is damaged or not complete.
fn scan(file: &dyn DiskFile, file_bytes: u64) -> io::Result<SegmentTable> {
    let mut table = SegmentTable::new();
    let mut key_idxs: HashMap<Box<str>, u32> = HashMap::default();
    let mut bytes = vec![0; ENTRY_HEADER_BYTES + KEY_BYTES_MAX];
    while table.end() < file_bytes {
        let left = usize::try_from(file_bytes - table.end()).unwrap_or(usize::MAX);
        bytes.resize(left.min(ENTRY_HEADER_BYTES + KEY_BYTES_MAX), 0);
        file.read_at(&mut bytes, table.end())?;
        let Ok(header) = decode_entry_header(&bytes) else { break };
        if header.entry_len() > left as u64 {
            break;
        }
        let key_idx = match key_idxs.get(header.key) {
            Some(idx) => *idx,
            None => {
                let idx = table.add_key(header.key);
                key_idxs.insert(header.key.into(), idx);
                idx
            }
        };
        table.add_entry(key_idx, header.start, header.len);
    }
    Ok(table)
}

/// Cuts a segment after its last entry and appends its table; returns its length, or `None` if it would be
/// longer than a segment may be.
fn write_table(file: &dyn DiskFile, table: &SegmentTable, geometry: &Geometry) -> io::Result<Option<u64>> {
    let mut bytes = Vec::new();
    table.encode(&mut bytes);
    let file_bytes = table.end() + bytes.len() as u64;
    if file_bytes > geometry.segment_bytes_max {
        return Ok(None);
    }
    file.set_len(table.end())?;
    file.write_at(&bytes, table.end())?;
    Ok(Some(file_bytes))
}
