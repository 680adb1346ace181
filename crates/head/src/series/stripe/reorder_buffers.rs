//! Reorder buffers of the series of one stripe: samples that are in the WAL and not yet in chunks.
//!
//! Queries and checkpoints read buffered samples like samples of the out-of-order log; a restart has them
//! there or, if they are the newest of their series, in the open chunk.
//!
//! Invariants: buffered samples arrived after all others of their timestamp. The slots of a stripe are
//! bounded; without one, samples take the out-of-order path.
//! Not here: one buffer (`crate::reorder`), moving samples in and out (`reordered`).

use chronolith_base::hash::HashMap;
use chronolith_model::{DuplicatePolicy, ReorderRule};

use super::ooo_log::OooSample;
use crate::memory_part::MemoryPart;
use crate::reorder::{Added, Refused, ReorderBuffer, Sample};
use crate::series::value::SampleValue;

/// Slots of all buffers of a stripe: 16 bytes each, half a gigabyte in all stripes.
const SLOT_COUNT_MAX: usize = 2 << 20;

/// Reorder buffers of one stripe.
#[derive(Default)]
pub(crate) struct ReorderBuffers {
    by_series: HashMap<u32, ReorderBuffer>,
    slot_count: usize,
    /// Receives emitted samples; as long as the longest window.
    pub(super) emitted: Vec<Sample>,
}

impl ReorderBuffers {
    /// Returns true if no series has a buffer.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_series.is_empty()
    }

    /// Returns true if a series has buffered samples.
    pub(crate) fn has(&self, id: u32) -> bool {
        !self.is_empty() && self.by_series.contains_key(&id)
    }

    /// Returns the buffered samples of a series, ascending.
    pub(super) fn samples(&self, id: u32) -> impl Iterator<Item = OooSample> {
        let found = if self.is_empty() { None } else { self.by_series.get(&id) };
        found.into_iter().flat_map(ReorderBuffer::iter).map(|one| {
            let value = SampleValue::Word(one.value.to_bits());
            OooSample::new(one.time_ms, value, 0, DuplicatePolicy::LastWins)
        })
    }

    /// Returns the timestamp of the newest buffered sample of a series.
    pub(super) fn newest_time(&self, id: u32) -> Option<i64> {
        if self.is_empty() { None } else { self.by_series.get(&id)?.newest_ms() }
    }

    /// Number of buffers, and their bytes.
    pub(super) fn memory(&self) -> MemoryPart {
        let bytes = self.by_series.capacity() * size_of::<(u32, ReorderBuffer)>()
            + (self.slot_count + self.emitted.capacity()) * size_of::<Sample>();
        MemoryPart::new("reorder_buffers", bytes as u64, self.by_series.len() as u64)
    }

    /// Removes the buffer of a series.
    pub(super) fn remove(&mut self, id: u32) -> Option<ReorderBuffer> {
        let removed = if self.is_empty() { None } else { self.by_series.remove(&id) }?;
        self.slot_count -= removed.rule().window_len();
        if self.by_series.is_empty() {
            *self = ReorderBuffers::default();
        }
        Some(removed)
    }

    /// Adds a sample to the buffer of a series, which is created if there is room; emitted samples are then
    /// at the start of `self.emitted`.
    pub(super) fn add(
        &mut self,
        id: u32,
        rule: &ReorderRule,
        time: i64,
        value: f64,
    ) -> Result<Added, NotBuffered> {
        let emitted = &mut self.emitted;
        match self.by_series.get_mut(&id) {
            Some(found) if found.rule() == rule => {
                found.add(time, value, emitted).map_err(NotBuffered::Refused)
            }
            Some(_) => Err(NotBuffered::OtherRule),
            None => self.create(id, rule, time, value),
        }
    }

    #[cold]
    fn create(&mut self, id: u32, rule: &ReorderRule, time: i64, value: f64) -> Result<Added, NotBuffered> {
        if self.slot_count + rule.window_len() > SLOT_COUNT_MAX {
            return Err(NotBuffered::NoRoom);
        }
        self.slot_count += rule.window_len();
        if self.emitted.len() < rule.window_len() {
            self.emitted.resize(rule.window_len(), Sample::EMPTY);
        }
        let created = self.by_series.entry(id).or_insert_with(|| ReorderBuffer::new(*rule));
        created.add(time, value, &mut self.emitted).map_err(NotBuffered::Refused)
    }
}

/// Reasons why a sample is not in the buffer of its series.
pub(super) enum NotBuffered {
    Refused(Refused),
    /// The buffers of the stripe are as large as they may be.
    NoRoom,
    /// The rule has changed since the buffer was created.
    OtherRule,
}
