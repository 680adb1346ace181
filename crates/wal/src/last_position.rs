//! Search for the last position of the replicated log that the frames before it prove: a WAL that is a cache
//! of the log goes on there, and the log is read again from there on.
//!
//! Invariant: every frame after the checkpoint up to the position that is found exists, so the records before
//! it are whole.
//! Not here: removal of the frames after it (`recovery`), bytes of positions (`format::head::wal`).

use chronolith_format::head::wal::{FRAME_HEADER_BYTES, FrameRef, KIND_POSITION, PositionFrame};

use crate::frame_stream::FrameBlock;

/// Last position before a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundPosition {
    /// Content of the frame.
    pub frame: PositionFrame,
    /// Sequence of the frame.
    pub sequence: u64,
    /// Valid frames after it.
    pub later_count: u64,
    /// Index of its segment.
    segment_idx: usize,
    /// Offset of its end in the segment.
    end: u64,
}

impl FoundPosition {
    /// Index of its segment.
    pub(crate) fn segment_idx(&self) -> usize {
        self.segment_idx
    }

    /// Offset of its end in the segment.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
}

/// Frames that were missing in a WAL, since a start had removed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemovedFrames {
    /// Sequence of the frame before them.
    after: u64,
    /// Sequence of the frame after them.
    before: u64,
}

impl RemovedFrames {
    pub(crate) fn new(after: u64, before: u64) -> RemovedFrames {
        RemovedFrames { after, before }
    }
}

/// State of the search, which takes the frames in the order of the log.
pub(crate) struct PositionSearch {
    /// Frames up to here are not needed.
    needed_after: u64,
    /// All frames that are needed up to here exist.
    contiguous: u64,
    is_broken: bool,
    last_sequence: u64,
    found: Option<FoundPosition>,
    removed: Vec<RemovedFrames>,
}

impl PositionSearch {
    pub(crate) fn new(needed_after: u64) -> PositionSearch {
        PositionSearch {
            needed_after,
            contiguous: needed_after,
            is_broken: false,
            last_sequence: 0,
            found: None,
            removed: Vec::new(),
        }
    }

    /// Takes the frames of a block of the segment with index `segment_idx`.
    pub(crate) fn take(&mut self, segment_idx: usize, block: &FrameBlock) {
        for frame in &block.frames {
            let position = position_in(frame, block);
            let start = block.offset + (frame.payload.start - FRAME_HEADER_BYTES) as u64;
            let end = start + frame.header.frame_len() as u64;
            self.take_frame(frame.header.sequence, position, segment_idx, end);
        }
    }

    fn take_frame(&mut self, sequence: u64, position: Option<PositionFrame>, segment_idx: usize, end: u64) {
        self.last_sequence = sequence;
        let resumes_after = position.and_then(|frame| frame.resumes_after);
        if let Some(after) = resumes_after {
            self.removed.push(RemovedFrames { after, before: sequence });
        }
        let is_next = sequence <= self.needed_after
            || self.contiguous.checked_add(1) == Some(sequence)
            || resumes_after.is_some_and(|after| self.has_all_up_to(after));
        self.is_broken |= !is_next;
        match position {
            Some(frame) if !self.is_broken => {
                self.found = Some(FoundPosition { frame, sequence, later_count: 0, segment_idx, end });
            }
            _ => self.found.iter_mut().for_each(|found| found.later_count += 1),
        }
        self.contiguous = self.contiguous.max(sequence);
    }

    /// Returns true if `after` is the last frame so far, or if no frame that is needed has come yet.
    fn has_all_up_to(&self, after: u64) -> bool {
        after == self.contiguous || (after < self.contiguous && self.contiguous == self.needed_after)
    }

    /// Sequence of the last frame; 0 if there was none.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Returns the last position before a gap, and frames that earlier starts have removed.
    pub(crate) fn finish(self) -> (Option<FoundPosition>, Vec<RemovedFrames>) {
        (self.found, self.removed)
    }
}

fn position_in(frame: &FrameRef, block: &FrameBlock) -> Option<PositionFrame> {
    let is_position = frame.header.kind == KIND_POSITION;
    is_position.then(|| PositionFrame::decode(block.payload(frame)).ok()).flatten()
}

#[cfg(test)]
mod tests;
