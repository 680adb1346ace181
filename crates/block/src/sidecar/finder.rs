//! Finds the series that match matchers, page by page, in waves: name pages, sparse offset table, entries of
//! the postings offset table, postings lists, series pages. Most queries need the last one only.
//!
//! A metric name leads to its series by the directory, without postings. Other matchers lead to postings
//! lists, but only where these save more bytes of pages than they have themselves (`ListCosts`,
//! [`worthwhile`]): a page has all labels, so that any matcher can be checked there at no request. Lists of
//! matchers that only remove series are therefore never read.
//! A state machine without I/O, as `selection` is.
//! Not here: chunks (`selection`), the parts in memory (`contents`).

use std::ops::Range;

use chronolith_base::{MemoryBudget, Reservation};
use chronolith_format::bucket::Unpacker;
use chronolith_format::bucket::sidecar::{Directory, NameList, NamePage, OffsetRange, PageSeries, SeriesRun};
use chronolith_model::index::{Step, Values, sort_refs, steps};
use chronolith_model::{METRIC_NAME, Matcher, QueryError, TimeRange};

use super::contents::{Part, SharedContents};
use super::cursor::{PageCursor, Wanted};
use crate::postings::postings_at;
use crate::source::{BlockFile, ByteRange, FetchedRanges, RangeBytes, Wave};
use crate::waves::PostingsWave;

/// Entries of one matcher are read if they have at most this part of the bytes of the pages.
const ENTRIES_PART: u64 = 8;
/// Bytes of a postings list besides its refs: length, count, checksum.
const LIST_OVERHEAD_BYTES: u64 = 12;
/// Range of a list whose end is not where the next one starts: its length is read first.
const LIST_BYTES_MIN: u64 = 512;

/// Purpose of the series, which decides what else is read with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Samples in this range: pages without chunks in it are skipped.
    Samples(TimeRange),
    /// Labels alone, on all pages.
    Labels,
}

/// Postings lists of one matcher.
struct MatcherLists {
    matcher_idx: usize,
    lists: Vec<Range<u64>>,
}

impl MatcherLists {
    fn bytes(&self) -> u64 {
        self.lists.iter().map(|list| list.end.saturating_sub(list.start)).sum()
    }

    /// About how many series the lists have.
    fn series_count(&self) -> u64 {
        self.bytes().saturating_sub(LIST_OVERHEAD_BYTES * self.lists.len() as u64) / 4
    }
}

/// Entries of the postings offset table of one matcher.
struct MatcherEntries {
    matcher_idx: usize,
    ranges: Vec<OffsetRange>,
}

impl MatcherEntries {
    fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.bytes.end.saturating_sub(range.bytes.start)).sum()
    }
}

/// Wave that is read next.
enum Phase {
    Names(Vec<NamePage>),
    Offsets,
    Entries(Vec<MatcherEntries>),
    Lists(Vec<MatcherLists>),
    /// Series pages, until the cursor has none left.
    Pages,
}

/// Finds the series that match. [`SeriesFinder::next_wave`] and [`SeriesFinder::push`] alternate until there
/// is a page, which [`SeriesFinder::visit_page`] takes.
pub(super) struct SeriesFinder {
    contents: SharedContents,
    matchers: Vec<Matcher>,
    purpose: Purpose,
    phase: Phase,
    /// Pages that may have series that match.
    cursor: PageCursor,
    budget: MemoryBudget,
    _refs: Option<Reservation>,
}

impl SeriesFinder {
    pub(super) fn new(
        contents: &SharedContents,
        matchers: &[Matcher],
        purpose: Purpose,
        budget: &MemoryBudget,
    ) -> SeriesFinder {
        let mut finder = SeriesFinder {
            contents: contents.clone(),
            matchers: matchers.to_vec(),
            purpose,
            phase: Phase::Pages,
            cursor: PageCursor::empty(),
            budget: budget.clone(),
            _refs: None,
        };
        finder.start();
        finder
    }

    /// Returns true if [`SeriesFinder::visit_page`] has a page to visit.
    pub(super) fn has_page(&self) -> bool {
        self.cursor.has_page()
    }

    /// Returns true if all series were visited.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Pages) && self.cursor.is_done()
    }

    /// Leaves out all series that are still to come.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Pages;
        self.cursor = PageCursor::empty();
    }

    /// The wave that is read next; `None` after the last one, or while a page waits to be visited.
    pub(super) fn next_wave(&self) -> Option<FinderWave> {
        let mut wave = FinderWave { ranges: Vec::new(), lists: Vec::new() };
        match &self.phase {
            Phase::Names(pages) => wave.ranges.extend(pages.iter().map(name_page_range)),
            Phase::Offsets => wave.ranges.extend(self.contents.missing_range(Part::Offsets)),
            Phase::Entries(entries) => {
                let ranges = entries.iter().flat_map(|one| &one.ranges).map(|range| &range.bytes);
                wave.ranges.extend(ranges.map(|range| ByteRange {
                    file: BlockFile::Index,
                    start: range.start,
                    end: range.end,
                }));
            }
            Phase::Lists(lists) => wave.lists = lists.iter().flat_map(|one| one.lists.clone()).collect(),
            Phase::Pages if self.cursor.has_page() || self.cursor.is_done() => return None,
            Phase::Pages => self.cursor.push_ranges(self.contents.head(), &mut wave.ranges),
        }
        if let Purpose::Samples(_) = self.purpose {
            let parts = [Part::Tombstones, Part::Times];
            wave.ranges.extend(parts.into_iter().filter_map(|part| self.contents.missing_range(part)));
        }
        Some(wave)
    }

    /// Takes the bytes of the wave that [`SeriesFinder::next_wave`] returned.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`], [`QueryError::Memory`].
    pub(super) fn push(&mut self, bytes: RangeBytes) -> Result<(), QueryError> {
        if let Purpose::Samples(_) = self.purpose {
            self.contents.keep_all(&[Part::Tombstones, Part::Times], &bytes)?;
        }
        match std::mem::replace(&mut self.phase, Phase::Pages) {
            Phase::Names(pages) => self.take_names(&pages, &bytes),
            Phase::Offsets => {
                self.contents.keep_all(&[Part::Offsets], &bytes)?;
                self.plan_entries();
                Ok(())
            }
            Phase::Entries(entries) => self.take_entries(entries, &bytes),
            Phase::Lists(lists) => self.take_lists(&lists, &bytes),
            Phase::Pages => {
                self.cursor.set_bytes(self.contents.head(), bytes);
                Ok(())
            }
        }
    }

    /// Decodes the next page and calls `visit` with each of its series that matches.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`], and errors of `visit`.
    pub(super) fn visit_page(
        &mut self,
        visit: &mut dyn FnMut(PageSeries<'_>) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        self.cursor.visit_page(&self.contents, visit)
    }

    /// Plans what the head alone decides.
    fn start(&mut self) {
        let is_nothing = |step: &Step<'_>| !step.excludes() && matches!(step.values(), Values::Nothing);
        if steps(&self.matchers).iter().any(is_nothing) {
            return;
        }
        let contents = self.contents.clone();
        let head = contents.head();
        if !self.matchers.iter().any(is_name_matcher) {
            return self.choose(None);
        }
        match &head.directory {
            Directory::Inline(names) => {
                let runs = runs_of(&self.matchers, [names].into_iter());
                self.choose(Some(runs));
            }
            Directory::Paged(pages) => match name_pages_of(&self.matchers, pages) {
                Some(found) => {
                    let found: Vec<_> = found.iter().filter_map(|idx| pages.get(*idx).cloned()).collect();
                    if !found.is_empty() {
                        self.phase = Phase::Names(found);
                    }
                }
                None => self.choose(None),
            },
        }
    }

    fn take_names(&mut self, pages: &[NamePage], bytes: &RangeBytes) -> Result<(), QueryError> {
        let mut unpacker = Unpacker::default();
        let mut lists = Vec::with_capacity(pages.len());
        for page in pages {
            let found = self.contents.exact(bytes, &name_page_range(page))?;
            let list = page.decode(found, self.contents.head().series_count, &mut unpacker);
            lists.push(list.map_err(|error| self.contents.damaged(&error))?);
        }
        let runs = runs_of(&self.matchers, lists.iter());
        self.choose(Some(runs));
        Ok(())
    }

    /// Chooses between reading all pages of `runs`, or of the block without a name, and reading lists first.
    fn choose(&mut self, runs: Option<Vec<SeriesRun>>) {
        let has_runs = runs.is_some();
        let range = match self.purpose {
            Purpose::Samples(range) => Some(range),
            Purpose::Labels => None,
        };
        let head = self.contents.head();
        let wanted = runs.map_or(Wanted::All, Wanted::Runs);
        let checked = self.matchers.iter().filter(|matcher| !has_runs || !is_name_matcher(matcher));
        self.cursor = PageCursor::new(head, wanted, range, checked);
        let costs = self.contents.costs();
        let direct_max = if has_runs { costs.direct_metric_bytes_max } else { costs.direct_bytes_max };
        let has_lists = self.matchers.iter().any(|matcher| is_narrowing(matcher, has_runs));
        if self.cursor.page_bytes(head) <= direct_max || !has_lists || head.offsets.is_none() {
            return;
        }
        match self.contents.offsets() {
            Some(_) => self.plan_entries(),
            None => self.phase = Phase::Offsets,
        }
    }

    /// Names the entries of the matchers whose lists may be worth reading.
    fn plan_entries(&mut self) {
        let contents = self.contents.clone();
        let Some(offsets) = contents.offsets() else { return };
        let bytes_max = self.cursor.page_bytes(contents.head()) / ENTRIES_PART;
        let weight = contents.costs().weight;
        let mut all = Vec::new();
        for (matcher_idx, matcher) in self.matchers.iter().enumerate() {
            if !is_narrowing(matcher, self.cursor.has_runs()) {
                continue;
            }
            let name = &*matcher.name;
            let mut ranges = Vec::new();
            match steps(std::slice::from_ref(matcher)).first().map(Step::values) {
                Some(Values::One(value)) => ranges.extend(offsets.range_of(name, value)),
                Some(Values::Set(values)) => {
                    ranges.extend(values.iter().filter_map(|value| offsets.range_of(name, value)));
                    // Values next to each other are in one range.
                    ranges.sort_unstable_by_key(|range| range.bytes.start);
                    ranges.dedup();
                }
                Some(Values::Search(prefix)) => ranges.extend(offsets.range_of_prefix(name, prefix)),
                Some(Values::Every) => ranges.extend(offsets.range_of_prefix(name, "")),
                Some(Values::Nothing) | None => {}
            }
            if ranges.is_empty() {
                return self.end();
            }
            let entries = MatcherEntries { matcher_idx, ranges };
            if entries.bytes() * weight <= bytes_max {
                all.push(entries);
            }
        }
        if !all.is_empty() {
            self.phase = Phase::Entries(all);
        }
    }

    fn take_entries(&mut self, all: Vec<MatcherEntries>, bytes: &RangeBytes) -> Result<(), QueryError> {
        let contents = self.contents.clone();
        let Some(offsets) = contents.offsets() else { return Ok(()) };
        let mut of_matchers = Vec::with_capacity(all.len());
        for MatcherEntries { matcher_idx, ranges } in all {
            let Some(matcher) = self.matchers.get(matcher_idx) else { continue };
            let steps = steps(std::slice::from_ref(matcher));
            let Some(step) = steps.first() else { continue };
            let mut lists = Vec::new();
            for range in &ranges {
                let found = bytes.at(BlockFile::Index, range.bytes.start);
                let visited = offsets.visit(range, found, &mut |value, list| {
                    if !value.is_empty() && step.needs(value) {
                        let end = if list.is_empty() { list.start + LIST_BYTES_MIN } else { list.end };
                        lists.push(list.start..end);
                    }
                    true
                });
                visited.map_err(|error| contents.damaged(&error))?;
            }
            if lists.is_empty() {
                self.end();
                return Ok(());
            }
            of_matchers.push(MatcherLists { matcher_idx, lists });
        }
        let head = contents.head();
        let page_bytes = self.cursor.page_bytes(head);
        let page_count = head.pages.len() as u64;
        let blocks = BlockBytes { page_bytes, page_count, series_count: u64::from(head.series_count) };
        let lists = worthwhile(of_matchers, &blocks, contents.costs().weight);
        if !lists.is_empty() {
            self.phase = Phase::Lists(lists);
        }
        Ok(())
    }

    fn take_lists(&mut self, all: &[MatcherLists], bytes: &RangeBytes) -> Result<(), QueryError> {
        let mut found: Option<Vec<u32>> = None;
        for MatcherLists { lists, .. } in all {
            let mut refs = Vec::new();
            for list in lists {
                refs.extend(postings_at(bytes, list).map_err(|e| self.contents.index_error(&e))?.iter());
            }
            sort_refs(&mut refs);
            found = Some(match found {
                None => refs,
                Some(mut found) => {
                    found.retain(|series_ref| refs.binary_search(series_ref).is_ok());
                    found
                }
            });
        }
        let refs = found.unwrap_or_default();
        self._refs = Some(self.budget.reserve(4 * refs.len() as u64)?);
        let is_read = |idx: usize| all.iter().any(|lists| lists.matcher_idx == idx);
        let checked = self.matchers.iter().enumerate().filter(|(idx, _)| !is_read(*idx));
        self.cursor.narrow(self.contents.head(), refs, checked.map(|(_, matcher)| matcher));
        Ok(())
    }
}

/// Pages that may be read, and all pages and series of the block.
struct BlockBytes {
    page_bytes: u64,
    page_count: u64,
    series_count: u64,
}

/// Returns the lists that save more bytes of pages than they have themselves, the shortest first: a list of a
/// part of the series saves at most the other part of the pages, and lists after it at most the pages that
/// its series are on.
fn worthwhile(mut all: Vec<MatcherLists>, block: &BlockBytes, weight: u64) -> Vec<MatcherLists> {
    all.sort_by_key(MatcherLists::series_count);
    let mut left_bytes = block.page_bytes;
    all.retain(|lists| {
        let count = lists.series_count();
        let others = block.series_count.saturating_sub(count) as f64 / block.series_count.max(1) as f64;
        let saved = (left_bytes as f64 * others) as u64;
        let is_read = lists.bytes().saturating_mul(weight) < saved;
        if is_read {
            let on_pages = count.saturating_mul(block.page_bytes / block.page_count.max(1));
            left_bytes = left_bytes.min(on_pages);
        }
        is_read
    });
    all
}

fn is_name_matcher(matcher: &Matcher) -> bool {
    &*matcher.name == METRIC_NAME
}

/// Returns true if the matcher keeps only series with certain values, and those are not known from the
/// directory.
fn is_narrowing(matcher: &Matcher, has_runs: bool) -> bool {
    !(matcher.matches_empty() || has_runs && is_name_matcher(matcher))
}

/// Runs of the names that all matchers of the name select, by their first series.
fn runs_of<'a>(matchers: &[Matcher], lists: impl Iterator<Item = &'a NameList>) -> Vec<SeriesRun> {
    let of_name: Vec<&Matcher> = matchers.iter().filter(|matcher| is_name_matcher(matcher)).collect();
    let mut runs: Vec<SeriesRun> = Vec::new();
    for list in lists {
        let fit = list.iter().filter(|(name, _)| of_name.iter().all(|matcher| matcher.matches(name)));
        runs.extend(fit.flat_map(|(_, runs)| runs));
    }
    runs.sort_unstable_by_key(|run| run.first);
    runs
}

/// Indices of the name pages with all names that the matchers of the name select, if one of the matchers
/// lists names or has a prefix; `None` if the names may be on any page.
fn name_pages_of(matchers: &[Matcher], pages: &[NamePage]) -> Option<Vec<usize>> {
    let page_of = |name: &str| pages.partition_point(|page| &*page.first <= name).saturating_sub(1);
    let found = matchers.iter().filter(|matcher| is_name_matcher(matcher)).filter_map(|matcher| {
        let steps = steps(std::slice::from_ref(matcher));
        let step = steps.first()?;
        match step.values() {
            // `=""`: series without a name are listed under the empty one.
            Values::Every if step.excludes() => Some(vec![page_of("")]),
            _ if step.excludes() => None,
            Values::One(value) => Some(vec![page_of(value)]),
            Values::Set(values) => {
                let mut found: Vec<usize> = values.iter().map(|value| page_of(value)).collect();
                found.sort_unstable();
                found.dedup();
                Some(found)
            }
            Values::Search("") | Values::Every | Values::Nothing => None,
            Values::Search(prefix) => {
                let is_before = |page: &NamePage| &*page.first < prefix || page.first.starts_with(prefix);
                Some((page_of(prefix)..pages.partition_point(is_before)).collect())
            }
        }
    });
    found.min_by_key(Vec::len)
}

pub(super) fn name_page_range(page: &NamePage) -> ByteRange {
    ByteRange {
        file: BlockFile::Sidecar,
        start: page.offset,
        end: page.offset.saturating_add(u64::from(page.len)),
    }
}

/// Ranges whose lengths are known, and postings lists, whose lengths mostly are.
pub(super) struct FinderWave {
    ranges: Vec<ByteRange>,
    lists: Vec<Range<u64>>,
}

impl Wave for FinderWave {
    fn ranges(&self, out: &mut Vec<ByteRange>) {
        out.extend_from_slice(&self.ranges);
        PostingsWave(&self.lists).ranges(out);
    }

    fn missing(&self, fetched: &FetchedRanges, out: &mut Vec<ByteRange>) {
        PostingsWave(&self.lists).missing(fetched, out);
    }
}
