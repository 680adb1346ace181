//! Errors and notes of configuration files, with the line that they are about.
//!
//! Not here: checks of the rules (`schemas`, `aggregation`, `rewrite`).

/// A configuration file that is not used; the one in use stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ConfigError {
    /// Line of the file, counted from 1.
    pub line: usize,
    /// Section, expected and found text.
    pub what: String,
}

impl ConfigError {
    pub(super) fn new(line: usize, what: impl Into<String>) -> ConfigError {
        ConfigError { line, what: what.into() }
    }

    /// An error about a value of a section.
    pub(super) fn in_section(line: usize, section: &str, what: &str) -> ConfigError {
        ConfigError { line, what: format!("section [{section}]: {what}") }
    }
}

/// A remark about a part of a file that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Line of the file, counted from 1.
    pub line: usize,
    /// Section and ignored text.
    pub what: String,
}

impl Note {
    pub(super) fn in_section(line: usize, section: &str, what: &str) -> Note {
        Note { line, what: format!("section [{section}]: {what}") }
    }
}
