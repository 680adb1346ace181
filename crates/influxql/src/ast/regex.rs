//! A regular expression of a statement, checked but not compiled.
//!
//! Not here: matching (the storage compiles it).

use std::fmt;

use chronolith_model::regex::{GoRegex, RegexError};

/// A valid pattern of Go's syntax. It matches any part of a text, unless it has anchors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Regex {
    pattern: String,
}

impl Regex {
    /// Checks `pattern`.
    ///
    /// # Errors
    /// [`RegexError`], with Go's text.
    pub fn new(pattern: String) -> Result<Regex, RegexError> {
        GoRegex::new(&pattern)?;
        Ok(Regex { pattern })
    }

    /// The text between the slashes, unescaped.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns a pattern that matches a whole text where this one matches a part of it: matchers of series
    /// are anchored, and `.` of their patterns includes the newline.
    #[must_use]
    pub fn anchored_pattern(&self) -> String {
        format!("(?s:.*)(?-s:{})(?s:.*)", self.pattern)
    }

    /// Compiles the pattern for [`GoRegex::is_match`] on parts of a text.
    ///
    /// # Errors
    /// [`RegexError`] if the program is too large.
    pub fn compile(&self) -> Result<GoRegex, RegexError> {
        GoRegex::new(&self.anchored_pattern())
    }
}

impl fmt::Display for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.pattern.replace('/', r"\/"))
    }
}
