//! Go RE2 regular expressions, fully anchored, as Prometheus compiles them: `^(?s:pattern)$`. Only
//! [`SearchRegex`] is not anchored.
//!
//! Invariants: a pattern that Go refuses is refused with Go's text; one that Go accepts has Go's matches.
//! Differences: the Unicode tables are newer than Go's; the limit of a program, [`PROGRAM_BYTES_MAX`], is
//! lower than Go's.
//! Not here: label matchers (`matcher`).

mod class;
mod class_set;
mod error;
mod expand;
mod literal;
mod parse;
mod program;
mod search;
mod unicode;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::OnceLock;

use regex_automata::meta;
use regex_syntax::hir::{Hir, Look};

pub use error::{RegexError, RegexErrorKind};
pub use literal::{SET_MATCH_BYTES_MAX, SET_MATCH_COUNT_MAX};
pub use program::{GROUP_TABLE_BYTES_MAX, PATTERN_BYTES_MAX, PROGRAM_BYTES_MAX};
pub use search::SearchRegex;

use literal::Glob;
use parse::Mode;
use program::compile;

/// Instructions times groups up to which a pattern may be compiled lazily, when its groups are first needed.
const LAZY_TABLE_SIZE_MAX: u64 = 1 << 16;
/// A compiled, fully anchored pattern.
pub struct GoRegex {
    anchored: Hir,
    group_names: Vec<Option<String>>,
    program: Program,
    prefix: String,
    suffix: String,
    contains: Vec<String>,
    /// Compiled with the pattern, or, if `program` does not need it, when groups are first needed.
    compiled: OnceLock<meta::Regex>,
}

/// Strategy of [`GoRegex::is_match`].
enum Program {
    /// Any of these strings, sorted.
    Set(Vec<String>),
    /// Literals with gaps of any text.
    Glob(Glob),
    /// The compiled pattern, after a check of its literals.
    Compiled,
}

impl GoRegex {
    /// Compiles `pattern`. Sets of strings, and strings with `.*` or `.+` between them, need no
    /// compilation.
    ///
    /// # Errors
    /// [`RegexError`].
    pub fn new(pattern: &str) -> Result<GoRegex, RegexError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(RegexError::new(RegexErrorKind::Large, pattern));
        }
        let parsed = parse::parse(pattern, Mode::Anchored)?;
        let program = match (literal::set(&parsed.hir), literal::glob(&parsed.hir)) {
            (Some(set), _) => Program::Set(set),
            (None, Some(glob)) => Program::Glob(glob),
            (None, None) => Program::Compiled,
        };
        let prefix = literal::prefix(&parsed.hir);
        let suffix = literal::suffix(&parsed.hir);
        let contains = literal::contains(&parsed.hir);
        let anchored = Hir::concat(vec![Hir::look(Look::Start), parsed.hir, Hir::look(Look::End)]);
        let compiled = OnceLock::new();
        let group_names = parsed.group_names;
        let table_size = parsed.size.saturating_mul(group_names.len() as u64);
        if matches!(program, Program::Compiled) || table_size > LAZY_TABLE_SIZE_MAX {
            let too_large = || RegexError::new(RegexErrorKind::Large, pattern);
            let regex = compile(&anchored).ok_or_else(too_large)?;
            if regex.memory_usage().saturating_mul(group_names.len()) > GROUP_TABLE_BYTES_MAX {
                return Err(too_large());
            }
            let _ = compiled.set(regex);
        }
        Ok(GoRegex { anchored, group_names, program, prefix, suffix, contains, compiled })
    }

    /// Returns true if the pattern matches all of `text`.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        match &self.program {
            Program::Set(set) => set.binary_search_by(|s| s.as_str().cmp(text)).is_ok(),
            Program::Glob(glob) => glob.is_match(text),
            Program::Compiled => {
                literal::begins_with(text, &self.prefix)
                    && literal::ends_with(text, &self.suffix)
                    && literal::contains_in_order(text, &self.contains)
                    && self.compiled().is_match(text)
            }
        }
    }

    /// Returns all matching strings, ascending, if they are few: `a|b|c`, `(a|b)c`, `[ab]?`.
    #[must_use]
    pub fn set_matches(&self) -> Option<&[String]> {
        match &self.program {
            Program::Set(set) => Some(set),
            Program::Glob(_) | Program::Compiled => None,
        }
    }

    /// Returns true if the pattern matches every string: `.*`.
    #[must_use]
    pub fn matches_all(&self) -> bool {
        matches!(&self.program, Program::Glob(glob) if glob.matches_all())
    }

    /// Common prefix of all matches; may be empty.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Common suffix of all matches; may be empty.
    #[must_use]
    pub fn suffix(&self) -> &str {
        &self.suffix
    }

    /// Names of the groups in order of their opening parenthesis; the first is the whole match, without a
    /// name.
    #[must_use]
    pub fn group_names(&self) -> &[Option<String>] {
        &self.group_names
    }

    /// Fills `template` with the groups of the match: `$1`, `$name`, `${name}`, and `$$` for `$`, as Go's
    /// `Regexp.Expand` does (names are as long as possible; missing groups are empty).
    /// `None` if the pattern does not match `text`.
    #[must_use]
    pub fn captures_expand(&self, text: &str, template: &str) -> Option<String> {
        let regex = self.compiled();
        let mut captures = regex.create_captures();
        regex.captures(text, &mut captures);
        if !captures.is_match() {
            return None;
        }
        let group = |i: usize| captures.get_group(i).and_then(|span| text.get(span.start..span.end));
        Some(expand::expand(template, &self.group_names, group))
    }

    /// Bytes of the compiled program without its caches, and of the strings if the regex is a set of strings.
    #[must_use]
    pub fn program_bytes(&self) -> usize {
        let set = self.set_matches().unwrap_or_default();
        let strings: usize = set.iter().map(|string| string.len() + size_of::<String>()).sum();
        strings + self.compiled.get().map_or(0, meta::Regex::memory_usage)
    }

    fn compiled(&self) -> &meta::Regex {
        // Patterns that `new` does not compile are far below the limits.
        self.compiled.get_or_init(|| compile(&self.anchored).expect("a small pattern of literals compiles"))
    }
}

impl fmt::Debug for GoRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GoRegex").field(&self.anchored.to_string()).finish()
    }
}
