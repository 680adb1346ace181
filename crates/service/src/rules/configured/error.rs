//! Reasons why a change of configured rules is refused or fails.

use std::io;

use chronolith_rules::file::FileError;

/// Faults that one text lists.
const SHOWN_FAULTS_MAX: usize = 20;

/// A change that was not made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    /// The group or the name of the namespace is not valid.
    #[error("{0}")]
    Invalid(String),
    /// A limit.
    #[error("{what}: {count}, {} {limit}", allowed_by(setting))]
    Limit {
        /// Name of the limited quantity.
        what: String,
        /// The count after the change.
        count: usize,
        /// The setting with the limit; empty if it is fixed.
        setting: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The group is not in the namespace, or the namespace does not exist.
    #[error("group does not exist")]
    GroupNotFound,
    /// The namespace does not exist.
    #[error("group namespace does not exist")]
    NamespaceNotFound,
    /// The file of the namespace cannot be read.
    #[error("{0}; delete the namespace, or mend the file and restart the server")]
    Damaged(String),
    /// The tenant is being deleted.
    #[error("the tenant is being deleted")]
    TenantDeleted,
    /// The file would not read back as it is: a bug.
    #[error("internal error: the group cannot be stored as YAML")]
    NotPrintable,
    /// The disk failed.
    #[error("rules cannot be stored: {0}")]
    Io(io::Error),
}

fn allowed_by(setting: &str) -> String {
    if setting.is_empty() { "the limit is".to_owned() } else { format!("and {setting} allows") }
}

impl ConfigureError {
    /// Checks a count against its limit; 0 is no limit.
    pub(super) fn check_limit(
        what: &str,
        count: usize,
        setting: &'static str,
        limit: usize,
    ) -> Result<(), ConfigureError> {
        match limit == 0 || count <= limit {
            true => Ok(()),
            false => Err(ConfigureError::Limit { what: what.to_owned(), count, setting, limit }),
        }
    }
}

impl From<Vec<FileError>> for ConfigureError {
    fn from(errors: Vec<FileError>) -> ConfigureError {
        ConfigureError::Invalid(joined(&errors))
    }
}

/// The first faults with line and column, as one text.
pub(super) fn joined(errors: &[FileError]) -> String {
    let shown = errors.iter().take(SHOWN_FAULTS_MAX);
    let mut texts: Vec<String> =
        shown.map(|error| format!("{}: {}", error.position, error.message)).collect();
    if errors.len() > SHOWN_FAULTS_MAX {
        texts.push(format!("and {} more errors", errors.len() - SHOWN_FAULTS_MAX));
    }
    texts.join(", ")
}
