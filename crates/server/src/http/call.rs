//! A request with its tenant and parameters, whose memory is reserved.
//! Not here: what it asks for; permits (`dispatch`).

use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};
use chronolith_base::Reservation;
use chronolith_model::TenantId;

use super::body;
use super::error::{ApiError, ErrorKind};
use super::params::Params;
use super::request::RequestInfo;
use super::tenant::tenant_of;
use crate::app::App;
use crate::limits::FORM_BYTES_MAX;

/// A request with its parameters read.
pub(super) struct Call {
    pub(super) tenant: TenantId,
    pub(super) params: Params,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) info: RequestInfo,
    /// Memory of the parameters: they wait in the queue with their request.
    _held: Reservation,
}

/// Reads the form (body first, then query string) and the tenant.
pub(super) async fn open(app: &App, request: Request) -> Result<Call, ApiError> {
    let (parts, request_body) = request.into_parts();
    let tenant = tenant_of(app.options.multitenancy, &parts.headers)?;
    let memory_max = app.limits_of(&tenant).queries.memory_bytes_max;
    let memory = app.admission.query_memory.of(&tenant, memory_max);
    let no_memory = |full| ApiError::new(ErrorKind::Unavailable, full);
    let query = parts.uri.query().unwrap_or("");
    let mut held = memory.budget.reserve(query.len() as u64).map_err(no_memory)?;
    let mut params = Params::default();
    if parts.method == Method::POST || parts.method == Method::PUT {
        let kind = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is_form = kind.is_some_and(is_form_type);
        let body = body::read(request_body, FORM_BYTES_MAX, &memory.budget).await?;
        held.grow(body.bytes.len() as u64).map_err(no_memory)?;
        if is_form {
            let text = std::str::from_utf8(&body.bytes);
            params.parse(text.map_err(|_| ApiError::bad_request("form body is not UTF-8"))?)?;
        }
    }
    params.parse(query)?;
    let path = parts.uri.path().to_owned();
    let info = RequestInfo::of(&parts.extensions);
    Ok(Call { tenant, params, method: parts.method, path, info, _held: held })
}

/// Whether a content type, parameters aside, is that of a form.
fn is_form_type(kind: &[u8]) -> bool {
    let name = kind.split(|&byte| byte == b';').next().unwrap_or_default();
    name.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}
