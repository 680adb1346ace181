//! Rule files of Prometheus 3.16: groups of recording and alerting rules, with all errors at once.
//!
//! Invariants: a file is accepted exactly if `promtool check rules` accepts it and it is within
//! [`FileLimits`]; every error has line and column, and Prometheus's text where Prometheus has one.
//! Not here: reading of files, globs and reloads (the caller), rounds (`round`).

use std::fmt;

use crate::document;
use crate::faults::Faults;
use crate::yaml::Bounds;
pub use crate::yaml::Position;
pub use group_entry::GroupEntry;
pub use options::{FileLimits, FileOptions, UnknownFields};

mod check;
mod decode;
mod group_entry;
mod options;

/// A checked file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleFile {
    /// Groups in the order of the file.
    pub groups: Vec<GroupEntry>,
    /// True if the text has a second document, which is ignored.
    pub has_more_documents: bool,
}

/// One fault of a file. `Display` is `FILE: LINE:COLUMN: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The file as it was named.
    pub file: String,
    /// Position of the field, the rule or the group.
    pub position: Position,
    /// Prometheus's text where there is one, without positions.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.file, self.position, self.message)
    }
}

impl std::error::Error for FileError {}

impl FileError {
    /// Errors of the faults of a file; the last one counts those that were not kept.
    pub(super) fn of_faults(file: &str, faults: Faults) -> Vec<FileError> {
        let error = |position, message| FileError { file: file.to_owned(), position, message };
        let last = faults.kept.last().map(|fault| fault.position).unwrap_or_default();
        let mut errors: Vec<FileError> =
            faults.kept.into_iter().map(|fault| error(fault.position, fault.message)).collect();
        if faults.dropped_count > 0 {
            errors.push(error(last, format!("and {} more errors", faults.dropped_count)));
        }
        errors
    }
}

/// Reads and checks a rule file. Cost: linear in its bytes, and the parsing of its expressions.
///
/// # Errors
/// All faults that can be found. As in Prometheus, values are checked once YAML and types have none.
pub fn parse(file: &str, bytes: &[u8], options: &FileOptions<'_>) -> Result<RuleFile, Vec<FileError>> {
    let mut faults = Faults::default();
    match parse_groups(bytes, options, &mut faults) {
        Some(parsed) if faults.is_empty() => Ok(parsed),
        _ => Err(FileError::of_faults(file, faults)),
    }
}

fn parse_groups(bytes: &[u8], options: &FileOptions<'_>, faults: &mut Faults) -> Option<RuleFile> {
    let FileLimits { bytes_max, groups_max, rules_max } = options.limits;
    // A rule has about ten fields, each a key and a value, and labels.
    let nodes_max = rules_max.saturating_mul(64).saturating_add(groups_max.saturating_mul(32));
    let document = document::read(bytes, Bounds { nodes_max, bytes_max }, faults)?;
    let Some(root) = document.root else { return Some(RuleFile::default()) };
    let groups = decode::groups(&root, options, faults);
    if !faults.is_empty() {
        return None;
    }
    let groups = check::check(groups, options, faults);
    Some(RuleFile { groups, has_more_documents: document.has_more })
}

#[cfg(test)]
mod tests;
