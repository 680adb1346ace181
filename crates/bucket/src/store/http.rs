//! HTTP connector that turns error statuses into [`StatusError`], which `store::retry` can classify.
//!
//! `object_store` keeps the status of a refused request private. Statuses that it maps to error kinds of its
//! own (401, 403, 404, 409, 412) pass unchanged.

use std::fmt;

use async_trait::async_trait;
use http::StatusCode;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

/// Bytes of an error answer that are kept for the message.
const ERROR_BODY_BYTES_MAX: usize = 512;

/// The storage answered with an error status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatusError {
    /// From 400 to 599.
    pub(crate) status: u16,
    /// Start of the answer's body.
    pub(crate) body: String,
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP status {}", self.status)?;
        if self.body.is_empty() { Ok(()) } else { write!(f, ": {}", self.body) }
    }
}

impl std::error::Error for StatusError {}

/// Connector of all remote stores.
#[derive(Debug, Default)]
pub(crate) struct StatusConnector;

impl HttpConnector for StatusConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(StatusService(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct StatusService(HttpClient);

#[async_trait]
impl HttpService for StatusService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.execute(request).await?;
        let status = response.status();
        if !(status.is_client_error() || status.is_server_error()) || is_mapped(status) {
            return Ok(response);
        }
        // The status decides; a body that cannot be read costs the message only.
        let body = response.into_body().bytes().await.unwrap_or_default();
        let shown = body.get(..body.len().min(ERROR_BODY_BYTES_MAX)).unwrap_or_default();
        let body = String::from_utf8_lossy(shown).into_owned();
        Err(HttpError::new(HttpErrorKind::Unknown, StatusError { status: status.as_u16(), body }))
    }
}

/// Returns true if `object_store` has an error kind for the status.
fn is_mapped(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::CONFLICT
            | StatusCode::PRECONDITION_FAILED
    )
}
