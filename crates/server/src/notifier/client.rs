//! Requests to Alertmanagers: one POST per batch.
//!
//! Invariants: a request ends within its timeout; of a response, a bounded number of bytes is read; redirects
//! are failures.

use std::error::Error;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chronolith_rules::notifier::Failure;
use chronolith_rules::notifier::config::{
    AlertmanagerSet, Auth, HeaderValue as ConfigValue, HttpOptions, Source,
};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::time::timeout;

use super::files::Files;
use super::tls;
use crate::version::VERSION;

/// Bytes of a response's status and headers.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes of a response's body that are read, so that the connection can be used again.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Longest time for a response's body once its status is known.
const BODY_TIME_MAX: Duration = Duration::from_secs(1);
/// Characters of a body that a log line shows.
const SHOWN_CHARS_MAX: usize = 200;
/// A connection without a request is closed after this time.
const IDLE_TIME_MAX: Duration = Duration::from_secs(300);

/// A failed request.
#[derive(Debug)]
pub(super) struct SendError {
    pub(super) failure: Failure,
    pub(super) why: String,
}

/// Client of the Alertmanagers of one entry.
pub(super) struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    headers: HeaderMap,
    timeout: Duration,
}

impl HttpClient {
    /// A client with the options of an entry and the files that they name.
    ///
    /// # Errors
    /// The option that cannot be used, without its value.
    pub(super) fn new(set: &AlertmanagerSet, files: &Files) -> Result<HttpClient, String> {
        let options = &set.http;
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls::client_config(&options.tls, files)?);
        let mut builder = builder.https_or_http();
        if let Some(name) = &options.tls.server_name {
            let name = ServerName::try_from(name.clone());
            let name = name.map_err(|_| "`server_name` is no host name".to_owned())?;
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let connector = match options.http2 {
            true => builder.enable_all_versions().build(),
            false => builder.enable_http1().build(),
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME_MAX)
            .pool_max_idle_per_host(1)
            .http1_max_buf_size(HEADER_BYTES_MAX)
            .http2_max_header_list_size(HEADER_BYTES_MAX as u32)
            .build(connector);
        let timeout = Duration::from_millis(set.timeout_ms);
        Ok(HttpClient { client, headers: headers(options, files)?, timeout })
    }

    /// Sends the body of a batch.
    ///
    /// # Errors
    /// [`SendError`] for everything but a response with a status of 200 to 299.
    pub(super) async fn post(&self, uri: &Uri, body: String) -> Result<(), SendError> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = axum::http::Method::POST;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = self.headers.clone();
        let transient = |why| SendError { failure: Failure::Transient, why };
        let response = match timeout(self.timeout, self.client.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(transient(chain(&error))),
            Err(_) => return Err(transient(format!("no response within {} ms", self.timeout.as_millis()))),
        };
        let status = response.status();
        let shown = timeout(BODY_TIME_MAX, beginning(response.into_body())).await.unwrap_or_default();
        if status.is_success() {
            return Ok(());
        }
        Err(SendError { failure: failure_of(status), why: format!("bad response status {status}{shown}") })
    }
}

/// Errors of the Alertmanager or of a proxy may end; a request that is refused is refused again.
fn failure_of(status: StatusCode) -> Failure {
    let is_transient = status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
    if is_transient { Failure::Transient } else { Failure::Refused }
}

/// Reads a body up to its limit, and returns its beginning for a log line, without control characters.
async fn beginning(mut body: Incoming) -> String {
    let mut bytes: Vec<u8> = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Some(part) = frame.data_ref() else { continue };
        if bytes.len() + part.len() > BODY_BYTES_MAX {
            break;
        }
        bytes.extend_from_slice(part);
    }
    let text = String::from_utf8_lossy(&bytes);
    let shown: String = text.trim().chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
    if shown.is_empty() { shown } else { format!(": {shown}") }
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Headers of each request.
fn headers(options: &HttpOptions, files: &Files) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, value(format!("chronolith/{VERSION}").as_bytes(), "User-Agent")?);
    if let Some(login) = login(&options.auth, files) {
        let mut login = value(&login, "Authorization")?;
        login.set_sensitive(true);
        headers.insert(AUTHORIZATION, login);
    }
    for header in &options.headers {
        let name = HeaderName::try_from(&header.name);
        let name = name.map_err(|_| format!("`http_headers`: {:?} is no name of a header", header.name))?;
        for entry in &header.values {
            let text = match entry {
                ConfigValue::Plain(text) => text.as_bytes(),
                ConfigValue::Hidden(source) => files.header_text(source),
            };
            let mut entry = value(text, &header.name)?;
            entry.set_sensitive(true);
            headers.append(name.clone(), entry);
        }
    }
    Ok(headers)
}

fn value(text: &[u8], name: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_bytes(text).map_err(|_| format!("header {name}: its value has a control character"))
}

/// Value of `Authorization`, if there is a login.
fn login(auth: &Auth, files: &Files) -> Option<Vec<u8>> {
    let text = |source: &Option<Source>| {
        source.as_ref().map_or(&[][..], |source| files.header_text(source)).to_vec()
    };
    match auth {
        Auth::None => None,
        Auth::Basic { user, password } => {
            let login = [text(user), b":".to_vec(), text(password)].concat();
            Some(format!("Basic {}", STANDARD.encode(login)).into_bytes())
        }
        Auth::Token { scheme, credentials } => {
            Some([scheme.as_bytes(), b" ", &text(credentials)].concat().trim_ascii_end().to_vec())
        }
    }
}
