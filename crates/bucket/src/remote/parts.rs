//! Parts of one round of ranges: from the cache, own requests and requests of other queries.
//!
//! Invariant: sorted by file and offset; no part lies within another, so that ends ascend with starts.
//! Not here: where the parts come from (`round`).

use bytes::{Bytes, BytesMut};
use chronolith_block::source::{ByteRange, FetchedPart, coalesce};

/// Parts that were found or fetched.
#[derive(Default)]
pub(crate) struct PartSet {
    parts: Vec<FetchedPart>,
}

impl PartSet {
    /// Adds parts; drops those that lie within others.
    pub(crate) fn extend(&mut self, parts: impl IntoIterator<Item = FetchedPart>) {
        self.parts.extend(parts);
        self.parts.sort_unstable_by_key(|part| (part.file, part.start, std::cmp::Reverse(part.bytes.len())));
        self.parts.dedup_by(|next, last| next.file == last.file && end_of(next) <= end_of(last));
        // `overlapping` searches by ends.
        debug_assert!(self.parts.is_sorted_by_key(|part| (part.file, end_of(part))), "ends ascend");
    }

    /// Returns the sub-ranges of `wanted` that no part has, joined where they touch.
    pub(crate) fn gaps(&self, wanted: &[ByteRange]) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        for range in wanted {
            let mut rest = *range;
            for part in self.overlapping(range) {
                if rest.start < part.start {
                    gaps.push(ByteRange { end: part.start, ..rest });
                }
                rest.start = rest.start.max(end_of(part));
            }
            if !rest.is_empty() {
                gaps.push(rest);
            }
        }
        coalesce(&mut gaps, 0);
        gaps
    }

    /// Copies the ranges of `wanted` that several parts have together to one part each. Returns their bytes
    /// before it copies, for `reserve`.
    ///
    /// # Errors
    /// The error of `reserve`.
    pub(crate) fn stitch<E>(
        &mut self,
        wanted: &[ByteRange],
        reserve: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let is_split = |range: &&ByteRange| {
            let mut parts = self.overlapping(range);
            !parts.any(|part| part.start <= range.start && range.end <= end_of(part))
        };
        let mut split: Vec<ByteRange> = wanted.iter().filter(is_split).copied().collect();
        coalesce(&mut split, 0);
        if split.is_empty() {
            return Ok(());
        }
        reserve(split.iter().map(ByteRange::len).sum())?;
        let stitched: Vec<FetchedPart> = split.iter().map(|range| self.copy(range)).collect();
        self.extend(stitched);
        Ok(())
    }

    /// Bytes of all parts.
    pub(crate) fn byte_count(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes.len() as u64).sum()
    }

    pub(crate) fn into_parts(self) -> Vec<FetchedPart> {
        self.parts
    }

    fn overlapping(&self, range: &ByteRange) -> impl Iterator<Item = &FetchedPart> {
        let first = self.parts.partition_point(|part| (part.file, end_of(part)) <= (range.file, range.start));
        let ByteRange { file, end, .. } = *range;
        let parts = self.parts.get(first..).unwrap_or_default().iter();
        parts.take_while(move |part| part.file == file && part.start < end)
    }

    /// Bytes of a range, up to the first that no part has.
    fn copy(&self, range: &ByteRange) -> FetchedPart {
        let mut bytes = BytesMut::with_capacity(usize::try_from(range.len()).unwrap_or(0));
        let mut at = range.start;
        for part in self.overlapping(range) {
            if part.start > at {
                break;
            }
            let from = usize::try_from(at - part.start).unwrap_or(usize::MAX);
            let until = usize::try_from(range.end.min(end_of(part)) - part.start).unwrap_or(usize::MAX);
            let piece = part.bytes.get(from..until).unwrap_or_default();
            bytes.extend_from_slice(piece);
            at += piece.len() as u64;
        }
        // A shorter part would be read as the end of the file.
        assert_eq!(bytes.len() as u64, range.len(), "a range is stitched once it has no gap");
        FetchedPart { file: range.file, start: range.start, bytes: Bytes::from(bytes) }
    }
}

fn end_of(part: &FetchedPart) -> u64 {
    part.start + part.bytes.len() as u64
}
