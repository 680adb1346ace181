//! HTTP client of the nodes of a cluster: connections that are kept, TLS, the token.
//!
//! Invariants: a request goes to the node that it names alone, without proxies and redirects; of a response
//! with another status than 200, a bounded part is read; no error has the token.
//! Not here: which nodes there are (`cluster`), bytes of calls (`tsdb`).

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{AUTHORIZATION, USER_AGENT};
use axum::http::{HeaderValue, Method, Request, StatusCode, Uri};
use chronolith_base::Disk;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use super::token::NodeToken;
use crate::options::NodeOptions;
use crate::version::VERSION;

/// Longest time until a connection is made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection without a call is closed after this time, before the other node closes it.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Connections per node that are kept.
const IDLE_COUNT_MAX: usize = 32;
/// Bytes of a connection that are read before a call takes them.
pub(super) const RECEIVE_BYTES_MAX: usize = 256 << 10;
/// Bytes of a refusal that are read, and its longest time.
const REFUSAL_BYTES_MAX: usize = 16 << 10;
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);
/// Characters of a refusal in an error.
const SHOWN_CHARS_MAX: usize = 300;

/// Call without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallError {
    pub(super) why: String,
    /// True if the node refuses the catalogue of the caller as too old.
    pub(super) is_stale: bool,
}

impl From<String> for CallError {
    fn from(why: String) -> CallError {
        CallError { why, is_stale: false }
    }
}

/// Client of all nodes.
pub(crate) struct NodeClient {
    current: RwLock<Arc<Connections>>,
}

/// Connections with the authorities and the token of the last reload.
struct Connections {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    scheme: &'static str,
    authorization: HeaderValue,
}

impl NodeClient {
    /// A client with the authorities that `options` name. Sends no request.
    ///
    /// # Errors
    /// The text names the setting that cannot be used.
    pub(crate) fn new(
        options: &NodeOptions,
        token: &NodeToken,
        disk: &dyn Disk,
    ) -> Result<NodeClient, String> {
        let connections = Connections::new(options, token, disk)?;
        Ok(NodeClient { current: RwLock::new(Arc::new(connections)) })
    }

    /// Uses other authorities and another token for later calls, over connections of their own; calls that
    /// run end over the ones before. Sends no request.
    ///
    /// # Errors
    /// As [`NodeClient::new`]; those before stay in use.
    pub(crate) fn replace(
        &self,
        options: &NodeOptions,
        token: &NodeToken,
        disk: &dyn Disk,
    ) -> Result<(), String> {
        let connections = Arc::new(Connections::new(options, token, disk)?);
        *self.current.write() = connections;
        Ok(())
    }

    /// Sends a request to the node at `address`, `HOST:PORT`; returns the body of a response with status 200.
    ///
    /// # Errors
    /// [`CallError`], without the address.
    pub(super) async fn send(
        &self,
        method: Method,
        address: &str,
        path: &str,
        body: Bytes,
    ) -> Result<Incoming, CallError> {
        let connections = self.current.read().clone();
        connections.send(method, address, path, body).await
    }
}

impl Connections {
    fn new(options: &NodeOptions, token: &NodeToken, disk: &dyn Disk) -> Result<Connections, String> {
        let roots = options.ca_file.as_deref().map(|path| authorities(path, disk)).transpose()?;
        let scheme = if roots.is_some() { "https" } else { "http" };
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS of calls between nodes: {error}"))?
            .with_root_certificates(roots.unwrap_or_else(RootCertStore::empty))
            .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        let builder = match &options.server_name {
            Some(name) => {
                let name = ServerName::try_from(name.clone());
                let name = name.map_err(|_| "cluster.node-server-name: expected a host name".to_owned())?;
                builder.with_server_name_resolver(FixedServerNameResolver::new(name))
            }
            None => builder,
        };
        // A connection per answer: a slow reader of one answer delays no other.
        let connector = builder.enable_http1().wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME_MAX)
            .pool_max_idle_per_host(IDLE_COUNT_MAX)
            .http1_max_buf_size(RECEIVE_BYTES_MAX)
            .build(connector);
        Ok(Connections { client, scheme, authorization: token.header() })
    }

    async fn send(
        &self,
        method: Method,
        address: &str,
        path: &str,
        body: Bytes,
    ) -> Result<Incoming, CallError> {
        let uri = Uri::try_from(format!("{}://{address}{path}", self.scheme));
        let uri = uri.map_err(|_| format!("{address:?} is no address of a node: expected HOST:PORT"))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.authorization.clone());
        if let Ok(agent) = HeaderValue::from_str(&format!("chronolith/{VERSION}")) {
            headers.insert(USER_AGENT, agent);
        }
        let response = self.client.request(request).await.map_err(|error| reason(&error))?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response.into_body());
        }
        let read = timeout(REFUSAL_TIME_MAX, beginning(response.into_body())).await;
        let why = format!("status {}{}", status.as_u16(), read.unwrap_or_default());
        Err(CallError { why, is_stale: status == StatusCode::PRECONDITION_FAILED })
    }
}

/// Reads a refusal up to its limit, and returns its beginning for an error, without control characters.
async fn beginning(mut body: Incoming) -> String {
    let mut bytes: Vec<u8> = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Some(part) = frame.data_ref() else { continue };
        if bytes.len().saturating_add(part.len()) > REFUSAL_BYTES_MAX {
            break;
        }
        bytes.extend_from_slice(part);
    }
    let text = String::from_utf8_lossy(&bytes);
    let shown: String = text.trim().chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
    if shown.is_empty() { shown } else { format!(": {shown}") }
}

/// Returns the first cause, such as a refused connection: the layers above add their names alone.
pub(super) fn reason(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Authorities in a file.
fn authorities(path: &Path, disk: &dyn Disk) -> Result<RootCertStore, String> {
    let failed = |why: String| format!("cluster.node-ca-file: {}: {why}", path.display());
    let pem = disk.read(path).map_err(|error| failed(error.to_string()))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        store.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if store.is_empty() {
        return Err(failed("expected certificates in PEM".to_owned()));
    }
    Ok(store)
}
