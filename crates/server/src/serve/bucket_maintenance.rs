//! Maintenance of the bucket of a cluster by a process of its own, the role `store`.
//!
//! Invariants: its directory is scratch, below the data directory: samples and databases of a server that
//! used the data directory before are neither read nor removed; any number of such processes may run, since
//! leases and the catalogue decide between them.
//! Not here: the maintenance itself (`tsdb`), its threads (`serve`).

use std::sync::Arc;

use chronolith_cluster::options::{ClusterOptions, Role};
use chronolith_tsdb::{Bucket, BucketOptions, OpenError, Tsdb};

use crate::web::Web;

/// Directory below the data directory.
const DIR: &str = "bucket-maintenance";

/// Sets the options of the bucket that follow from the roles of the process.
pub(crate) fn set_cluster_options(options: &mut BucketOptions, cluster: &ClusterOptions) {
    options.has_original_databases = !cluster.roles.is_all();
    if cluster.roles.has(Role::Store) {
        options.compaction_delay = Some(cluster.maintenance.compaction_delay);
    }
}

/// Opens a store without samples, from which the bucket is maintained. Blocks the thread.
///
/// # Errors
/// [`OpenError`].
pub(crate) fn open_store(web: &Web, bucket: Option<Arc<Bucket>>) -> Result<Arc<Tsdb>, OpenError> {
    let service = &web.service;
    let mut options = service.options.tsdb_options();
    options.data_dir.push(DIR);
    Tsdb::open_with_bucket(service.env.clone(), options, service.lifecycle.replay_progress(), bucket)
}
