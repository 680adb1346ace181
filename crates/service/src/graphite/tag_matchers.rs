//! Expressions over tags as matchers of labels: the tag `name` is the metric name, others are labels.
//!
//! Invariant: the matchers select every series that satisfies the expressions; where they are exact, they
//! select no others, apart from series without tags.
//! Not here: evaluation of expressions (`graphite::storage::tag_query`).

use std::collections::BTreeMap;

use chronolith_graphite::EvalError;
use chronolith_graphite::storage::meta_tags::MetaTags;
use chronolith_graphite::storage::tag_query::{ANY_TAG, TagExpression, TagOperator};
use chronolith_model::{Labels, METRIC_NAME, MatchOp, Matcher};

/// Tag that is the metric name.
pub const NAME_TAG: &str = "name";

/// Matchers of a list of expressions.
pub struct TagMatchers {
    /// Every series that satisfies the expressions is selected by all of them.
    pub matchers: Vec<Matcher>,
    /// Returns true if each expression has its matcher.
    pub is_exact: bool,
}

/// Returns the matchers of `expressions`.
pub fn tag_matchers(expressions: &[TagExpression]) -> TagMatchers {
    let matchers: Vec<Matcher> = expressions.iter().filter_map(matcher_of).collect();
    let is_exact = matchers.len() == expressions.len();
    TagMatchers { matchers, is_exact }
}

/// The label of a tag.
pub fn label_of(tag: &str) -> &str {
    if tag == NAME_TAG { METRIC_NAME } else { tag }
}

/// Tags of a series, `name` and the tags of rules among them; of a series without tags its name alone.
pub fn tags_of(labels: &Labels, meta: &MetaTags) -> Result<BTreeMap<String, String>, EvalError> {
    let tag = |label: &str| if label == METRIC_NAME { NAME_TAG.to_owned() } else { label.to_owned() };
    let mut tags = labels.iter().map(|(label, value)| (tag(label), value.to_owned())).collect();
    if labels.len() > 1 && !meta.is_empty() {
        meta.add_to(&mut tags)?;
    }
    Ok(tags)
}

/// Returns matchers that select every series that satisfies the expressions, with the tags of rules.
pub fn matchers_of_labels(expressions: &[TagExpression], meta: &MetaTags) -> Vec<Matcher> {
    // Matchers see labels only.
    let is_of_labels =
        |expression: &&TagExpression| expression.key != ANY_TAG && !meta.keys().contains(&expression.key);
    match meta.is_empty() {
        true => tag_matchers(expressions).matchers,
        false => expressions.iter().filter(is_of_labels).filter_map(matcher_of).collect(),
    }
}

/// Matcher of series that have the label.
pub fn has_label(label: &str) -> Option<Matcher> {
    Matcher::new(label, MatchOp::NotEqual, "").ok()
}

/// `None` for what a matcher cannot express: comparisons with any tag, look-around.
fn matcher_of(expression: &TagExpression) -> Option<Matcher> {
    let TagExpression { key, operator, value, .. } = expression;
    if key == ANY_TAG {
        let is_present = *operator == TagOperator::Equal && value != NAME_TAG;
        return if is_present { has_label(value) } else { None };
    }
    let label = label_of(key);
    let anchored = format!("(?s:(?:{value}).*)");
    match operator {
        TagOperator::Equal => Some(Matcher::equal(label, value)),
        TagOperator::NotEqual => Matcher::new(label, MatchOp::NotEqual, value).ok(),
        TagOperator::Matches => Matcher::new(label, MatchOp::Regex, &anchored).ok(),
        TagOperator::NotMatches => Matcher::new(label, MatchOp::NotRegex, &anchored).ok(),
        TagOperator::HasPrefix => prefix_matcher(label, value),
    }
}

/// Matcher of values that begin with `prefix`.
fn prefix_matcher(label: &str, prefix: &str) -> Option<Matcher> {
    let escaped: String = prefix.chars().flat_map(escaped).collect();
    Matcher::new(label, MatchOp::Regex, &format!("(?s:{escaped}.*)")).ok()
}

/// A character as a regex that matches it alone.
pub fn escaped(c: char) -> impl Iterator<Item = char> {
    "\\.+*?()|[]{}^$".contains(c).then_some('\\').into_iter().chain([c])
}
