//! One connection: its requests go to the router until its client leaves or it is closed.
//!
//! Invariants: a client chooses HTTP/2 by ALPN within the TLS handshake, or without TLS by the first bytes
//! (prior knowledge); a connection of HTTP/1.1 pays nothing for that.
//! Not here: deadlines of its socket (`stream`), handshakes (`tls`), which connections there are
//! (`connections`).

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, Uri, Version, header};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::stall::StallWatch;
use super::stream::TimedStream;
use super::tls::{self, Encrypted};
use crate::connections::{ConnectionState, InFlight, OpenConnection};
use crate::http::request::{PeerCertificate, RemoteAddress};
use crate::limits::{
    ANSWER_STALL_TIMEOUT, HEADER_BYTES_MAX, HEADER_COUNT_MAX, HTTP2_ERROR_RESET_COUNT_MAX,
    HTTP2_PENDING_RESET_COUNT_MAX, HTTP2_PING_PAUSE, HTTP2_SEND_BYTES_MAX, HTTP2_STREAM_COUNT_MAX,
    HTTP2_WINDOW_BYTES,
};
use crate::web::Web;

/// First bytes of a connection of HTTP/2.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Client of a connection, in the extensions of its requests.
#[derive(Clone)]
struct Peer {
    remote: Option<RemoteAddress>,
    certificate: Option<PeerCertificate>,
}

/// Parts that serve the requests of one connection.
struct Conversation {
    state: Arc<ConnectionState>,
    peer: Peer,
    allows_http2: bool,
    web: Arc<Web>,
    router: Router,
    closed: watch::Receiver<bool>,
}

/// Serves one connection until its client leaves, its time is over, it is evicted, or the server stops.
pub(super) async fn serve(
    connection: OpenConnection,
    stream: TcpStream,
    web: Arc<Web>,
    router: Router,
    closed: watch::Receiver<bool>,
) {
    let state = connection.state().clone();
    let remote = stream.peer_addr().ok().map(RemoteAddress);
    let in_use = web.web_config().map(|file| (file, file.current()));
    let allows_http2 = in_use.as_ref().is_none_or(|(_, in_use)| in_use.config().http2());
    let tls = in_use.as_ref().and_then(|(file, in_use)| Some((file.handshakes(), in_use.tls()?)));
    let Some((handshakes, tls)) = tls else {
        let peer = Peer { remote, certificate: None };
        let web = web.clone();
        return Conversation { state, peer, allows_http2, web, router, closed }.http1(stream).await;
    };
    let shaken = tls::handshake(&connection, stream, tls, tls::HTTP_NOT_TLS).await;
    let Encrypted { stream, is_http2, certificate } = match shaken {
        Ok(encrypted) => encrypted,
        Err(failure) => {
            handshakes.count_failed(failure);
            tracing::debug!(remote = ?remote, reason = failure.name(), "TLS handshake failed");
            return;
        }
    };
    handshakes.count_done();
    let peer = Peer { remote, certificate };
    let conversation =
        Conversation { state: state.clone(), peer, allows_http2, web: web.clone(), router, closed };
    if is_http2 {
        let stream = TimedStream::new(stream, state, web.clone()).into_http2(Default::default());
        conversation.http2(stream).await;
    } else {
        conversation.http1(stream).await;
    }
}

impl Peer {
    fn note<B>(&self, request: &mut hyper::Request<B>) {
        if let Some(remote) = self.remote {
            request.extensions_mut().insert(remote);
        }
        if let Some(certificate) = &self.certificate {
            request.extensions_mut().insert(certificate.clone());
        }
    }
}

impl Conversation {
    async fn http1<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(mut self, stream: S) {
        let io = TokioIo::new(TimedStream::new(stream, self.state.clone(), self.web.clone()));
        let state = self.state.clone();
        let router = self.router.clone();
        let peer = self.peer.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            peer.note(&mut request);
            let in_flight = InFlight::new(&state);
            let router = router.clone();
            async move {
                let _in_flight = in_flight;
                if request.version() == Version::HTTP_11 && !request.headers().contains_key(header::HOST) {
                    return Ok(missing_host());
                }
                let response = router.oneshot(request.map(Body::new)).await;
                Ok::<_, Infallible>(response.unwrap_or_else(|never| match never {}))
            }
        });
        let mut served = http1::Builder::new()
            .timer(TokioTimer::new())
            // The stream below has the deadlines: it tells an idle connection from a slow request.
            .header_read_timeout(None)
            .max_buf_size(HEADER_BYTES_MAX)
            .max_headers(HEADER_COUNT_MAX)
            // Names of headers have no case, but scripts that search them do.
            .title_case_headers(true)
            .serve_connection(io, service);
        let is_parsed = self.drive(Pin::new(&mut served), http1::Connection::graceful_shutdown).await;
        if is_parsed || !self.allows_http2 || self.state.served() > 0 {
            return;
        }
        // The parser has read the preface of HTTP/2 in place of a request, and left it.
        let parts = served.into_parts();
        if parts.read_buf.starts_with(HTTP2_PREFACE) {
            self.http2(parts.io.into_inner().into_http2(parts.read_buf)).await;
        }
    }

    async fn http2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(mut self, stream: TimedStream<S>) {
        let state = self.state.clone();
        let router = self.router.clone();
        let peer = self.peer.clone();
        let watch = Arc::new(StallWatch::default());
        let watched = watch.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            peer.note(&mut request);
            let in_flight = InFlight::new(&state);
            let router = router.clone();
            let watch = watched.clone();
            async move {
                let response = router.oneshot(as_http1(request).map(Body::new)).await;
                let response = response.unwrap_or_else(|never| match never {});
                Ok::<_, Infallible>(response.map(|body| watch.watch(body, in_flight)))
            }
        });
        let served = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(HTTP2_STREAM_COUNT_MAX)
            .max_pending_accept_reset_streams(HTTP2_PENDING_RESET_COUNT_MAX)
            .max_local_error_reset_streams(HTTP2_ERROR_RESET_COUNT_MAX)
            .max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX))
            .initial_stream_window_size(HTTP2_WINDOW_BYTES)
            .initial_connection_window_size(HTTP2_WINDOW_BYTES)
            .max_send_buf_size(HTTP2_SEND_BYTES_MAX)
            .keep_alive_interval(HTTP2_PING_PAUSE)
            .keep_alive_timeout(ANSWER_STALL_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        let served = pin!(served);
        tokio::select! {
            _ = self.drive(served, http2::Connection::graceful_shutdown) => {}
            () = watch.stalled() => tracing::debug!("connection closed: the client does not read a response"),
        }
    }

    /// Runs a connection to its end. Returns false if it ended by an error of the protocol.
    async fn drive<C: Future<Output = hyper::Result<()>>>(
        &mut self,
        mut served: Pin<&mut C>,
        shut_down: impl Fn(Pin<&mut C>),
    ) -> bool {
        let mut stopping = *self.closed.borrow();
        if stopping {
            shut_down(served.as_mut());
        }
        loop {
            tokio::select! {
                ended = served.as_mut() => {
                    if let Err(error) = &ended {
                        tracing::debug!(%error, "connection ended");
                    }
                    return ended.is_ok();
                }
                () = self.state.evicted() => return true,
                _ = self.closed.changed(), if !stopping => {
                    stopping = true;
                    shut_down(served.as_mut());
                }
            }
        }
    }
}

/// A request of HTTP/2 as handlers know requests: the path alone, and the host in a header.
fn as_http1<B>(mut request: hyper::Request<B>) -> hyper::Request<B> {
    // The authority replaces a header that differs: checks of the host must see what the client asked for.
    if let Some(authority) = request.uri().authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(path);
    }
    request
}

/// RFC 9112 demands this answer to a request of HTTP/1.1 without `Host`.
fn missing_host() -> Response<Body> {
    let mut response = Response::new(Body::from("400 Bad Request: missing required Host header\n"));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers a regression: a header that differs from the authority would have passed the check of hosts in
    /// its place.
    #[test]
    fn the_authority_of_http2_is_the_host_of_a_request() {
        let request = hyper::Request::get("https://evil.example:9595/api/v1/query?query=1");
        let request = as_http1(request.header("host", "good.example").body(()).expect("a request"));
        let hosts: Vec<_> = request.headers().get_all(header::HOST).iter().collect();
        assert_eq!(hosts, ["evil.example:9595"]);
        assert_eq!(request.uri().to_string(), "/api/v1/query?query=1");
    }
}
