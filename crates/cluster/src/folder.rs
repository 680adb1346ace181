//! Folder of a cluster in the bucket: objects that all of its processes share.

use chronolith_bucket::Folder;
use chronolith_model::TenantId;

/// Name of the folder, which no tenant of a cluster may have.
pub(crate) const CLUSTER_FOLDER: &str = "cluster";

/// Returns the folder of the cluster.
pub(crate) fn cluster_folder() -> Folder {
    Folder::of_tenant(&TenantId::new(CLUSTER_FOLDER).expect("a valid id"))
}
