//! Meta tags: tags that rules add to the series whose own tags satisfy expressions (Metrictank).
//!
//! Invariants: a tag of the series wins over a tag of a rule, and an earlier rule over a later one; rules see
//! the series' own tags only, so that their order does not change what they select.
//! Not here: storage of rules, bounds of their number.

use std::collections::{BTreeMap, BTreeSet};

use super::tag_query::{TagExpression, parse_expressions};
use crate::error::EvalError;

/// Tags of the series that satisfy all expressions.
#[derive(Debug, Clone, PartialEq)]
struct MetaTagRule {
    tags: Vec<(String, String)>,
    expressions: Vec<TagExpression>,
}

/// Rules of one tenant, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetaTags {
    rules: Vec<MetaTagRule>,
    keys: BTreeSet<String>,
}

impl MetaTags {
    /// Adds a rule; `tags` are `key=value`.
    /// # Errors
    /// [`EvalError::Parameter`] if a tag or expression is malformed, or a series without tags satisfies all
    /// expressions.
    pub fn add(&mut self, tags: &[String], expressions: &[String]) -> Result<(), EvalError> {
        let tags: Vec<(String, String)> =
            tags.iter().map(|text| parse_tag(text)).collect::<Result<_, _>>()?;
        let expressions = parse_expressions(expressions)?;
        self.keys.extend(tags.iter().map(|(key, _)| key.clone()));
        self.rules.push(MetaTagRule { tags, expressions });
        Ok(())
    }

    /// Returns true if there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Keys of the tags that rules add.
    #[must_use]
    pub fn keys(&self) -> &BTreeSet<String> {
        &self.keys
    }

    /// Adds the tags of all rules that the tags of a series satisfy.
    /// # Errors
    /// [`EvalError::Parameter`] if a regex gives up.
    pub fn add_to(&self, tags: &mut BTreeMap<String, String>) -> Result<(), EvalError> {
        let mut added: Vec<&(String, String)> = Vec::new();
        for rule in &self.rules {
            let mut is_selected = true;
            for expression in &rule.expressions {
                is_selected = is_selected && expression.matches(tags)?;
            }
            if is_selected {
                added.extend(&rule.tags);
            }
        }
        for (key, value) in added {
            tags.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Ok(())
    }
}

fn parse_tag(text: &str) -> Result<(String, String), EvalError> {
    let is_key = |key: &str| !key.is_empty() && !key.contains([';', '!', '^', '=']) && key != "name";
    let is_value = |value: &str| !value.is_empty() && !value.contains(';') && !value.starts_with('~');
    match text.split_once('=') {
        Some((key, value)) if is_key(key) && is_value(value) => Ok((key.to_owned(), value.to_owned())),
        _ => Err(EvalError::Parameter(format!("invalid meta tag '{text}', expected tag=value"))),
    }
}
