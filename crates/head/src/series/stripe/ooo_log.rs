//! Out-of-order log of one stripe: samples of every kind and of all its series, in arrival order, until the
//! samples of a series are encoded as an out-of-order chunk.
//!
//! An append writes the next 24 bytes of the log and links them to the previous entry of the same series, so
//! it touches no memory but the end of the log and the record of the series. The samples of a series are
//! found by following the links; a page is freed once none of its entries is in use.
//!
//! Invariants: an entry belongs to one list, which starts at [`OooList`] in the record of its series; the
//! count in an entry is the length of its list up to there.
//! Not here: encoding of a list, visible sample of a timestamp (`seal`, `resolve`).

use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_model::{Columns, DuplicatePolicy, Histogram};

use crate::series::value::SampleValue;

/// Samples of one series at which they are encoded as chunks.
pub(crate) const OOO_COUNT_MAX: usize = 32;
/// Bytes of the log that halve [`OOO_COUNT_MAX`]; each further portion halves it again, so all stripes
/// together stay below half a gigabyte.
const OOO_BYTES_STEP: usize = 4 << 20;
/// Pages from which a sparse one is worth emptying.
const SPARSE_PAGE_COUNT: usize = 4;

const PAGE_BITS: u32 = 10;
const PAGE_ENTRIES: usize = 1 << PAGE_BITS;

/// Bits of a link: index of the previous entry, number of entries up to this one, flags.
const INDEX_BITS: u32 = 22;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// No previous entry.
const INDEX_NONE: u32 = INDEX_MASK;
const COUNT_MAX: u32 = 0x7f;
const HAS_START: u32 = 1 << 29;
const IS_HISTOGRAM: u32 = 1 << 30;
const LAST_WINS: u32 = 1 << 31;

const _: () = assert!(OOO_COUNT_MAX < COUNT_MAX as usize);

/// Out-of-order samples of a series: index of the newest entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OooList(u32);

impl OooList {
    /// No sample.
    pub(crate) const EMPTY: OooList = OooList(u32::MAX);

    pub(crate) fn is_empty(self) -> bool {
        self == OooList::EMPTY
    }
}

/// Sample in the out-of-order log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OooSample {
    time: i64,
    value: SampleValue,
    /// Start timestamp in milliseconds; 0 = unknown.
    start_ms: i64,
    /// Policy under which it was accepted.
    duplicates: DuplicatePolicy,
}

impl OooSample {
    pub(crate) fn new(
        time: i64,
        value: SampleValue,
        start_ms: i64,
        duplicates: DuplicatePolicy,
    ) -> OooSample {
        OooSample { time, value, start_ms, duplicates }
    }

    pub(crate) fn time(&self) -> i64 {
        self.time
    }

    pub(crate) fn value(&self) -> &SampleValue {
        &self.value
    }

    /// Returns the start timestamp in milliseconds; 0 = unknown.
    pub(crate) fn start_ms(&self) -> i64 {
        self.start_ms
    }

    /// Appends the sample to `out`.
    pub(crate) fn push_to(&self, out: &mut Columns) {
        self.value.push_to(self.time, self.start_ms, out);
    }

    pub(super) fn set_start(&mut self, start_ms: i64) {
        self.start_ms = start_ms;
    }

    /// Returns the policy under which it was accepted.
    pub(crate) fn duplicates(&self) -> DuplicatePolicy {
        self.duplicates
    }

    /// Returns true if it was accepted under last-wins, so it replaces earlier ones of its timestamp.
    pub(super) fn replaces(&self) -> bool {
        self.duplicates == DuplicatePolicy::LastWins
    }
}

#[derive(Clone, Copy)]
struct Entry {
    time: i64,
    /// Bits of the word, or index of the histogram.
    bits: u64,
    link: u32,
    /// Series; [`SERIES_NONE`] for an entry that is not in use.
    series_id: u32,
}

const SERIES_NONE: u32 = u32::MAX;

const _: () = assert!(size_of::<Entry>() == 24);

struct Page {
    entries: [Entry; PAGE_ENTRIES],
    used_count: u32,
}

/// Out-of-order log of one stripe.
#[derive(Default)]
pub(crate) struct OooLog {
    pages: Vec<Option<Box<Page>>>,
    /// Indexes in `pages` without a page.
    vacant: Vec<u32>,
    page_count: usize,
    /// Page that is written, and its entries so far.
    tail: usize,
    tail_len: usize,
    used_count: u64,
    list_count: u64,
    histograms: Vec<Option<Arc<Histogram>>>,
    free_histograms: Vec<u32>,
    histogram_bytes: usize,
    /// Start timestamps, by index of the entry.
    starts: HashMap<u32, i64>,
}

impl OooLog {
    /// Appends a sample of series `id` to `list`; returns the list, and the number of its samples (at most
    /// 127 are counted).
    pub(crate) fn push(&mut self, list: OooList, id: u32, sample: OooSample) -> (OooList, usize) {
        let OooSample { time, value, start_ms, duplicates } = sample;
        let (previous, count) = match self.entry(list.0) {
            Some(last) => (list.0, count_of(last.link)),
            None => {
                self.list_count += 1;
                (INDEX_NONE, 0)
            }
        };
        let count = (count + 1).min(COUNT_MAX);
        let mut link = previous | count << INDEX_BITS;
        if duplicates == DuplicatePolicy::LastWins {
            link |= LAST_WINS;
        }
        let bits = match value {
            SampleValue::Word(bits) => bits,
            SampleValue::Histogram(histogram) => {
                link |= IS_HISTOGRAM;
                self.put_histogram(histogram)
            }
        };
        if start_ms != 0 {
            link |= HAS_START;
        }
        if self.tail_len == PAGE_ENTRIES || self.page_count == 0 {
            self.start_page();
        }
        let idx = (self.tail << PAGE_BITS | self.tail_len) as u32;
        let page = self.pages[self.tail].as_mut().expect("the tail has a page");
        page.entries[self.tail_len] = Entry { time, bits, link, series_id: id };
        page.used_count += 1;
        self.tail_len += 1;
        self.used_count += 1;
        if start_ms != 0 {
            self.starts.insert(idx, start_ms);
        }
        (OooList(idx), count as usize)
    }

    /// Returns true if `count` samples of a series must be encoded.
    pub(crate) fn is_full(&self, count: usize) -> bool {
        let halvings = self.page_count * size_of::<Page>() / OOO_BYTES_STEP;
        let is_at_end = self.pages.len() >= INDEX_MASK as usize >> PAGE_BITS;
        is_at_end || count >= OOO_COUNT_MAX >> halvings.min(OOO_COUNT_MAX.ilog2() as usize)
    }

    /// Iterates over the samples of a list, the newest first.
    pub(crate) fn samples(&self, list: OooList) -> impl Iterator<Item = OooSample> {
        self.entries(list).map(|(idx, entry)| OooSample {
            time: entry.time,
            start_ms: if entry.link & HAS_START != 0 { self.starts[&idx] } else { 0 },
            value: match entry.link & IS_HISTOGRAM != 0 {
                true => SampleValue::Histogram(self.histogram(entry.bits).clone()),
                false => SampleValue::Word(entry.bits),
            },
            duplicates: policy_of(entry.link),
        })
    }

    /// Iterates over the timestamps of a list, the newest arrival first.
    pub(crate) fn times(&self, list: OooList) -> impl Iterator<Item = i64> {
        self.entries(list).map(|(_, entry)| entry.time)
    }

    /// Frees all samples of a list.
    pub(crate) fn free(&mut self, list: OooList) {
        if list.is_empty() {
            return;
        }
        self.list_count -= 1;
        let mut at = list.0;
        while let Some(&Entry { bits, link, .. }) = self.entry(at) {
            if link & IS_HISTOGRAM != 0 {
                self.free_histogram(bits);
            }
            if link & HAS_START != 0 {
                self.starts.remove(&at);
            }
            self.free_entry(at);
            at = link & INDEX_MASK;
        }
    }

    /// Returns the series with samples in the page with the fewest of them, if at least half of the entries
    /// of the log are not in use: moving them frees the page.
    pub(crate) fn sparse_series(&self) -> Vec<u32> {
        let capacity = (self.page_count * PAGE_ENTRIES) as u64;
        if self.page_count < SPARSE_PAGE_COUNT || 2 * self.used_count > capacity {
            return Vec::new();
        }
        let pages = self.pages.iter().enumerate().filter(|(idx, _)| *idx != self.tail);
        let sparse = pages.filter_map(|(_, page)| page.as_ref()).min_by_key(|page| page.used_count);
        sparse.map_or(Vec::new(), |page| series_of(&page.entries))
    }

    /// Returns the series with histograms.
    pub(crate) fn series_with_histograms(&self) -> Vec<u32> {
        let mut ids = Vec::new();
        for page in self.pages.iter().flatten() {
            let is_histogram = |entry: &&Entry| entry.link & IS_HISTOGRAM != 0;
            let found = page.entries.iter().filter(is_histogram).map(|entry| entry.series_id);
            ids.extend(found.filter(|&id| id != SERIES_NONE));
        }
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Number of series with samples.
    pub(crate) fn list_count(&self) -> u64 {
        self.list_count
    }

    /// Bytes of the histograms.
    pub(crate) fn histogram_bytes(&self) -> usize {
        self.histogram_bytes
    }

    /// Bytes of the log, without histograms.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let slots = self.pages.capacity() * size_of::<Option<Box<Page>>>()
            + 4 * (self.vacant.capacity() + self.free_histograms.capacity())
            + self.histograms.capacity() * size_of::<Option<Arc<Histogram>>>()
            + self.starts.capacity() * size_of::<(u32, i64)>();
        (self.page_count * size_of::<Page>() + slots) as u64
    }

    fn entry(&self, idx: u32) -> Option<&Entry> {
        let page = self.pages.get(idx as usize >> PAGE_BITS)?.as_ref()?;
        Some(&page.entries[idx as usize % PAGE_ENTRIES])
    }

    fn entries(&self, list: OooList) -> impl Iterator<Item = (u32, &Entry)> {
        let mut at = list.0;
        std::iter::from_fn(move || {
            let found = (at, self.entry(at)?);
            at = found.1.link & INDEX_MASK;
            Some(found)
        })
    }

    #[cold]
    fn start_page(&mut self) {
        let entry = Entry { time: 0, bits: 0, link: 0, series_id: SERIES_NONE };
        let page = Box::new(Page { entries: [entry; PAGE_ENTRIES], used_count: 0 });
        // A page whose entries were all freed while it was written is still there.
        self.free_page_if_unused(self.tail, true);
        self.tail = match self.vacant.pop() {
            Some(idx) => idx as usize,
            None => {
                self.pages.push(None);
                self.pages.len() - 1
            }
        };
        assert!((self.tail as u32) < INDEX_NONE >> PAGE_BITS, "lists are encoded before the log is full");
        self.pages[self.tail] = Some(page);
        self.page_count += 1;
        self.tail_len = 0;
    }

    fn free_entry(&mut self, idx: u32) {
        let page_idx = idx as usize >> PAGE_BITS;
        if let Some(page) = self.pages[page_idx].as_mut() {
            page.entries[idx as usize % PAGE_ENTRIES].series_id = SERIES_NONE;
            page.used_count -= 1;
            self.used_count -= 1;
        }
        // The page that is written stays: its next entry would need another one.
        self.free_page_if_unused(page_idx, page_idx != self.tail);
        if self.used_count == 0 {
            *self = OooLog::default();
        }
    }

    fn free_page_if_unused(&mut self, page_idx: usize, is_over: bool) {
        let Some(slot) = self.pages.get_mut(page_idx) else { return };
        if is_over && slot.as_ref().is_some_and(|page| page.used_count == 0) {
            *slot = None;
            self.page_count -= 1;
            self.vacant.push(page_idx as u32);
        }
    }

    fn histogram(&self, idx: u64) -> &Arc<Histogram> {
        self.histograms[idx as usize].as_ref().expect("an entry in use has its histogram")
    }

    fn put_histogram(&mut self, histogram: Arc<Histogram>) -> u64 {
        self.histogram_bytes += heap_bytes_of(&histogram);
        let idx = self.free_histograms.pop().unwrap_or(self.histograms.len() as u32);
        if idx as usize == self.histograms.len() {
            self.histograms.push(None);
        }
        self.histograms[idx as usize] = Some(histogram);
        u64::from(idx)
    }

    fn free_histogram(&mut self, idx: u64) {
        if let Some(histogram) = self.histograms[idx as usize].take() {
            self.histogram_bytes -= heap_bytes_of(&histogram);
            self.free_histograms.push(idx as u32);
        }
    }
}

fn count_of(link: u32) -> u32 {
    link >> INDEX_BITS & COUNT_MAX
}

fn policy_of(link: u32) -> DuplicatePolicy {
    if link & LAST_WINS != 0 { DuplicatePolicy::LastWins } else { DuplicatePolicy::KeepFirst }
}

fn series_of(entries: &[Entry]) -> Vec<u32> {
    let mut ids: Vec<u32> = entries.iter().map(|entry| entry.series_id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|&id| id != SERIES_NONE);
    ids
}

/// Returns the bytes of a buffered histogram.
fn heap_bytes_of(histogram: &Histogram) -> usize {
    let bounds = match histogram {
        Histogram::Int(one) => one.custom_values.len(),
        Histogram::Float(one) => one.custom_values.len(),
    };
    histogram.memory_bytes() + bounds * size_of::<f64>() + 32
}

#[cfg(test)]
mod tests;
