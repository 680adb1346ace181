//! Lines of requests in the audit log: the first line of an action before its handler runs, the second one
//! after it, and the line of a query.
//!
//! Invariants: the table of routes decides which operations have lines ([`Audited`]); a line has parameters
//! that the row of the table lists, `u`, `p` and statements of InfluxQL excepted, so it has no credential.
//! Not here: the file and the form of a line (`service::audit`), statements of InfluxQL (`influx::query`).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Extensions, Response};
use axum::middleware::Next;
use chronolith_service::audit::{AuditFailure, AuditOutcome, AuditSubject};
use serde_json::{Map, Value};

use super::audit_notes::{AuditNotes, AuditPoint};
use super::error::{ApiError, ErrorKind, ErrorText};
use super::params::Params;
use super::request::{PeerCertificate, RequestInfo};
use super::routing::{Audited, RequestBody};
use super::sender::Sender;
use super::{body, call};
use crate::limits::FORM_BYTES_MAX;
use crate::web::Web;

/// Status of a request whose client has left, as Prometheus and nginx count it.
const CLIENT_LEFT: u16 = 499;

/// Runs the handler of a request, with the lines that its operation has.
///
/// # Errors
/// The action is refused, because its line cannot be written or its body cannot be read.
pub(super) async fn run(
    web: &Arc<Web>,
    point: &AuditPoint,
    request: Request,
    next: Next,
) -> Result<Response<Body>, ApiError> {
    let log = &web.service.audit;
    match point.audited {
        Audited::Action if log.is_on() => run_action(web, point, request, next).await,
        Audited::Query if log.has_queries() => Ok(run_query(web, point, request, next).await),
        Audited::Action | Audited::Query | Audited::Nothing => Ok(next.run(request).await),
    }
}

async fn run_action(
    web: &Arc<Web>,
    point: &AuditPoint,
    request: Request,
    next: Next,
) -> Result<Response<Body>, ApiError> {
    let notes = AuditNotes::new(point);
    let (mut request, held) = read_target(web, point, &notes, request).await?;
    let subject = AuditSubject { target: notes.target(), ..subject_of_request(&request) };
    begin(web, &subject).await?;
    request.extensions_mut().insert(notes.clone());
    let shared = web.clone();
    let action = async move {
        let response = next.run(request).await;
        drop(held);
        let counts = notes.counts();
        end(&shared, subject, AuditOutcome { counts, ..outcome_of(&response) }).await;
        response
    };
    // A task of its own: a client that leaves must not keep the second line from being written.
    match tokio::spawn(action).await {
        Ok(response) => Ok(response),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => Err(ApiError::new(ErrorKind::Unavailable, error)),
    }
}

/// Writes the first line of an action.
///
/// # Errors
/// The action must not happen.
pub(super) async fn begin(web: &Arc<Web>, subject: &AuditSubject) -> Result<(), ApiError> {
    let shared = web.clone();
    let subject = subject.clone();
    let write = move || shared.service.audit.begin(&shared.service.env, &subject);
    let written = tokio::task::spawn_blocking(write).await;
    let written = written.map_err(|error| ApiError::new(ErrorKind::Unavailable, error))?;
    written.map_err(ApiError::from)
}

/// Writes the second line of an action.
async fn end(web: &Arc<Web>, subject: AuditSubject, outcome: AuditOutcome) {
    let shared = web.clone();
    let write = move || shared.service.audit.end(&shared.service.env, &subject, outcome);
    if let Err(error) = tokio::task::spawn_blocking(write).await {
        tracing::error!(%error, "writing the audit log panicked");
    }
}

impl From<AuditFailure> for ApiError {
    fn from(failure: AuditFailure) -> ApiError {
        ApiError::new(ErrorKind::Unavailable, failure)
    }
}

/// Reads the body of an action for the target of its line, and returns the same request.
async fn read_target(
    web: &Web,
    point: &AuditPoint,
    notes: &AuditNotes,
    request: Request,
) -> Result<(Request, chronolith_base::Reservation), ApiError> {
    let (parts, request_body) = request.into_parts();
    let budget = &web.service.admission.query_memory.of(&chronolith_model::TenantId::anonymous(), 0).budget;
    let read = body::read_waiting(request_body, FORM_BYTES_MAX, budget, Duration::ZERO).await?;
    let mut params = Params::default();
    if point.route.body == RequestBody::Json {
        notes.set_target("body", serde_json::from_slice(&read.bytes).unwrap_or(Value::Null));
    } else {
        // The handler answers to a body that cannot be read.
        let _ = call::read_form(&parts.headers, read.bytes.clone(), &mut params).await;
    }
    let _ = params.parse(parts.uri.query().unwrap_or(""));
    notes.set_parameters(&params);
    Ok((Request::from_parts(parts, Body::from(read.bytes)), read.held))
}

/// Runs a query; its line is written when it has ended, or when its client has left.
async fn run_query(web: &Arc<Web>, point: &AuditPoint, mut request: Request, next: Next) -> Response<Body> {
    let notes = AuditNotes::new(point);
    let mut params = Params::default();
    // The handler answers to parameters that cannot be read.
    let _ = params.parse(request.uri().query().unwrap_or(""));
    notes.set_parameters(&params);
    request.extensions_mut().insert(notes.clone());
    let subject = subject_of_request(&request);
    let mut line = QueryLine { web: web.clone(), subject, notes, outcome: None };
    let response = next.run(request).await;
    line.outcome = Some(outcome_of(&response));
    response
}

/// Line of a query, which is written when it is dropped.
struct QueryLine {
    web: Arc<Web>,
    subject: AuditSubject,
    notes: AuditNotes,
    outcome: Option<AuditOutcome>,
}

impl Drop for QueryLine {
    fn drop(&mut self) {
        // Dropped by the runtime, except when it has ended.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let web = self.web.clone();
        let mut subject = std::mem::take(&mut self.subject);
        subject.target = self.notes.target();
        let left = || AuditOutcome { status: CLIENT_LEFT, ..AuditOutcome::default() };
        let outcome = self.outcome.take().unwrap_or_else(left);
        let outcome = AuditOutcome { counts: self.notes.counts(), ..outcome };
        runtime.spawn_blocking(move || web.service.audit.query(&web.service.env, &subject, outcome));
    }
}

/// Writes the line of a request that access control has refused, at a bounded rate. `user` is the name of a
/// known user whose password was wrong.
pub(super) async fn refused(web: &Arc<Web>, subject: AuditSubject, user: Option<String>, reason: String) {
    let log = &web.service.audit;
    let Some(refused) = log.admit_refused(web.service.env.clock.now_ms()) else { return };
    let shared = web.clone();
    let write = move || {
        let service = &shared.service;
        service.audit.refused(&service.env, &subject, user.as_deref(), &reason, refused);
    };
    if let Err(error) = tokio::task::spawn_blocking(write).await {
        tracing::error!(%error, "writing the audit log panicked");
    }
}

fn outcome_of(response: &Response<Body>) -> AuditOutcome {
    let error = response.extensions().get::<ErrorText>().map(|error| error.0.clone());
    AuditOutcome { status: response.status().as_u16(), error, counts: Map::new() }
}

/// Sender and action of a request.
pub(super) fn subject_of_request(request: &Request) -> AuditSubject {
    subject(request.extensions(), request.method().as_str(), request.uri().path())
}

/// Sender and action of a request.
pub(super) fn subject_of(parts: &Parts) -> AuditSubject {
    subject(&parts.extensions, parts.method.as_str(), parts.uri.path())
}

fn subject(extensions: &Extensions, method: &str, path: &str) -> AuditSubject {
    let info = RequestInfo::of(extensions);
    let sender = extensions.get::<Sender>();
    let identity = sender.and_then(|sender| sender.identity.as_ref().ok());
    AuditSubject {
        request_id: info.id.to_string(),
        principal: sender.map(|sender| sender.principal.name().to_owned()),
        address: info.remote.map(|address| address.to_string()),
        certificate: extensions.get::<PeerCertificate>().map(ToString::to_string),
        tenants: identity.map_or_else(Vec::new, |identity| {
            identity.tenants().iter().map(|tenant| tenant.as_str().to_owned()).collect()
        }),
        action: format!("{method} {path}"),
        target: Map::new(),
    }
}
