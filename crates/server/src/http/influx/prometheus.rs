//! Remote read from a database: `POST /api/v1/prom/read`.
//!
//! Invariants: series have the labels that remote write into the database has sent, or would have: the metric
//! name is the measurement, of each only the field `value` is read.
//! Not here: remote write (`write`), the messages (`ingest`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Response, StatusCode};
use chronolith_base::MemoryBudget;
use chronolith_model::databases::Privilege;
use chronolith_model::{Queryable, ReadContext};
use chronolith_service::access::Identity;
use chronolith_service::evaluation::call_context::CallContext;
use chronolith_service::evaluation::influxql::databases::{Databases, TenantDatabases};

use super::credentials::Caller;
use super::reply::InfluxError;
use crate::http::audit_notes::AuditNotes;
use crate::http::body;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::params::Params;
use crate::http::remote_read;
use crate::http::sender::identity_of;
use crate::limits::REMOTE_READ_BYTES_MAX;
use crate::web::Web;

pub(in crate::http) async fn read(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer(&web, request).await.unwrap_or_else(InfluxError::into_response)
}

async fn answer(web: &Arc<Web>, request: Request) -> Result<Response<Body>, InfluxError> {
    let (parts, request_body) = request.into_parts();
    let (identity, source) = match check(web, &parts).await {
        Ok(checked) => checked,
        Err(refused) => {
            body::discard(request_body).await;
            return Err(refused);
        }
    };
    let tenant = identity.tenant();
    let memory_max = web.service.limits_of(tenant).queries.memory_bytes_max;
    let memory = web.service.admission.query_memory.of(tenant, memory_max);
    let body = body::read_query(request_body, REMOTE_READ_BYTES_MAX, &memory.budget).await?;
    let request = remote_read::decode(web, &identity, body).await?;
    remote_read::note_queries(&AuditNotes::of(&parts.extensions), &request.queries);
    // InfluxDB answers with samples, whatever else the client accepts.
    let view = move |_: &CallContext| source;
    Ok(remote_read::samples_answer(web, identity, view, request.queries).await?)
}

/// Checks parameters and privileges; returns the sender and the database as metrics.
async fn check(web: &Arc<Web>, parts: &Parts) -> Result<(Identity, Arc<dyn Queryable>), InfluxError> {
    let mut params = Params::default();
    params.parse(parts.uri.query().unwrap_or(""))?;
    let identity = identity_of(&parts.extensions).map_err(ApiError::from)?;
    let databases = Databases::of(&web.service)?;
    let name = params.get("db").filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| InfluxError::bad_request("database is required"))?;
    let caller = Caller::of_request(web, &databases, parts, &params).await?;
    caller.check_read(name)?;
    let databases = known(web, databases, &identity).await?;
    let catalog = databases.catalog();
    let database = catalog.database(name).ok_or_else(|| {
        InfluxError::new(StatusCode::NOT_FOUND, format_args!("database not found: {name:?}"))
    })?;
    let policy = params.get("rp").unwrap_or("");
    let policy = database.policy(policy).ok_or_else(|| {
        let text = format_args!("retention policy not found: {policy}");
        InfluxError::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    })?;
    let source = databases.as_metrics(&policy.store);
    Ok((identity, source))
}

/// Waits for the databases of a tenant on a thread that may wait.
async fn known(
    web: &Arc<Web>,
    databases: Databases,
    identity: &Identity,
) -> Result<TenantDatabases, InfluxError> {
    let timeout_ns = web.service.options.query.timeout_ms.saturating_mul(1_000_000);
    let deadline_ns = web.service.env.clock.mono_ns().saturating_add(timeout_ns);
    let ctx = ReadContext::new(
        web.service.env.clock.clone(),
        deadline_ns,
        MemoryBudget::new("databases", u64::MAX),
    );
    let identity = identity.clone();
    let known = tokio::task::spawn_blocking(move || databases.known(&identity, "", &ctx)).await;
    let known = known.map_err(|error| ApiError::new(ErrorKind::Internal, error))?;
    Ok(known.map_err(ApiError::from)?)
}

impl Caller {
    /// Refuses a read of `database` without the privilege.
    fn check_read(&self, database: &str) -> Result<(), InfluxError> {
        let forbidden = |text: String| Err(InfluxError::new(StatusCode::FORBIDDEN, text));
        match (self, self.user()) {
            (Caller::BeforeFirstAdmin, _) => {
                forbidden(format!("user is required to read from database {database:?}"))
            }
            (_, Some(user)) if !user.may(Privilege::Read, database) => {
                let name = &user.name;
                forbidden(format!("{name:?} user is not authorized to read from database {database:?}"))
            }
            _ => Ok(()),
        }
    }
}
