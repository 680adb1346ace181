//! Contract for result caches: time ranges of a tenant's data that may have changed since a generation.
//!
//! Invariants: a reader that takes a generation before it reads sees all data that is not reported as changed
//! since that generation. A change is reported after it is visible and before it is acknowledged.
//! Not here: the cache (`server`), recording of changes (`tsdb`).

use crate::TenantId;

/// Ranges that may have changed: old samples that were removed, and recent samples that were written or
/// removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// Samples before this time may be removed; `i64::MIN`: none.
    pub removed_before_ms: i64,
    /// Samples from this time on may be new, different or removed; `i64::MAX`: none.
    pub written_from_ms: i64,
}

impl Changed {
    /// No change.
    pub const NOTHING: Changed = Changed { removed_before_ms: i64::MIN, written_from_ms: i64::MAX };

    /// Everything may have changed.
    pub const EVERYTHING: Changed = Changed { removed_before_ms: i64::MAX, written_from_ms: i64::MIN };

    /// Returns true if nothing in `[first_ms, last_ms]` has changed.
    #[must_use]
    pub fn spares(&self, first_ms: i64, last_ms: i64) -> bool {
        first_ms >= self.removed_before_ms && last_ms < self.written_from_ms
    }
}

/// Source of changes.
pub trait ChangeWatch: Send + Sync {
    /// Returns the current generation; generations ascend. Changes of the tenant are recorded from the first
    /// call on.
    fn generation(&self, tenant: &TenantId) -> u64;

    /// Returns the ranges that may have changed since `generation`, which is of this process. May report too
    /// much.
    fn changed_since(&self, tenant: &TenantId, generation: u64) -> Changed;
}
