//! Patterns that were compiled in an expansion.

use std::sync::Arc;

use chronolith_model::{RegexError, SearchRegex};

/// Compiled patterns of one expansion.
const CACHED_COUNT_MAX: usize = 16;

/// The newest compiled patterns, the oldest of them first.
#[derive(Default)]
pub(super) struct RegexCache(Vec<Cached>);

struct Cached {
    pattern: String,
    regex: Arc<SearchRegex>,
}

impl RegexCache {
    pub(super) fn get(&self, pattern: &str) -> Option<Arc<SearchRegex>> {
        self.0.iter().find(|cached| cached.pattern == pattern).map(|cached| Arc::clone(&cached.regex))
    }

    /// Compiles `pattern`, and forgets the oldest one if there are too many.
    pub(super) fn compile(&mut self, pattern: &str) -> Result<Arc<SearchRegex>, RegexError> {
        let regex = Arc::new(SearchRegex::new(pattern)?);
        if self.0.len() == CACHED_COUNT_MAX {
            self.0.remove(0);
        }
        self.0.push(Cached { pattern: pattern.to_owned(), regex: Arc::clone(&regex) });
        Ok(regex)
    }
}
