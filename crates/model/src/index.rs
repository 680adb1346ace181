//! Series selection by matchers: intersection and difference of postings, for head and blocks alike.
//!
//! Invariants: refs ascend; only postings of values that affect the result are read; all refs are read only
//! if every matcher selects series without the label. Not here: storage of postings.

#[cfg(test)]
mod tests;

use crate::{MatchOp, Matcher, QueryError};

/// Postings of one set of series (a tenant's head, one block).
pub trait LabelIndex {
    /// Appends all series refs, ascending.
    ///
    /// # Errors
    /// As the source.
    fn all(&self, out: &mut Vec<u32>) -> Result<(), QueryError>;

    /// Appends the refs of the series with label `name` = `value` (not empty), ascending; none if there is
    /// none.
    ///
    /// # Errors
    /// As the source.
    fn postings(&self, name: &str, value: &str, out: &mut Vec<u32>) -> Result<(), QueryError>;

    /// Upper bound of the refs that [`LabelIndex::postings`] appends; `None` if it is unknown without
    /// reading.
    fn postings_count_max(&self, _name: &str, _value: &str) -> Option<usize> {
        None
    }

    /// Retains the `refs` (ascending, of this index) whose series `matcher` selects, if checking each series
    /// costs less than reading postings. Otherwise returns false, without effect.
    ///
    /// # Errors
    /// As the source.
    fn retain_few(&self, _matcher: &Matcher, _refs: &mut Vec<u32>) -> Result<bool, QueryError> {
        Ok(false)
    }

    /// Calls `visit` with every value of `name` that starts with `prefix`, in any order, until it returns
    /// false.
    ///
    /// # Errors
    /// As the source.
    fn for_each_value(
        &self,
        name: &str,
        prefix: &str,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError>;

    /// Appends the refs of the series with a value of the label of `matcher` that is not empty, starts with
    /// `prefix` and `fits`, which depends on the matcher alone. In any order of values; the refs of each
    /// ascend.
    ///
    /// # Errors
    /// As the source.
    fn search(
        &self,
        matcher: &Matcher,
        prefix: &str,
        fits: &dyn Fn(&str) -> bool,
        out: &mut Vec<u32>,
    ) -> Result<(), QueryError> {
        search_values(self, matcher, prefix, fits, out)
    }
}

/// [`LabelIndex::search`] for an index without a regex cache: iterates the values.
///
/// # Errors
/// As the index.
pub fn search_values<I: LabelIndex + ?Sized>(
    index: &I,
    matcher: &Matcher,
    prefix: &str,
    fits: &dyn Fn(&str) -> bool,
    out: &mut Vec<u32>,
) -> Result<(), QueryError> {
    for value in values(index, &matcher.name, prefix, fits)?.iter() {
        index.postings(&matcher.name, value, out)?;
    }
    Ok(())
}

/// Returns the refs of the series that all `matchers` select, ascending.
///
/// Matchers with known values are first, the shortest postings before the others; then those that search the
/// values; then those that only remove series. It ends as soon as no refs are left.
///
/// # Errors
/// As the index.
pub fn select_refs(index: &dyn LabelIndex, matchers: &[Matcher]) -> Result<Vec<u32>, QueryError> {
    let mut steps = matchers.iter().map(Step::new).collect::<Vec<_>>();
    steps.sort_by_key(Step::rank);
    let narrowing_count = steps.partition_point(|step| !step.takes_away);
    let (narrowing, taking) = steps.split_at(narrowing_count);
    let listed_count = narrowing.partition_point(|step| step.values.is_listed());
    let (listed, searched) = narrowing.split_at(listed_count);

    let mut found = listed_refs(index, listed)?;
    for step in searched {
        found = match found {
            Some(found) if found.is_empty() => return Ok(found),
            Some(found) => Some(step.narrow(index, found)?),
            None => Some(step.refs(index)?),
        };
    }
    let mut found = match found {
        Some(found) => found,
        None => {
            let mut all = Vec::new();
            index.all(&mut all)?;
            all
        }
    };
    for step in taking {
        if found.is_empty() {
            break;
        }
        if !index.retain_few(step.matcher, &mut found)? {
            subtract(&mut found, &step.refs(index)?);
        }
    }
    Ok(found)
}

/// Intersects the postings of `steps` with known values; `None` if there are no steps. The shortest postings
/// are first; if the index knows their lengths, the others are not read for that.
fn listed_refs(index: &dyn LabelIndex, steps: &[Step<'_>]) -> Result<Option<Vec<u32>>, QueryError> {
    let mut counted = Vec::with_capacity(steps.len());
    let mut lists = Vec::new();
    for step in steps {
        match step.count_max(index) {
            Some(0) => return Ok(Some(Vec::new())),
            Some(count) => counted.push((count, step)),
            None => {
                let refs = step.refs(index)?;
                if refs.is_empty() {
                    return Ok(Some(refs));
                }
                lists.push(refs);
            }
        }
    }
    lists.sort_by_key(Vec::len);
    let mut found = lists.into_iter().reduce(intersection);
    counted.sort_by_key(|(count, _)| *count);
    for (_, step) in counted {
        found = Some(match found {
            Some(found) => step.narrow(index, found)?,
            None => step.refs(index)?,
        });
    }
    Ok(found)
}

/// Effect of one matcher: it either retains the series with certain values, or removes them.
///
/// A series without the label has the empty value, for which there are no postings. So a matcher that does
/// not select the empty value retains the series with selected values, and one that does removes those with
/// values that it does not select. Either way these are the values with another result than the empty one.
struct Step<'a> {
    matcher: &'a Matcher,
    takes_away: bool,
    values: Values<'a>,
}

/// Values with another result than the empty one.
enum Values<'a> {
    /// One value.
    One(&'a str),
    /// Several values.
    Set(&'a [String]),
    /// Values with a prefix, to be searched.
    Search(&'a str),
    /// All.
    Every,
    /// None.
    Nothing,
}

impl Values<'_> {
    fn is_listed(&self) -> bool {
        matches!(self, Values::One(_) | Values::Set(_) | Values::Nothing)
    }
}

impl<'a> Step<'a> {
    fn new(matcher: &'a Matcher) -> Step<'a> {
        let values = match (matcher.op, matcher.regex()) {
            (MatchOp::Equal | MatchOp::NotEqual, _) | (_, None) => match &*matcher.value {
                "" => Values::Every,
                value => Values::One(value),
            },
            (_, Some(regex)) if regex.matches_all() => Values::Nothing,
            (_, Some(regex)) if regex.is_match("") => Values::Search(""),
            (_, Some(regex)) => match regex.set_matches() {
                Some(set) => Values::Set(set),
                None => Values::Search(regex.prefix()),
            },
        };
        Step { matcher, takes_away: matcher.matches_empty(), values }
    }

    /// Sort key: cheap and selective steps first.
    fn rank(&self) -> (bool, usize) {
        let cost = match self.values {
            Values::Nothing => 0,
            Values::One(_) => 1,
            Values::Set(_) => 2,
            Values::Search("") => 4,
            Values::Search(_) => 3,
            Values::Every => 5,
        };
        (self.takes_away, cost)
    }

    /// Number of series with the single value, if the index knows it.
    fn count_max(&self, index: &dyn LabelIndex) -> Option<usize> {
        match self.values {
            Values::One(value) => index.postings_count_max(&self.matcher.name, value),
            _ => None,
        }
    }

    /// Intersects `found` with the step; only for steps that retain.
    fn narrow(&self, index: &dyn LabelIndex, mut found: Vec<u32>) -> Result<Vec<u32>, QueryError> {
        if found.is_empty() || index.retain_few(self.matcher, &mut found)? {
            return Ok(found);
        }
        Ok(intersection(found, self.refs(index)?))
    }

    /// Reads the series with the values, ascending.
    fn refs(&self, index: &dyn LabelIndex) -> Result<Vec<u32>, QueryError> {
        let name = &*self.matcher.name;
        let mut refs = Vec::new();
        match self.values {
            Values::Nothing => {}
            Values::One(value) => index.postings(name, value, &mut refs)?,
            Values::Set(set) => {
                for value in set {
                    index.postings(name, value, &mut refs)?;
                }
            }
            Values::Search(prefix) => {
                let matcher = self.matcher;
                let fits = |value: &str| matcher.matches(value) != self.takes_away;
                index.search(matcher, prefix, &fits, &mut refs)?;
            }
            Values::Every => index.search(self.matcher, "", &|_| true, &mut refs)?,
        }
        // The stable sort merges the postings, which are ascending runs.
        if !refs.is_sorted() {
            refs.sort();
        }
        refs.dedup();
        Ok(refs)
    }
}

/// Values back to back.
#[derive(Default)]
struct ValueList {
    text: String,
    /// End of each value in `text`.
    ends: Vec<usize>,
}

impl ValueList {
    fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let value = &self.text[start..end];
            start = end;
            value
        })
    }
}

/// Returns the values of `name` for which `keep` returns true. They are collected before postings are read,
/// so that an index may hold a lock during the callback.
fn values<I: LabelIndex + ?Sized>(
    index: &I,
    name: &str,
    prefix: &str,
    keep: impl Fn(&str) -> bool,
) -> Result<ValueList, QueryError> {
    let mut list = ValueList::default();
    index.for_each_value(name, prefix, &mut |value| {
        if !value.is_empty() && keep(value) {
            list.text.push_str(value);
            list.ends.push(list.text.len());
        }
        true
    })?;
    Ok(list)
}

/// Intersection of two ascending lists (galloping search). Cost: the shorter list times the logarithm of the
/// gaps in the longer one.
fn intersection(a: Vec<u32>, b: Vec<u32>) -> Vec<u32> {
    let (mut short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let mut at = 0;
    short.retain(|&series_ref| {
        at = seek(&long, at, series_ref);
        long.get(at) == Some(&series_ref)
    });
    short
}

/// Removes the refs of `other` from `found`; both ascend.
fn subtract(found: &mut Vec<u32>, other: &[u32]) {
    let mut at = 0;
    found.retain(|&series_ref| {
        at = seek(other, at, series_ref);
        other.get(at) != Some(&series_ref)
    });
}

/// Galloping search: the first index from `from` on with a ref of at least `target`.
fn seek(refs: &[u32], from: usize, target: u32) -> usize {
    let rest = refs.get(from..).unwrap_or(&[]);
    let mut stride = 1;
    while rest.get(stride - 1).is_some_and(|&r| r < target) {
        stride *= 2;
    }
    let (start, end) = (stride / 2, rest.len().min(stride));
    from + start + rest.get(start..end).unwrap_or(&[]).partition_point(|&r| r < target)
}
