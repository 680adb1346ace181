//! Python regular expressions of configuration files: translated, compiled, searched with a limit.
//!
//! Invariants: a pattern means what Python 3.10's `re.search` makes of it; backtracking is bounded by
//! [`BACKTRACK_MAX`] steps, and a search beyond it is counted and finds nothing.
//! Not here: the rule of a pattern.

mod translate;

use std::sync::atomic::{AtomicU64, Ordering};

use fancy_regex::{Captures, Regex, RegexBuilder};

use translate::translate;

/// Steps of one search at most.
const BACKTRACK_MAX: usize = 100_000;
/// Bytes of a pattern at most.
const PATTERN_BYTES_MAX: usize = 4096;
/// Bytes of a compiled pattern at most.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    /// As in the file.
    source: String,
    regex: Regex,
    exceeded_count: AtomicU64,
}

impl Pattern {
    /// Compiles a pattern; the error is a sentence for the operator.
    pub(super) fn new(source: &str) -> Result<Pattern, String> {
        if source.len() > PATTERN_BYTES_MAX {
            return Err(format!("pattern is longer than {PATTERN_BYTES_MAX} bytes"));
        }
        let regex = RegexBuilder::new(&translate(source))
            .backtrack_limit(BACKTRACK_MAX)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .delegate_dfa_size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| format!("pattern {source:?} is not a valid regular expression: {error}"))?;
        Ok(Pattern { source: source.to_owned(), regex, exceeded_count: AtomicU64::new(0) })
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Returns true if the pattern is found anywhere in `text`.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text).unwrap_or_else(|_| {
            self.exceeded_count.fetch_add(1, Ordering::Relaxed);
            false
        })
    }

    /// Returns the groups of the first match.
    pub(super) fn captures<'t>(&self, text: &'t str) -> Option<Captures<'t, str>> {
        self.regex.captures(text).unwrap_or_else(|_| {
            self.exceeded_count.fetch_add(1, Ordering::Relaxed);
            None
        })
    }

    /// Returns the number of a named group.
    pub(super) fn group_idx(&self, name: &str) -> Option<usize> {
        self.regex.capture_names().position(|group| group == Some(name))
    }

    /// Number of groups, including the whole match.
    pub(super) fn group_count(&self) -> usize {
        self.regex.captures_len()
    }

    /// Searches that took more than [`BACKTRACK_MAX`] steps.
    pub(super) fn exceeded_count(&self) -> u64 {
        self.exceeded_count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
