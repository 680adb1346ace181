//! From matchers to series: the same way over the head's postings and a block's.
//! Holds: refs ascend. Not here: how postings are stored.

use crate::{Matcher, QueryError};

/// Postings of one set of series (a tenant's head, one block).
pub trait LabelIndex {
    /// Appends all series refs, ascending.
    ///
    /// # Errors
    /// As the source.
    fn all(&self, out: &mut Vec<u32>) -> Result<(), QueryError>;

    /// Appends the refs of the series with label `name` = `value` (not empty), ascending; none if there is none.
    ///
    /// # Errors
    /// As the source.
    fn postings(&self, name: &str, value: &str, out: &mut Vec<u32>) -> Result<(), QueryError>;

    /// Calls `visit` with every value of `name` that starts with `prefix`, in any order, until it returns false.
    ///
    /// # Errors
    /// As the source.
    fn for_each_value(
        &self,
        name: &str,
        prefix: &str,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError>;
}

/// The refs of the series that fit all `matchers`, ascending.
///
/// # Errors
/// As the index.
pub fn select_refs(index: &dyn LabelIndex, matchers: &[Matcher]) -> Result<Vec<u32>, QueryError> {
    let mut found = Vec::new();
    index.all(&mut found)?;
    for matcher in matchers {
        let mut fits = Vec::new();
        let mut values = Vec::new();
        index.for_each_value(&matcher.name, "", &mut |v| {
            values.push(v.to_owned());
            true
        })?;
        let empty_fits = matcher.matches_empty();
        // Where the empty value fits, collect what does not fit and take it away.
        for value in values.iter().filter(|v| matcher.matches(v) != empty_fits) {
            index.postings(&matcher.name, value, &mut fits)?;
        }
        fits.sort_unstable();
        found.retain(|r| fits.binary_search(r).is_ok() != empty_fits);
    }
    Ok(found)
}
