//! Fields whose samples have left the head.
//!
//! Not here: the check of types (`write::field_types`), blocks (`tsdb`).

use chronolith_model::{StoreId, TimeRange, WordKind};

/// Kinds of a field name, in all measurements.
pub type KindsOfName = (String, Vec<WordKind>);

/// Field types that blocks outside of the head have.
pub trait FieldHistory: Send + Sync {
    /// Returns the kind of samples that a field may have in `range`; `None` if it has none.
    fn kind_in(&self, store: &StoreId, measurement: &str, field: &str, range: TimeRange) -> Option<WordKind>;

    /// Returns the kinds of all field names whose series may have samples in `range`.
    fn kinds_by_name(&self, store: &StoreId, range: TimeRange) -> Vec<KindsOfName>;

    /// Returns the measurements that have a field of a kind which may have samples in `range`.
    fn measurements_of(&self, store: &StoreId, field: &str, kind: WordKind, range: TimeRange) -> Vec<String>;
}
