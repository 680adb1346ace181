//! Postings of a selection: the lists that its matchers need, named before any of them is read, then read in
//! one wave and combined.
//!
//! Invariant: a plan names every list that combining it reads. A matcher that needs a label pair which no
//! series has ends the plan before anything is read.
//! Not here: values that a matcher needs, the order of combining (`model::index`), other uses of postings
//! (`label_queries`, `verify`).

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use chronolith_base::{DecodeError, MemoryBudget};
use chronolith_format::block::index::{IndexHeader, Postings, decode_postings};
use chronolith_model::index::{
    CachedMatches, RegexCache, RegexCacheLimits, Step, StepRefs, Values, select_steps, sort_refs, steps,
};
use chronolith_model::{Matcher, QueryError};

use crate::contents::BlockContents;
use crate::source::{BlockFile, RangeBytes, Wave};
use crate::waves::PostingsWave;

const REGEX_CACHE_LIMITS: RegexCacheLimits =
    RegexCacheLimits { regex_count_max: 16, value_count_min: 256, found_count_max: 64 << 10 };
/// Bytes of the regex caches of all blocks of the process: blocks are many, and opened in many places.
const REGEX_CACHES_BYTES_MAX: u64 = 64 << 20;

static REGEX_CACHES: LazyLock<MemoryBudget> =
    LazyLock::new(|| MemoryBudget::new("regex caches of blocks", REGEX_CACHES_BYTES_MAX));

/// The regex cache of a block: series refs. An index never changes, so a result stays true; tombstones are
/// applied when samples are read.
pub(crate) fn new_regex_cache() -> RegexCache {
    RegexCache::new(REGEX_CACHE_LIMITS, REGEX_CACHES.clone())
}

/// Source of the refs of one step.
enum StepPlan {
    /// Refs that were found before.
    Cached(Arc<[u32]>),
    /// The union of these lists of the plan.
    Lists(Range<usize>),
}

/// The postings that a selection needs.
pub struct PostingsPlan<'m> {
    steps: Vec<Step<'m>>,
    plans: Vec<StepPlan>,
    /// Ranges of all lists in the index.
    lists: Vec<Range<u64>>,
    /// Index of the list of all series, if every matcher matches series without its label.
    all_idx: Option<usize>,
}

impl<'m> PostingsPlan<'m> {
    /// Names the lists; `None` if one of the matchers matches no series.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`] if the postings offset table is damaged.
    pub(crate) fn new(
        contents: &BlockContents,
        matchers: &'m [Matcher],
    ) -> Result<Option<PostingsPlan<'m>>, QueryError> {
        PostingsPlan::of_header(contents, matchers).map_err(|error| contents.index_error(&error))
    }

    /// The wave of the lists.
    #[must_use]
    pub fn wave(&self) -> impl Wave {
        PostingsWave(&self.lists)
    }

    /// Refs of the series that fit all matchers, ascending, from the `bytes` of the wave.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`].
    pub(crate) fn refs(&self, contents: &BlockContents, bytes: RangeBytes) -> Result<Vec<u32>, QueryError> {
        select_steps(&PlannedLists { contents, plan: self, bytes }, &self.steps)
    }

    fn of_header(
        contents: &BlockContents,
        matchers: &'m [Matcher],
    ) -> Result<Option<PostingsPlan<'m>>, DecodeError> {
        let header = contents.header();
        let steps = steps(matchers);
        let (mut plans, mut lists) = (Vec::with_capacity(steps.len()), Vec::with_capacity(steps.len()));
        for step in &steps {
            let first = lists.len();
            let plan = match cached(contents, step) {
                Some(refs) => StepPlan::Cached(refs),
                None => {
                    push_lists(header, step, &mut lists)?;
                    StepPlan::Lists(first..lists.len())
                }
            };
            if !step.excludes() && plan.is_empty() {
                return Ok(None);
            }
            plans.push(plan);
        }
        let mut all_idx = None;
        if steps.iter().all(Step::excludes) {
            all_idx = Some(lists.len());
            lists.extend(header.postings_range("", "")?);
        }
        Ok(Some(PostingsPlan { steps, plans, lists, all_idx }))
    }
}

impl StepPlan {
    /// Returns true if no series has a value of the step.
    fn is_empty(&self) -> bool {
        match self {
            StepPlan::Cached(refs) => refs.is_empty(),
            StepPlan::Lists(lists) => lists.is_empty(),
        }
    }
}

/// Returns true if the values of the step are found by looking at all values of its label.
fn scans_values(step: &Step<'_>) -> bool {
    matches!(step.values(), Values::Search(_) | Values::Every)
}

fn cached(contents: &BlockContents, step: &Step<'_>) -> Option<Arc<[u32]>> {
    if !scans_values(step) {
        return None;
    }
    let value_count = contents.header().label_value_count(&step.matcher().name);
    contents.regex_cache().get(step.matcher(), value_count).map(|matches| matches.found)
}

/// Appends the ranges of the lists that a step needs.
fn push_lists(header: &IndexHeader, step: &Step<'_>, lists: &mut Vec<Range<u64>>) -> Result<(), DecodeError> {
    let name = &*step.matcher().name;
    match step.values() {
        Values::Nothing => {}
        Values::One(value) => lists.extend(header.postings_range(name, value)?),
        Values::Set(values) => {
            for value in values {
                lists.extend(header.postings_range(name, value)?);
            }
        }
        Values::Search(prefix) => header.for_each_value(name, prefix, &mut |value, list| {
            if !value.is_empty() && step.needs(value) {
                lists.push(list);
            }
            true
        })?,
        Values::Every => header.for_each_value(name, "", &mut |value, list| {
            if !value.is_empty() {
                lists.push(list);
            }
            true
        })?,
    }
    Ok(())
}

/// The lists of a plan, read.
struct PlannedLists<'a> {
    contents: &'a BlockContents,
    plan: &'a PostingsPlan<'a>,
    bytes: RangeBytes,
}

impl PlannedLists<'_> {
    fn extend(&self, idx: usize, out: &mut Vec<u32>) -> Result<(), QueryError> {
        let Some(list) = self.plan.lists.get(idx) else { return Ok(()) };
        out.extend(postings_at(&self.bytes, list).map_err(|e| self.contents.index_error(&e))?.iter());
        Ok(())
    }
}

impl StepRefs for PlannedLists<'_> {
    fn all(&self) -> Result<Vec<u32>, QueryError> {
        let mut refs = Vec::new();
        self.plan.all_idx.map_or(Ok(()), |idx| self.extend(idx, &mut refs))?;
        Ok(refs)
    }

    fn refs(&self, step: &Step<'_>) -> Result<Vec<u32>, QueryError> {
        let mut refs = Vec::new();
        match self.plan.plans.get(step.idx()) {
            None => {}
            Some(StepPlan::Cached(cached)) => refs.extend_from_slice(cached),
            Some(StepPlan::Lists(lists)) => {
                for idx in lists.clone() {
                    self.extend(idx, &mut refs)?;
                }
                sort_refs(&mut refs);
                if scans_values(step) {
                    let value_count = self.contents.header().label_value_count(&step.matcher().name);
                    let matches = CachedMatches { value_count, found: Arc::from(refs.as_slice()) };
                    self.contents.regex_cache().insert(step.matcher(), matches);
                }
            }
        }
        Ok(refs)
    }
}

/// Decodes the list whose range in the index is `list`.
pub(crate) fn postings_at<'a>(bytes: &'a RangeBytes, list: &Range<u64>) -> Result<Postings<'a>, DecodeError> {
    decode_postings(bytes.at(BlockFile::Index, list.start), list.start)
}

/// Refs of the series that fit all `matchers`, ascending. Cost: one wave, of the lists that the matchers
/// need.
///
/// # Errors
/// As the source, and [`QueryError::Corrupt`].
pub(crate) fn select_refs(
    contents: &BlockContents,
    matchers: &[Matcher],
    budget: &MemoryBudget,
) -> Result<Vec<u32>, QueryError> {
    let Some(plan) = PostingsPlan::new(contents, matchers)? else { return Ok(Vec::new()) };
    let bytes = contents.read(&plan.wave(), budget)?;
    plan.refs(contents, bytes)
}

/// Refs of all series, ascending.
///
/// # Errors
/// As [`select_refs`].
pub(crate) fn all_refs(contents: &BlockContents, budget: &MemoryBudget) -> Result<Vec<u32>, QueryError> {
    select_refs(contents, &[], budget)
}
