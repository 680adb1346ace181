//! One connection: its requests go to the router until its client leaves or it is closed.
//! Not here: deadlines of its socket (`stream`), which connections there are (`connections`).

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::stream::TimedStream;
use crate::connections::{InFlight, OpenConnection};
use crate::http::request::RemoteAddress;
use crate::limits::{HEADER_BYTES_MAX, HEADER_COUNT_MAX};
use crate::web::Web;

/// Serves one connection until its client leaves, its time is over, it is evicted, or the server stops.
pub(super) async fn serve(
    connection: OpenConnection,
    stream: TcpStream,
    web: Arc<Web>,
    router: Router,
    mut closed: watch::Receiver<bool>,
) {
    let state = connection.state().clone();
    let remote = stream.peer_addr().ok().map(RemoteAddress);
    let io = TokioIo::new(TimedStream::new(stream, state.clone(), web));
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        if let Some(remote) = remote {
            request.extensions_mut().insert(remote);
        }
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
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        // The stream below has the deadlines: it tells an idle connection from a slow request.
        .header_read_timeout(None)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADER_COUNT_MAX)
        // Names of headers have no case, but scripts that search them do.
        .title_case_headers(true)
        .serve_connection(io, service);
    tokio::pin!(served);
    let mut stopping = *closed.borrow();
    if stopping {
        served.as_mut().graceful_shutdown();
    }
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = state.evicted() => return,
            _ = closed.changed(), if !stopping => {
                stopping = true;
                served.as_mut().graceful_shutdown();
            }
        }
    }
}

/// RFC 9112 demands this answer to a request of HTTP/1.1 without `Host`.
fn missing_host() -> Response<Body> {
    let mut response = Response::new(Body::from("400 Bad Request: missing required Host header\n"));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}
