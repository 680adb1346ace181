//! A regular expression of a statement, checked but not compiled.
//!
//! Not here: matching (the storage compiles it).

use std::fmt;

use chronolith_model::regex::{GoRegex, RegexError};

/// A valid pattern of Go's syntax. It matches any part of a text, unless it has anchors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Regex {
    pattern: String,
    program_bytes: usize,
}

impl Regex {
    /// Checks `pattern`.
    ///
    /// # Errors
    /// [`RegexError`], with Go's text.
    pub fn new(pattern: String) -> Result<Regex, RegexError> {
        let program_bytes = GoRegex::new(&pattern)?.program_bytes();
        Ok(Regex { pattern, program_bytes })
    }

    /// Bytes of the pattern once it is compiled.
    #[must_use]
    pub fn program_bytes(&self) -> usize {
        self.program_bytes
    }

    /// The text between the slashes, unescaped.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns a pattern that matches a whole text where this one matches a part of it: matchers of series
    /// are anchored, and `.` of their patterns includes the newline. Anchors of the pattern replace the
    /// anchors of the matcher, so that `^(a|b)$` is the set of its strings.
    #[must_use]
    pub fn anchored_pattern(&self) -> String {
        let mut inner = self.pattern.as_str();
        let mut prefix = ANY;
        let mut suffix = ANY;
        if has_plain_anchors(inner) {
            if let Some(rest) = inner.strip_prefix('^') {
                inner = rest;
                prefix = "";
            }
            if let Some(rest) = inner.strip_suffix('$').filter(|rest| !ends_in_escape(rest)) {
                inner = rest;
                suffix = "";
            }
        }
        format!("{prefix}(?-s:{inner}){suffix}")
    }

    /// Compiles the pattern for [`GoRegex::is_match`] on parts of a text.
    ///
    /// # Errors
    /// [`RegexError`] if the program is too large.
    pub fn compile(&self) -> Result<GoRegex, RegexError> {
        GoRegex::new(&self.anchored_pattern())
    }
}

/// Any text, newlines included.
const ANY: &str = "(?s:.*)";

/// Returns true if an anchor at an end of the pattern holds for all of it: no alternative outside of
/// parentheses, no flags.
fn has_plain_anchors(pattern: &str) -> bool {
    let mut depth = 0_usize;
    let mut is_escaped = false;
    for c in pattern.chars() {
        match c {
            _ if is_escaped => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return false,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    !pattern.contains("(?") && !pattern.contains(['[', ']'])
}

fn ends_in_escape(pattern: &str) -> bool {
    pattern.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

impl fmt::Display for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.pattern.replace('/', r"\/"))
    }
}
