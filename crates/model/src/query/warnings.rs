//! Warnings that sources add while they are read.
//!
//! Invariants: a result is partial if and only if a warning names each part that failed.

use std::collections::BTreeSet;

/// Largest number of different warnings per query, without failures; further ones are left out.
const WARNINGS_MAX: usize = 100;
/// Parts that may fail in one query; it fails with the next one.
const FAILED_PARTS_MAX: usize = 1000;

/// Warnings of the sources of one query, each once, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SourceWarnings {
    texts: Vec<String>,
    /// Names of parts whose series or samples are missing; each has one of the texts.
    failed_parts: BTreeSet<String>,
}

impl SourceWarnings {
    /// Adds a warning.
    pub(super) fn add(&mut self, text: String) {
        let count = self.texts.len().saturating_sub(self.failed_parts.len());
        if count < WARNINGS_MAX && !self.texts.contains(&text) {
            self.texts.push(text);
        }
    }

    /// Adds the failure of a part if it is the first one of the part. Returns false if it cannot be named
    /// because too many parts failed.
    pub(super) fn add_failure(&mut self, part: &str, text: impl FnOnce() -> String) -> bool {
        if self.failed_parts.contains(part) {
            return true;
        }
        if self.failed_parts.len() >= FAILED_PARTS_MAX {
            return false;
        }
        self.failed_parts.insert(part.to_owned());
        self.texts.push(text());
        true
    }

    /// The texts, in the order in which they were added.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns true if series or samples are missing.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        !self.failed_parts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failed_part_is_named_once_or_the_query_fails() {
        let mut warnings = SourceWarnings::default();
        (0..WARNINGS_MAX + 50).for_each(|idx| warnings.add(format!("warning {idx}")));
        assert_eq!((warnings.texts().len(), warnings.is_partial()), (WARNINGS_MAX, false));
        for idx in 0..FAILED_PARTS_MAX {
            for error in ["first", "second"] {
                assert!(warnings.add_failure(&idx.to_string(), || format!("part {idx}: {error}")));
            }
        }
        assert!(warnings.is_partial());
        assert!(!warnings.add_failure("another", || unreachable!("it is not named")));
        assert!(warnings.add_failure("7", || unreachable!("it is named")));
        let texts = &warnings.texts()[WARNINGS_MAX..];
        assert_eq!(texts.len(), FAILED_PARTS_MAX);
        assert!(texts.iter().enumerate().all(|(idx, text)| *text == format!("part {idx}: first")));
    }
}
