//! Conditions on tags: of SHOW, DELETE and DROP SERIES.
//!
//! Invariants: a missing tag is the empty text; what matchers of the storage can decide is not evaluated per
//! series.
//! Not here: conditions of SELECT (`semantics`), times (`crate::condition`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use chronolith_model::kind::is_reserved;
use chronolith_model::{GoRegex, Labels, METRIC_NAME, MatchOp, Matcher};

use super::session::StatementError;
use crate::ast::{BinaryOp, Chain, Expr};

/// Column of SHOW TAG VALUES, which its conditions may name.
pub(super) const VALUE_COLUMN: &str = "value";
/// Name that means the measurement in conditions.
const NAME_KEY: &str = "_name";

/// Condition on the tags of a series.
#[derive(Debug, Clone)]
pub(super) enum TagCondition {
    All(Vec<TagCondition>),
    Any(Vec<TagCondition>),
    Compare {
        tag: String,
        op: MatchOp,
        value: String,
        regex: Option<Arc<GoRegex>>,
        /// Measurements with a field of that name: the comparison is of the field there, and says nothing
        /// about series.
        fields_of: BTreeSet<String>,
    },
    /// A comparison of `tag` with a number or a boolean, which no tag equals.
    Number {
        tag: String,
    },
    /// No series meets it.
    Never,
    /// A comparison of a field: it says nothing about series.
    Always,
}

/// A condition as matchers, and what they cannot express.
#[derive(Debug, Clone, Default)]
pub(super) struct TagFilter {
    pub(super) matchers: Vec<Matcher>,
    pub(super) rest: Vec<TagCondition>,
}

impl TagCondition {
    /// Reads a condition without times.
    pub(super) fn of(expr: &Expr) -> Result<TagCondition, StatementError> {
        let invalid = || StatementError::Text(format!("invalid tag expression: {expr}"));
        match expr {
            Expr::Paren(inner) => TagCondition::of(inner),
            Expr::Boolean(true) => Ok(TagCondition::Always),
            Expr::Chain(chain) => of_chain(chain).ok_or_else(invalid),
            _ => Err(invalid()),
        }
    }

    /// Returns true if a series of `measurement` meets the condition.
    pub(super) fn selects(&self, labels: &Labels) -> bool {
        match self {
            TagCondition::Always | TagCondition::Number { .. } => true,
            TagCondition::Never => false,
            TagCondition::All(all) => all.iter().all(|one| one.selects(labels)),
            TagCondition::Any(any) => any.iter().any(|one| one.selects(labels)),
            TagCondition::Compare { fields_of, .. }
                if labels.metric_name().is_some_and(|name| fields_of.contains(name)) =>
            {
                true
            }
            TagCondition::Compare { tag, op, value, regex, .. } => {
                let own = labels.get(tag).unwrap_or("");
                let matches = || regex.as_ref().is_some_and(|regex| regex.is_match(own));
                match op {
                    MatchOp::Equal => own == value,
                    MatchOp::NotEqual => own != value,
                    MatchOp::Regex => matches(),
                    MatchOp::NotRegex => !matches(),
                }
            }
        }
    }

    /// Returns true if the condition compares something that is not a tag.
    pub(super) fn has_fields(&self) -> bool {
        match self {
            TagCondition::Always | TagCondition::Number { .. } => true,
            TagCondition::All(all) | TagCondition::Any(all) => all.iter().any(TagCondition::has_fields),
            TagCondition::Compare { .. } | TagCondition::Never => false,
        }
    }

    /// Returns the part of a condition that compares [`VALUE_COLUMN`].
    pub(super) fn of_value_column(&self) -> Option<TagCondition> {
        let kept = |all: &[TagCondition]| -> Vec<TagCondition> {
            all.iter().filter_map(TagCondition::of_value_column).collect()
        };
        match self {
            TagCondition::All(all) => Some(kept(all)).filter(|all| !all.is_empty()).map(TagCondition::All),
            TagCondition::Any(all) => Some(kept(all)).filter(|all| !all.is_empty()).map(TagCondition::Any),
            TagCondition::Compare { tag, .. } if tag == VALUE_COLUMN => Some(self.clone()),
            _ => None,
        }
    }

    /// Returns true if a value of [`VALUE_COLUMN`] meets the condition.
    pub(super) fn selects_value(&self, value: &str) -> bool {
        self.selects(&Labels::from_pairs([(VALUE_COLUMN, value)]))
    }

    /// Calls `visit` for each comparison.
    pub(super) fn for_each_comparison<E>(
        &mut self,
        visit: &mut impl FnMut(&mut TagCondition) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            TagCondition::All(all) | TagCondition::Any(all) => {
                all.iter_mut().try_for_each(|one| one.for_each_comparison(visit))
            }
            comparison => visit(comparison),
        }
    }
}

/// Reads a chain from left to right: operators that bind tighter than the first one are in its operands.
fn of_chain(chain: &Chain) -> Option<TagCondition> {
    let mut operand = Some(&chain.first);
    let mut left: Option<TagCondition> = None;
    for (op, right) in &chain.rest {
        if op.is_logical() {
            let before = match operand.take() {
                Some(operand) => TagCondition::of(operand).ok()?,
                None => left.take()?,
            };
            left = Some(joined(before, *op, TagCondition::of(right).ok()?));
        } else {
            left = Some(comparison(operand.take()?, *op, right)?);
        }
    }
    left
}

/// Refuses comparisons whose left side is no tag, as lists of measurements and of values do.
pub(super) fn check_left_sides(condition: &Expr) -> Result<(), StatementError> {
    let chain = match condition {
        Expr::Chain(chain) => chain,
        Expr::Paren(inner) => return check_left_sides(inner),
        _ => return Ok(()),
    };
    let mut left = Some(&chain.first);
    for (op, right) in &chain.rest {
        if op.is_logical() {
            left.take().map_or(Ok(()), check_left_sides)?;
            check_left_sides(right)?;
        } else if let Some(left) = left.take()
            && matches!(op, BinaryOp::Eq | BinaryOp::NotEq | BinaryOp::Match | BinaryOp::NotMatch)
            && !matches!(left.without_parens(), Expr::Ref(_))
        {
            return Err(StatementError::Text(format!("left side of '{op}' must be a tag key")));
        }
    }
    Ok(())
}

fn joined(left: TagCondition, op: BinaryOp, right: TagCondition) -> TagCondition {
    match (op, left) {
        (BinaryOp::And, TagCondition::All(mut all)) => {
            all.push(right);
            TagCondition::All(all)
        }
        (BinaryOp::And, left) => TagCondition::All(vec![left, right]),
        (_, TagCondition::Any(mut any)) => {
            any.push(right);
            TagCondition::Any(any)
        }
        (_, left) => TagCondition::Any(vec![left, right]),
    }
}

fn comparison(left: &Expr, op: BinaryOp, right: &Expr) -> Option<TagCondition> {
    let (var, value) = match (left.without_parens(), right.without_parens()) {
        // A wildcard is no tag: a comparison with it says nothing about series.
        (Expr::Wildcard(_), _) | (_, Expr::Wildcard(_)) if op.is_comparison() => {
            return Some(TagCondition::Always);
        }
        (Expr::Ref(var), value) | (value, Expr::Ref(var)) => (var, value),
        _ => return None,
    };
    let tag = if var.name == NAME_KEY { METRIC_NAME } else { &var.name };
    if is_reserved(tag) {
        return None;
    }
    let compare = |op, value: &str, regex| {
        let fields_of = BTreeSet::new();
        Some(TagCondition::Compare { tag: tag.to_owned(), op, value: value.to_owned(), regex, fields_of })
    };
    match (op, value) {
        (BinaryOp::Eq, Expr::Text(text)) => compare(MatchOp::Equal, text, None),
        (BinaryOp::NotEq, Expr::Text(text)) => compare(MatchOp::NotEqual, text, None),
        (BinaryOp::Match | BinaryOp::NotMatch, Expr::Regex(regex)) => {
            let is_negated = op == BinaryOp::NotMatch;
            let op = if is_negated { MatchOp::NotRegex } else { MatchOp::Regex };
            compare(op, &regex.anchored_pattern(), Some(Arc::new(regex.compile().ok()?)))
        }
        (
            BinaryOp::Eq | BinaryOp::NotEq,
            Expr::Integer(_) | Expr::Number(_) | Expr::Unsigned(_) | Expr::Boolean(_),
        ) => Some(TagCondition::Number { tag: tag.to_owned() }),
        _ if op.is_comparison() => Some(TagCondition::Always),
        _ => None,
    }
}

impl TagFilter {
    pub(super) fn of(condition: Option<&Expr>) -> Result<TagFilter, StatementError> {
        Ok(condition.map(TagCondition::of).transpose()?.map(TagFilter::of_tags).unwrap_or_default())
    }

    pub(super) fn of_tags(condition: TagCondition) -> TagFilter {
        let mut filter = TagFilter::default();
        filter.add(condition);
        filter
    }

    fn add(&mut self, condition: TagCondition) {
        match condition {
            TagCondition::Always | TagCondition::Number { .. } => {}
            TagCondition::All(all) => all.into_iter().for_each(|one| self.add(one)),
            TagCondition::Compare { tag, op, value, fields_of, .. } if fields_of.is_empty() => {
                // The pattern was compiled before.
                self.matchers.extend(Matcher::new(&tag, op, &value));
            }
            any => self.rest.push(any),
        }
    }

    pub(super) fn selects(&self, labels: &Labels) -> bool {
        self.rest.iter().all(|one| one.selects(labels))
    }

    /// Returns the matchers, and those given.
    pub(super) fn with(&self, added: Vec<Matcher>) -> Cow<'_, [Matcher]> {
        if added.is_empty() {
            return Cow::Borrowed(&self.matchers);
        }
        self.matchers.iter().cloned().chain(added).collect()
    }
}
