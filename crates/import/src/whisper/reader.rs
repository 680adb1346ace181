//! Reads the files of a source one after the other and counts their points.
//!
//! Invariants: a file is read once as a whole, and only that copy counts, so that carbon may write on; damage
//! of a file costs its points alone and is in the report.
//! Not here: the points of a file (`points`), their use.

use std::io;
use std::path::Path;

use chronolith_base::Env;

use super::header::{FILE_BYTES_MAX, Header};
use super::points::{FilePoints, TimeSelection};
use super::report::WhisperReport;
use super::rules::Rules;
use super::source::WhisperFile;

/// Reader of the files below a directory.
pub struct SourceReader<'a> {
    env: &'a Env,
    dir: &'a Path,
    selection: TimeSelection,
    rules: &'a Rules,
    bytes: Vec<u8>,
    points: FilePoints,
    header: Option<Header>,
    /// Text of a header; in most directories the same for every file.
    described: Option<(Header, String)>,
}

impl<'a> SourceReader<'a> {
    /// A reader of the points in `selection` that compares files with `rules`.
    #[must_use]
    pub fn new(env: &'a Env, dir: &'a Path, selection: TimeSelection, rules: &'a Rules) -> SourceReader<'a> {
        let points = FilePoints::default();
        SourceReader { env, dir, selection, rules, bytes: Vec::new(), points, header: None, described: None }
    }

    /// Reads a file and counts it in `report`; `None` if it cannot be read.
    pub fn read(&mut self, file: &WhisperFile, report: &mut WhisperReport) -> Option<(&Header, &FilePoints)> {
        let path = self.dir.join(&file.relative);
        if let Err(error) = self.read_bytes(&path) {
            report.files_unreadable += 1;
            report.damage(path, 0, format!("{error}: all points of the file are lost"));
            return None;
        }
        report.files += 1;
        report.bytes += self.bytes.len() as u64;
        let now_s = self.env.clock.now_ms().div_euclid(1000);
        let header = match self.points.read(&self.bytes, now_s, self.selection) {
            Ok(header) => header,
            Err(damage) => {
                let what = format!("{}: all points of the file are lost", damage.what);
                report.damage(path, damage.offset as u64, what);
                return None;
            }
        };
        self.points.archives.iter().for_each(|counts| report.slots.add(counts));
        for damage in &self.points.damages {
            report.damage(&path, damage.offset as u64, &damage.what);
        }
        if self.described.as_ref().is_none_or(|(known, _)| *known != header) {
            self.described = Some((header.clone(), header.describe()));
        }
        if let Some((_, layout)) = &self.described {
            report.count_layout(layout, self.points.times.len() as u64);
        }
        self.rules.compare(&file.path, &header, &mut report.rules);
        Some((self.header.insert(header), &self.points))
    }

    fn read_bytes(&mut self, path: &Path) -> io::Result<()> {
        let file = self.env.disk.open_read(path)?;
        let len = file.len()?;
        if len > FILE_BYTES_MAX {
            let what = format!("{len} bytes long, at most {FILE_BYTES_MAX} are read");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        self.bytes.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
        file.read_at(&mut self.bytes, 0)
    }
}
