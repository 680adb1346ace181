//! Expressions of `seriesByTag`: `tag=value`, `!=`, `=~`, `!=~`, and Metrictank's `^=` (prefix). The key
//! `__tag` compares the keys of the tags instead of a value.
//!
//! Invariants: a series without the tag has the empty value; a regex is anchored at the start only; a list of
//! expressions needs one that a series without tags does not satisfy.
//! Not here: the index.

use std::collections::BTreeMap;

use crate::error::EvalError;
use crate::python_regex::PythonRegex;
pub use crate::python_regex::REGEX_BYTES_MAX;

/// Key of expressions that compare the keys of the tags.
pub const ANY_TAG: &str = "__tag";

/// Comparison of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagOperator {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Matches,
    /// `!=~`
    NotMatches,
    /// `^=`
    HasPrefix,
}

impl TagOperator {
    /// Returns true if the expression holds where the comparison fails.
    #[must_use]
    pub fn is_negative(self) -> bool {
        matches!(self, TagOperator::NotEqual | TagOperator::NotMatches)
    }
}

/// One expression.
#[derive(Debug, Clone)]
pub struct TagExpression {
    /// Key of the tag.
    pub key: String,
    /// Comparison.
    pub operator: TagOperator,
    /// Value or regex.
    pub value: String,
    regex: Option<PythonRegex>,
}

impl PartialEq for TagExpression {
    fn eq(&self, other: &Self) -> bool {
        (&self.key, self.operator, &self.value) == (&other.key, other.operator, &other.value)
    }
}

/// Reads the expressions of one `seriesByTag`.
/// # Errors
/// [`EvalError::Parameter`] if one is malformed or the empty value satisfies all of them.
pub fn parse_expressions(texts: &[String]) -> Result<Vec<TagExpression>, EvalError> {
    let expressions: Vec<TagExpression> =
        texts.iter().map(|text| TagExpression::parse(text)).collect::<Result<_, _>>()?;
    let untagged = BTreeMap::new();
    for expression in &expressions {
        if !expression.matches(&untagged)? {
            return Ok(expressions);
        }
    }
    Err(EvalError::Parameter(
        "seriesByTag(): at least one tag expression must not match the empty string".to_owned(),
    ))
}

impl TagExpression {
    /// Reads one expression.
    /// # Errors
    /// [`EvalError::Parameter`] if key or operator is missing, or the regex does not compile.
    pub fn parse(text: &str) -> Result<Self, EvalError> {
        let invalid = || EvalError::Parameter(format!("invalid tag expression '{text}'"));
        let at = text.find([';', '!', '=']).filter(|at| *at > 0).ok_or_else(invalid)?;
        let (key, rest) = text.split_at(at);
        let (operator, value) = [
            ("!=~", TagOperator::NotMatches),
            ("!=", TagOperator::NotEqual),
            ("=~", TagOperator::Matches),
            ("=", TagOperator::Equal),
        ]
        .iter()
        .find_map(|(sign, operator)| rest.strip_prefix(sign).map(|value| (*operator, value)))
        .ok_or_else(invalid)?;
        // No key ends with `^`, so that the sign belongs to the operator.
        let (key, operator) = match key.strip_suffix('^').filter(|key| !key.is_empty()) {
            Some(key) if operator == TagOperator::Equal => (key, TagOperator::HasPrefix),
            _ => (key, operator),
        };
        if value.contains(';') {
            return Err(invalid());
        }
        let regex = match operator {
            TagOperator::Matches | TagOperator::NotMatches if value.starts_with('^') => {
                Some(PythonRegex::new(value)?)
            }
            TagOperator::Matches | TagOperator::NotMatches => Some(PythonRegex::new(&format!("^({value})"))?),
            _ => None,
        };
        Ok(TagExpression { key: key.to_owned(), operator, value: value.to_owned(), regex })
    }

    /// Returns true if `text` is compared with success, whatever the sign of the operator.
    fn compares(&self, text: &str) -> Result<bool, EvalError> {
        match &self.regex {
            Some(regex) => regex.is_match(text),
            None if self.operator == TagOperator::HasPrefix => Ok(text.starts_with(&self.value)),
            None => Ok(text == self.value),
        }
    }

    /// Returns true if the tags satisfy the expression.
    /// # Errors
    /// [`EvalError::Parameter`] if the regex gives up.
    pub fn matches(&self, tags: &BTreeMap<String, String>) -> Result<bool, EvalError> {
        let mut is_found = false;
        if self.key == ANY_TAG {
            for key in tags.keys() {
                is_found = is_found || self.compares(key)?;
            }
        } else {
            is_found = self.compares(tags.get(&self.key).map_or("", String::as_str))?;
        }
        Ok(is_found != self.operator.is_negative())
    }
}
