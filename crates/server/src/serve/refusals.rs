//! Responses of the HTTP parser itself (400, 414, 431): it writes them without a body and without a log line.
//! Invariants: only an answer to a request that no handler has seen is replaced; the connection is closed
//! after it, as it says.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use crate::json;

/// First bytes of an answer of the parser.
const VERSION: &[u8] = b"HTTP/1.1 ";

/// The parser does not report which byte it refused. A URL with raw quotes is the most frequent cause:
/// `curl -g` sends them as they are.
const MALFORMED: &str = "malformed HTTP/1.1 request; a URL has quotes, angle brackets and spaces \
                         percent-encoded: %22, %3C, %3E, %20 (curl -G --data-urlencode 'query=...')";

/// An answer with a body in place of one without.
pub(super) struct Refusal {
    pub(super) status: u16,
    bytes: Vec<u8>,
    written: usize,
}

impl Refusal {
    /// The answer for `head` if that is one of the parser's own.
    pub(super) fn of(head: &[u8]) -> Option<Refusal> {
        let status = head.strip_prefix(VERSION)?.get(..3)?;
        let (status, reason, why) = match status {
            b"400" => (400, "Bad Request", MALFORMED),
            b"414" => {
                (414, "URI Too Long", "URL is longer than 64 KiB, send the parameters as a form with POST")
            }
            b"431" => (431, "Request Header Fields Too Large", "too many or too long request headers"),
            _ => return None,
        };
        let text = std::str::from_utf8(head).ok()?.to_ascii_lowercase();
        // Handlers give every error a text.
        let is_empty = text.ends_with("\r\n\r\n") && text.contains("\r\ncontent-length: 0\r\n");
        if !is_empty {
            return None;
        }
        let mut body = Vec::new();
        json::put_display(&mut body, "{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":");
        json::put_string(&mut body, why);
        body.push(b'}');
        let mut bytes = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(&body);
        Some(Refusal { status, bytes, written: 0 })
    }

    /// Writes the bytes that are left; ready with `replaced` when all are written.
    pub(super) fn poll_write(
        &mut self,
        mut stream: Pin<&mut impl AsyncWrite>,
        cx: &mut Context<'_>,
        replaced: usize,
    ) -> Poll<io::Result<usize>> {
        while let Some(rest) = self.bytes.get(self.written..).filter(|rest| !rest.is_empty()) {
            let count = ready!(stream.as_mut().poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        Poll::Ready(Ok(replaced))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_handlers_are_left_alone() {
        let head = |status: &str, length: u32| {
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n").into_bytes()
        };
        let replaced = Refusal::of(&head("400 Bad Request", 0)).expect("the parser's");
        let text = String::from_utf8(replaced.bytes).expect("text");
        assert!(
            text.contains("\r\n\r\n{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":\""),
            "{text}"
        );
        assert!(Refusal::of(&head("414 URI Too Long", 0)).is_some());
        for other in
            [head("400 Bad Request", 5), head("200 OK", 0), head("404 Not Found", 0), b"HTTP".to_vec()]
        {
            assert!(Refusal::of(&other).is_none(), "{}", String::from_utf8_lossy(&other));
        }
    }
}
