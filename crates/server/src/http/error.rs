//! Errors as clients see them: Prometheus's JSON envelope for the API, plain text for writes and pages.
//! Invariants: only this file maps a kind of failure to a status code.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use chronolith_cluster::gateway::{DeletionError, GatewayError, GatewayFault};
use chronolith_model::QueryError;
use chronolith_service::Refusal;
use chronolith_service::admission::AdmissionError;
use chronolith_service::evaluation::records::RecordsError;
use chronolith_service::graphite::GraphiteError;

use crate::http::tenant::TenantError;
use crate::json;
use crate::limits::RETRY_AFTER_SECONDS;

/// Kinds of API errors, named as Prometheus names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    BadRequest,
    Execution,
    Canceled,
    Timeout,
    Internal,
    Unavailable,
    /// Above a rate or a limit that has room again later.
    TooManyRequests {
        retry_after_s: u32,
    },
    TooLarge,
    TooSlow,
    UnsupportedMedia,
    Unauthorized,
    Forbidden,
    NotFound,
    /// Work of this kind runs already.
    Conflict,
    /// A caller that reads blocks of an old catalogue.
    Stale,
    /// A write to a server that has no store.
    ReadOnly,
    /// A part that this build leaves out.
    NotBuilt,
}

impl ErrorKind {
    pub(crate) fn error_type(self) -> &'static str {
        match self {
            ErrorKind::BadRequest | ErrorKind::TooLarge | ErrorKind::TooSlow => "bad_data",
            ErrorKind::UnsupportedMedia | ErrorKind::Unauthorized | ErrorKind::ReadOnly => "bad_data",
            ErrorKind::NotBuilt => "bad_data",
            ErrorKind::Execution => "execution",
            ErrorKind::Canceled => "canceled",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Internal => "internal",
            ErrorKind::Unavailable | ErrorKind::Stale => "unavailable",
            ErrorKind::Forbidden => "forbidden",
            ErrorKind::TooManyRequests { .. } => "too_many_requests",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Conflict => "conflict",
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            ErrorKind::BadRequest => StatusCode::BAD_REQUEST,
            ErrorKind::Execution => StatusCode::UNPROCESSABLE_ENTITY,
            // 499 has no name in the standard; Prometheus answers it when the client has gone.
            ErrorKind::Canceled => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
            ErrorKind::Timeout | ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::TooSlow => StatusCode::REQUEST_TIMEOUT,
            ErrorKind::UnsupportedMedia => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorKind::Unauthorized => StatusCode::UNAUTHORIZED,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Stale => StatusCode::PRECONDITION_FAILED,
            ErrorKind::ReadOnly => StatusCode::METHOD_NOT_ALLOWED,
            ErrorKind::NotBuilt => StatusCode::NOT_IMPLEMENTED,
        }
    }
}

/// A failed API call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl ApiError {
    pub(crate) fn new(kind: ErrorKind, message: impl ToString) -> ApiError {
        ApiError { kind, message: message.to_string() }
    }

    pub(crate) fn bad_request(message: impl ToString) -> ApiError {
        ApiError::new(ErrorKind::BadRequest, message)
    }

    /// `invalid parameter "name": why`
    pub(crate) fn parameter(name: &str, why: impl std::fmt::Display) -> ApiError {
        ApiError::bad_request(format!("invalid parameter {name:?}: {why}"))
    }

    /// The same error as plain text, for endpoints that do not speak the API's JSON.
    pub(crate) fn into_text(self) -> Response<Body> {
        let mut response = text(self.kind.status(), &self.message);
        set_retry_after(self.kind, &mut response);
        note_internal(self, &mut response);
        response
    }
}

/// The message of an internal error, for the log.
#[derive(Debug, Clone)]
pub(crate) struct ErrorText(pub(crate) String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let mut out = Vec::with_capacity(64 + self.message.len());
        json::put_display(&mut out, "{\"status\":\"error\",\"errorType\":");
        json::put_string(&mut out, self.kind.error_type());
        json::put_display(&mut out, ",\"error\":");
        json::put_string(&mut out, &self.message);
        out.push(b'}');
        let mut response = Response::new(Body::from(out));
        *response.status_mut() = self.kind.status();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        set_retry_after(self.kind, &mut response);
        note_internal(self, &mut response);
        response
    }
}

fn note_internal(error: ApiError, response: &mut Response<Body>) {
    if error.kind == ErrorKind::Internal {
        response.extensions_mut().insert(ErrorText(error.message));
    }
}

fn set_retry_after(kind: ErrorKind, response: &mut Response<Body>) {
    let seconds = match kind {
        ErrorKind::Unavailable => RETRY_AFTER_SECONDS,
        ErrorKind::TooManyRequests { retry_after_s } => retry_after_s,
        _ => return,
    };
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
}

/// Plain text with a newline at its end.
pub(crate) fn text(status: StatusCode, message: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{message}\n")));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    if !status.is_success() {
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    response
}

impl From<RecordsError> for ApiError {
    fn from(error: RecordsError) -> ApiError {
        match error {
            RecordsError::Refused(refusal) => refusal.into(),
            RecordsError::Query(error) => error.into(),
        }
    }
}

impl From<TenantError> for ApiError {
    fn from(error: TenantError) -> ApiError {
        let kind = match error {
            TenantError::Missing => ErrorKind::Unauthorized,
            TenantError::Repeated
            | TenantError::Invalid(_)
            | TenantError::NotText
            | TenantError::Several(_) => ErrorKind::BadRequest,
        };
        ApiError::new(kind, error)
    }
}

impl From<AdmissionError> for ApiError {
    fn from(error: AdmissionError) -> ApiError {
        ApiError::new(ErrorKind::Unavailable, error)
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> ApiError {
        let kind = match error {
            // Clients compare these two texts, which Prometheus ends with the stage of the query.
            QueryError::Canceled => return stopped(ErrorKind::Canceled, &error),
            QueryError::Timeout => return stopped(ErrorKind::Timeout, &error),
            QueryError::Memory(_)
            | QueryError::Limit { .. }
            | QueryError::PeerLimit { .. }
            | QueryError::Selection(_) => ErrorKind::Execution,
            QueryError::Corrupt { .. } | QueryError::Io { .. } => ErrorKind::Internal,
            QueryError::Unavailable { .. } => ErrorKind::Unavailable,
        };
        ApiError::new(kind, error)
    }
}

fn stopped(kind: ErrorKind, error: &QueryError) -> ApiError {
    ApiError::new(kind, format_args!("{error} in expression evaluation"))
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        let kind = match refusal {
            Refusal::Starting(_) | Refusal::Stopping | Refusal::Permit(_) | Refusal::Memory(_) => {
                ErrorKind::Unavailable
            }
            Refusal::ReadOnly
            | Refusal::ReadOnlyStore
            | Refusal::Gateway
            | Refusal::NoStore
            | Refusal::Owner
            | Refusal::QueryNode
            | Refusal::Maintenance => ErrorKind::ReadOnly,
            Refusal::Panicked(_) => ErrorKind::Internal,
        };
        ApiError::new(kind, refusal)
    }
}

impl From<&GatewayError> for ApiError {
    fn from(error: &GatewayError) -> ApiError {
        let kind = match error.fault() {
            GatewayFault::Retry => ErrorKind::Unavailable,
            GatewayFault::TooLarge => ErrorKind::TooLarge,
            GatewayFault::Invalid => ErrorKind::BadRequest,
        };
        ApiError::new(kind, error)
    }
}

impl From<&DeletionError> for ApiError {
    fn from(error: &DeletionError) -> ApiError {
        match error {
            DeletionError::Gateway(error) => ApiError::from(error),
            error => ApiError::new(ErrorKind::Unavailable, error),
        }
    }
}

impl From<GraphiteError> for ApiError {
    fn from(error: GraphiteError) -> ApiError {
        match error {
            GraphiteError::Refused(refusal) => refusal.into(),
            GraphiteError::Query(error) => error.into(),
            GraphiteError::Invalid(why) => ApiError::bad_request(why),
            GraphiteError::TooMany(text) => ApiError::new(ErrorKind::Execution, text),
        }
    }
}
