//! Warnings that sources add while they are read.

/// Different warnings of one query; further ones are left out.
const WARNINGS_MAX: usize = 100;

/// Warnings of the sources of one query, each once, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SourceWarnings {
    texts: Vec<String>,
    is_partial: bool,
}

impl SourceWarnings {
    /// Adds a warning.
    pub(super) fn add(&mut self, text: String) {
        if self.texts.len() < WARNINGS_MAX && !self.texts.contains(&text) {
            self.texts.push(text);
        }
    }

    /// Notes that series or samples are missing.
    pub(super) fn set_partial(&mut self) {
        self.is_partial = true;
    }

    /// The texts, in the order in which they were added.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns true if series or samples are missing.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }
}
