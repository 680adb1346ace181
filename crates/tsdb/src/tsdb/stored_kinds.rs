//! Types of metrics by the stored metadata, for the head.

use std::sync::Weak;

use chronolith_head::MetricKinds;
use chronolith_model::{MetricKind, StoreId};

use crate::storage::Storage;

/// Metadata of the storage that has the head.
pub(super) struct StoredKinds(pub(super) Weak<Storage>);

impl MetricKinds for StoredKinds {
    fn kind_of(&self, store: &StoreId, family: &str) -> Option<MetricKind> {
        let entries = self.0.upgrade()?.metadata().list(store, Some(family), 0);
        entries.first().map(|newest| newest.kind)
    }
}
