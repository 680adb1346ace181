//! Records of a batch: its series by partition, encoded.
//!
//! Invariants: a series that is left out is in no record, nor are its exemplars; the bytes of all records are
//! reserved before they are copied.
//! Not here: layout and limits of a record (`format::record`).

use bytes::Bytes;
use chronolith_base::{BudgetExceeded, MemoryBudget, Reservation};
use chronolith_format::record::{BatchPart, BatchSplit, RecordEncoder, RecordOrigin, SampleOrigin};
use chronolith_model::partition::TenantPartitions;
use chronolith_model::{DuplicatePolicy, WriteBatch};
use chronolith_replicated_log::PartitionId;

use super::checked_keys::KeyScratch;
use super::error::GatewayError;

/// Records of a batch.
pub(super) struct Records {
    /// In the order in which they are appended.
    pub(super) list: Vec<(PartitionId, Bytes)>,
    /// Memory of all of them.
    pub(super) held: Reservation,
}

/// Buffers for one batch at a time, which keep their memory.
pub(super) struct Scratch {
    pub(super) keys: KeyScratch,
    split: BatchSplit,
    encoder: RecordEncoder,
    /// Items of a part whose series are not left out.
    series: Vec<u32>,
    exemplars: Vec<u32>,
}

impl Scratch {
    /// Buffers for records that are packed if `packs` is set.
    pub(super) fn new(packs: bool) -> Scratch {
        let encoder = if packs { RecordEncoder::packed() } else { RecordEncoder::default() };
        Scratch {
            keys: KeyScratch::default(),
            split: BatchSplit::default(),
            encoder,
            series: Vec::new(),
            exemplars: Vec::new(),
        }
    }

    /// Encodes a batch without the series that `keys` has refused.
    ///
    /// # Errors
    /// [`GatewayError::TooLarge`] and [`GatewayError::Memory`]: none of the records may be appended.
    pub(super) fn encode(
        &mut self,
        origin: &RecordOrigin,
        duplicates: DuplicatePolicy,
        batch: &WriteBatch,
        partitions: &TenantPartitions,
        memory: &MemoryBudget,
    ) -> Result<Records, GatewayError> {
        let Scratch { keys, split, encoder, series, exemplars } = self;
        let numbers = partitions.numbers();
        split.fill(batch, numbers.len(), |raw| partitions.idx_of(raw) as u32);
        let mut list = Vec::new();
        let mut held = memory.reserve(0)?;
        for (part, &number) in split.parts().zip(numbers) {
            let part = without_refused(part, batch, keys.refused(), series, exemplars);
            if part.is_empty() {
                continue;
            }
            let mut full: Option<BudgetExceeded> = None;
            let origin = SampleOrigin { request: origin, duplicates };
            encoder.encode(origin, batch, part, |record| {
                if full.is_some() {
                    return;
                }
                match held.grow(record.len() as u64) {
                    Ok(()) => list.push((PartitionId(number), Bytes::copy_from_slice(record))),
                    Err(error) => full = Some(error),
                }
            })?;
            if let Some(full) = full {
                return Err(full.into());
            }
        }
        Ok(Records { list, held })
    }
}

/// Returns a part without the series of `refused`, which ascends, and without their exemplars.
fn without_refused<'a>(
    part: BatchPart<'a>,
    batch: &WriteBatch,
    refused: &[u32],
    series: &'a mut Vec<u32>,
    exemplars: &'a mut Vec<u32>,
) -> BatchPart<'a> {
    if refused.is_empty() {
        return part;
    }
    let is_valid = |series_idx: u32| refused.binary_search(&series_idx).is_err();
    series.clear();
    series.extend(part.series.iter().copied().filter(|&idx| is_valid(idx)));
    exemplars.clear();
    let of_series = |idx: u32| batch.exemplars.get(idx as usize).map_or(u32::MAX, |one| one.series_idx);
    exemplars.extend(part.exemplars.iter().copied().filter(|&idx| is_valid(of_series(idx))));
    BatchPart { series, exemplars, metadata: part.metadata }
}
