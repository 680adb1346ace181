//! Restores start timestamps from the checkpoint and the WAL.
//!
//! Invariant: frames apply as those of samples do (`log`); start timestamps of unknown series are dropped.

use chronolith_base::{ByteReader, DecodeError};
use chronolith_format::chunk::starts;
use chronolith_format::head::wal::StartsRef;
use chronolith_model::TimeRange;

use super::log::Shared;
use crate::series::stripe::Stripe;

/// Restores the start timestamps of an entry; the samples of its series are restored already.
pub(super) fn restore(stripe: &mut Stripe, id: u32, bytes: &[u8], damaged_count: &mut u64) {
    let mut runs = Vec::new();
    match starts::decode(&mut ByteReader::new(bytes), &mut runs) {
        Ok(()) => stripe.restore_starts(id, &runs),
        Err(_) => *damaged_count += 1,
    }
}

/// Replays a frame of start timestamps.
pub(super) fn apply(payload: &[u8], sequence: u64, shared: &Shared<'_>) -> Result<(), DecodeError> {
    let frame = StartsRef::decode(payload)?;
    let aliases = shared.aliases.read();
    let mut position = shared.positions.cursor();
    for entry in &frame.entries {
        let id = aliases.get(&entry.id).copied().unwrap_or(entry.id);
        if sequence <= position.of(id) || !TimeRange::ALL.contains(entry.time) {
            continue;
        }
        let mut stripe = shared.series.lock(id);
        // Samples of unknown series are counted with their own frame.
        if stripe.series(id).is_some() {
            stripe.set_start(id, entry.time, entry.start_ms);
        }
    }
    Ok(())
}
