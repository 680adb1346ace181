//! Mimir's API that changes rules: groups of a tenant by namespace, in YAML.
//!
//! Invariants: a change is durable before its 202; statuses and texts of errors are Mimir's, with the faults
//! of a group where Mimir only answers that it cannot decode it. An API that is switched off is an unknown
//! path.
//! Not here: files and limits (`service::rules::configured`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use chronolith_model::TenantId;
use chronolith_rules::file::{GroupSource, group_yaml, namespaces_yaml};
use chronolith_service::rules::configured::{CONFIGURED_GROUP_BYTES_MAX, ConfigureError, Namespace};

use crate::http::audit_notes::AuditNotes;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::params::decode_percent;
use crate::http::sender::identity_of;
use crate::http::status::plain_json;
use crate::http::{body, dispatch, paths};
use crate::web::Web;

/// Path above all namespaces.
const ROOT: &str = "/config/v1/rules";
/// Mimir's answer to a change.
const ACCEPTED: &str = r#"{"status":"success","data":null,"errorType":"","error":""}"#;

impl From<ConfigureError> for ApiError {
    fn from(error: ConfigureError) -> ApiError {
        let kind = match error {
            ConfigureError::Invalid(_) | ConfigureError::Limit { .. } => ErrorKind::BadRequest,
            ConfigureError::GroupNotFound | ConfigureError::NamespaceNotFound => ErrorKind::NotFound,
            ConfigureError::TenantDeleted => ErrorKind::Unavailable,
            ConfigureError::Damaged(_) | ConfigureError::NotPrintable | ConfigureError::Io(_) => {
                ErrorKind::Internal
            }
        };
        ApiError::new(kind, error)
    }
}

/// Tenant, namespace and group of a request.
struct Target {
    tenant: TenantId,
    /// Empty above all namespaces.
    namespace: String,
    /// Empty above all groups.
    group: String,
}

impl Target {
    fn of(request: &Request) -> Result<Target, ApiError> {
        let tenant = identity_of(request.extensions())?.tenant().clone();
        let below = request.uri().path().strip_prefix(ROOT).unwrap_or_default();
        let mut parts = below.trim_start_matches('/').split('/').map(|part| {
            let wrong = || ApiError::bad_request(format_args!("invalid path: {part:?} is not UTF-8"));
            decode_percent(part).ok_or_else(wrong)
        });
        let mut next = || parts.next().transpose().map(Option::unwrap_or_default);
        Ok(Target { tenant, namespace: next()?, group: next()? })
    }
}

/// `GET /config/v1/rules` and `/config/v1/rules/{namespace}`: groups by namespace. Without any the answer is
/// an empty mapping, as in Mimir.
pub(in crate::http) async fn list(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    respond(&web, request, async |web, request| {
        let target = Target::of(&request)?;
        let read = dispatch::run_status(web, move |web| {
            let namespaces = web.service.rules.configured.namespaces(&target.tenant);
            let listed = namespaces.iter().filter(|(name, namespace)| {
                (target.namespace.is_empty() || **name == target.namespace) && !namespace.groups().is_empty()
            });
            namespaces_yaml(listed.map(|(name, namespace)| (name.as_str(), sources(namespace))))
        });
        Ok(yaml(read.await?))
    })
    .await
}

fn sources(namespace: &Namespace) -> impl Iterator<Item = &GroupSource> {
    namespace.groups().iter().map(|group| &group.source)
}

/// `GET /config/v1/rules/{namespace}/{group}`: one group.
pub(in crate::http) async fn group(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    respond(&web, request, async |web, request| {
        let target = Target::of(&request)?;
        let read = dispatch::run_status(web, move |web| {
            let namespaces = web.service.rules.configured.namespaces(&target.tenant);
            let found = namespaces.get(&target.namespace).and_then(|one| one.group(&target.group));
            found.map(|group| group_yaml(&group.source)).ok_or(ConfigureError::GroupNotFound)
        });
        Ok(yaml(read.await??))
    })
    .await
}

/// `POST /config/v1/rules/{namespace}`: adds a group, or replaces the one of its name.
pub(in crate::http) async fn set(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    respond(&web, request, async |web, request| {
        let store = web.service.lifecycle.store()?.clone();
        let target = Target::of(&request)?;
        let notes = AuditNotes::of(request.extensions());
        let limits = web.service.limits_of(&target.tenant).queries;
        let memory = web.service.admission.query_memory.of(&target.tenant, limits.memory_bytes_max);
        let read = body::read_query(request.into_body(), CONFIGURED_GROUP_BYTES_MAX, &memory.budget).await?;
        let changed = dispatch::run_status(web, move |web| {
            let is_deleted = |tenant: &TenantId| store.tenant_deletions().is_running(tenant);
            let Target { tenant, namespace, .. } = &target;
            web.service.rules.configured.set_group(tenant, namespace, &read.bytes, &limits.rules, is_deleted)
        });
        notes.set_count("group", changed.await??);
        Ok(accepted())
    })
    .await
}

/// `DELETE /config/v1/rules/{namespace}`: removes all groups of a namespace.
pub(in crate::http) async fn delete_namespace(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Response<Body> {
    respond(&web, request, async |web, request| {
        web.service.lifecycle.store()?;
        let target = Target::of(&request)?;
        let changed = dispatch::run_status(web, move |web| {
            web.service.rules.configured.delete_namespace(&target.tenant, &target.namespace)
        });
        changed.await??;
        Ok(accepted())
    })
    .await
}

/// `DELETE /config/v1/rules/{namespace}/{group}`: removes a group.
pub(in crate::http) async fn delete_group(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    respond(&web, request, async |web, request| {
        web.service.lifecycle.store()?;
        let target = Target::of(&request)?;
        let changed = dispatch::run_status(web, move |web| {
            web.service.rules.configured.delete_group(&target.tenant, &target.namespace, &target.group)
        });
        changed.await??;
        Ok(accepted())
    })
    .await
}

/// Answers by `work` if the API is on; errors are plain text, as in Mimir.
async fn respond(
    web: &Arc<Web>,
    request: Request,
    work: impl AsyncFnOnce(&Arc<Web>, Request) -> Result<Response<Body>, ApiError>,
) -> Response<Body> {
    if !web.options.web.rules_api {
        return paths::unknown(request).await;
    }
    work(web, request).await.unwrap_or_else(ApiError::into_text)
}

fn accepted() -> Response<Body> {
    let mut response = plain_json(ACCEPTED.to_owned());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

fn yaml(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    response
}
