//! A socket with deadlines: idle, headers on their way, answer not taken; encrypted or not.
//! Also gives the parser's own answers a body. Over HTTP/2, headers have no deadline of their own: frames
//! without a request, such as pings, are no start of one, so the deadline of an idle connection holds.
//! Invariants: while a request runs only the reading of its response by the client has a deadline here; its
//! body has its own. The bytes of requests pass unchanged and unread: only hyper frames them.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Duration, Instant, Sleep, sleep};

use super::refusals::Refusal;
use crate::connections::ConnectionState;
use crate::limits::{ANSWER_STALL_TIMEOUT, HEADER_READ_TIMEOUT, KEEP_ALIVE_IDLE_TIMEOUT};
use crate::web::Web;

/// Step that the peer is expected to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Send a request, some time.
    Idle,
    /// Finish the headers that it has started.
    Headers,
    /// Wait: a request is running.
    Busy,
}

pub(super) struct TimedStream<S> {
    stream: S,
    is_http2: bool,
    /// Bytes that a parser has read and left to the next one.
    unread: Bytes,
    state: Arc<ConnectionState>,
    phase: Phase,
    served_before: u64,
    refusal: Option<Refusal>,
    web: Arc<Web>,
    read_deadline: Pin<Box<Sleep>>,
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    pub(super) fn new(stream: S, state: Arc<ConnectionState>, web: Arc<Web>) -> TimedStream<S> {
        TimedStream {
            stream,
            is_http2: false,
            unread: Bytes::new(),
            state,
            phase: Phase::Idle,
            served_before: 0,
            refusal: None,
            web,
            read_deadline: Box::pin(sleep(KEEP_ALIVE_IDLE_TIMEOUT)),
            write_deadline: None,
        }
    }

    /// The same socket with the deadlines of HTTP/2; `unread` is read again.
    pub(super) fn into_http2(mut self, unread: Bytes) -> TimedStream<S> {
        self.is_http2 = true;
        self.unread = unread;
        self.enter(Phase::Idle, KEEP_ALIVE_IDLE_TIMEOUT);
        self
    }

    fn enter(&mut self, phase: Phase, timeout: Duration) {
        self.phase = phase;
        self.read_deadline.as_mut().reset(deadline(timeout));
    }

    /// Ends the phase before a request, also one that began and ended unseen.
    fn note_requests(&mut self) {
        let served = self.state.served();
        if served != self.served_before {
            self.served_before = served;
            self.phase = Phase::Busy;
        }
    }

    /// Counts the written bytes, or lets the deadline run.
    fn after_write(
        &mut self,
        result: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if result.is_ready() {
            self.write_deadline = None;
            self.state.touch();
            if self.phase == Phase::Idle {
                self.enter(Phase::Idle, KEEP_ALIVE_IDLE_TIMEOUT);
            }
            return result;
        }
        let deadline = self.write_deadline.get_or_insert_with(|| Box::pin(sleep(ANSWER_STALL_TIMEOUT)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(timed_out("the client reads no byte of its response")))
    }
}

impl<S: AsyncWrite + Unpin> TimedStream<S> {
    /// Writes a refusal with a body where the parser has written `bytes`, one without; `None` if it has not.
    fn poll_write_refusal(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Option<Poll<io::Result<usize>>> {
        if self.refusal.is_none() && !self.is_http2 && self.phase != Phase::Busy && !self.state.is_busy() {
            self.refusal = Refusal::of(bytes);
            if let Some(refusal) = &self.refusal {
                self.web.note_invalid_request(refusal.status);
            }
        }
        let refusal = self.refusal.as_mut()?;
        Some(refusal.poll_write(Pin::new(&mut self.stream), cx, bytes.len()))
    }
}

fn deadline(timeout: Duration) -> Instant {
    // Timers are the runtime's own business; nothing that is stored depends on them.
    Instant::now() + timeout
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.unread.is_empty() {
            let count = buf.remaining().min(this.unread.len());
            buf.put_slice(&this.unread.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let filled_before = buf.filled().len();
        let result = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.note_requests();
        if result.is_ready() {
            let moved = buf.filled().len() > filled_before;
            if moved && !this.is_http2 && !this.state.is_busy() && this.phase != Phase::Headers {
                this.enter(Phase::Headers, HEADER_READ_TIMEOUT);
            }
            return result;
        }
        if this.state.is_busy() {
            this.phase = Phase::Busy;
            return Poll::Pending;
        }
        if this.phase == Phase::Busy {
            this.enter(Phase::Idle, KEEP_ALIVE_IDLE_TIMEOUT);
        }
        ready!(this.read_deadline.as_mut().poll(cx));
        Poll::Ready(Err(timed_out("no complete request in time")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let result = match this.poll_write_refusal(cx, bytes) {
            Some(result) => result,
            None => Pin::new(&mut this.stream).poll_write(cx, bytes),
        };
        this.after_write(result, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let first = parts.iter().find(|part| !part.is_empty()).map_or(&[][..], |part| part);
        let result = match this.poll_write_refusal(cx, first) {
            Some(result) => result,
            None => Pin::new(&mut this.stream).poll_write_vectored(cx, parts),
        };
        this.after_write(result, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
