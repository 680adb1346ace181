//! Series selection by matchers: intersection and difference of postings, for head and blocks alike.
//!
//! Invariants: refs ascend; only postings of values that affect the result are read; all refs are read only
//! if every matcher selects series without the label. Not here: storage of postings.

mod regex_cache;
#[cfg(test)]
mod tests;

pub use regex_cache::{CachedMatches, RegexCache, RegexCacheLimits};

use crate::{MatchOp, Matcher, QueryError};

/// Postings of one set of series (the head of one tenant, one block).
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

/// Implements [`LabelIndex::search`] for an index without a regex cache: iterates the values.
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
    select_steps(&index, &steps(matchers))
}

/// The steps that evaluate `matchers`, in the order of [`select_refs`].
#[must_use]
pub fn steps(matchers: &[Matcher]) -> Vec<Step<'_>> {
    let mut steps = matchers.iter().map(Step::new).collect::<Vec<_>>();
    steps.sort_by_key(Step::rank);
    (0..).zip(&mut steps).for_each(|(idx, step)| step.idx = idx);
    steps
}

/// Series refs of the steps of one selection, for an index that has read or named the postings of all steps
/// before it evaluates them.
pub trait StepRefs {
    /// Returns all series refs, ascending.
    ///
    /// # Errors
    /// As the source.
    fn all(&self) -> Result<Vec<u32>, QueryError>;

    /// Returns the refs of the series with the values of `step`, ascending, each once.
    ///
    /// # Errors
    /// As the source.
    fn refs(&self, step: &Step<'_>) -> Result<Vec<u32>, QueryError>;

    /// Upper bound of the number of refs of `step`; `None` if only its postings tell.
    fn count_max(&self, _step: &Step<'_>) -> Option<usize> {
        None
    }

    /// As [`LabelIndex::retain_few`] for the matcher of `step`.
    ///
    /// # Errors
    /// As the source.
    fn retain_few(&self, _step: &Step<'_>, _refs: &mut Vec<u32>) -> Result<bool, QueryError> {
        Ok(false)
    }
}

impl StepRefs for &dyn LabelIndex {
    fn all(&self) -> Result<Vec<u32>, QueryError> {
        let mut all = Vec::new();
        LabelIndex::all(*self, &mut all)?;
        Ok(all)
    }

    fn refs(&self, step: &Step<'_>) -> Result<Vec<u32>, QueryError> {
        step.refs(*self)
    }

    fn count_max(&self, step: &Step<'_>) -> Option<usize> {
        step.count_max(*self)
    }

    fn retain_few(&self, step: &Step<'_>, refs: &mut Vec<u32>) -> Result<bool, QueryError> {
        LabelIndex::retain_few(*self, step.matcher, refs)
    }
}

/// As [`select_refs`], with the refs of each step from `source`.
///
/// # Errors
/// As the source.
pub fn select_steps(source: &dyn StepRefs, steps: &[Step<'_>]) -> Result<Vec<u32>, QueryError> {
    let narrowing_count = steps.partition_point(|step| !step.takes_away);
    let (narrowing, taking) = steps.split_at(narrowing_count);
    let listed_count = narrowing.partition_point(|step| step.values.is_listed());
    let (listed, searched) = narrowing.split_at(listed_count);

    let mut found = listed_refs(source, listed)?;
    for step in searched {
        found = match found {
            Some(found) if found.is_empty() => return Ok(found),
            Some(found) => Some(narrow(source, step, found)?),
            None => Some(source.refs(step)?),
        };
    }
    let mut found = match found {
        Some(found) => found,
        None => source.all()?,
    };
    for step in taking {
        if found.is_empty() {
            break;
        }
        if !source.retain_few(step, &mut found)? {
            subtract(&mut found, &source.refs(step)?);
        }
    }
    Ok(found)
}

/// Intersects the postings of `steps` with known values; `None` if there are no steps. The shortest postings
/// are first; if the index knows their lengths, the others are not read for that.
fn listed_refs(source: &dyn StepRefs, steps: &[Step<'_>]) -> Result<Option<Vec<u32>>, QueryError> {
    let mut counted = Vec::with_capacity(steps.len());
    let mut lists = Vec::new();
    for step in steps {
        match source.count_max(step) {
            Some(0) => return Ok(Some(Vec::new())),
            Some(count) => counted.push((count, step)),
            None => {
                let refs = source.refs(step)?;
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
            Some(found) => narrow(source, step, found)?,
            None => source.refs(step)?,
        });
    }
    Ok(found)
}

/// Effect of one matcher: it either retains the series with certain values, or removes them.
///
/// A series without the label has the empty value, for which there are no postings. So a matcher that does
/// not select the empty value retains the series with selected values, and one that does removes those with
/// values that it does not select. Either way these are the values with another result than the empty one.
#[derive(Debug)]
pub struct Step<'a> {
    idx: usize,
    matcher: &'a Matcher,
    takes_away: bool,
    values: Values<'a>,
}

/// Label values of which a [`Step`] needs the postings.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// One value.
    One(&'a str),
    /// Several values, which a regex lists.
    Set(&'a [String]),
    /// Values that start with this prefix and for which [`Step::needs`] returns true.
    Search(&'a str),
    /// All values.
    Every,
    /// No value.
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
        Step { idx: 0, matcher, takes_away: matcher.matches_empty(), values }
    }

    /// Position among the steps of its selection.
    #[must_use]
    pub fn idx(&self) -> usize {
        self.idx
    }

    /// The matcher that the step evaluates.
    #[must_use]
    pub fn matcher(&self) -> &'a Matcher {
        self.matcher
    }

    /// Returns true if series with the values are removed from the result instead of kept.
    #[must_use]
    pub fn excludes(&self) -> bool {
        self.takes_away
    }

    /// Values of which the postings are needed.
    #[must_use]
    pub fn values(&self) -> Values<'a> {
        self.values
    }

    /// Returns true if the postings of `value`, which is not empty, are needed.
    #[must_use]
    pub fn needs(&self, value: &str) -> bool {
        self.matcher.matches(value) != self.takes_away
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
                index.search(self.matcher, prefix, &|value| self.needs(value), &mut refs)?;
            }
            Values::Every => index.search(self.matcher, "", &|_| true, &mut refs)?,
        }
        sort_refs(&mut refs);
        Ok(refs)
    }
}

/// Returns the refs in `found` that are refs of `step` too; for steps that keep series.
fn narrow(source: &dyn StepRefs, step: &Step<'_>, mut found: Vec<u32>) -> Result<Vec<u32>, QueryError> {
    if found.is_empty() || source.retain_few(step, &mut found)? {
        return Ok(found);
    }
    Ok(intersection(found, source.refs(step)?))
}

/// Sorts the concatenation of ascending lists and removes repeated refs.
pub fn sort_refs(refs: &mut Vec<u32>) {
    // The stable sort merges the postings, which are ascending runs.
    if !refs.is_sorted() {
        refs.sort();
    }
    refs.dedup();
}

/// Label values in one allocation, with their end offsets.
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
