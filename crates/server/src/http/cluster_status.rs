//! `status/cluster`: roles, partition map, owners and their positions in the replicated log. An endpoint of
//! our own.
//!
//! Invariant: state as the process knows it, without a request to the log, the bucket or another node.
//! Not here: the counters themselves (`cluster`), their metrics (`metrics::cluster`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use chronolith_base::utc::rfc3339_ms;
use chronolith_cluster::gateway::Gateway;
use chronolith_cluster::owner::PartitionOwner;
use chronolith_cluster::partition_maps::PartitionsSnapshot;
use chronolith_cluster::partition_states::{PartitionState, partition_states};
use chronolith_cluster::peers::{NodeStatus, PartitionReport};
use chronolith_cluster::rule_lease::RuleLeaseStats;
use serde_json::{Value, json};

use super::dispatch;
use super::error::ApiError;
use super::status::success;
use crate::peers::QueryNode;
use crate::web::Web;

/// State of the roles; `data` is null on a server of its own.
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
        "query": web.query_node().map(|node| query_value(node)),
        "rules": parts.rule_lease().map(|lease| rules_value(&lease.stats())),
    })
}

fn rules_value(stats: &RuleLeaseStats) -> Value {
    json!({
        "leaseHeld": stats.term.is_some(),
        "term": stats.term,
        "terms": stats.terms,
        "failures": stats.failures,
        "givenUpRounds": stats.given_up_rounds,
    })
}

fn gateway_value(gateway: &Gateway) -> Value {
    let stats = gateway.stats();
    json!({
        "partitions": stats.partition_count,
        "partitionMap": stats.map_number,
        "map": gateway.partition_map().map(|snapshot| map_value(&snapshot)),
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
        "notReady": owner.check_ready().err().map(|why| why.to_string()),
        "logStart": status.log_start,
        "logEnd": status.log_end,
        "lagSeconds": status.lag_ms as f64 / 1000.0,
        "logTime": status.log_time_ms.map(rfc3339_ms),
        "appliedRecords": status.applied_count,
        "refusedRecords": status.refused_count,
        "lastRefusedOffset": status.last_refused,
        "droppedStoreRecords": status.dropped_store_count,
        "rejectedSamples": status.rejected_count,
        "clockAheadRecords": status.ahead_count,
        "fault": status.fault.map(|fault| fault.text),
        "openWindows": status.cuts.open_window_count,
        "heldCuts": status.cuts.held_cut_count,
        "resumeOffset": status.cuts.resume,
        "publishedBlocks": status.cuts.published_block_count,
        "publicationFault": status.cuts.fault,
        "cutWaitsForDeletion": status.cuts.waits_for_deletion,
        "openDeletions": status.deletions.open_count,
        "oldestOpenDeletion": status.deletions.oldest_ms.map(rfc3339_ms),
    })
}

fn query_value(node: &QueryNode) -> Value {
    let (asked, unavailable) = node.partitions();
    let directory = node.directory();
    json!({
        "map": node.partition_map().map(|snapshot| map_value(&snapshot)),
        "askedPartitions": asked.iter().map(|partition| partition.0).collect::<Vec<_>>(),
        "unavailablePartitions": unavailable.iter().map(|partition| partition.0).collect::<Vec<_>>(),
        "lookupAgeSeconds": directory.lookup_age_ms().map(|age_ms| age_ms as f64 / 1000.0),
        "lookupFault": directory.lookup_fault(),
        "owners": directory.nodes().iter().map(node_value).collect::<Vec<_>>(),
    })
}

fn node_value(node: &NodeStatus) -> Value {
    json!({
        "address": node.address,
        "topic": node.topic.map(|topic| topic.to_string()),
        "reportAgeSeconds": node.report_age_ms.map(|age_ms| age_ms as f64 / 1000.0),
        "fault": node.fault,
        "partitions": node.partitions.iter().map(report_value).collect::<Vec<_>>(),
    })
}

/// The fields of an owner's own status that its report has.
fn report_value(report: &PartitionReport) -> Value {
    let progress = report.progress;
    json!({
        "partition": report.partition.0,
        "nextOffset": report.next_offset,
        "notReady": report.not_ready,
        "logStart": progress.map(|progress| progress.log_start),
        "logEnd": progress.map(|progress| progress.log_end),
        "lagSeconds": progress.map(|progress| progress.lag_ms as f64 / 1000.0),
        "refusedRecords": progress.map(|progress| progress.refused_count),
        "resumeOffset": progress.and_then(|progress| progress.resume),
    })
}

fn map_value(snapshot: &PartitionsSnapshot) -> Value {
    let states = partition_states(&snapshot.map);
    let partition = |state: &PartitionState| {
        json!({
            "partition": state.partition.0,
            "accepting": state.is_accepting,
            "since": rfc3339_ms(state.since_ms),
            "ownerNeededUntil": state.owner_needed_until_ms().map(rfc3339_ms),
        })
    };
    json!({
        "number": snapshot.stamp.number,
        "partitions": states.iter().map(partition).collect::<Vec<_>>(),
    })
}
