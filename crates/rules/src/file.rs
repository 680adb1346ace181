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
pub use print::{file_yaml, group_yaml, namespaces_yaml};
pub use source::{GroupSource, RuleSource};

mod check;
mod decode;
mod group_entry;
mod options;
mod print;
mod source;

/// A checked file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleFile {
    /// Groups in the order of the file.
    pub groups: Vec<GroupEntry>,
    /// True if the text has a second document, which is ignored.
    pub has_more_documents: bool,
}

/// A checked group with the texts of its author.
#[derive(Debug, Clone, PartialEq)]
pub struct SourcedGroup {
    /// Texts of the group.
    pub source: GroupSource,
    /// The parsed group.
    pub entry: GroupEntry,
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
    let parsed = read(bytes, options, Root::File, &mut faults).map(|decoded| {
        let groups = check::check(decoded.groups, options, &mut faults);
        RuleFile { groups, has_more_documents: decoded.has_more_documents }
    });
    parsed.filter(|_| faults.is_empty()).ok_or_else(|| FileError::of_faults(file, faults))
}

/// As [`parse`], with the texts of each group.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_sources(
    file: &str,
    bytes: &[u8],
    options: &FileOptions<'_>,
) -> Result<Vec<SourcedGroup>, Vec<FileError>> {
    parse_sourced(file, bytes, options, Root::File)
}

/// As [`parse_with_sources`], for a document that is one group, as Mimir's API takes it.
///
/// # Errors
/// As [`parse`].
pub fn parse_group(
    file: &str,
    bytes: &[u8],
    options: &FileOptions<'_>,
) -> Result<SourcedGroup, Vec<FileError>> {
    let mut groups = parse_sourced(file, bytes, options, Root::Group)?;
    assert!(groups.len() == 1, "a document that is a group has one");
    Ok(groups.remove(0))
}

fn parse_sourced(
    file: &str,
    bytes: &[u8],
    options: &FileOptions<'_>,
    root: Root,
) -> Result<Vec<SourcedGroup>, Vec<FileError>> {
    let mut faults = Faults::default();
    let parsed = read(bytes, options, root, &mut faults).map(|decoded| {
        let sources: Vec<GroupSource> = decoded.groups.iter().map(GroupSource::of).collect();
        let entries = check::check(decoded.groups, options, &mut faults);
        assert!(sources.len() == entries.len(), "each group is checked");
        let joined = sources.into_iter().zip(entries);
        joined.map(|(source, entry)| SourcedGroup { source, entry }).collect()
    });
    parsed.filter(|_: &Vec<SourcedGroup>| faults.is_empty()).ok_or_else(|| FileError::of_faults(file, faults))
}

/// Content of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    /// A mapping with the key `groups`.
    File,
    /// The fields of one group.
    Group,
}

/// Groups of a document before they are checked.
struct Decoded {
    groups: Vec<decode::RawGroup>,
    has_more_documents: bool,
}

/// Decodes the groups of a document; `None` after a fault.
fn read(bytes: &[u8], options: &FileOptions<'_>, root: Root, faults: &mut Faults) -> Option<Decoded> {
    let FileLimits { bytes_max, groups_max, rules_max } = options.limits;
    // A rule has about ten fields, each a key and a value, and labels.
    let nodes_max = rules_max.saturating_mul(64).saturating_add(groups_max.saturating_mul(32));
    let document = document::read(bytes, Bounds { nodes_max, bytes_max }, faults)?;
    let has_more_documents = document.has_more;
    let groups = match (document.root, root) {
        (None, Root::File) => return Some(Decoded { groups: Vec::new(), has_more_documents: false }),
        (None, Root::Group) => {
            faults.add(Position { line: 1, column: 1 }, "Groupname must not be empty");
            return None;
        }
        (Some(node), Root::File) => decode::groups(&node, options, faults),
        (Some(node), Root::Group) => vec![decode::group(&node, options, faults)],
    };
    faults.is_empty().then_some(Decoded { groups, has_more_documents })
}

#[cfg(test)]
mod tests;
