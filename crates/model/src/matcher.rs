//! Label matchers: `= != =~ !~`.
//! Invariants: an absent label counts as the empty string; regular expressions are Go RE2, fully anchored.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::labels::{Labels, is_legacy_label_name};
use crate::quote::write_quoted;
use crate::regex::{GoRegex, RegexError};

/// Kind of a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Regex,
    /// `!~`
    NotRegex,
}

impl MatchOp {
    /// Returns the operator as it is written in a query.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Regex => "=~",
            MatchOp::NotRegex => "!~",
        }
    }
}

/// One label matcher; cheap to clone.
#[derive(Clone)]
pub struct Matcher {
    /// Label name.
    pub name: Arc<str>,
    /// Kind.
    pub op: MatchOp,
    /// Value or pattern as written.
    pub value: Arc<str>,
    regex: Option<Arc<GoRegex>>,
}

impl Matcher {
    /// Creates a matcher; compiles the pattern of a regex matcher.
    ///
    /// # Errors
    /// [`RegexError`] for a pattern that Go's RE2 refuses.
    pub fn new(name: &str, op: MatchOp, value: &str) -> Result<Matcher, RegexError> {
        let regex = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regex | MatchOp::NotRegex => Some(Arc::new(GoRegex::new(value)?)),
        };
        Ok(Matcher { name: Arc::from(name), op, value: Arc::from(value), regex })
    }

    /// The same matcher for another label.
    #[must_use]
    pub fn with_name(self, name: &str) -> Matcher {
        if &*self.name == name { self } else { Matcher { name: Arc::from(name), ..self } }
    }

    /// `name="value"`.
    #[must_use]
    pub fn equal(name: &str, value: &str) -> Matcher {
        Matcher { name: Arc::from(name), op: MatchOp::Equal, value: Arc::from(value), regex: None }
    }

    /// Returns true if the matcher selects this label value.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        match (self.op, &self.regex) {
            (MatchOp::Equal, _) => value == &*self.value,
            (MatchOp::NotEqual, _) => value != &*self.value,
            (MatchOp::Regex, Some(regex)) => regex.is_match(value),
            (MatchOp::NotRegex, Some(regex)) => !regex.is_match(value),
            (MatchOp::Regex | MatchOp::NotRegex, None) => false,
        }
    }

    /// Returns true if the matcher selects series without the label.
    #[must_use]
    pub fn matches_empty(&self) -> bool {
        self.matches("")
    }

    /// Returns true if the matcher selects `labels`.
    #[must_use]
    pub fn matches_labels(&self, labels: &Labels) -> bool {
        self.matches(labels.get(&self.name).unwrap_or(""))
    }

    /// The compiled pattern of `=~` and `!~`.
    #[must_use]
    pub fn regex(&self) -> Option<&GoRegex> {
        self.regex.as_deref()
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Matcher) -> bool {
        self.op == other.op && self.name == other.name && self.value == other.value
    }
}

impl Eq for Matcher {}

impl Hash for Matcher {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.op, &self.name, &self.value).hash(state);
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_legacy_label_name(&self.name) {
            f.write_str(&self.name)?;
        } else {
            write_quoted(f, &self.name)?;
        }
        f.write_str(self.op.as_str())?;
        write_quoted(f, &self.value)
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
