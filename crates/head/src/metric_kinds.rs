//! Types of metrics.
//!
//! Not here: metadata of metrics (`tsdb`).

use chronolith_model::{MetricKind, StoreId};

/// Types of the metrics of all tenants.
pub trait MetricKinds: Send + Sync {
    /// Returns the type of a metric by the name of its family; `None` if it is not known.
    fn kind_of(&self, store: &StoreId, family: &str) -> Option<MetricKind>;
}
