//! `status/cluster`: roles, partition map, owned partition and its position in the replicated log. An
//! endpoint of our own.
//!
//! Not here: the counters themselves (`cluster`), their metrics (`metrics::cluster`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use chronolith_base::utc::rfc3339_ms;
use chronolith_cluster::gateway::Gateway;
use chronolith_cluster::owner::PartitionOwner;
use serde_json::{Value, json};

use super::dispatch;
use super::error::ApiError;
use super::status::success;
use crate::web::Web;

/// State of the roles as the process knows it, without a request to log or bucket; `data` is null on a server
/// of its own.
pub(super) async fn cluster(State(web): State<Arc<Web>>) -> Result<Response<Body>, ApiError> {
    Ok(success(&dispatch::run_status(&web, cluster_value).await?))
}

fn cluster_value(web: &Web) -> Value {
    let parts = &web.service.lifecycle.roles;
    if parts.roles().is_all() {
        return Value::Null;
    }
    json!({
        "roles": parts.roles().list().iter().map(|role| role.name()).collect::<Vec<_>>(),
        "unready": web.service.lifecycle.unready_reason(),
        "gateway": parts.gateway().map(|gateway| gateway_value(gateway)),
        "owner": parts.owner().map(|owner| owner_value(&**owner)),
    })
}

fn gateway_value(gateway: &Gateway) -> Value {
    let stats = gateway.stats();
    json!({
        "partitions": stats.partition_count,
        "partitionMap": stats.map_number,
        "appendedRecords": stats.log.appended_records,
        "appendedBytes": stats.log.appended_bytes,
        "possiblyWrittenRecords": stats.log.possibly_written_records,
        "inFlightBytes": stats.log.in_flight_bytes,
    })
}

fn owner_value(owner: &dyn PartitionOwner) -> Value {
    let status = owner.status();
    let partition = owner.partition();
    json!({
        "topic": partition.topic.to_string(),
        "partition": partition.number.0,
        "nextOffset": status.next_offset,
        "logStart": status.log_start,
        "logEnd": status.log_end,
        "lagSeconds": status.lag_ms as f64 / 1000.0,
        "logTime": status.log_time_ms.map(rfc3339_ms),
        "appliedRecords": status.applied_count,
        "refusedRecords": status.refused_count,
        "lastRefusedOffset": status.last_refused,
        "rejectedSamples": status.rejected_count,
        "clockAheadRecords": status.ahead_count,
        "fault": status.fault,
        "openWindows": status.cuts.open_window_count,
        "heldCuts": status.cuts.held_cut_count,
        "resumeOffset": status.cuts.resume,
        "publishedBlocks": status.cuts.published_block_count,
        "publicationFault": status.cuts.fault,
    })
}
