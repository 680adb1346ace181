//! Folder of a cluster in the bucket, with objects that all of its processes share; folders of stores.

use chronolith_bucket::Folder;
use chronolith_format::record::RecordStore;
use chronolith_model::TenantId;

/// Name of the folder, which no tenant of a cluster may have.
pub(crate) const CLUSTER_FOLDER: &str = "cluster";

/// Returns the folder of the cluster.
pub(crate) fn cluster_folder() -> Folder {
    Folder::of_tenant(&TenantId::new(CLUSTER_FOLDER).expect("a valid id"))
}

/// Returns the folder of a store in the bucket.
pub(crate) fn store_folder(tenant: &TenantId, store: RecordStore) -> Folder {
    match store {
        RecordStore::Default => Folder::of_tenant(tenant),
        RecordStore::Database(id) | RecordStore::Graphite(id) => Folder::of_store(tenant, id),
    }
}
