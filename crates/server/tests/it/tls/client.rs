//! A client of HTTP/1.1 and HTTP/2, with and without TLS: one connection per request, or one that is kept.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authority::Pair;

/// Longer than any answer takes, so that a hang fails instead of hanging the run.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// Response to a request.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) is_http2: bool,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

/// A client of one server.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    roots: Option<Arc<RootCertStore>>,
    protocols: Vec<Vec<u8>>,
    version: &'static str,
    certificate: Option<(Vec<u8>, String)>,
}

/// A connection that is kept.
pub(super) struct Connection(Mutex<Sender>);

enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// Value of the header `Authorization` for `user:password`.
pub(super) fn basic(user_and_password: &str) -> String {
    format!("Basic {}", STANDARD.encode(user_and_password))
}

impl Client {
    /// A client that trusts an authority.
    pub(super) fn new(address: SocketAddr, authority_pem: &str) -> Client {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(authority_pem.as_bytes()).expect("PEM");
        roots.add(authority).expect("an authority");
        let roots = Some(Arc::new(roots));
        Client { address, roots, protocols: Vec::new(), version: "", certificate: None }
    }

    /// A client without TLS.
    pub(super) fn plain(address: SocketAddr) -> Client {
        Client { address, roots: None, protocols: Vec::new(), version: "", certificate: None }
    }

    pub(super) fn with_alpn(self, protocols: &[&str]) -> Client {
        Client { protocols: protocols.iter().map(|name| name.as_bytes().to_vec()).collect(), ..self }
    }

    /// The same client, which knows one version of TLS: `1.2` or `1.3`.
    pub(super) fn with_version(self, version: &'static str) -> Client {
        Client { version, ..self }
    }

    pub(super) fn with_certificate(self, pair: Option<&Pair>) -> Client {
        let certificate = pair.map(|pair| (pair.certificate_der.clone(), pair.key_pem.clone()));
        Client { certificate, ..self }
    }

    fn config(&self, roots: Arc<RootCertStore>) -> ClientConfig {
        let versions = match self.version {
            "1.2" => vec![&TLS12],
            "1.3" => vec![&TLS13],
            _ => vec![&TLS13, &TLS12],
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&versions)
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from(certificate.clone())];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("they fit")
            }
        };
        config.alpn_protocols = self.protocols.clone();
        config
    }

    async fn encrypted(&self, roots: Arc<RootCertStore>) -> Result<TlsStream<TcpStream>, String> {
        let stream = TcpStream::connect(self.address).await.map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(self.config(roots)));
        let name = ServerName::try_from("localhost").expect("a name");
        connector.connect(name, stream).await.map_err(|error| error.to_string())
    }

    /// Sends bytes on a connection of their own, and waits until the server has ended it.
    pub(super) async fn send_bytes(&self, bytes: &[u8]) -> Result<(), String> {
        let mut stream = self.encrypted(self.roots.clone().expect("a client with TLS")).await?;
        let mut answer = Vec::new();
        let sent = async {
            stream.write_all(bytes).await?;
            stream.shutdown().await?;
            stream.read_to_end(&mut answer).await
        };
        sent.await.map(|_| ()).map_err(|error: std::io::Error| error.to_string())
    }

    /// Certificate that the server presents to a new connection.
    pub(super) async fn presented_certificate(&self) -> Result<Vec<u8>, String> {
        let stream = self.encrypted(self.roots.clone().expect("a client with TLS")).await?;
        let (_, session) = stream.get_ref();
        let certificates = session.peer_certificates().ok_or("no certificate")?;
        Ok(certificates.first().ok_or("no certificate")?.to_vec())
    }

    /// Opens a connection.
    pub(super) async fn connect(&self) -> Result<Connection, String> {
        let sender = match &self.roots {
            None => {
                let stream = TcpStream::connect(self.address).await.map_err(|error| error.to_string())?;
                sender(stream, false).await?
            }
            Some(roots) => {
                let stream = self.encrypted(roots.clone()).await?;
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                sender(stream, is_http2).await?
            }
        };
        Ok(Connection(Mutex::new(sender)))
    }

    /// Sends one request over a connection of its own.
    pub(super) async fn get(&self, path: &str, headers: &[(&str, String)]) -> Result<Reply, String> {
        self.connect().await?.get(path, headers).await
    }

    /// As [`Client::get`] by HTTP/2 without asking the server for it.
    pub(super) async fn get_http2(&self, path: &str, headers: &[(&str, String)]) -> Result<Reply, String> {
        let stream = TcpStream::connect(self.address).await.map_err(|error| error.to_string())?;
        Connection(Mutex::new(sender(stream, true).await?)).get(path, headers).await
    }
}

impl Connection {
    /// Sends a GET.
    pub(super) async fn get(&self, path: &str, headers: &[(&str, String)]) -> Result<Reply, String> {
        self.send("GET", path, headers).await
    }

    /// Sends a request without a body.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
    ) -> Result<Reply, String> {
        let mut sender = self.0.lock().await;
        let is_http2 = matches!(&*sender, Sender::Http2(_));
        let uri = if is_http2 { format!("http://localhost{path}") } else { path.to_owned() };
        let mut request = Request::builder().method(method).uri(uri);
        if !is_http2 {
            request = request.header("host", "localhost");
        }
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Body::empty()).expect("a request");
        let exchange = async {
            let response = match &mut *sender {
                Sender::Http1(sender) => sender.send_request(request).await,
                Sender::Http2(sender) => sender.send_request(request).await,
            };
            let (parts, body) = response.map_err(|error| error.to_string())?.into_parts();
            let body: Bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            let text = String::from_utf8_lossy(&body).into_owned();
            Ok(Reply { status: parts.status.as_u16(), is_http2, headers: parts.headers, text })
        };
        tokio::time::timeout(ANSWER_WAIT, exchange).await.map_err(|_| "no answer".to_owned())?
    }
}

async fn sender<S>(stream: S, is_http2: bool) -> Result<Sender, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    if is_http2 {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), io).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        return Ok(Sender::Http2(sender));
    }
    let (sender, connection) = http1::handshake(io).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(Sender::Http1(sender))
}
