//! Listing of whisper files below a directory, with their series.
//!
//! Invariants: files are sorted by the labels of their series, as blocks need them; each series has one
//! file. Symbolic links to directories are not followed.
//! Not here: reading files (`points`).

use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_model::{Labels, LabelsBuilder};

use super::error::WhisperError;
use super::path::{EXTENSION, PathReject, series_of};
use super::report::WhisperReport;

/// Files of one import at most: each takes some 300 bytes of memory.
pub const FILE_COUNT_MAX: usize = 5_000_000;
/// Directories within one another at most.
const DEPTH_MAX: usize = 256;

/// Whisper files of a directory.
#[derive(Debug, Default)]
pub struct WhisperSource {
    /// Directory, as the operator named it.
    pub dir: PathBuf,
    /// Files, ascending by labels.
    pub files: Vec<WhisperFile>,
}

/// A file with its series.
#[derive(Debug, Clone)]
pub struct WhisperFile {
    /// Position below the directory, with `/`.
    pub relative: String,
    /// Canonical path of the series.
    pub path: String,
    /// Labels of the series.
    pub labels: Labels,
    /// Bytes when it was listed.
    pub len: u64,
}

impl WhisperSource {
    /// Lists the files below `dir`. Files without a series and directories that cannot be listed are in
    /// `report`.
    ///
    /// # Errors
    /// [`WhisperError`] if `dir` cannot be listed or has no files, or too many.
    pub fn list(env: &Env, dir: &Path, report: &mut WhisperReport) -> Result<WhisperSource, WhisperError> {
        let mut listing = Listing { env, dir, files: Vec::new(), builder: LabelsBuilder::new(), report };
        listing.list()?;
        let mut files = listing.files;
        if files.is_empty() {
            return Err(WhisperError::Empty(dir.to_owned()));
        }
        // The file that carbon writes is the first of several files of a series: `a/b.wsp` before `a.b.wsp`.
        files.sort_by(|a, b| a.labels.cmp(&b.labels).then_with(|| b.relative.cmp(&a.relative)));
        files.dedup_by(|next, kept| {
            let is_same = next.labels == kept.labels;
            if is_same {
                report.reject(&next.relative, PathReject::Duplicate);
            }
            is_same
        });
        Ok(WhisperSource { dir: dir.to_owned(), files })
    }

    /// Bytes of all files.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }
}

/// A listing under way.
struct Listing<'a, 'r> {
    env: &'a Env,
    dir: &'a Path,
    files: Vec<WhisperFile>,
    builder: LabelsBuilder,
    report: &'r mut WhisperReport,
}

impl Listing<'_, '_> {
    fn list(&mut self) -> Result<(), WhisperError> {
        let mut left = vec![(String::new(), 0)];
        while let Some((relative, depth)) = left.pop() {
            let path = self.dir.join(&relative);
            let entries = match self.env.disk.list(&path) {
                Ok(entries) => entries,
                Err(error) if depth == 0 => return Err(WhisperError::Io { path, error }),
                Err(error) => {
                    // carbon or an operator may have removed it since.
                    self.report.damage(path, 0, format!("{error}: files below it are lost"));
                    continue;
                }
            };
            for entry in entries {
                let below = match relative.as_str() {
                    "" => entry.name,
                    _ => format!("{relative}/{}", entry.name),
                };
                if !entry.is_dir {
                    self.add_file(below, entry.len)?;
                } else if depth + 1 < DEPTH_MAX {
                    left.push((below, depth + 1));
                } else {
                    let path = self.dir.join(below);
                    self.report.damage(path, 0, format!("more than {DEPTH_MAX} directories deep"));
                }
            }
        }
        Ok(())
    }

    fn add_file(&mut self, relative: String, len: u64) -> Result<(), WhisperError> {
        if !relative.ends_with(EXTENSION) {
            return Ok(());
        }
        match series_of(&relative, &mut self.builder) {
            Ok((path, labels)) => self.files.push(WhisperFile { relative, path, labels, len }),
            Err(reject) => self.report.reject(&relative, reject),
        }
        if self.files.len() > FILE_COUNT_MAX {
            return Err(WhisperError::TooMany { path: self.dir.to_owned(), limit: FILE_COUNT_MAX });
        }
        Ok(())
    }
}
