//! Expressions of `seriesByTag`: `tag=value`, `!=`, `=~`, `!=~`.
//!
//! Invariants: a series without the tag has the empty value; a regex is anchored at the start only; a list of
//! expressions needs one that the empty value does not satisfy.
//! Not here: the index.

use std::collections::BTreeMap;

use crate::error::EvalError;
use crate::python_regex::PythonRegex;

/// How a tag is compared.
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
    for expression in &expressions {
        if !expression.matches_value("")? {
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

    fn matches_value(&self, value: &str) -> Result<bool, EvalError> {
        let is_match = match &self.regex {
            Some(regex) => regex.is_match(value)?,
            None => value == self.value,
        };
        Ok(is_match == matches!(self.operator, TagOperator::Equal | TagOperator::Matches))
    }

    /// Returns true if the tags satisfy the expression.
    /// # Errors
    /// [`EvalError::Parameter`] if the regex gives up.
    pub fn matches(&self, tags: &BTreeMap<String, String>) -> Result<bool, EvalError> {
        self.matches_value(tags.get(&self.key).map_or("", String::as_str))
    }
}
