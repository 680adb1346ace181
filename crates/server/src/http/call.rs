//! A request with its tenant and parameters, whose memory is reserved. Forms are urlencoded or multipart.
//! Not here: what it asks for; permits (`service::evaluation`).

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use chronolith_base::Reservation;
use chronolith_model::{QueryError, TenantId};
use chronolith_service::access::Identity;

use super::audit_notes::AuditNotes;
use super::body;
use super::compress::{self, Coding};
use super::error::ApiError;
use super::params::Params;
use super::request::RequestInfo;
use super::sender::identity_of;
use crate::limits::FORM_BYTES_MAX;
use crate::web::Web;

/// A request with its parameters read.
pub(super) struct Call {
    pub(super) identity: Identity,
    /// The first tenant of the identity.
    pub(super) tenant: TenantId,
    pub(super) params: Params,
    pub(super) method: Method,
    pub(super) path: String,
    /// Coding of the answer, if it may be large.
    pub(super) coding: Coding,
    pub(super) info: RequestInfo,
    /// Notes for the audit log.
    pub(super) audit: AuditNotes,
    /// Memory of the parameters: they wait in the queue with their request.
    _held: Reservation,
}

/// Reads the form (body first, then query string) and the tenant.
pub(super) async fn open(web: &Web, request: Request) -> Result<Call, ApiError> {
    Ok(read(web, request, BodyUse::Form).await?.0)
}

/// As [`open`], but returns the body as it is, whatever its type: curl calls everything a form.
pub(super) async fn open_with_body(web: &Web, request: Request) -> Result<(Call, Vec<u8>), ApiError> {
    read(web, request, BodyUse::Raw).await
}

/// Content of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyUse {
    /// Parameters, if it has the type of a form.
    Form,
    /// Something else than parameters.
    Raw,
}

async fn read(web: &Web, request: Request, body_use: BodyUse) -> Result<(Call, Vec<u8>), ApiError> {
    let (parts, request_body) = request.into_parts();
    let identity = identity_of(&parts.extensions)?;
    let tenant = identity.tenant().clone();
    let memory_max = web.service.limits_of(&tenant).queries.memory_bytes_max;
    let memory = web.service.admission.query_memory.of(&tenant, memory_max);
    let query = parts.uri.query().unwrap_or("");
    let mut held = memory.budget.reserve(query.len() as u64).map_err(QueryError::from)?;
    let mut params = Params::default();
    let mut rest = Vec::new();
    if parts.method == Method::POST || parts.method == Method::PUT {
        let body = body::read_query(request_body, FORM_BYTES_MAX, &memory.budget).await?;
        held.grow(body.bytes.len() as u64).map_err(QueryError::from)?;
        rest = match body_use {
            BodyUse::Form => read_form(&parts.headers, body.bytes, &mut params).await?,
            BodyUse::Raw => body.bytes,
        };
    }
    params.parse(query)?;
    let audit = AuditNotes::of(&parts.extensions);
    audit.set_parameters(&params);
    let path = parts.uri.path().to_owned();
    let coding = compress::printed_coding(&parts.method, &parts.headers);
    let info = RequestInfo::of(&parts.extensions);
    let method = parts.method;
    Ok((Call { identity, tenant, params, method, path, coding, info, audit, _held: held }, rest))
}

/// Reads the parameters of a body that has the type of a form; returns any other body.
pub(super) async fn read_form(
    headers: &HeaderMap,
    body: Vec<u8>,
    params: &mut Params,
) -> Result<Vec<u8>, ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind.is_some_and(|kind| is_type(kind, b"application/x-www-form-urlencoded")) {
        let text = std::str::from_utf8(&body);
        params.parse(text.map_err(|_| ApiError::bad_request("form body is not UTF-8"))?)?;
        return Ok(Vec::new());
    }
    let Some(kind) = kind.filter(|kind| is_type(kind, b"multipart/form-data")) else { return Ok(body) };
    read_multipart(&String::from_utf8_lossy(kind), body, params).await?;
    Ok(Vec::new())
}

/// Returns true if a content type, parameters aside, is `wanted`.
fn is_type(kind: &[u8], wanted: &[u8]) -> bool {
    let name = kind.split(|&byte| byte == b';').next().unwrap_or_default();
    name.trim_ascii().eq_ignore_ascii_case(wanted)
}

/// Reads the fields of a multipart form, as urllib3 sends it.
async fn read_multipart(kind: &str, bytes: Vec<u8>, params: &mut Params) -> Result<(), ApiError> {
    let wrong = |error: multer::Error| ApiError::bad_request(format_args!("multipart form: {error}"));
    let boundary = multer::parse_boundary(kind).map_err(wrong)?;
    let body = futures_util::stream::once(async { Ok::<_, std::io::Error>(Bytes::from(bytes)) });
    let mut form = multer::Multipart::new(body, boundary);
    while let Some(field) = form.next_field().await.map_err(wrong)? {
        let Some(name) = field.name().map(str::to_owned) else { continue };
        let value = field.bytes().await.map_err(wrong)?;
        let value = String::from_utf8(value.to_vec());
        params.push(name, value.map_err(|_| ApiError::bad_request("form body is not UTF-8"))?)?;
    }
    Ok(())
}
