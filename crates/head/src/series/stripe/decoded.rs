//! Cache of the chunk that a lookup has decoded last, and the budget of lookups.
//!
//! Not here: the order in which chunks are searched (`append`).

use chronolith_model::Columns;

use crate::series::sealed_chunks::{ChunkRef, SealedChunk};
use crate::series::value::SampleValue;

/// Lookups of a caller that needs the answer.
pub(crate) const UNLIMITED: u32 = u32::MAX;

/// Sample that a series has at a timestamp.
pub(super) struct StoredSample {
    pub(super) value: SampleValue,
    /// Start timestamp in milliseconds; 0 = unknown.
    pub(super) start_ms: i64,
}

/// Identity of the chunk that was decoded last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Series, first timestamp and sample count of an open chunk.
    Open(u32, i64, u16),
    Sealed(ChunkRef),
}

/// Cache of the chunk that was decoded last: a sender that repeats a batch needs one chunk for many samples
/// in a row.
#[derive(Default)]
pub(super) struct DecodedChunk {
    source: Option<Source>,
    samples: Columns,
    /// Chunks that may have a sample, while it is searched for.
    pub(super) candidates: Vec<SealedChunk>,
}

impl DecodedChunk {
    /// Empties the cache: a chunk has changed under the same identity.
    pub(super) fn clear(&mut self) {
        self.source = None;
    }

    /// Returns the sample at `time` of the chunk that `decode` decodes, unless it was decoded last and needs
    /// none of `budget`.
    pub(super) fn find(
        &mut self,
        source: Source,
        time: i64,
        budget: &mut u32,
        decode: impl FnOnce(&mut Columns) -> bool,
    ) -> Result<Option<StoredSample>, OutOfBudget> {
        if self.source != Some(source) {
            spend(budget)?;
            self.source = None;
            self.samples.clear();
            // A chunk that cannot be read cannot refuse a sample either; queries report the damage.
            if !decode(&mut self.samples) {
                return Ok(None);
            }
            self.source = Some(source);
        }
        let Ok(at) = self.samples.times.binary_search(&time) else { return Ok(None) };
        let value = SampleValue::at(&self.samples, at);
        Ok(Some(StoredSample { value, start_ms: self.samples.start_time_at(at) }))
    }
}

/// The append has no lookups left.
pub(super) struct OutOfBudget;

/// Takes one lookup from `budget`.
pub(super) fn spend(budget: &mut u32) -> Result<(), OutOfBudget> {
    *budget = budget.checked_sub(1).ok_or(OutOfBudget)?;
    Ok(())
}
