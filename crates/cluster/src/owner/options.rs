//! Options of an owner.

use std::ops::Range;
use std::time::Duration;

use chronolith_model::LabelSource;
use chronolith_replicated_log::ReadLimits;

use crate::options::READY_LAG;

/// Bytes of one read of the log.
const READ_BYTES_MAX: usize = 8 << 20;
/// Longest wait for a record; bounds the time until an owner stops.
const READ_WAIT: Duration = Duration::from_millis(200);
/// Twice the default of `bucket.poll`.
const SEAM: Duration = Duration::from_secs(60);
/// Refused records after which an owner stops.
const REFUSED_MAX: u64 = 1000;

/// Options of an owner.
#[derive(Clone)]
pub struct OwnerOptions {
    /// Lag below which recent data is complete enough for queries.
    pub ready_lag: Duration,
    /// Offsets whose loss the operator has accepted.
    pub accepted_gap: Option<Range<u64>>,
    /// Parser of the wire keys of a protocol, by its number.
    pub source: fn(u8) -> Option<LabelSource>,
    /// Limits of one read of the log.
    pub read: ReadLimits,
    /// Time for which the head keeps the samples of a cut after the catalogue has their blocks: twice the
    /// time between two polls of the catalogue by its readers.
    pub seam: Duration,
    /// Refused records since the start; the owner stops at the next one.
    pub refused_max: u64,
}

impl OwnerOptions {
    /// Returns the defaults; `source` returns the parser of the wire keys of a protocol.
    #[must_use]
    pub fn new(source: fn(u8) -> Option<LabelSource>) -> OwnerOptions {
        OwnerOptions {
            ready_lag: READY_LAG,
            accepted_gap: None,
            source,
            read: ReadLimits { bytes_max: READ_BYTES_MAX, wait: READ_WAIT },
            seam: SEAM,
            refused_max: REFUSED_MAX,
        }
    }

    /// Returns true if the operator has accepted the loss of these offsets.
    pub(super) fn accepts(&self, lost: &Range<u64>) -> bool {
        self.accepted_gap.as_ref().is_some_and(|gap| gap.start <= lost.start && lost.end <= gap.end)
    }
}
