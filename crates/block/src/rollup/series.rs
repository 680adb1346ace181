//! Roll-ups of one series: in the mapped files of a local block, or in ranges that were fetched.
//!
//! Invariant: a window is returned only if it lies in the block as a whole and nothing in it is deleted;
//! a section that cannot be read is answered by raw ranges.
//! Not here: choice of the fetched sections (`fetched`), opening of files (`files`).

use std::sync::Arc;

use chronolith_base::DecodeError;
use chronolith_format::block::rollup::Section;
use chronolith_format::block::tombstones::Interval;
use chronolith_model::TimeRange;
use chronolith_model::rollup::{RollupArchive, RollupRead, RollupSpan};

use super::fetched::FetchedRollups;
use super::files::Rollups;
use crate::source::RangeBytes;

/// Roll-ups of one series.
pub(crate) struct SeriesRollups {
    sections: Sections,
    series_ref: u32,
}

enum Sections {
    Mapped(Arc<Rollups>),
    Fetched(Arc<FetchedRollups>, RangeBytes),
}

impl SeriesRollups {
    /// Roll-ups of the series `series_ref` of a local block.
    pub(crate) fn new(rollups: Arc<Rollups>, series_ref: u32) -> SeriesRollups {
        SeriesRollups { sections: Sections::Mapped(rollups), series_ref }
    }

    /// Roll-ups of the series `series_ref`, with its sections in `bytes`.
    pub(crate) fn fetched(rollups: Arc<FetchedRollups>, bytes: RangeBytes, series_ref: u32) -> SeriesRollups {
        SeriesRollups { sections: Sections::Fetched(rollups, bytes), series_ref }
    }

    /// Appends the archives of which the series has windows.
    pub(crate) fn archives(&self, out: &mut Vec<RollupArchive>) {
        let of_span = |span: RollupSpan| {
            let section = self.section(span).ok()??;
            let section = Section::decode(section, self.series_ref, span.span_ms).ok()?;
            RollupArchive::new(span.span_ms, span.slot_ms, section.methods())
        };
        match &self.sections {
            Sections::Mapped(rollups) => out.extend(rollups.spans().filter_map(of_span)),
            Sections::Fetched(rollups, _) => out.extend(rollups.spans().filter_map(of_span)),
        }
    }

    /// Section of an archive; `None` if it is not kept.
    fn section(&self, span: RollupSpan) -> Result<Option<&[u8]>, DecodeError> {
        match &self.sections {
            Sections::Mapped(rollups) => rollups.section(span, self.series_ref),
            Sections::Fetched(rollups, bytes) => Ok(rollups.section(bytes, span, self.series_ref)),
        }
    }

    /// Time that the block covers.
    fn block_range(&self) -> TimeRange {
        match &self.sections {
            Sections::Mapped(rollups) => rollups.block_range(),
            Sections::Fetched(rollups, _) => rollups.block_range(),
        }
    }

    /// Reads the windows of `archive` in `range`; adds the ranges at the ends of the block and the deleted
    /// ranges to the raw ranges. Returns false, and adds nothing to `out`, if the windows are not kept or
    /// cannot be read.
    pub(crate) fn read(
        &self,
        archive: &RollupArchive,
        range: TimeRange,
        deleted: &[Interval],
        out: &mut RollupRead,
    ) -> bool {
        let block_range = self.block_range();
        let Some(inner) = archive.narrowed(block_range) else { return false };
        let wanted = TimeRange::new(inner.start.max(range.start), inner.end.min(range.end));
        if wanted.start < wanted.end {
            match self.read_windows(archive, wanted, out) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => {
                    if let Sections::Mapped(rollups) = &self.sections {
                        // Maintenance writes the files again, and names the damage.
                        rollups.note_damage();
                    }
                    out.clear();
                    return false;
                }
            }
        }
        out.add_raw(archive, TimeRange::new(block_range.start, inner.start), range);
        out.add_raw(archive, TimeRange::new(inner.end, block_range.end), range);
        for interval in deleted {
            out.add_raw(archive, TimeRange::inclusive(interval.first, interval.last), range);
        }
        true
    }

    /// Appends the windows in `range`; false if the section has not all that is asked for.
    fn read_windows(
        &self,
        archive: &RollupArchive,
        range: TimeRange,
        out: &mut RollupRead,
    ) -> Result<bool, DecodeError> {
        let Some(section) = self.section(archive.span())? else { return Ok(false) };
        let section = Section::decode(section, self.series_ref, archive.span_ms())?;
        if !section.methods().has_all(archive.methods) {
            return Ok(false);
        }
        section.read(range, &mut out.windows)?;
        out.facts = out.facts.and(section.facts());
        Ok(true)
    }
}
