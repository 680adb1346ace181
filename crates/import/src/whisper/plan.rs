//! Division of the files into parts, each of which is imported as one.
//!
//! A part is named by the first and the last of its files, and by the times that are taken. Parts that an
//! earlier import has recorded keep their bounds: files that were created since between them belong to them
//! or to new parts.
//! Invariants: parts follow one another in the order of labels, each file is in exactly one.
//! Not here: the state file (`write::state`).

use std::ops::Range;

use chronolith_base::crc::Crc32c;
use chronolith_model::{Labels, LabelsBuilder};

use super::path::series_of;
use super::points::TimeSelection;
use super::source::{WhisperFile, WhisperSource};

/// Files of a part: its series are in memory once per open block.
const PART_FILES_MAX: usize = 20_000;
/// Fewer files are not divided further.
const PART_FILES_MIN: usize = 1_000;
/// Bytes of the files of a part, some minutes of work at most.
const PART_BYTES_MAX: u64 = 8 << 30;
/// Separates the names in the source of a part. Names with control characters are no series.
const SEPARATOR: char = '\n';

/// A part of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Positions in the list of files.
    pub files: Range<usize>,
    /// Name in the state file.
    pub source: String,
    /// Hash of names and lengths of its files.
    pub fingerprint: String,
}

/// A part of an earlier import.
struct Recorded {
    first: Labels,
    last: Labels,
    source: String,
}

/// Divides the files of `source` into parts of at most `files_max` files; `recorded` are the names of the
/// parts of earlier imports.
pub fn divide<'s>(
    source: &WhisperSource,
    selection: TimeSelection,
    recorded: impl Iterator<Item = &'s str>,
    files_max: usize,
) -> Vec<Part> {
    let files = &source.files;
    let prefix = prefix(source, selection);
    let mut parts = Vec::new();
    let mut start = 0;
    for recorded in recorded_parts(&prefix, recorded) {
        let first = files.partition_point(|file| file.labels < recorded.first).max(start);
        let end = files.partition_point(|file| file.labels <= recorded.last);
        if first < end {
            add_parts(files, start..first, files_max, &prefix, &mut parts);
            parts.push(part(files, first..end, recorded.source));
            start = end;
        }
    }
    add_parts(files, start..files.len(), files_max, &prefix, &mut parts);
    parts
}

/// Returns how many files a part has if blocks are made of it.
pub(crate) fn block_part_files(file_count: usize, worker_count: usize) -> usize {
    (file_count / worker_count.max(1) + 1).clamp(PART_FILES_MIN, PART_FILES_MAX)
}

impl WhisperSource {
    /// Returns the files of a part.
    #[must_use]
    pub fn files_of(&self, part: &Part) -> &[WhisperFile] {
        self.files.get(part.files.clone()).unwrap_or_default()
    }
}

/// Name of all parts of a source: directory and times.
fn prefix(source: &WhisperSource, selection: TimeSelection) -> String {
    let dir = source.dir.display();
    match (selection.first_s, selection.last_s) {
        (i64::MIN, i64::MAX) => dir.to_string(),
        (first_s, last_s) => format!("{dir} {first_s}..{last_s}"),
    }
}

/// Parts of earlier imports in the order of labels.
fn recorded_parts<'s>(prefix: &str, sources: impl Iterator<Item = &'s str>) -> Vec<Recorded> {
    let mut builder = LabelsBuilder::new();
    let mut parts: Vec<Recorded> = sources
        .filter_map(|source| {
            let mut names = source.rsplitn(3, SEPARATOR);
            let last = series_of(names.next()?, &mut builder).ok()?.1;
            let first = series_of(names.next()?, &mut builder).ok()?.1;
            (names.next()? == prefix).then(|| Recorded { first, last, source: source.to_owned() })
        })
        .collect();
    parts.sort_by(|a, b| a.first.cmp(&b.first));
    parts
}

/// Appends new parts of the files in `range`.
fn add_parts(
    files: &[WhisperFile],
    range: Range<usize>,
    files_max: usize,
    prefix: &str,
    parts: &mut Vec<Part>,
) {
    let mut start = range.start;
    let mut bytes = 0u64;
    for idx in range.clone() {
        bytes = bytes.saturating_add(files.get(idx).map_or(0, |file| file.len));
        let end = idx + 1;
        if end == range.end || end - start == files_max || bytes >= PART_BYTES_MAX {
            let name = |idx: usize| files.get(idx).map_or("", |file| file.relative.as_str());
            let source = format!("{prefix}{SEPARATOR}{}{SEPARATOR}{}", name(start), name(idx));
            parts.push(part(files, start..end, source));
            (start, bytes) = (end, 0);
        }
    }
}

fn part(files: &[WhisperFile], range: Range<usize>, source: String) -> Part {
    let mut sum = Crc32c::new();
    let mut total = 0u64;
    for file in files.get(range.clone()).unwrap_or_default() {
        sum.update(file.relative.as_bytes());
        sum.update(&file.len.to_le_bytes());
        total += file.len;
    }
    let fingerprint = format!("{:08x}-{total}", sum.finish());
    Part { files: range, source, fingerprint }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(names: &[&str]) -> WhisperSource {
        let mut builder = LabelsBuilder::new();
        let files = names.iter().map(|name| {
            let (path, labels) = series_of(name, &mut builder).unwrap();
            WhisperFile { relative: (*name).to_owned(), path, labels, len: 10 }
        });
        WhisperSource { dir: "/w".into(), files: files.collect() }
    }

    fn divide_all(source: &WhisperSource, recorded: &[Part]) -> Vec<Part> {
        divide(source, TimeSelection::ALL, recorded.iter().map(|part| part.source.as_str()), 1_000)
    }

    #[test]
    fn parts_are_bounded_and_cover_all_files() {
        let names: Vec<String> = (0..2_500).map(|idx| format!("a/{idx:05}.wsp")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let parts = divide_all(&source(&names), &[]);
        let ranges: Vec<_> = parts.iter().map(|part| part.files.clone()).collect();
        assert_eq!(ranges, [0..1_000, 1_000..2_000, 2_000..2_500]);
        let files_max =
            [(10, 2), (3_000, 2), (1_000_000, 2)].map(|(files, workers)| block_part_files(files, workers));
        assert_eq!(files_max, [1_000, 1_501, 20_000]);
        assert_eq!(parts[1].source, "/w\na/01000.wsp\na/01999.wsp");
    }

    #[test]
    fn recorded_parts_keep_their_bounds() {
        let all = source(&["b.wsp", "c.wsp", "d.wsp"]);
        let before = divide_all(&all, &[]);
        assert_eq!(divide_all(&all, &before), before);
        // A file within the bounds changes the part, files outside of them are new parts; a file at the bound
        // may be gone.
        let after = divide_all(&source(&["a.wsp", "b.wsp", "bb.wsp", "c.wsp", "e.wsp"]), &before);
        let found: Vec<_> = after.iter().map(|part| (part.files.clone(), part.source.as_str())).collect();
        assert_eq!(
            found,
            [(0..1, "/w\na.wsp\na.wsp"), (1..4, before[0].source.as_str()), (4..5, "/w\ne.wsp\ne.wsp")]
        );
        assert_ne!(after[1].fingerprint, before[0].fingerprint);
        // Another period is another import.
        let period = TimeSelection { first_s: 5, last_s: i64::MAX };
        assert_eq!(
            divide(&all, period, before.iter().map(|part| part.source.as_str()), 9)[0].source,
            format!("/w 5..{}\nb.wsp\nd.wsp", i64::MAX)
        );
    }
}
