//! Responses of the InfluxDB API: errors as JSON and header, and the mapping of failures to its codes.
//!
//! Invariants: overload is a 503, never a 4xx, because Telegraf drops points on those.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use chronolith_service::Refusal;
use chronolith_service::admission::AdmissionError;

use crate::http::error::{ApiError, ErrorKind, ErrorText};
use crate::http::inflate::InflateError;
use crate::json;

const ERROR_HEADER: HeaderName = HeaderName::from_static("x-influxdb-error");
/// Bytes of an error in the header: longer headers break clients and proxies.
const ERROR_HEADER_BYTES_MAX: usize = 4096;
/// Challenge of a 401.
const CHALLENGE: &str = "Basic realm=\"InfluxDB\"";
/// Text of InfluxDB for a full queue, which clients expect.
const QUEUE_FULL: &str = "request throttled, queue full";
const QUEUE_TIMEOUT: &str = "request throttled, exceeds timeout";

/// A failed call of the InfluxDB API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InfluxError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl From<InflateError> for InfluxError {
    fn from(error: InflateError) -> InfluxError {
        match error {
            InflateError::Memory => InfluxError::no_memory(),
            InflateError::TooLarge => {
                InfluxError::new(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large")
            }
            InflateError::Cut => InfluxError::bad_request("unexpected EOF"),
            InflateError::Invalid(what) => InfluxError::bad_request(format_args!("gzip: {what}")),
        }
    }
}

impl InfluxError {
    pub(crate) fn new(status: StatusCode, message: impl ToString) -> InfluxError {
        InfluxError { status, message: message.to_string() }
    }

    pub(crate) fn bad_request(message: impl ToString) -> InfluxError {
        InfluxError::new(StatusCode::BAD_REQUEST, message)
    }

    /// The memory of writes is used up, also after a wait.
    pub(crate) fn no_memory() -> InfluxError {
        InfluxError::new(StatusCode::SERVICE_UNAVAILABLE, QUEUE_FULL)
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut body = b"{\"error\":".to_vec();
        json::put_string(&mut body, &self.message);
        body.extend_from_slice(b"}\n");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(text) = HeaderValue::from_bytes(&header_text(&self.message)) {
            headers.insert(ERROR_HEADER, text);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        }
        if self.status == StatusCode::INTERNAL_SERVER_ERROR {
            response.extensions_mut().insert(ErrorText(self.message));
        }
        response
    }
}

/// The message as the value of a header: line breaks and other control characters are blanks there.
fn header_text(message: &str) -> Vec<u8> {
    let bytes = message.bytes().take(ERROR_HEADER_BYTES_MAX);
    bytes.map(|byte| if byte < b' ' || byte == 0x7f { b' ' } else { byte }).collect()
}

impl From<Refusal> for InfluxError {
    fn from(refusal: Refusal) -> InfluxError {
        ApiError::from(refusal).into()
    }
}

impl From<ApiError> for InfluxError {
    fn from(error: ApiError) -> InfluxError {
        let status = match error.kind {
            // Senders would take a 429 for a reason to drop the points.
            ErrorKind::TooManyRequests { .. } => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::TooLarge => {
                return InfluxError::new(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large");
            }
            kind => kind.status(),
        };
        InfluxError::new(status, error.message)
    }
}

impl From<AdmissionError> for InfluxError {
    fn from(error: AdmissionError) -> InfluxError {
        let text = match error {
            AdmissionError::QueueFull { .. } => QUEUE_FULL,
            _ => QUEUE_TIMEOUT,
        };
        InfluxError::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }
}
