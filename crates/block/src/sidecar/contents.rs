//! A block that is read by its sidecar: the head in memory, parts that are read at their first use.
//!
//! Invariant: damage of the sidecar is recorded; a part is used only after its checksum was verified.
//! Not here: matching of series (`finder`), the waves of their chunks (`selection`).

use std::sync::{Arc, OnceLock};

use chronolith_base::{DecodeError, MemoryBudget};
use chronolith_format::block::tombstones::{Interval, Tombstones};
use chronolith_format::bucket::sidecar::{
    Directory, Section, SegmentRange, SharedTimes, SidecarHead, SparseOffsets,
};
use chronolith_model::{QueryError, TimeRange};

use crate::error::query_error;
use crate::source::{BlockFile, BlockFiles, ByteRange, ByteSource, RangeBytes, Wave};

/// Contents of a block that is read by its sidecar.
pub(super) struct SidecarContents {
    head: SidecarHead,
    range: TimeRange,
    source: Box<dyn ByteSource>,
    costs: ListCosts,
    tombstones: OnceLock<Tombstones>,
    offsets: OnceLock<SparseOffsets>,
    times: OnceLock<Vec<SegmentRange>>,
    /// The first damage that was found in the sidecar.
    damage: OnceLock<String>,
}

/// Bytes that postings lists have to save.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListCosts {
    /// Bytes of pages that are read rather than saved: two rounds take as long as some megabytes, and a
    /// megabyte of pages decodes in about half the time of one.
    // PERF: 100,000 series on pages of 1.1 MB are decoded and checked in 16 ms.
    //   cargo bench -p chronolith-block --bench sidecar_select
    pub(super) direct_bytes_max: u64,
    /// The same for pages of one metric, which follow one another.
    pub(super) direct_metric_bytes_max: u64,
    /// Cost of a byte of the index, relative to a byte of a page.
    pub(super) weight: u64,
}

impl Default for ListCosts {
    fn default() -> ListCosts {
        ListCosts { direct_bytes_max: 1 << 20, direct_metric_bytes_max: 4 << 20, weight: 1 }
    }
}

/// A part that is read at its first use and stays in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Tombstones,
    Offsets,
    Times,
}

impl SidecarContents {
    /// `range` is the range of the block; `source` knows the lengths of all files.
    pub(super) fn new(head: SidecarHead, range: TimeRange, source: Box<dyn ByteSource>) -> SidecarContents {
        let contents = SidecarContents {
            head,
            range,
            source,
            costs: ListCosts::default(),
            tombstones: OnceLock::new(),
            offsets: OnceLock::new(),
            times: OnceLock::new(),
            damage: OnceLock::new(),
        };
        let none = Tombstones::of_unit(contents.head.time_unit);
        let mut empty = Vec::new();
        none.encode(&mut empty);
        // A file of the length of one without intervals has none.
        if contents.files().len(BlockFile::Tombstones).is_none_or(|len| len == empty.len() as u64) {
            contents.tombstones.get_or_init(|| none);
        }
        if let SharedTimes::Inline(ranges) = &contents.head.times {
            contents.times.get_or_init(|| ranges.clone());
        }
        contents
    }

    pub(super) fn head(&self) -> &SidecarHead {
        &self.head
    }

    /// Sets other costs of postings lists, so that small blocks are read by them.
    #[cfg(test)]
    pub(super) fn with_costs(mut self, costs: ListCosts) -> SidecarContents {
        self.costs = costs;
        self
    }

    pub(super) fn costs(&self) -> ListCosts {
        self.costs
    }

    pub(super) fn range(&self) -> TimeRange {
        self.range
    }

    pub(super) fn files(&self) -> &BlockFiles {
        self.source.files()
    }

    pub(super) fn wave_bytes_max(&self) -> Option<u64> {
        self.source.wave_bytes_max()
    }

    pub(super) fn read(&self, wave: &dyn Wave, budget: &MemoryBudget) -> Result<RangeBytes, QueryError> {
        self.source.read(wave, budget)
    }

    /// Samples of the postings offset table, once they were read.
    pub(super) fn offsets(&self) -> Option<&SparseOffsets> {
        self.offsets.get()
    }

    /// Ranges of the chunks whose times others share, once they were read.
    pub(super) fn times(&self) -> &[SegmentRange] {
        self.times.get().map_or(&[], Vec::as_slice)
    }

    /// Returns true if chunks of the block may have the times of others.
    pub(super) fn may_share_times(&self) -> bool {
        self.head.is_of_index_alone() || !self.times().is_empty()
    }

    /// Deleted intervals of a series, once they were read.
    pub(super) fn deleted(&self, series_ref: u32) -> &[Interval] {
        self.tombstones.get().map_or(&[], |tombstones| tombstones.get(u64::from(series_ref)))
    }

    /// Memory of head and parts.
    pub(super) fn heap_bytes(&self) -> usize {
        let names = match &self.head.directory {
            Directory::Inline(names) => names.heap_bytes(),
            Directory::Paged(pages) => pages.iter().map(|page| page.first.len() + 40).sum(),
        };
        let pages = size_of_val(self.head.pages.as_slice()) + size_of_val(self.head.files.as_slice());
        let times = size_of_val(self.times()) + self.tombstones.get().map_or(0, |t| 24 * t.interval_count());
        names + pages + times + self.offsets.get().map_or(0, SparseOffsets::heap_bytes)
    }

    /// Range of `part`; `None` if it is in memory or there is none.
    pub(super) fn missing_range(&self, part: Part) -> Option<ByteRange> {
        let section = |section: Section| ByteRange {
            file: BlockFile::Sidecar,
            start: section.offset,
            end: section.offset.saturating_add(section.len),
        };
        match part {
            Part::Tombstones if self.tombstones.get().is_none() => {
                let len = self.files().len(BlockFile::Tombstones)?;
                Some(ByteRange { file: BlockFile::Tombstones, start: 0, end: len })
            }
            Part::Offsets if self.offsets.get().is_none() => self.head.offsets.map(section),
            Part::Times if self.times.get().is_none() => match &self.head.times {
                SharedTimes::Section(times) => Some(section(*times)),
                SharedTimes::Inline(_) => None,
            },
            Part::Tombstones | Part::Offsets | Part::Times => None,
        }
    }

    /// Keeps the `parts` that are not in memory, from the bytes of a wave that asked for them.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`]; damage of the sidecar is recorded.
    pub(super) fn keep_all(&self, parts: &[Part], bytes: &RangeBytes) -> Result<(), QueryError> {
        parts.iter().try_for_each(|part| self.keep(*part, bytes))
    }

    fn keep(&self, part: Part, bytes: &RangeBytes) -> Result<(), QueryError> {
        let Some(range) = self.missing_range(part) else { return Ok(()) };
        let bytes = self.exact(bytes, &range)?;
        // An empty part would be kept without having been read: deleted samples would come back.
        if bytes.is_empty() {
            let offset = usize::try_from(range.start).unwrap_or(usize::MAX);
            let what = "part of a file";
            return Err(self.damaged(&DecodeError::Short { what, offset, needed: 1, left: 0 }));
        }
        match part {
            Part::Tombstones => {
                let path = self.files().path(BlockFile::Tombstones);
                let tombstones = Tombstones::decode(bytes).map_err(|error| query_error(&path, &error))?;
                if tombstones.unit() != self.head.time_unit {
                    let what = "tombstones have another unit of time than the block".to_owned();
                    return Err(QueryError::Corrupt { path: path.display().to_string(), what });
                }
                self.tombstones.get_or_init(|| tombstones);
            }
            Part::Offsets => {
                let offsets = SparseOffsets::decode(bytes).map_err(|error| self.damaged(&error))?;
                self.offsets.get_or_init(|| offsets);
            }
            Part::Times => {
                let times = SharedTimes::decode_section(bytes).map_err(|error| self.damaged(&error))?;
                self.times.get_or_init(|| times);
            }
        }
        Ok(())
    }

    /// Bytes of `range`, which were read.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`] if the file ends before the range; damage of the sidecar is recorded.
    pub(super) fn exact<'a>(&self, bytes: &'a RangeBytes, range: &ByteRange) -> Result<&'a [u8], QueryError> {
        let found = bytes.at(range.file, range.start);
        let needed = usize::try_from(range.len()).unwrap_or(usize::MAX);
        found.get(..needed).ok_or_else(|| {
            let offset = usize::try_from(range.start).unwrap_or(usize::MAX);
            let what = "part of a file";
            self.damaged(&DecodeError::Short { what, offset, needed, left: found.len() })
        })
    }

    /// Records damage of the sidecar; returns the answer to a query that needs it.
    #[cold]
    pub(super) fn damaged(&self, error: &DecodeError) -> QueryError {
        self.damaged_content(error.to_string())
    }

    /// As [`SidecarContents::damaged`] for content that contradicts itself.
    #[cold]
    pub(super) fn damaged_content(&self, what: String) -> QueryError {
        let what = self.damage.get_or_init(|| what).clone();
        QueryError::Corrupt { path: self.files().path(BlockFile::Sidecar).display().to_string(), what }
    }

    /// The first damage that was found in the sidecar.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// The answer to a query that needs a damaged part of the index.
    #[cold]
    pub(super) fn index_error(&self, error: &DecodeError) -> QueryError {
        query_error(&self.files().path(BlockFile::Index), error)
    }
}

/// Shared by the readers of a block.
pub(super) type SharedContents = Arc<SidecarContents>;
