//! The admin API of Prometheus (`delete_series`, `clean_tombstones`, `snapshot`), and a switch for
//! compaction.
//!
//! Invariants: nothing of it answers unless `--web.enable-admin-api` is set; a request is for its own tenant.
//! Not here: deletion, removal of tombstones, snapshots (`tsdb`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use chronolith_cluster::gateway::{Deleted, DeletionError, Gateway, GatewayDeletion, RecordStore};
use chronolith_model::{Deletion, Matcher, StoreId, TimeRange};
use chronolith_service::access::Identity;
use chronolith_service::limits::ADMIN_QUEUE_WAIT;
use chronolith_service::write::destination::Destination;
use chronolith_tsdb::{AdminError, SnapshotHead, Tsdb};
use serde_json::json;

use super::call::{self, Call};
use super::dispatch;
use super::error::{ApiError, ErrorKind};
use super::graphite::delete::graphite_store;
use super::offsets;
use super::params::Params;
use super::series::{selectors, time_range};
use super::status;
use crate::web::Web;

pub(super) async fn delete_series(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    check_switch(&web)?;
    let destination = web.service.lifecycle.destination()?;
    let call = call::open(&web, request).await?;
    call.params.well_formed()?;
    if call.params.all("match[]").next().is_none() {
        return Err(ApiError::bad_request("no match[] parameter provided"));
    }
    let range = time_range(&call.params)?;
    let selectors = selectors(&call.params).map_err(|error| ApiError::parameter("match[]", error.message))?;
    let identity = call.identity.clone();
    let audit = call.audit.clone();
    if let Destination::Log(gateway) = destination {
        let deleted = delete_in_cluster(&web, &gateway, call, selectors, range).await?;
        audit.set_count("series", deleted.series_count);
        audit.set_count("blocks", deleted.block_count);
        let mut response = no_content();
        offsets::set(&deleted.offsets, &mut response);
        return Ok(response);
    }
    let deleted = run(&web, &identity, move |store| {
        // Queries see the series of Graphite clients as the tenant's own.
        let stores = [Some(StoreId::from(&call.tenant)), graphite_store(store, &call.tenant)];
        let of_store = |store| Deletion { store, selectors: selectors.clone(), range };
        let deletions: Vec<Deletion> = stores.into_iter().flatten().map(of_store).collect();
        store.admin().delete_all(&deletions)
    })
    .await?;
    audit.set_count("series", deleted.series_count);
    audit.set_count("blocks", deleted.block_count);
    Ok(no_content())
}

/// Deletes samples in all partitions and in the bucket, until the timeout of queries.
async fn delete_in_cluster(
    web: &Arc<Web>,
    gateway: &Arc<Gateway>,
    call: Call,
    selectors: Vec<Vec<Matcher>>,
    range: TimeRange,
) -> Result<Deleted, ApiError> {
    let gateway = gateway.clone();
    let identity = call.identity.clone();
    let class = &web.service.admission.admin;
    let deleted = dispatch::run_to_end(web, class, &identity, ADMIN_QUEUE_WAIT, move |web| {
        // Queries see the series of Graphite clients as the tenant's own.
        let graphite = gateway.existing_graphite_store(&call.tenant)?;
        let of_store = |store| GatewayDeletion {
            tenant: &call.tenant,
            store,
            selectors: &selectors,
            range,
            request_id: &call.info.id,
        };
        let requests: Vec<GatewayDeletion<'_>> =
            [Some(RecordStore::Default), graphite].into_iter().flatten().map(of_store).collect();
        let timeout_ns = web.service.options.query.timeout_ms.saturating_mul(1_000_000);
        let deadline_ns = web.service.env.clock.mono_ns().saturating_add(timeout_ns);
        gateway.deletions().delete_all(&requests, deadline_ns)
    });
    deleted.await?.map_err(|error: DeletionError| {
        tracing::warn!(%error, "deleting series in the cluster failed");
        ApiError::from(&error)
    })
}

pub(super) async fn clean_tombstones(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = open(&web, request).await?;
    let identity = call.identity.clone();
    let audit = call.audit.clone();
    let cleaned = run(&web, &identity, move |store| {
        let cleaned_count = store.admin().clean_tombstones(&StoreId::from(&call.tenant))?;
        match graphite_store(store, &call.tenant) {
            Some(graphite) => Ok(cleaned_count + store.admin().clean_tombstones(&graphite)?),
            None => Ok(cleaned_count),
        }
    })
    .await?;
    audit.set_count("blocks", cleaned);
    Ok(no_content())
}

pub(super) async fn snapshot(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = open(&web, request).await?;
    let head = match switch(&call.params, "skip_head")? {
        Some(true) => SnapshotHead::Skip,
        Some(false) | None => SnapshotHead::Include,
    };
    let identity = call.identity.clone();
    let audit = call.audit.clone();
    let made = run(&web, &identity, move |store| store.admin().snapshot(&[call.tenant.into()], head)).await;
    let name =
        made.map_err(|error| ApiError::new(error.kind, format!("create snapshot: {}", error.message)))?;
    audit.set_count("snapshot", name.as_str());
    Ok(status::success(&json!({ "name": name })))
}

/// Pauses compaction, or lets it go on; tells which it is.
pub(super) async fn compaction(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = open(&web, request).await?;
    let store = web.service.lifecycle.store()?;
    let Some(paused) = switch(&call.params, "paused")? else {
        return Err(ApiError::bad_request("no paused parameter provided"));
    };
    if paused {
        store.maintenance().pause_compaction();
    } else {
        store.maintenance().resume_compaction();
    }
    Ok(status::success(&json!({ "paused": paused })))
}

/// Reads the request if there is an admin API at all.
async fn open(web: &Web, request: Request) -> Result<Call, ApiError> {
    check_enabled(web)?;
    call::open(web, request).await
}

/// # Errors
/// There is no admin API, or no store that may be changed.
pub(super) fn check_enabled(web: &Web) -> Result<(), ApiError> {
    check_switch(web)?;
    web.service.lifecycle.store()?;
    Ok(())
}

fn check_switch(web: &Web) -> Result<(), ApiError> {
    if !web.options.web.admin_api {
        return Err(ApiError::new(ErrorKind::Unavailable, "admin APIs disabled (web.enable-admin-api)"));
    }
    Ok(())
}

/// Runs `work` off the async threads; it is not cut short when its client leaves.
async fn run<T: Send + 'static>(
    web: &Arc<Web>,
    identity: &Identity,
    work: impl FnOnce(&Tsdb) -> Result<T, AdminError> + Send + 'static,
) -> Result<T, ApiError> {
    let store = web.service.lifecycle.store()?.clone();
    let class = &web.service.admission.admin;
    let done = dispatch::run_to_end(web, class, identity, ADMIN_QUEUE_WAIT, move |_| work(&store)).await?;
    done.map_err(|error| {
        tracing::error!(%error, "admin API request failed");
        let is_of_bucket = matches!(error, AdminError::Bucket(_));
        let kind = if is_of_bucket { ErrorKind::Unavailable } else { ErrorKind::Internal };
        ApiError::new(kind, error)
    })
}

/// A switch as Go reads it.
pub(super) fn switch(params: &Params, name: &str) -> Result<Option<bool>, ApiError> {
    match params.get(name) {
        None => Ok(None),
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
        Some(text) => {
            let why = format!("unable to parse boolean: strconv.ParseBool: parsing {text:?}: invalid syntax");
            Err(ApiError::parameter(name, why))
        }
    }
}

fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
