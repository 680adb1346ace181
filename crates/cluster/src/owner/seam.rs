//! Seam between the head of an owner and the blocks of the bucket: which catalogue a reader needs.
//!
//! Invariant: the number grows before samples leave the head.
//! Not here: comparison with the catalogue of a reader (`server`), the age at which samples leave
//! (`publish`).

use chronolith_format::record::RecordStore;
use chronolith_model::{StoreId, TenantId};

use super::Owner;
use crate::peers::PublishedWindows;

/// Samples that left before the start of the process are not counted: they did so at least twice the time
/// between two polls of the catalogue after their publication.
impl PublishedWindows for Owner {
    fn catalogue_needed(&self, tenant: &TenantId, store: RecordStore) -> u64 {
        let store = match store {
            RecordStore::Default => Some(StoreId::from(tenant)),
            RecordStore::Database(id) | RecordStore::Graphite(id) => {
                self.tsdb.cuts().store_with_id(tenant, id)
            }
        };
        store.map_or(0, |store| self.windows.catalogue_needed(&store))
    }
}
