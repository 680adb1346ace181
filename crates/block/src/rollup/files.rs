//! Reading of the roll-up files of a block.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::{DecodeError, Env, Mapped};
use chronolith_format::block::rollup::{ROLLUPS_DIR, RollupHeader, RollupTable, Section, archive_of_name};
use chronolith_format::block::tombstones::Interval;
use chronolith_model::TimeRange;
use chronolith_model::rollup::{RollupArchive, RollupRead};

use crate::damage::Damage;

/// Roll-up files of an open block.
pub(crate) struct Rollups {
    files: Vec<RollupFile>,
    /// Time that the block covers.
    block_range: TimeRange,
    is_damaged: AtomicBool,
    /// Damages that opening found.
    damages: Vec<Damage>,
}

struct RollupFile {
    path: PathBuf,
    header: RollupHeader,
    bytes: Mapped,
    table: RollupTable,
}

impl Rollups {
    /// Opens the roll-up files of the block in `dir` with `open`; `None` without the directory. Files that
    /// cannot be used are left out. Cost: the table of series of each file.
    pub(crate) fn open<E: std::fmt::Display>(
        env: &Env,
        dir: &Path,
        block_range: TimeRange,
        mut open: impl FnMut(&Path) -> Result<Mapped, E>,
    ) -> Option<Arc<Rollups>> {
        let rollups_dir = dir.join(ROLLUPS_DIR);
        let entries = env.disk.list(&rollups_dir).ok()?;
        let mut files = Vec::new();
        let mut damages = Vec::new();
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            let path = rollups_dir.join(&entry.name);
            let read = match open(&path) {
                Ok(bytes) => RollupFile::read(path.clone(), bytes).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match read {
                Ok(file) => files.push(file),
                Err(what) => damages.push(Damage { path, offset: 0, what }),
            }
        }
        let is_damaged = AtomicBool::new(!damages.is_empty());
        Some(Arc::new(Rollups { files, block_range, is_damaged, damages }))
    }

    /// Returns true if a part was found that cannot be read.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Bytes of all files.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes.len() as u64).sum()
    }

    /// Reads everything; returns the damages.
    pub(crate) fn verify(&self) -> Vec<Damage> {
        let mut damages = self.damages.clone();
        for file in &self.files {
            for idx in 0..file.table.len() {
                if let Err(error) = file.verify_section(idx) {
                    let offset = error.offset() as u64;
                    damages.push(Damage { path: file.path.clone(), offset, what: error.to_string() });
                }
            }
        }
        if !damages.is_empty() {
            self.is_damaged.store(true, Ordering::Relaxed);
        }
        damages
    }
}

impl RollupFile {
    fn read(path: PathBuf, bytes: Mapped) -> Result<RollupFile, DecodeError> {
        let header = RollupHeader::decode(&bytes)?;
        let name = path.file_name().and_then(|name| name.to_str()).and_then(archive_of_name);
        if name != Some((header.span_ms, header.slot_ms)) {
            let expected = "the span in the name of the file";
            let found = header.span_ms.cast_unsigned();
            return Err(DecodeError::Invalid { what: "roll-up span", offset: 8, expected, found });
        }
        let table = RollupTable::find(&bytes)?;
        Ok(RollupFile { path, header, bytes, table })
    }

    fn verify_section(&self, idx: usize) -> Result<(), DecodeError> {
        let (series_ref, section) = self.table.section_at(&self.bytes, idx)?;
        let section = Section::decode(section, series_ref, self.header.span_ms)?;
        let mut windows = chronolith_model::rollup::RolledWindows::new(section.methods());
        section.read(TimeRange::ALL, &mut windows)
    }

    /// Appends the windows of a series in `range`; false if the file has not all that is asked for.
    fn read_series(
        &self,
        series_ref: u32,
        archive: &RollupArchive,
        range: TimeRange,
        out: &mut RollupRead,
    ) -> Result<bool, DecodeError> {
        let Some(section) = self.table.section(&self.bytes, series_ref)? else { return Ok(false) };
        let section = Section::decode(section, series_ref, self.header.span_ms)?;
        if !section.methods().has_all(archive.methods) {
            return Ok(false);
        }
        section.read(range, &mut out.windows)?;
        out.facts = out.facts.and(section.facts());
        Ok(true)
    }
}

/// Roll-ups of one series.
pub(crate) struct SeriesRollups {
    rollups: Arc<Rollups>,
    series_ref: u32,
}

impl SeriesRollups {
    /// Those of the series `series_ref` of the block.
    pub(crate) fn new(rollups: Arc<Rollups>, series_ref: u32) -> SeriesRollups {
        SeriesRollups { rollups, series_ref }
    }

    /// Appends the archives of which the series has windows.
    pub(crate) fn archives(&self, out: &mut Vec<RollupArchive>) {
        let of_file = |file: &RollupFile| {
            let RollupHeader { span_ms, slot_ms } = file.header;
            let section = file.table.section(&file.bytes, self.series_ref).ok()??;
            let section = Section::decode(section, self.series_ref, span_ms).ok()?;
            RollupArchive::new(span_ms, slot_ms, section.methods())
        };
        out.extend(self.rollups.files.iter().filter_map(of_file));
    }

    /// Reads the windows of `archive` in `range`; adds to the raw ranges what is at the ends of the block, or
    /// deleted. False, and nothing in `out`, if they are not kept or cannot be read.
    pub(crate) fn read(
        &self,
        archive: &RollupArchive,
        range: TimeRange,
        deleted: &[Interval],
        out: &mut RollupRead,
    ) -> bool {
        let Rollups { files, block_range, is_damaged, .. } = &*self.rollups;
        let has_archive = |file: &&RollupFile| {
            let RollupHeader { span_ms, slot_ms } = file.header;
            (span_ms, slot_ms) == (archive.span_ms(), archive.slot_ms())
        };
        let (Some(file), Some(inner)) = (files.iter().find(has_archive), archive.narrowed(*block_range))
        else {
            return false;
        };
        let wanted = TimeRange::new(inner.start.max(range.start), inner.end.min(range.end));
        if wanted.start < wanted.end {
            match file.read_series(self.series_ref, archive, wanted, out) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => {
                    // Maintenance writes the files again, and names the damage.
                    is_damaged.store(true, Ordering::Relaxed);
                    out.clear();
                    return false;
                }
            }
        }
        out.add_raw(archive, TimeRange::new(block_range.start, inner.start), range);
        out.add_raw(archive, TimeRange::new(inner.end, block_range.end), range);
        for interval in deleted {
            out.add_raw(archive, TimeRange::inclusive(interval.first, interval.last), range);
        }
        true
    }
}
