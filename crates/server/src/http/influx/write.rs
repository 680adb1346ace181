//! Writes to a database: `POST /write`, `POST /api/v2/write` and `POST /api/v1/prom/write`.
//!
//! Invariants: 204 means that every point is as durable as the sync mode promises; 400 names a cause of
//! points that are not stored while the others are; 5xx means that nothing is acknowledged. A request waits
//! for a permit before its body is read, and for the memory of its columns before it is parsed, so memory
//! does not grow with the number of writers.
//! Not here: what happens with a body (`lines`, `samples`), unpacking (`inflate`).

mod lines;
mod outcome;
mod request;
mod samples;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Response, StatusCode, header};
use chronolith_cluster::gateway::LogOffsets;
use chronolith_ingest::line_protocol::Precision;
use chronolith_model::databases::{Database, RetentionPolicy, TenantCatalog};
use chronolith_model::{ReadContext, TenantId};
use chronolith_service::activity::rejects::WriteSender;
use chronolith_service::evaluation::influxql::databases::Databases;
use chronolith_service::limits::WRITE_QUEUE_WAIT;
use chronolith_service::write::destination::Destination;
use tokio::time::{Duration, Instant};

use self::request::{Api, WriteRequest};
use super::credentials::Caller;
use super::reply::InfluxError;
use crate::http::body::{self, BodyBytes};
use crate::http::error::{ApiError, ErrorKind};
use crate::http::offsets;
use crate::http::params::Params;
use crate::http::request::{RequestId, RequestInfo};
use crate::http::sender::identity_of;
use crate::http::write::admit::{self, BodyLimits, NotAdmitted};
use crate::web::Web;

/// Longest wait of a gateway for the databases of a tenant in the bucket.
const CATALOG_WAIT: Duration = Duration::from_secs(10);

pub(in crate::http) async fn write(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer(&web, Api::V1, request).await
}

pub(in crate::http) async fn write_v2(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer(&web, Api::V2, request).await
}

pub(in crate::http) async fn write_prometheus(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Response<Body> {
    answer(&web, Api::Prometheus, request).await
}

async fn answer(web: &Arc<Web>, api: Api, request: Request) -> Response<Body> {
    match receive(web, api, request).await {
        Ok(offsets) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            offsets::set(&offsets, &mut response);
            response
        }
        Err(error) => error.into_response(),
    }
}

async fn receive(web: &Arc<Web>, api: Api, request: Request) -> Result<LogOffsets, InfluxError> {
    let (parts, request_body) = request.into_parts();
    let checked = check(web, api, &parts).await;
    let (destination, mut request) = match checked {
        Ok(checked) => checked,
        Err(refused) => {
            body::discard(request_body).await;
            return Err(refused);
        }
    };
    let info = RequestInfo::of(&parts.extensions);
    request.sender = info.write_sender(&parts.headers);
    request.id = info.id;
    // Timers are the runtime's own business; nothing that is stored depends on them.
    let deadline = Instant::now() + WRITE_QUEUE_WAIT;
    let memory = web.service.admission.write_memory.of(&request.tenant, 0);
    let bytes_max = match api {
        Api::Prometheus => web.service.options.write.compressed_bytes_max,
        Api::V1 | Api::V2 => web.service.options.influx.body_bytes_max,
    };
    let limits = BodyLimits { bytes_max, budget: &memory.budget, memory_wait: WRITE_QUEUE_WAIT };
    let admitted = admit::admit(web, &request.identity, request_body, limits).await;
    let (mut body, permits) = admitted.map_err(not_admitted)?;
    // Only here: a request in the queue needs no more memory than its bytes as sent.
    reserve_columns(web, &request, &mut body, deadline).await?;
    let shared = web.clone();
    // The thread continues when the client disconnects: the append is completed, and the permits are held
    // until then.
    let done = tokio::task::spawn_blocking(move || match request.api {
        Api::Prometheus => samples::store_body(&shared, &destination, &request, body, permits),
        Api::V1 | Api::V2 => lines::store_body(&shared, &destination, &request, body, permits),
    });
    done.await.unwrap_or_else(|error| {
        tracing::error!(%error, "write to a database panicked");
        let message = "internal error: the write panicked, see the server's log";
        Err(InfluxError::new(StatusCode::INTERNAL_SERVER_ERROR, message))
    })
}

/// The answer to a body that is not admitted. Clients take a 503 of these texts for overload.
fn not_admitted(error: NotAdmitted) -> InfluxError {
    match error {
        NotAdmitted::Permit(error) => error.into(),
        NotAdmitted::Body(error) if error.kind == ErrorKind::Unavailable => InfluxError::no_memory(),
        NotAdmitted::Body(error) => error.into(),
    }
}

/// Reserves what parsing needs beyond the body, as soon as there is room.
async fn reserve_columns(
    web: &Web,
    request: &WriteRequest,
    body: &mut BodyBytes,
    deadline: Instant,
) -> Result<(), InfluxError> {
    let more = match request.api {
        Api::Prometheus => samples::memory_bytes(web, &body.bytes),
        Api::V1 | Api::V2 => lines::memory_bytes(web, request, &body.bytes),
    };
    let grown = body::grow_waiting(&mut body.held, more, deadline).await;
    grown.map_err(|full| match more > full.limit_bytes {
        // A write that can never fit must not be sent again.
        true => InfluxError::new(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"),
        false => InfluxError::no_memory(),
    })
}

/// Checks everything that needs only parameters and headers.
async fn check(web: &Arc<Web>, api: Api, parts: &Parts) -> Result<(Destination, WriteRequest), InfluxError> {
    let mut params = Params::default();
    params.parse(parts.uri.query().unwrap_or(""))?;
    let identity = identity_of(&parts.extensions).map_err(crate::http::error::ApiError::from)?;
    let tenant = identity.tenant().clone();
    let destination = web.service.lifecycle.destination()?;
    let precision = params.get("precision").unwrap_or("");
    let precision = match api {
        Api::V1 => Precision::of_write(precision),
        Api::Prometheus => Precision::of_write(""),
        Api::V2 => Precision::of_write_v2(precision),
    };
    let precision = precision.map_err(InfluxError::bad_request)?;
    // Credentials come first: a client without them does not learn which databases there are.
    let databases = Databases::written_to(&web.service, &destination)?;
    let caller = Caller::of_request(web, &databases, parts, &params).await?;
    let target = Target::of(api, &params)?;
    let catalog = catalog_of(web, &databases, &tenant, &target.database).await?;
    let Some(database) = catalog.database(&target.database) else {
        check_known(&databases, &tenant, &target.database)?;
        return Err(missing_database(web, &target.database));
    };
    caller.check_write(&target.database)?;
    check_consistency(params.get("consistency").unwrap_or(""))?;
    if database.policy(&target.policy).is_none() {
        check_known(&databases, &tenant, &target.policy)?;
    }
    let policy = target.policy(database)?;
    let encoding = parts.headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes());
    let request = WriteRequest {
        identity,
        api,
        tenant,
        target: policy.store.clone(),
        target_id: policy.bucket_id,
        retention_ns: policy.duration_ns,
        precision,
        is_gzip: encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case(b"gzip")),
        sender: WriteSender::default(),
        id: RequestId::Made(0),
    };
    Ok((destination, request))
}

/// Database and retention policy that a request names.
struct Target {
    database: String,
    policy: String,
}

impl Target {
    fn of(api: Api, params: &Params) -> Result<Target, InfluxError> {
        match api {
            Api::V1 | Api::Prometheus => {
                let database =
                    params.get("db").ok_or_else(|| InfluxError::bad_request("database is required"))?;
                Ok(Target {
                    database: database.to_owned(),
                    policy: params.get("rp").unwrap_or("").to_owned(),
                })
            }
            Api::V2 => {
                let bucket = params.get("bucket").unwrap_or("");
                let (database, policy) = bucket.split_once('/').unwrap_or((bucket, ""));
                if database.is_empty() {
                    let reason = match bucket {
                        "" => "is missing a slash; not in \"database/retention-policy\" format",
                        _ => "is in db/rp form but has an empty database",
                    };
                    let text = format!("bucket name {bucket:?} {reason}");
                    return Err(InfluxError::new(StatusCode::NOT_FOUND, text));
                }
                Ok(Target { database: database.to_owned(), policy: policy.to_owned() })
            }
        }
    }

    fn policy<'a>(&self, database: &'a Database) -> Result<&'a RetentionPolicy, InfluxError> {
        database.policy(&self.policy).ok_or_else(|| {
            let name = if self.policy.is_empty() { &database.default_policy } else { &self.policy };
            // InfluxDB answers 500 here, and Telegraf knows the text.
            InfluxError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("retention policy not found: {name}"))
        })
    }
}

fn missing_database(web: &Web, name: &str) -> InfluxError {
    if web.service.options.influx.prometheus_database.as_deref() == Some(name) {
        return InfluxError::new(StatusCode::FORBIDDEN, format!("database {name:?} is read only"));
    }
    InfluxError::new(StatusCode::NOT_FOUND, format!("database not found: {name:?}"))
}

/// Checks the name of a level; there is one copy of the data, so all levels mean the same.
fn check_consistency(level: &str) -> Result<(), InfluxError> {
    match level.to_ascii_lowercase().as_str() {
        "" | "any" | "one" | "quorum" | "all" => Ok(()),
        _ => Err(InfluxError::bad_request("invalid consistency level")),
    }
}

/// Databases of a tenant. On a gateway the first request of a tenant waits for the bucket, and so does one
/// that names a database which may be new.
async fn catalog_of(
    web: &Arc<Web>,
    databases: &Databases,
    tenant: &TenantId,
    database: &str,
) -> Result<Arc<TenantCatalog>, InfluxError> {
    let sources = match databases {
        Databases::Local(store) => {
            return Ok(store.databases().catalog().of(tenant).cloned().unwrap_or_default());
        }
        Databases::Bucket(sources) => sources.clone(),
    };
    let deadline_ns = web.service.env.clock.mono_ns().saturating_add(CATALOG_WAIT.as_nanos() as u64);
    let budget = web.service.admission.write_memory.of(tenant, 0).budget.clone();
    let ctx = ReadContext::new(web.service.env.clock.clone(), deadline_ns, budget);
    let tenant = tenant.clone();
    let database = database.to_owned();
    // At most as many threads as there are connections of tenants that this gateway has not seen.
    let read = tokio::task::spawn_blocking(move || sources.databases_with(&tenant, &database, &ctx)).await;
    let unavailable = |why: String| ApiError::new(ErrorKind::Unavailable, why);
    Ok(read
        .map_err(|error| unavailable(error.to_string()))?
        .map_err(|error| unavailable(error.to_string()))?)
}

/// Refuses a name that is in no catalogue as long as the bucket may have it.
fn check_known(databases: &Databases, tenant: &TenantId, name: &str) -> Result<(), InfluxError> {
    let is_known = match databases {
        Databases::Local(store) => store.databases().are_known(tenant),
        Databases::Bucket(_) => true,
    };
    if is_known {
        return Ok(());
    }
    let text = format!("databases of the bucket are being read, {name:?} may be one of them: try again");
    Err(ApiError::new(ErrorKind::Unavailable, text).into())
}
