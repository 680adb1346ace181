//! Reading of the roll-up files of a block.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::{DecodeError, Env, Mapped};
use chronolith_format::block::rollup::{ROLLUPS_DIR, RollupTable, Section, archive_of_name, decode_header};
use chronolith_model::TimeRange;
use chronolith_model::rollup::{RolledWindows, RollupSpan};

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
    span: RollupSpan,
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

    /// Archives of the files that could be opened.
    pub(crate) fn spans(&self) -> impl Iterator<Item = RollupSpan> + '_ {
        self.files.iter().map(|file| file.span)
    }

    /// Time that the block covers.
    pub(crate) fn block_range(&self) -> TimeRange {
        self.block_range
    }

    /// Section of a series; `None` if it has none in this archive.
    pub(crate) fn section(&self, span: RollupSpan, series_ref: u32) -> Result<Option<&[u8]>, DecodeError> {
        let Some(file) = self.files.iter().find(|file| file.span == span) else { return Ok(None) };
        file.table.section(&file.bytes, series_ref)
    }

    /// Remembers that a part cannot be read.
    pub(crate) fn note_damage(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    /// Returns true if a part was found that cannot be read.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Bytes of all files.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes.len() as u64).sum()
    }

    /// Damages that opening has found.
    pub(super) fn opening_damages(&self) -> &[Damage] {
        &self.damages
    }

    /// Verifies the section at an index of the table of a file. Returns its size, or the damage; `None` after
    /// the last section of the file.
    pub(super) fn verify_section(&self, at: SectionIndex) -> Option<Result<usize, Damage>> {
        let file = self.files.get(at.file_idx)?;
        if at.section_idx >= file.table.len() {
            return None;
        }
        Some(file.verify_section(at.section_idx).map_err(|error| {
            self.note_damage();
            Damage { path: file.path.clone(), offset: error.offset() as u64, what: error.to_string() }
        }))
    }

    /// Number of files that could be opened.
    pub(super) fn file_count(&self) -> usize {
        self.files.len()
    }
}

/// A section of the files of a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SectionIndex {
    pub(super) file_idx: usize,
    pub(super) section_idx: usize,
}

impl RollupFile {
    fn read(path: PathBuf, bytes: Mapped) -> Result<RollupFile, DecodeError> {
        let span = decode_header(&bytes)?;
        let name = path.file_name().and_then(|name| name.to_str()).and_then(archive_of_name);
        if name != Some(span) {
            let expected = "the span in the name of the file";
            let found = span.span_ms.cast_unsigned();
            return Err(DecodeError::Invalid { what: "roll-up span", offset: 8, expected, found });
        }
        let table = RollupTable::find(&bytes)?;
        Ok(RollupFile { path, span, bytes, table })
    }

    /// Reads a section to its last window. Returns its size; an error has the offset in the file.
    fn verify_section(&self, idx: usize) -> Result<usize, DecodeError> {
        let found = self.table.section_at(&self.bytes, idx)?;
        let in_file = |error: DecodeError| error.after(found.offset);
        let section = Section::decode(found.bytes, found.series_ref, self.span.span_ms).map_err(in_file)?;
        let mut windows = RolledWindows::new(section.methods());
        section.read(TimeRange::ALL, &mut windows).map_err(in_file)?;
        Ok(found.bytes.len())
    }
}
