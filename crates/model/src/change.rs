//! The contract for caches of results: what may have changed in the stored data of a tenant since a moment.
//!
//! Holds: whoever takes a generation and then reads, sees everything that is not reported as changed since that
//! generation. A change is reported after it is visible and before it is acknowledged.
//! Not here: what is cached (`server`), how changes are kept (`tsdb`).

use crate::TenantId;

/// What may have changed: samples before one time went, samples from another time on came (or went).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// Samples before this time may be gone; `i64::MIN`: none.
    pub removed_before_ms: i64,
    /// Samples from this time on may be new, different or gone; `i64::MAX`: none.
    pub written_from_ms: i64,
}

impl Changed {
    /// Nothing.
    pub const NOTHING: Changed = Changed { removed_before_ms: i64::MIN, written_from_ms: i64::MAX };

    /// Whether everything in `[first_ms, last_ms]` is as it was.
    #[must_use]
    pub fn spares(&self, first_ms: i64, last_ms: i64) -> bool {
        first_ms >= self.removed_before_ms && last_ms < self.written_from_ms
    }
}

/// Something that knows what changed.
pub trait ChangeWatch: Send + Sync {
    /// A moment; later ones are greater. From the first call on, changes of this tenant are kept.
    fn generation(&self, tenant: &TenantId) -> u64;

    /// What may have changed since `generation`, a moment of the same process. May report more than did.
    fn changed_since(&self, tenant: &TenantId, generation: u64) -> Changed;
}
