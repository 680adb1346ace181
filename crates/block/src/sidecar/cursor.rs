//! Iterates the series pages that may have series which match, and checks matchers on the labels in them.
//!
//! Invariants: pages come in order, each is fetched and decoded once; series come in order of the index.

use chronolith_base::DecodeError;
use chronolith_format::bucket::sidecar::{PageEntry, PageSeries, SeriesPage, SeriesRun, SidecarHead};
use chronolith_model::{Matcher, QueryError, TimeRange};

use super::contents::SidecarContents;
use crate::source::{BlockFile, ByteRange, RangeBytes};

/// Bytes of pages that are fetched at once.
const WAVE_PAGE_BYTES_MAX: u64 = 4 << 20;

/// Series that may match.
pub(super) enum Wanted {
    All,
    /// By their first series; none overlaps another.
    Runs(Vec<SeriesRun>),
    /// Refs in the index, ascending.
    Refs(Vec<u32>),
}

/// A matcher that is checked on labels.
struct LabelCheck {
    matcher: Matcher,
    /// Address and length of the value that was checked last: values are borrowed from the page, so equal
    /// ones mostly have the same address.
    last_value: (usize, usize),
    last_result: bool,
}

impl LabelCheck {
    fn fits(&mut self, series: &PageSeries<'_>) -> bool {
        let value = series.pairs().find(|(name, _)| *name == &*self.matcher.name);
        let value = value.map_or("", |(_, value)| value);
        let address = (value.as_ptr().addr(), value.len());
        if address != self.last_value || value.is_empty() {
            self.last_value = address;
            self.last_result = self.matcher.matches(value);
        }
        self.last_result
    }
}

/// Pages that may have series that match, and how far they were read.
pub(super) struct PageCursor {
    /// Indices in the page table, ascending.
    pages: Vec<u32>,
    wanted: Wanted,
    checks: Vec<LabelCheck>,
    /// The next page to be decoded.
    next: usize,
    /// End of the pages that are fetched.
    fetched_end: usize,
    bytes: Option<RangeBytes>,
    page: SeriesPage,
}

impl PageCursor {
    /// A cursor that has no pages left.
    pub(super) fn empty() -> PageCursor {
        PageCursor {
            pages: Vec::new(),
            wanted: Wanted::All,
            checks: Vec::new(),
            next: 0,
            fetched_end: 0,
            bytes: None,
            page: SeriesPage::new(),
        }
    }

    /// Pages with series of `wanted`, those without chunks in `range` left out; `checked` are the matchers
    /// that decide about each series.
    pub(super) fn new<'m>(
        head: &SidecarHead,
        wanted: Wanted,
        range: Option<TimeRange>,
        checked: impl Iterator<Item = &'m Matcher>,
    ) -> PageCursor {
        let mut pages: Vec<u32> = Vec::new();
        match &wanted {
            Wanted::All => pages.extend((0u32..).take(head.pages.len())),
            Wanted::Runs(runs) => {
                for run in runs {
                    let of_run = head.pages_of(run.ordinals());
                    pages.extend((0u32..).take(of_run.end).skip(of_run.start));
                }
                pages.dedup();
            }
            Wanted::Refs(refs) => {
                pages.extend(refs.iter().filter_map(|r| u32::try_from(head.page_of_ref(*r)?).ok()));
                pages.dedup();
            }
        }
        if let Some(range) = range {
            let has_chunks = |page: &PageEntry| range.overlaps_inclusive(page.min_time, page.max_time);
            pages.retain(|idx| head.pages.get(*idx as usize).is_some_and(has_chunks));
        }
        PageCursor { pages, wanted, checks: checks_of(checked), ..PageCursor::empty() }
    }

    /// Leaves the series `refs`, which ascend, on the pages of the cursor, and replaces its matchers.
    pub(super) fn narrow<'m>(
        &mut self,
        head: &SidecarHead,
        refs: Vec<u32>,
        checked: impl Iterator<Item = &'m Matcher>,
    ) {
        let mut on_pages: Vec<u32> =
            refs.iter().filter_map(|r| u32::try_from(head.page_of_ref(*r)?).ok()).collect();
        on_pages.dedup();
        self.pages.retain(|idx| on_pages.binary_search(idx).is_ok());
        self.wanted = Wanted::Refs(refs);
        self.checks = checks_of(checked);
    }

    /// Returns true if the series are known by runs of a metric name.
    pub(super) fn has_runs(&self) -> bool {
        matches!(self.wanted, Wanted::Runs(_))
    }

    /// Bytes of all pages.
    pub(super) fn page_bytes(&self, head: &SidecarHead) -> u64 {
        let pages = self.pages.iter().filter_map(|idx| head.pages.get(*idx as usize));
        pages.map(|page| u64::from(page.len)).sum()
    }

    /// Returns true if a page has been read and not visited yet.
    pub(super) fn has_page(&self) -> bool {
        self.next < self.fetched_end
    }

    /// Returns true if no page is left.
    pub(super) fn is_done(&self) -> bool {
        self.next >= self.pages.len()
    }

    /// Appends the ranges of the next pages.
    pub(super) fn push_ranges(&self, head: &SidecarHead, out: &mut Vec<ByteRange>) {
        let end = self.wave_end(head);
        let pages = self.pages.get(self.next..end).unwrap_or_default();
        out.extend(pages.iter().filter_map(|idx| Some(page_range(head.pages.get(*idx as usize)?))));
    }

    /// Takes the bytes of the ranges of [`PageCursor::push_ranges`].
    pub(super) fn set_bytes(&mut self, head: &SidecarHead, bytes: RangeBytes) {
        self.fetched_end = self.wave_end(head);
        self.bytes = Some(bytes);
    }

    /// Decodes the next page and calls `visit` with each of its series that matches.
    pub(super) fn visit_page(
        &mut self,
        contents: &SidecarContents,
        visit: &mut dyn FnMut(PageSeries<'_>) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let idx = self.pages.get(self.next).map(|idx| *idx as usize);
        let head = contents.head();
        let Some((idx, entry)) = idx.and_then(|idx| Some((idx, head.pages.get(idx)?))) else { return Ok(()) };
        let Some(bytes) = &self.bytes else { return Ok(()) };
        let page = &mut self.page;
        let found = contents.exact(bytes, &page_range(entry))?;
        page.decode(entry, found).map_err(|error| contents.damaged(&error))?;
        self.next += 1;
        if self.next >= self.fetched_end {
            self.bytes = None;
        }
        let checks = &mut self.checks;
        // Texts of another page may have the same addresses.
        checks.iter_mut().for_each(|check| check.last_value = (0, 0));
        let mut visit_one = |series: PageSeries<'_>| {
            if checks.iter_mut().all(|check| check.fits(&series)) { visit(series) } else { Ok(()) }
        };
        match &self.wanted {
            Wanted::All => page.iter().try_for_each(visit_one),
            Wanted::Runs(runs) => {
                for ordinals in runs_on(runs, entry) {
                    let start = ordinals.start.saturating_sub(entry.first_ordinal) as usize;
                    let end = ordinals.end.saturating_sub(entry.first_ordinal) as usize;
                    (start..end).filter_map(|idx| page.series(idx)).try_for_each(&mut visit_one)?;
                }
                Ok(())
            }
            Wanted::Refs(refs) => {
                let next_ref = head.pages.get(idx + 1).map_or(u32::MAX, |next| next.first_ref);
                let is_before = |series_ref: &u32| *series_ref < next_ref || next_ref == u32::MAX;
                let start = refs.partition_point(|series_ref| *series_ref < entry.first_ref);
                let end = refs.partition_point(is_before);
                for series_ref in refs.get(start..end).unwrap_or_default() {
                    let series = page.idx_of_ref(*series_ref).and_then(|idx| page.series(idx));
                    // Index and sidecar belong to different blocks, or the list belongs to another pair.
                    let series = series.ok_or_else(|| contents.damaged(&missing_series(*series_ref)))?;
                    visit_one(series)?;
                }
                Ok(())
            }
        }
    }

    /// End of the pages that are fetched next.
    fn wave_end(&self, head: &SidecarHead) -> usize {
        let mut bytes = 0u64;
        let pages = self.pages.get(self.next..).unwrap_or_default();
        let fits = |idx: &&u32| {
            bytes += head.pages.get(**idx as usize).map_or(0, |page| u64::from(page.len));
            bytes <= WAVE_PAGE_BYTES_MAX
        };
        let count = pages.iter().take_while(fits).count().max(1).min(pages.len());
        self.next + count
    }
}

fn checks_of<'m>(matchers: impl Iterator<Item = &'m Matcher>) -> Vec<LabelCheck> {
    let check =
        |matcher: &Matcher| LabelCheck { matcher: matcher.clone(), last_value: (0, 0), last_result: false };
    matchers.map(check).collect()
}

/// Parts of the runs that are on a page, as ordinals of the block.
fn runs_on(runs: &[SeriesRun], entry: &PageEntry) -> impl Iterator<Item = std::ops::Range<u32>> {
    let page_end = entry.first_ordinal.saturating_add(entry.series_count);
    let page_start = entry.first_ordinal;
    let first = runs.partition_point(|run| run.ordinals().end <= page_start);
    let on_page = runs.iter().skip(first).take_while(move |run| run.first < page_end);
    on_page.map(move |run| run.first.max(page_start)..run.ordinals().end.min(page_end))
}

fn page_range(entry: &PageEntry) -> ByteRange {
    ByteRange {
        file: BlockFile::Sidecar,
        start: entry.offset,
        end: entry.offset.saturating_add(u64::from(entry.len)),
    }
}

#[cold]
fn missing_series(series_ref: u32) -> DecodeError {
    let what = "series page";
    DecodeError::Invalid {
        what,
        offset: 0,
        expected: "the series of a postings list",
        found: series_ref.into(),
    }
}
