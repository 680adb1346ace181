//! Go RE2 patterns, fully anchored (placeholder until the front end lands).

/// Why a pattern is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {0}")]
pub struct RegexError(pub String);

/// A compiled, fully anchored pattern.
pub struct GoRegex(regex_automata::meta::Regex);

impl GoRegex {
    /// Compiles `pattern`.
    ///
    /// # Errors
    /// [`RegexError`].
    pub fn new(pattern: &str) -> Result<GoRegex, RegexError> {
        regex_automata::meta::Regex::new(&format!("^(?s:{pattern})$")).map(GoRegex).map_err(|e| RegexError(e.to_string()))
    }

    /// Whether the whole of `text` fits.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}
