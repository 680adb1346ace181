//! Fields whose samples have left the head.
//!
//! Not here: the check of types (`write::field_types`), blocks (`tsdb`).

use chronolith_model::{TenantId, TimeRange, WordKind};

/// What is stored of fields outside of the head.
pub trait FieldHistory: Send + Sync {
    /// Returns the kind of samples that a field may have in `range`; `None` if it has none.
    fn kind_in(
        &self,
        tenant: &TenantId,
        measurement: &str,
        field: &str,
        range: TimeRange,
    ) -> Option<WordKind>;
}
