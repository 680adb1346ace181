//! TLS handshake of a connection, with a deadline and within a number of handshakes at the same time.
//!
//! Invariants: a handshake that does not go on holds up no other: each has a task of its own, and the oldest
//! is given up for a new one at the limit.
//! Not here: settings of TLS (`web_config`), requests (`connection`), points (`carbon`).

use std::io;

use rustls::Error as TlsError;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connections::OpenConnection;
use crate::http::request::PeerCertificate;
use crate::limits::TLS_HANDSHAKE_TIMEOUT;
use crate::web_config::{HandshakeFailure, LoadedTls};

/// First byte of a TLS connection: a record of the handshake.
const TLS_HANDSHAKE_RECORD: u8 = 0x16;

/// Answer of the HTTP port to a request without TLS, as Go's server gives it.
pub(super) const HTTP_NOT_TLS: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n\
                         Client sent an HTTP request to an HTTPS server.\n";

/// Connection after its handshake.
pub(super) struct Encrypted {
    pub(super) stream: TlsStream<TcpStream>,
    /// True if the client has chosen HTTP/2.
    pub(super) is_http2: bool,
    /// Certificate of the client, if an authority has signed it.
    pub(super) certificate: Option<PeerCertificate>,
}

/// Runs the handshake of `stream`. A client that does not begin one gets `not_tls`, which may be empty.
pub(super) async fn handshake(
    connection: &OpenConnection,
    stream: TcpStream,
    tls: &LoadedTls,
    not_tls: &[u8],
) -> Result<Encrypted, HandshakeFailure> {
    let _running = connection.begin_handshake();
    let accepted = tokio::select! {
        accepted = timeout(TLS_HANDSHAKE_TIMEOUT, accept(stream, tls, not_tls)) => accepted,
        () = connection.state().evicted() => return Err(HandshakeFailure::Evicted),
    };
    let stream = accepted.unwrap_or(Err(HandshakeFailure::Timeout))?;
    let (_, session) = stream.get_ref();
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session.peer_certificates().filter(|_| tls.verifies_clients());
    let certificate = certificates.and_then(<[_]>::first).and_then(|leaf| PeerCertificate::parse(leaf));
    Ok(Encrypted { stream, is_http2, certificate })
}

async fn accept(
    mut stream: TcpStream,
    tls: &LoadedTls,
    not_tls: &[u8],
) -> Result<TlsStream<TcpStream>, HandshakeFailure> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1..) if first != [TLS_HANDSHAKE_RECORD] => {
            if !not_tls.is_empty() {
                let _ = stream.write_all(not_tls).await;
                let _ = stream.shutdown().await;
            }
            return Err(HandshakeFailure::NotTls);
        }
        Ok(1..) => {}
        _ => return Err(HandshakeFailure::Closed),
    }
    TlsAcceptor::from(tls.config()).accept(stream).await.map_err(|error| reason(&error))
}

fn reason(error: &io::Error) -> HandshakeFailure {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<TlsError>());
    match cause {
        None => HandshakeFailure::Closed,
        Some(TlsError::InvalidCertificate(_) | TlsError::NoCertificatesPresented) => {
            HandshakeFailure::ClientCertificate
        }
        Some(TlsError::PeerIncompatible(_) | TlsError::NoApplicationProtocol) => {
            HandshakeFailure::NothingInCommon
        }
        Some(TlsError::AlertReceived(_)) => HandshakeFailure::RefusedByClient,
        Some(_) => HandshakeFailure::Malformed,
    }
}
