//! From matchers to series: the same way over the head's postings and a block's.
//!
//! Holds: refs ascend; only postings of values that decide something are read; all refs are asked for only if
//! every matcher fits series without the label. Not here: how postings are stored.

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

    /// Appends the refs of the series with label `name` = `value` (not empty), ascending; none if there is none.
    ///
    /// # Errors
    /// As the source.
    fn postings(&self, name: &str, value: &str, out: &mut Vec<u32>) -> Result<(), QueryError>;

    /// How many refs [`LabelIndex::postings`] appends at most, from what is at hand; `None` where that would have to be read.
    fn postings_count_max(&self, _name: &str, _value: &str) -> Option<usize> {
        None
    }

    /// Keeps those of `refs`, which ascend and were found here, whose series fit `matcher`, if looking at each of them
    /// costs less than reading postings. False, and nothing is done, if it does not.
    ///
    /// # Errors
    /// As the source.
    fn retain_few(&self, _matcher: &Matcher, _refs: &mut Vec<u32>) -> Result<bool, QueryError> {
        Ok(false)
    }

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

    /// Appends the refs of the series with a value of the label of `matcher` that is not empty, starts with `prefix` and
    /// `fits`, which depends on the matcher alone. In any order of values; the refs of each ascend.
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

/// What [`LabelIndex::search`] does for an index that remembers nothing: looks through the values.
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

/// The refs of the series that fit all `matchers`, ascending.
///
/// Matchers that name their values come first, the shortest postings before the others; then those that look
/// through values; then those that only take series away. It ends as soon as nothing is left.
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

/// The refs that fit all `steps`, which name their values; `None` if there are no steps. The shortest postings come
/// first; they are told without reading the others where the index knows their length.
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

/// What one matcher does: it either keeps the series with certain values, or takes them away.
///
/// A series without the label counts as having the empty value, for which there are no postings. So a matcher
/// that does not fit it keeps the series with the values that fit, and one that does fit it takes away those
/// with the values that do not. Either way the values are those that are judged unlike the empty one.
struct Step<'a> {
    matcher: &'a Matcher,
    takes_away: bool,
    values: Values<'a>,
}

/// The values that are judged unlike the empty one.
enum Values<'a> {
    /// This one.
    One(&'a str),
    /// These.
    Set(&'a [String]),
    /// Some of those that start with a prefix.
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

    /// Cheap and narrowing first.
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

    /// How many series have the one value that is asked for, if the index knows.
    fn count_max(&self, index: &dyn LabelIndex) -> Option<usize> {
        match self.values {
            Values::One(value) => index.postings_count_max(&self.matcher.name, value),
            _ => None,
        }
    }

    /// What of `found` fits; for steps that do not take away.
    fn narrow(&self, index: &dyn LabelIndex, mut found: Vec<u32>) -> Result<Vec<u32>, QueryError> {
        if found.is_empty() || index.retain_few(self.matcher, &mut found)? {
            return Ok(found);
        }
        Ok(intersection(found, self.refs(index)?))
    }

    /// The series with the values, ascending.
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
        // The stable sort finds the runs that the postings are, and merges them.
        if !refs.is_sorted() {
            refs.sort();
        }
        refs.dedup();
        Ok(refs)
    }
}

/// Values one behind the other.
#[derive(Default)]
struct ValueList {
    text: String,
    /// Where each value ends in `text`.
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

/// The values of `name` that `keep` wants. They are collected before postings are read, so that an index may
/// hold a lock while it calls back.
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

/// What is in both; both ascend. Cost: the shorter list times the logarithm of the gaps in the longer.
fn intersection(a: Vec<u32>, b: Vec<u32>) -> Vec<u32> {
    let (mut short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let mut at = 0;
    short.retain(|&series_ref| {
        at = seek(&long, at, series_ref);
        long.get(at) == Some(&series_ref)
    });
    short
}

/// Removes from `found` what is in `other`; both ascend.
fn subtract(found: &mut Vec<u32>, other: &[u32]) {
    let mut at = 0;
    found.retain(|&series_ref| {
        at = seek(other, at, series_ref);
        other.get(at) != Some(&series_ref)
    });
}

/// The first index from `from` on whose ref is `target` or more: strides that double, then a binary search.
fn seek(refs: &[u32], from: usize, target: u32) -> usize {
    let rest = refs.get(from..).unwrap_or(&[]);
    let mut stride = 1;
    while rest.get(stride - 1).is_some_and(|&r| r < target) {
        stride *= 2;
    }
    let (start, end) = (stride / 2, rest.len().min(stride));
    from + start + rest.get(start..end).unwrap_or(&[]).partition_point(|&r| r < target)
}
