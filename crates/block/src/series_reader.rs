//! Series entries by ref, read from the index in waves.

use chronolith_base::{DecodeError, MemoryBudget};
use chronolith_format::block::index::{ChunkMeta, SeriesEntry};
use chronolith_format::block::tombstones::Interval;
use chronolith_model::query::SERIES_PER_BATCH_MAX;
use chronolith_model::{Labels, QueryError};

use crate::contents::BlockContents;
use crate::source::{BlockFile, RangeBytes};
use crate::waves::SeriesWave;

/// Series entries that are read at once.
pub(crate) const SERIES_PER_WAVE: usize = SERIES_PER_BATCH_MAX;

/// Reads the entries of series in the order of their refs. [`SeriesReader::next_ref`] and
/// [`SeriesReader::decode`] alternate.
pub(crate) struct SeriesReader {
    refs: std::vec::IntoIter<u32>,
    bytes: Option<RangeBytes>,
    /// Entries of the wave that are still to come.
    wave_left: usize,
    entry: SeriesEntry,
    last_labels: Option<Labels>,
}

impl SeriesReader {
    pub(crate) fn new(refs: Vec<u32>) -> SeriesReader {
        let entry = SeriesEntry::new();
        SeriesReader { refs: refs.into_iter(), bytes: None, wave_left: 0, entry, last_labels: None }
    }

    /// Number of series that are still to come.
    pub(crate) fn len(&self) -> usize {
        self.refs.len()
    }

    /// Leaves out the series up to `last_ref`, before a wave was read.
    pub(crate) fn skip_through(&mut self, last_ref: u32) {
        let refs = self.refs.as_slice();
        let count = refs.partition_point(|series_ref| *series_ref <= last_ref);
        self.refs = refs.get(count..).unwrap_or_default().to_vec().into_iter();
    }

    /// Takes the refs of the series that are still to come.
    pub(crate) fn take_refs(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.refs).collect()
    }

    /// Leaves out all series that are still to come.
    pub(crate) fn end(&mut self) {
        self.refs = Vec::new().into_iter();
        self.wave_left = 0;
    }

    /// The wave of the next entries; `None` after the last series, or while entries of a wave are still to be
    /// decoded.
    pub(crate) fn next_wave<'a>(&'a self, contents: &'a BlockContents) -> Option<SeriesWave<'a>> {
        let refs = self.refs.as_slice();
        let refs = refs.get(..SERIES_PER_WAVE).unwrap_or(refs);
        (self.wave_left == 0 && !refs.is_empty()).then(|| contents.series_wave(refs))
    }

    /// Takes the bytes of the wave that [`SeriesReader::next_wave`] returned.
    pub(crate) fn set_wave_bytes(&mut self, bytes: RangeBytes) {
        self.bytes = Some(bytes);
        self.wave_left = self.refs.len().min(SERIES_PER_WAVE);
    }

    /// Goes to the next series of the wave; `None` where the wave ends.
    pub(crate) fn next_ref_of_wave(&mut self) -> Option<u32> {
        self.wave_left = self.wave_left.checked_sub(1)?;
        self.refs.next()
    }

    /// Goes to the next series; reads the next wave where the last one ends.
    ///
    /// # Errors
    /// As the source.
    pub(crate) fn next_ref(
        &mut self,
        contents: &BlockContents,
        budget: &MemoryBudget,
    ) -> Result<Option<u32>, QueryError> {
        if let Some(wave) = self.next_wave(contents) {
            let bytes = contents.read(&wave, budget)?;
            self.set_wave_bytes(bytes);
        }
        Ok(self.next_ref_of_wave())
    }

    /// Decodes the entry of the series that [`SeriesReader::next_ref`] returned.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset of the index.
    pub(crate) fn decode(
        &mut self,
        contents: &BlockContents,
        series_ref: u32,
    ) -> Result<&mut SeriesEntry, DecodeError> {
        let header = contents.header();
        let offset = header.series_offset(series_ref);
        let bytes = self.bytes.as_ref().map_or(&[][..], |bytes| bytes.at(BlockFile::Index, offset));
        header.decode_series(series_ref, bytes, &mut self.entry)?;
        Ok(&mut self.entry)
    }

    /// As [`SeriesReader::decode`], with the checks of a reader of samples: no chunk occurs twice.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`].
    pub(crate) fn decode_checked(
        &mut self,
        contents: &BlockContents,
        series_ref: u32,
    ) -> Result<&mut SeriesEntry, QueryError> {
        let entry = self.decode(contents, series_ref).map_err(|e| contents.index_error(&e))?;
        if has_repeated_chunk(&entry.chunks) {
            return Err(contents.series_error(series_ref, "names a chunk twice"));
        }
        Ok(&mut self.entry)
    }

    /// Returns the labels of the entry decoded last, which must sort after the labels of the entry before.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`].
    pub(crate) fn ascending_labels(
        &mut self,
        contents: &BlockContents,
        series_ref: u32,
    ) -> Result<Labels, QueryError> {
        let labels = self.entry.labels();
        if self.last_labels.as_ref().is_some_and(|last| *last >= labels) {
            return Err(contents.series_error(series_ref, "is out of order"));
        }
        self.last_labels = Some(labels.clone());
        Ok(labels)
    }
}

/// Returns true if an entry has the same chunk more than once: a forged one would make a short file decode to
/// any number of samples.
pub(crate) fn has_repeated_chunk(chunks: &[ChunkMeta]) -> bool {
    if chunks.is_sorted_by(|a, b| a.chunk_ref < b.chunk_ref) {
        return false;
    }
    let mut refs: Vec<_> = chunks.iter().map(|c| c.chunk_ref).collect();
    refs.sort_unstable();
    refs.windows(2).any(|w| matches!(w, [a, b] if a == b))
}

/// Returns true if all samples of a chunk are deleted.
pub(crate) fn is_deleted(deleted: &[Interval], chunk: &ChunkMeta) -> bool {
    deleted.iter().any(|d| d.first <= chunk.min_time && chunk.max_time <= d.last)
}
