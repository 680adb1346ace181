//! A body that is sent while it is made: a blocking thread reads, a bounded queue hands parts over, the client takes them.
//!
//! Holds: an error before the first part is an answer with its code; one behind it ends the connection; a thread that
//! dies does too. The thread stops when the client leaves or takes longer than [`ANSWER_TIMEOUT`].
//! Not here: what the parts are (the parent).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, Response, header};
use chronolith_ingest::remote_read::ReadQuery;
use chronolith_model::{ReadContext, TenantId};
use chronolith_tsdb::Tsdb;
use hyper::body::Frame;
// Tokio's `channel` has a limit, unlike that of the same name in the standard library.
use tokio::sync::mpsc::{self, channel as bounded_channel};
use tokio::time::Instant;

use super::{STREAM_CONTENT_TYPE, read_frames, reserve};
use crate::app::App;
use crate::http::body;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::work::{self, CancelOnDrop};
use crate::limits::{ANSWER_TIMEOUT, STREAM_PARTS_MAX};

/// What the reading thread says.
#[derive(Debug)]
enum Part {
    Bytes(Bytes),
    /// All parts have been sent.
    End,
    Failed(ApiError),
}

/// Where the reading thread puts its parts.
pub(super) struct Parts {
    app: Arc<App>,
    sender: mpsc::Sender<Part>,
}

impl Parts {
    /// Hands bytes over; waits while the client has enough of them. Their memory counts until they are sent.
    pub(super) fn send(&self, bytes: Vec<u8>, ctx: &ReadContext) -> Result<(), ApiError> {
        let held = reserve(ctx, bytes.capacity() as u64)?;
        self.app.metrics.remote_read.bytes.add(bytes.len() as u64);
        let sent = self.sender.blocking_send(Part::Bytes(body::held(bytes, held)));
        sent.map_err(|_| ApiError::from(chronolith_model::QueryError::Canceled))
    }
}

/// Answers with frames, the first of which is there when the answer begins.
pub(super) async fn answer(
    app: &Arc<App>,
    tenant: TenantId,
    store: Arc<Tsdb>,
    queries: Vec<ReadQuery>,
) -> Result<Response<Body>, ApiError> {
    let timeout_ms = ANSWER_TIMEOUT.as_secs() * 1000;
    let admitted = work::admit(app, &app.admission.remote_read, &tenant, timeout_ms).await?;
    let guard = CancelOnDrop::of(&admitted.ctx);
    let (sender, mut receiver) = bounded_channel(STREAM_PARTS_MAX);
    let parts = Parts { app: app.clone(), sender };
    let read = move || {
        // All of it, or the closure takes the context alone.
        let admitted = admitted;
        admitted.ctx.begin_long_work();
        let read = read_frames(&parts.app, &*store.queryable(&tenant), &queries, &admitted.ctx, &parts);
        work::count_end(&parts.app, read.as_ref().err());
        let last = match read {
            Ok(()) => Part::End,
            Err(error) => Part::Failed(error),
        };
        // Nobody listens when the client has left, which is no failure of ours.
        drop(parts.sender.blocking_send(last));
    };
    let no_thread = |error| ApiError::new(ErrorKind::Unavailable, format_args!("starting a thread: {error}"));
    app.query_threads.start(Box::new(read)).map_err(no_thread)?;
    let first = match receiver.recv().await {
        Some(Part::Bytes(bytes)) => Some(bytes),
        Some(Part::End) => None,
        Some(Part::Failed(error)) => return Err(error),
        None => return Err(ApiError::new(ErrorKind::Internal, bug())),
    };
    app.metrics.remote_read.streams.add(1);
    let is_ended = first.is_none();
    // Timers are the runtime's own business; nothing that is stored depends on them.
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let body = StreamedBody { app: app.clone(), first, receiver, is_ended, deadline, _guard: guard };
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM_CONTENT_TYPE));
    Ok(response)
}

fn bug() -> &'static str {
    "the remote read failed because of a bug in the server"
}

struct StreamedBody {
    app: Arc<App>,
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
        tracing::warn!(why, "a streamed remote read was cut off");
        self.is_ended = true;
        self.app.metrics.remote_read.aborted.add(1);
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
            return self.abort("the client takes its answer too slowly");
        }
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        match ready!(self.receiver.poll_recv(cx)) {
            Some(Part::Bytes(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Part::End) => {
                self.is_ended = true;
                Poll::Ready(None)
            }
            Some(Part::Failed(error)) => self.abort(&error.message),
            None => self.abort(bug()),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }
}

impl Drop for StreamedBody {
    fn drop(&mut self) {
        if !self.is_ended {
            self.app.metrics.remote_read.aborted.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::Fixture;
    use http_body_util::BodyExt as _;

    /// A body of one part and whatever `end` does.
    async fn read_to_end(end: impl FnOnce(mpsc::Sender<Part>)) -> Vec<bool> {
        let server = Fixture::ready();
        let ctx = ReadContext::unlimited(server.app.env.clock.clone());
        let (sender, receiver) = bounded_channel(STREAM_PARTS_MAX);
        sender.try_send(Part::Bytes(Bytes::from_static(b"frame"))).expect("room");
        end(sender);
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let _guard = CancelOnDrop::of(&ctx);
        let app = server.app.clone();
        let mut body = StreamedBody { app, first: None, receiver, is_ended: false, deadline, _guard };
        let mut found = Vec::new();
        while let Some(frame) = body.frame().await {
            found.push(frame.is_ok());
        }
        found
    }

    #[tokio::test]
    async fn only_an_end_that_is_said_ends_the_body() {
        let say = |part: Part| move |sender: mpsc::Sender<Part>| drop(sender.try_send(part));
        assert_eq!(read_to_end(say(Part::End)).await, [true]);
        let failed = Part::Failed(ApiError::new(ErrorKind::Internal, "damaged"));
        assert_eq!(read_to_end(say(failed)).await, [true, false]);
        assert_eq!(read_to_end(drop).await, [true, false], "the thread died: the rest is missing");
    }
}
