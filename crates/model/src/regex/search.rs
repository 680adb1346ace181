//! Search for a pattern anywhere in a text, and replacement of all matches: Go's `regexp`.
//!
//! Invariants: matches are the leftmost ones, and of these the first alternative's; an empty match directly
//! after another match is none.

use regex_automata::{Input, meta};

use super::error::{RegexError, RegexErrorKind};
use super::expand;
use super::parse::{self, Mode};
use super::program::{GROUP_TABLE_BYTES_MAX, PATTERN_BYTES_MAX, compile};

/// A compiled pattern that is not anchored. `.` matches no newline.
#[derive(Debug)]
pub struct SearchRegex {
    regex: meta::Regex,
    group_names: Vec<Option<String>>,
}

impl SearchRegex {
    /// Compiles `pattern`.
    ///
    /// # Errors
    /// [`RegexError`] with Go's text.
    pub fn new(pattern: &str) -> Result<SearchRegex, RegexError> {
        let too_large = || RegexError::new(RegexErrorKind::Large, pattern);
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(too_large());
        }
        let parsed = parse::parse(pattern, Mode::Search)?;
        let regex = compile(&parsed.hir).ok_or_else(too_large)?;
        if regex.memory_usage().saturating_mul(parsed.group_names.len()) > GROUP_TABLE_BYTES_MAX {
            return Err(too_large());
        }
        Ok(SearchRegex { regex, group_names: parsed.group_names })
    }

    /// Returns true if the pattern matches a part of `text`.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// Returns `text` with each match replaced by `template`, which names groups as `$1`, `$name` or
    /// `${name}`. `None` if the result is longer than `bytes_max`.
    #[must_use]
    pub fn replace_all(&self, text: &str, template: &str, bytes_max: usize) -> Option<String> {
        let mut captures = self.regex.create_captures();
        let mut out = String::new();
        let mut copied_end = 0;
        let mut search_start = 0;
        while search_start <= text.len() {
            self.regex.captures(Input::new(text).span(search_start..text.len()), &mut captures);
            let Some(found) = captures.get_match() else { break };
            out.push_str(text.get(copied_end..found.start()).unwrap_or(""));
            if found.end() > copied_end || found.start() == 0 {
                let group =
                    |idx: usize| captures.get_group(idx).and_then(|span| text.get(span.start..span.end));
                out.push_str(&expand::expand(template, &self.group_names, group));
            }
            if out.len() > bytes_max {
                return None;
            }
            copied_end = found.end();
            let next = text.get(search_start..).and_then(|rest| rest.chars().next());
            search_start = found.end().max(search_start + next.map_or(1, char::len_utf8));
        }
        out.push_str(text.get(copied_end..).unwrap_or(""));
        (out.len() <= bytes_max).then_some(out)
    }
}
