//! Streamed response bodies (remote read, federation): a thread of the query pool encodes parts and sends
//! them through a bounded channel to the connection.
//!
//! Invariants: an error before the first part is a response with its status code; an error or panic after it
//! aborts the connection, so no client takes a part for the whole, unless the last part names the error. The
//! thread stops when the client disconnects or the stream exceeds its time.
//! Not here: content of the parts (`remote_read`, `federate`), permits (`service::admission`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, Response, header};
use chronolith_model::{QueryError, ReadContext};
use chronolith_service::evaluation::run::CallError as _;
use hyper::body::Frame;
// Tokio's `channel` has a limit, unlike the function of the same name in the standard library.
use tokio::sync::mpsc::{self, channel as bounded_channel};
use tokio::time::Instant;

use super::body;
use super::dispatch::{Admitted, CancelOnDrop};
use super::error::{ApiError, ErrorKind};
use crate::limits::STREAM_PARTS_MAX;
use crate::metrics::{Metrics, StreamMetrics};
use crate::web::Web;

/// Properties that all streams of one endpoint share.
#[derive(Clone, Copy)]
pub(super) struct StreamKind {
    /// As logs and errors name it.
    pub(super) name: &'static str,
    pub(super) content_type: &'static str,
    /// Longest a client may take over the whole answer.
    pub(super) timeout: Duration,
    pub(super) metrics: fn(&Metrics) -> &StreamMetrics,
}

impl StreamKind {
    fn bug(&self) -> String {
        format!("internal error: the {} panicked, see the server's log", self.name)
    }
}

/// A message of the printing thread.
#[derive(Debug)]
enum Part {
    Bytes(Bytes),
    /// The response ends with these bytes.
    Last(Bytes),
    /// All parts have been sent.
    End,
    Failed(ApiError),
}

/// Sink of the printing thread for its parts.
pub(super) struct Parts {
    web: Arc<Web>,
    kind: StreamKind,
    sender: mpsc::Sender<Part>,
}

impl Parts {
    /// Hands bytes over; waits while [`STREAM_PARTS_MAX`] parts wait for the client. Their memory is reserved
    /// until they are sent.
    pub(super) fn send(&self, bytes: Vec<u8>, ctx: &ReadContext) -> Result<(), ApiError> {
        ctx.check()?;
        let held = ctx.budget.reserve(bytes.capacity() as u64).map_err(QueryError::from)?;
        (self.kind.metrics)(&self.web.metrics).bytes.add(bytes.len() as u64);
        let sent = self.sender.blocking_send(Part::Bytes(body::held(bytes, held)));
        sent.map_err(|_| ApiError::from(QueryError::Canceled))
    }
}

impl Parts {
    /// Hands over the end of a response whose last part says that it failed. It is sent whatever the state of
    /// the query; a client that has disconnected does not get it.
    pub(super) fn send_last(&self, bytes: Vec<u8>) {
        (self.kind.metrics)(&self.web.metrics).bytes.add(bytes.len() as u64);
        drop(self.sender.blocking_send(Part::Last(Bytes::from(bytes))));
    }
}

/// Answers with the parts that `print` sends, the first of which is there when the answer begins. `print`
/// runs on a thread of queries, with the permits of `admitted`.
pub(super) async fn answer(
    web: &Arc<Web>,
    admitted: Admitted,
    kind: StreamKind,
    print: impl FnOnce(&Web, Admitted, &Parts) -> Result<(), ApiError> + Send + 'static,
) -> Result<Response<Body>, ApiError> {
    let guard = CancelOnDrop::of(admitted.ctx());
    let (sender, mut receiver) = bounded_channel(STREAM_PARTS_MAX);
    let parts = Parts { web: web.clone(), kind, sender };
    let job = move || {
        admitted.ctx().begin_long_work();
        let ctx = admitted.ctx().clone();
        let printed = print(&parts.web, admitted, &parts);
        parts.web.service.count_end(&ctx, printed.as_ref().err().map(|error| error.end()));
        let last = match printed {
            Ok(()) => Part::End,
            Err(error) => Part::Failed(error),
        };
        // The receiver is gone when the client has disconnected; that is no error.
        drop(parts.sender.blocking_send(last));
    };
    let no_thread = |error| ApiError::new(ErrorKind::Unavailable, format_args!("starting a thread: {error}"));
    web.service.threads.start(Box::new(job)).map_err(no_thread)?;
    let first = match receiver.recv().await {
        Some(Part::Bytes(bytes) | Part::Last(bytes)) => Some(bytes),
        Some(Part::End) => None,
        Some(Part::Failed(error)) => return Err(error),
        None => return Err(ApiError::new(ErrorKind::Internal, kind.bug())),
    };
    let is_ended = first.is_none();
    // Timers are the runtime's own business; nothing that is stored depends on them.
    let deadline = Instant::now() + kind.timeout;
    let body = StreamedBody { web: web.clone(), kind, first, receiver, is_ended, deadline, _guard: guard };
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind.content_type));
    Ok(response)
}

struct StreamedBody {
    web: Arc<Web>,
    kind: StreamKind,
    first: Option<Bytes>,
    receiver: mpsc::Receiver<Part>,
    is_ended: bool,
    deadline: Instant,
    /// The thread stops when the body goes.
    _guard: CancelOnDrop,
}

impl StreamedBody {
    /// Ends the connection: the client must not take what it has for the whole.
    fn abort(&mut self, why: &str) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        tracing::warn!(stream = self.kind.name, why, "streamed response aborted");
        self.is_ended = true;
        (self.kind.metrics)(&self.web.metrics).aborted.add(1);
        self.receiver.close();
        Poll::Ready(Some(Err(io::Error::other(why))))
    }
}

impl HttpBody for StreamedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        if Instant::now() >= self.deadline {
            return self.abort("the client reads its response too slowly");
        }
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        match ready!(self.receiver.poll_recv(cx)) {
            Some(Part::Bytes(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Part::Last(bytes)) => {
                self.is_ended = true;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Some(Part::End) => {
                self.is_ended = true;
                Poll::Ready(None)
            }
            Some(Part::Failed(error)) => self.abort(&error.message),
            None => {
                let why = self.kind.bug();
                self.abort(&why)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }
}

impl Drop for StreamedBody {
    fn drop(&mut self) {
        if !self.is_ended {
            (self.kind.metrics)(&self.web.metrics).aborted.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::Fixture;
    use http_body_util::BodyExt as _;

    /// Frames of a body, true for one without an error: a part, then the parts that `end` sends.
    async fn read_to_end(end: impl FnOnce(mpsc::Sender<Part>)) -> Vec<bool> {
        let server = Fixture::ready();
        let ctx = ReadContext::unlimited(server.web.service.env.clock.clone());
        let (sender, receiver) = bounded_channel(STREAM_PARTS_MAX);
        sender.try_send(Part::Bytes(Bytes::from_static(b"frame"))).expect("room");
        end(sender);
        let timeout = Duration::from_secs(60);
        let deadline = Instant::now() + timeout;
        let kind =
            StreamKind { name: "test", content_type: "", timeout, metrics: |metrics| &metrics.federate };
        let _guard = CancelOnDrop::of(&ctx);
        let web = server.web.clone();
        let mut body = StreamedBody { web, kind, first: None, receiver, is_ended: false, deadline, _guard };
        let mut found = Vec::new();
        while let Some(frame) = body.frame().await {
            found.push(frame.is_ok());
        }
        found
    }

    #[tokio::test]
    async fn only_an_end_that_is_sent_ends_the_body() {
        let send = |part: Part| move |sender: mpsc::Sender<Part>| drop(sender.try_send(part));
        assert_eq!(read_to_end(send(Part::End)).await, [true]);
        let failed = Part::Failed(ApiError::new(ErrorKind::Internal, "damaged"));
        assert_eq!(read_to_end(send(failed)).await, [true, false]);
        assert_eq!(read_to_end(drop).await, [true, false], "the thread panicked: the rest is missing");
        let last = Part::Last(Bytes::from_static(b"failed"));
        assert_eq!(read_to_end(send(last)).await, [true, true]);
    }
}
