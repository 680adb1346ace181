//! Gateway of a process: its opening, and the thread that reads the partition map and lets time pass.
//!
//! Invariant: the map is read every [`ROUND_PAUSE`]; in each round, partitions to which the gateway has
//! appended nothing get a tick.
//! Not here: appends of writes (`service::write`), the gateway itself (`cluster`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_cluster::ReplicatedLog;
use chronolith_cluster::gateway::{Gateway, GatewayParts};
use chronolith_cluster::options::{Compression, GatewayOptions};
use chronolith_service::set_gateway;
use chronolith_tsdb::Bucket;
use tokio::runtime::Handle;

use super::error::RunError;
use super::rounds::repeat;
use super::stop::Stop;
use crate::peers::GatewayOwners;
use crate::web::Web;

/// Pause between two rounds.
const ROUND_PAUSE: Duration = Duration::from_secs(5);

/// Takes a gateway into use that has no partition map yet. Sends no request.
pub(crate) fn open(web: &Web, log: Arc<dyn ReplicatedLog>, bucket: &Bucket, handle: Handle) {
    let service = &web.service;
    let parts = GatewayParts {
        log,
        bucket: bucket.store().clone(),
        handle,
        memory: service.admission.write_memory.total.clone(),
        limits: service.options.tsdb.limits.clone(),
    };
    let cluster = &service.options.cluster;
    let packs_records = cluster.log.as_ref().is_some_and(|log| log.compression == Compression::Lz4);
    let options = GatewayOptions { packs_records, ..cluster.gateway };
    let gateway = Gateway::new(&service.env, parts, options);
    set_gateway(service, Arc::new(gateway));
}

/// Returns the owners that the gateway asks for series counts; `None` without the setting.
///
/// # Errors
/// [`RunError::NodeToken`].
pub(super) fn open_owners(web: &Web, handle: &Handle) -> Result<Option<GatewayOwners>, RunError> {
    let options = &web.options.nodes;
    let Some(owners) = &options.owners else { return Ok(None) };
    let client = web.open_node_client().map_err(RunError::NodeToken)?;
    Ok(Some(GatewayOwners::new(owners, client, &web.service.env, handle)))
}

/// Asks owners for series counts until the stop.
pub(super) fn run_owners(web: &Web, owners: &GatewayOwners, stop: &Stop) {
    repeat(web, stop, "owner-lookup", ROUND_PAUSE, || {
        if let Some(gateway) = web.service.lifecycle.roles.gateway() {
            owners.refresh(gateway);
        }
    });
}

/// Reads the partition map and appends ticks until the stop.
pub(super) fn run(web: &Web, stop: &Stop) {
    let mut fault = None;
    repeat(web, stop, "gateway", ROUND_PAUSE, || round(web, &mut fault));
}

/// Runs one round; `fault` has the failure of the last one, so that a lasting failure is logged once.
pub(crate) fn round(web: &Web, fault: &mut Option<String>) {
    let Some(gateway) = web.service.lifecycle.roles.gateway() else { return };
    // Without the log, ticks would wait in vain.
    let result = match gateway.refresh() {
        Ok(()) => gateway.tick().map(drop).map_err(|error| format!("appending a tick failed: {error}")),
        Err(error) => Err(error.to_string()),
    };
    let found = result.err();
    match (&found, fault.as_ref()) {
        (Some(why), before) if before != Some(why) => {
            tracing::warn!(why, "gateway not ready, retrying in 5 s")
        }
        (None, Some(_)) => tracing::info!("gateway is ready again"),
        _ => {}
    }
    *fault = found;
}
