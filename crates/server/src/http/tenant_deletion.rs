//! Deletion of whole tenants: `/api/v1/admin/tenants/{id}`, and Mimir's `/compactor/delete_tenant` with the
//! tenant in the header.
//!
//! Invariants: nothing is deleted unless `--web.enable-admin-api` is set; the principal may name the tenant.
//! Not here: the deletion, which goes on in the background (`tsdb`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{Extensions, Response, StatusCode};
use chronolith_model::TenantId;
use chronolith_service::access::Denied;
use chronolith_service::limits::ADMIN_QUEUE_WAIT;
use chronolith_tsdb::{DeletionProgress, DeletionState};
use serde_json::{Value, json};

use super::dispatch;
use super::error::{ApiError, ErrorKind};
use super::sender::{Sender, identity_of};
use super::status::{plain_json, success};
use super::tenant::TenantError;
use crate::web::Web;

/// `DELETE /api/v1/admin/tenants/{id}`: 202 with the state.
pub(super) async fn delete(
    State(web): State<Arc<Web>>,
    Path(name): Path<String>,
    extensions: Extensions,
) -> Result<Response<Body>, ApiError> {
    let tenant = named(&name, &extensions)?;
    begin(&web, &tenant).await?;
    let mut response = success(&state_value(&web, &tenant).await?);
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

/// `GET /api/v1/admin/tenants/{id}`: the state of the deletion.
pub(super) async fn state(
    State(web): State<Arc<Web>>,
    Path(name): Path<String>,
    extensions: Extensions,
) -> Result<Response<Body>, ApiError> {
    let tenant = named(&name, &extensions)?;
    Ok(success(&state_value(&web, &tenant).await?))
}

/// `POST /compactor/delete_tenant`: 200 without a body, as in Mimir.
pub(super) async fn delete_as_mimir(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let identity = identity_of(request.extensions())?;
    begin(&web, identity.tenant()).await?;
    Ok(Response::new(Body::empty()))
}

/// `GET /compactor/delete_tenant_status`: whether nothing is left, as in Mimir.
pub(super) async fn state_as_mimir(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let identity = identity_of(request.extensions())?;
    let value = state_value(&web, identity.tenant()).await?;
    let is_gone = value["state"] == "deleted" || value["state"] == "none" && value["stored"] == false;
    let body = json!({ "tenant_id": identity.tenant().as_str(), "blocks_deleted": is_gone });
    Ok(plain_json(body.to_string()))
}

/// The tenant of the path, which the principal may name.
fn named(name: &str, extensions: &Extensions) -> Result<TenantId, ApiError> {
    let tenant = TenantId::new(name).map_err(|error| ApiError::parameter("id", error))?;
    let sender = extensions.get::<Sender>().ok_or(TenantError::Missing)?;
    let denied = |denied: Denied| ApiError::new(ErrorKind::Forbidden, denied);
    sender.principal.check_tenant(&tenant).map_err(denied)?;
    Ok(tenant)
}

async fn begin(web: &Arc<Web>, tenant: &TenantId) -> Result<(), ApiError> {
    if !web.options.web.admin_api {
        return Err(ApiError::new(ErrorKind::Unavailable, "admin APIs disabled (web.enable-admin-api)"));
    }
    let store = web.service.lifecycle.store()?.clone();
    let class = &web.service.admission.admin;
    let marked = tenant.clone();
    let begun = dispatch::run_to_end(web, class, tenant, ADMIN_QUEUE_WAIT, move |web| {
        store.tenant_deletions().begin(&marked).map_err(|error| error.to_string())?;
        // Rules cannot be added once the tenant is marked.
        web.service.rules.configured.delete_tenant(&marked).map_err(|error| error.to_string())
    });
    begun.await?.map_err(|error| {
        tracing::error!(%tenant, %error, "deletion of a tenant cannot begin");
        ApiError::new(ErrorKind::Internal, error)
    })
}

async fn state_value(web: &Arc<Web>, tenant: &TenantId) -> Result<Value, ApiError> {
    let store = web.service.lifecycle.readable_store()?.clone();
    let tenant = tenant.clone();
    let read = dispatch::run_status(web, move |_| {
        let is_stored = store.statistics().tenant_sizes().contains_key(&tenant);
        let (state, progress) = match store.tenant_deletions().state_of(&tenant) {
            None => ("none", None),
            Some(DeletionState::Running(progress)) => ("deleting", Some(progress)),
            Some(DeletionState::Done(progress)) => ("deleted", Some(progress)),
        };
        json!({
            "tenant": tenant.as_str(),
            "state": state,
            "stored": is_stored,
            "progress": progress.as_ref().map(progress_value),
        })
    });
    read.await
}

fn progress_value(progress: &DeletionProgress) -> Value {
    json!({
        "startedMs": progress.started_ms,
        "endedMs": progress.ended_ms,
        "step": progress.step.name(),
        "blocks": progress.block_count,
        "headSamples": progress.head_sample_count,
        "bucketObjects": progress.object_count,
        "error": progress.error,
    })
}
