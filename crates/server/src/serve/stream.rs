//! A socket with deadlines: idle, headers on their way, answer not taken.
//! Also escapes what clients forget to escape in the first request line.
//! Holds: while a request is at work only the taking of its answer has a deadline here; its body has its own.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, Sleep, sleep};

use super::connections::ConnectionState;
use crate::limits::{
    ANSWER_STALL_TIMEOUT, FIRST_READ_BYTES_MAX, HEADER_READ_TIMEOUT, KEEP_ALIVE_IDLE_TIMEOUT,
};

/// What the peer is expected to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Send a request, some time.
    Idle,
    /// Finish the headers that it has begun.
    Headers,
    /// Wait: a request is at work.
    Busy,
}

/// Where the reader is with the first request line of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstLine {
    /// Before it.
    Ahead,
    /// In it.
    Begun,
    /// Behind it.
    Over,
}

/// Bytes of a percent-escape.
const ESCAPED_BYTES: usize = 3;

/// Copies `raw` and escapes quotes and angle brackets in the first request line. Scripts send them as they are
/// (`curl -g '...?query=up{job="x"}'`), which upstream takes and the parser below refuses. Only the first line
/// of a connection is known to be one without knowing the bodies before it.
fn escape_first_line(mut at: FirstLine, raw: &[u8], out: &mut ReadBuf<'_>) -> FirstLine {
    for (idx, &byte) in raw.iter().enumerate() {
        let escaped = match byte {
            b'\r' | b'\n' if at == FirstLine::Ahead => None,
            b'\n' => {
                out.put_slice(raw.get(idx..).unwrap_or_default());
                return FirstLine::Over;
            }
            b'"' => Some(b"%22"),
            b'<' => Some(b"%3C"),
            b'>' => Some(b"%3E"),
            _ => None,
        };
        if !matches!(byte, b'\r' | b'\n') {
            at = FirstLine::Begun;
        }
        match escaped {
            Some(escaped) => out.put_slice(escaped),
            None => out.put_slice(&[byte]),
        }
    }
    at
}

pub(super) struct TimedStream {
    stream: TcpStream,
    state: Arc<ConnectionState>,
    phase: Phase,
    served_before: u64,
    first_line: FirstLine,
    read_deadline: Pin<Box<Sleep>>,
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl TimedStream {
    pub(super) fn new(stream: TcpStream, state: Arc<ConnectionState>) -> TimedStream {
        TimedStream {
            stream,
            state,
            phase: Phase::Idle,
            served_before: 0,
            first_line: FirstLine::Ahead,
            read_deadline: Box::pin(sleep(KEEP_ALIVE_IDLE_TIMEOUT)),
            write_deadline: None,
        }
    }

    fn enter(&mut self, phase: Phase, timeout: Duration) {
        self.phase = phase;
        self.read_deadline.as_mut().reset(deadline(timeout));
    }

    /// A request that began and ended unseen ends the phase before it, too.
    fn note_requests(&mut self) {
        let served = self.state.served();
        if served != self.served_before {
            self.served_before = served;
            self.phase = Phase::Busy;
        }
    }

    fn poll_read_first_line(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut raw = [0; FIRST_READ_BYTES_MAX];
        let room = (buf.remaining() / ESCAPED_BYTES).min(raw.len());
        let Some(raw) = raw.get_mut(..room).filter(|raw| !raw.is_empty()) else {
            self.first_line = FirstLine::Over;
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        };
        let mut part = ReadBuf::new(raw);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        self.first_line = escape_first_line(self.first_line, part.filled(), buf);
        Poll::Ready(Ok(()))
    }

    /// Counts what was written, or lets the deadline run.
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
        Poll::Ready(Err(timed_out("the client takes no byte of its answer")))
    }
}

fn deadline(timeout: Duration) -> Instant {
    // Timers are the runtime's own business; nothing that is stored depends on them.
    Instant::now() + timeout
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let filled_before = buf.filled().len();
        let result = match this.first_line {
            FirstLine::Over => Pin::new(&mut this.stream).poll_read(cx, buf),
            FirstLine::Ahead | FirstLine::Begun => this.poll_read_first_line(cx, buf),
        };
        this.note_requests();
        if result.is_ready() {
            let moved = buf.filled().len() > filled_before;
            if moved && !this.state.is_busy() && this.phase != Phase::Headers {
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

impl AsyncWrite for TimedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let result = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.after_write(result, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let result = Pin::new(&mut this.stream).poll_write_vectored(cx, parts);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the parts one by one.
    #[track_caller]
    fn check(parts: &[&str], want: &str) {
        let mut space = [0; 1024];
        let mut out = ReadBuf::new(&mut space);
        let mut at = FirstLine::Ahead;
        for part in parts {
            if at == FirstLine::Over {
                out.put_slice(part.as_bytes());
            } else {
                at = escape_first_line(at, part.as_bytes(), &mut out);
            }
        }
        assert_eq!(std::str::from_utf8(out.filled()), Ok(want));
    }

    #[test]
    fn quotes_are_escaped_in_the_first_line_only() {
        let rest = "\r\nX: \"<a>\"\r\n\r\nGET /\"";
        let want = format!("GET /q?a=%22b%22%3C%3E HTTP/1.1{rest}");
        check(&[&format!("GET /q?a=\"b\"<> HTTP/1.1{rest}")], &want);
        check(&["GET /q?a=", "\"b\"", "<> HTTP/1.1", rest], &want);
        check(&["\r\n", "\r\nGET /\" x\n\"", "\""], "\r\n\r\nGET /%22 x\n\"\"");
    }
}
