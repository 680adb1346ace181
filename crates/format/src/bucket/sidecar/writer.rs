//! Writer of a sidecar: series in order of their refs go in, bytes come out page by page.
//!
//! Invariant: pages, name pages, sparse offset table, shared times and head follow one another without gaps.
//! Memory: one page, the page table, the metric names with 12 bytes per run, the ranges of shared times.

use chronolith_base::crc::Crc32c;
use chronolith_model::{METRIC_NAME, TimeUnit};

use super::super::packed::put_packed;
use super::head::{FileSum, HeadParts, Section, put_header};
use super::names::NamesBuilder;
use super::offsets::SparseOffsets;
use super::page::{PAGE_LABELS_MAX, PAGE_RAW_BYTES_MAX, PageEntry, SizedChunk};
use super::page_builder::PageBuilder;
use super::times::{TimesBuilder, put_ranges};
use crate::block::chunks::ChunkRef;
use crate::block::meta::Ulid;

/// Estimated unpacked bytes at which a page ends.
// PERF: bytes per series fall little above this, and a query for one metric reads what it does not need.
//   cargo bench -p chronolith-format --bench sidecar_size
const PAGE_BYTES_TARGET: usize = 64 << 10;
/// Estimated unpacked bytes from which on a page ends where the metric name changes.
const PAGE_BYTES_MIN: usize = PAGE_BYTES_TARGET / 2;
/// Encoded ranges of shared times that are part of the head.
const INLINE_TIMES_BYTES_MAX: usize = 4 << 10;

/// Bytes of one series at most, so that a page of its own has room for what else a page has.
const SERIES_BYTES_MAX: usize = PAGE_RAW_BYTES_MAX - (1 << 20);

/// Reason for refusing to write a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SidecarError {
    /// Refs do not ascend.
    #[error("series ref {series_ref} after series ref {before}")]
    Order {
        /// Ref of the series.
        series_ref: u32,
        /// Ref of the one before.
        before: u32,
    },
    /// Labels and chunks of one series are longer than a page may be.
    #[error("series ref {series_ref} has {bytes} bytes of labels and chunks, at most {SERIES_BYTES_MAX}")]
    TooLong {
        /// Ref of the series.
        series_ref: u32,
        /// Upper bound of the bytes of labels and chunks.
        bytes: usize,
    },
    /// A chunk that no segment can have.
    #[error("series ref {series_ref} has a chunk without bytes, or one that ends before it starts")]
    Chunk {
        /// Ref of the series.
        series_ref: u32,
    },
}

/// Result of writing a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidecarSummary {
    /// Bytes of the sidecar.
    pub len: u64,
    /// Bytes of the head, trailer included: the last ones of the sidecar.
    pub head_len: u32,
    /// CRC-32C of the sidecar.
    pub crc: u32,
}

/// Writes a sidecar; bytes are passed to `sink` as they are complete.
pub struct SidecarWriter<S: FnMut(&[u8])> {
    block: Ulid,
    time_unit: TimeUnit,
    sink: Sink<S>,
    page: PageBuilder,
    pages: Vec<PageEntry>,
    names: NamesBuilder,
    times: TimesBuilder,
    /// Metric name of the last series.
    last_name: String,
    last_ref: Option<u32>,
    series_count: u32,
    chunk_count: u64,
    raw: Vec<u8>,
    packed: Vec<u8>,
}

/// Counts what goes out.
struct Sink<S> {
    write: S,
    len: u64,
    crc: Crc32c,
}

impl<S: FnMut(&[u8])> Sink<S> {
    /// Returns the offset at which `bytes` begin.
    fn put(&mut self, bytes: &[u8]) -> u64 {
        let offset = self.len;
        (self.write)(bytes);
        self.crc.update(bytes);
        self.len += bytes.len() as u64;
        offset
    }
}

impl<S: FnMut(&[u8])> SidecarWriter<S> {
    /// A writer of the sidecar of `block`, whose times are in `time_unit`.
    pub fn new(block: Ulid, time_unit: TimeUnit, sink: S) -> SidecarWriter<S> {
        let mut sink = Sink { write: sink, len: 0, crc: Crc32c::new() };
        let mut header = Vec::new();
        put_header(&mut header);
        sink.put(&header);
        SidecarWriter {
            block,
            time_unit,
            sink,
            page: PageBuilder::default(),
            pages: Vec::new(),
            names: NamesBuilder::default(),
            times: TimesBuilder::default(),
            last_name: String::new(),
            last_ref: None,
            series_count: 0,
            chunk_count: 0,
            raw: Vec::new(),
            packed: Vec::new(),
        }
    }

    /// Adds a series: its ref in the index, its label pairs in order of name, its chunks in the order of the
    /// index with the lengths of their frames.
    ///
    /// # Errors
    /// [`SidecarError`]; the series is left out, and the sidecar is of no use.
    pub fn add_series<'a, P>(
        &mut self,
        series_ref: u32,
        pairs: P,
        chunks: &[SizedChunk],
    ) -> Result<(), SidecarError>
    where
        P: Iterator<Item = (&'a str, &'a str)> + Clone,
    {
        let before = self.last_ref.unwrap_or(0);
        if self.last_ref.is_some_and(|before| before >= series_ref) {
            return Err(SidecarError::Order { series_ref, before });
        }
        let is_chunk = |c: &SizedChunk| c.len > 0 && c.meta.min_time <= c.meta.max_time;
        if !chunks.iter().all(is_chunk) {
            return Err(SidecarError::Chunk { series_ref });
        }
        let label_bytes: usize = pairs.clone().map(|(name, value)| name.len() + value.len() + 16).sum();
        // A chunk takes at most three varints of ten bytes and one of five.
        let bytes = label_bytes + chunks.len() * 35;
        if bytes > SERIES_BYTES_MAX || pairs.clone().count() > PAGE_LABELS_MAX {
            return Err(SidecarError::TooLong { series_ref, bytes });
        }
        let name = pairs.clone().find(|(name, _)| *name == METRIC_NAME).map_or("", |(_, value)| value);
        self.end_page_before(name, bytes);
        self.names.push(name, self.series_count);
        self.page.push(series_ref, pairs, chunks);
        self.last_ref = Some(series_ref);
        self.series_count = self.series_count.saturating_add(1);
        self.chunk_count += chunks.len() as u64;
        Ok(())
    }

    /// Records that chunks refer to the times of the chunk at `chunk_ref`, whose frame has `len` bytes. It
    /// may be recorded any number of times and in any order.
    pub fn add_times_chunk(&mut self, chunk_ref: ChunkRef, len: u32) {
        self.times.push(chunk_ref, len);
    }

    /// Writes the open page if it is long enough for a series with this metric name to start another one.
    fn end_page_before(&mut self, name: &str, series_bytes: usize) {
        let is_other = self.last_name != name;
        if is_other {
            self.last_name.clear();
            self.last_name.push_str(name);
        }
        let bytes = self.page.raw_bytes();
        let is_long = bytes >= if is_other { PAGE_BYTES_MIN } else { PAGE_BYTES_TARGET };
        // An unusually long series has a page of its own.
        if is_long || (bytes > 0 && series_bytes > PAGE_BYTES_TARGET) {
            self.end_page();
        }
    }

    fn end_page(&mut self) {
        let Some(first_ref) = self.page.first_ref() else { return };
        let series_count = self.page.series_count();
        let min_time = self.page.min_time();
        let max_time = self.page.max_time();
        self.page.finish(&mut self.raw);
        self.packed.clear();
        put_packed(&self.raw, &mut self.packed);
        let offset = self.sink.put(&self.packed);
        let first_ordinal = self.series_count - series_count;
        self.pages.push(PageEntry {
            offset,
            len: u32::try_from(self.packed.len()).unwrap_or(u32::MAX),
            first_ordinal,
            series_count,
            first_ref,
            min_time,
            max_time,
        });
    }

    /// Writes the rest: `files` of the block, index first, segments in order; `offsets` are the offsets of
    /// its index, `None` for an index of version 1.
    pub fn finish(mut self, files: &[FileSum], offsets: Option<&SparseOffsets>) -> SidecarSummary {
        self.end_page();
        let mut directory = Vec::new();
        let sink = &mut self.sink;
        self.names.finish(&mut directory, &mut |page| sink.put(page));
        let offsets = offsets.map(|offsets| {
            let mut packed = Vec::new();
            offsets.encode(&mut packed);
            Section { offset: sink.put(&packed), len: packed.len() as u64 }
        });
        let mut ranges = Vec::new();
        put_ranges(&self.times.finish(), &mut ranges);
        let times = if ranges.len() <= INLINE_TIMES_BYTES_MAX {
            Err(ranges.as_slice())
        } else {
            let mut packed = Vec::new();
            put_packed(&ranges, &mut packed);
            Ok(Section { offset: sink.put(&packed), len: packed.len() as u64 })
        };
        let parts = HeadParts {
            block: self.block,
            time_unit: self.time_unit,
            files,
            chunk_count: self.chunk_count,
            pages: &self.pages,
            directory: &directory,
            offsets,
            times,
        };
        let mut head = Vec::new();
        let head_len = parts.encode(sink.len, &mut head);
        sink.put(&head);
        SidecarSummary { len: self.sink.len, head_len, crc: self.sink.crc.finish() }
    }
}
