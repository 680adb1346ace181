//! Windows that have left the store of an owner since they are in blocks of the bucket.

use chronolith_format::record::RecordStore;
use chronolith_model::TenantId;

/// Windows that have left an owner.
pub trait PublishedWindows: Send + Sync {
    /// Returns the number of the first catalogue of a store that has all windows which have left, or are
    /// about to leave; 0 if none has. Never falls. A caller that reads an older catalogue would miss them.
    fn catalogue_needed(&self, tenant: &TenantId, store: RecordStore) -> u64;
}
