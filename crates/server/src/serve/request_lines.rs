//! Escapes quotes and angle brackets in request lines: browsers and `curl -g '...?query=up{job="x"}'` send
//! them as they are, Prometheus takes them, and hyper's parser refuses them.
//!
//! Invariants: only request lines change. To know where the next one begins, the framing of each request is
//! followed (`Content-Length`, chunks); where it is not understood, nothing is changed any more on this
//! connection.
//! Not here: whether requests are valid (hyper).

/// A header line is looked at up to here: names and values of framing are shorter.
const HEADER_PREFIX_BYTES_MAX: usize = 128;

/// Part of the request that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before or in a request line; true once its first byte has arrived.
    Line(bool),
    Headers,
    /// Bytes that are left.
    Body(u64),
    ChunkSize,
    /// Bytes that are left, the end of the line included.
    Chunk(u64),
    Trailers,
    /// Nothing is known.
    Lost,
}

/// Framing of the body of the current request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Bytes(u64),
    Chunked,
    Unknown,
}

pub(super) struct RequestLines {
    at: At,
    framing: Framing,
    /// Beginning of the current line of headers, trailers or of a chunk's size.
    line: Vec<u8>,
}

impl RequestLines {
    pub(super) fn new() -> RequestLines {
        RequestLines { at: At::Line(false), framing: Framing::Bytes(0), line: Vec::new() }
    }

    /// Follows `raw`. Returns it with escapes if it needs any.
    pub(super) fn escape(&mut self, raw: &[u8]) -> Option<Vec<u8>> {
        let mut escaped: Option<Vec<u8>> = None;
        let mut idx = 0;
        while let Some(&byte) = raw.get(idx) {
            let len = match self.at {
                At::Body(left) | At::Chunk(left) => {
                    let rest = raw.len() - idx;
                    usize::try_from(left).map_or(rest, |left| left.min(rest))
                }
                At::Lost => raw.len() - idx,
                _ => 1,
            };
            let escape = matches!(self.at, At::Line(_)).then(|| escape_of(byte)).flatten();
            if let Some(escape) = escape {
                let out = escaped.get_or_insert_with(|| raw.get(..idx).unwrap_or_default().to_vec());
                out.extend_from_slice(escape);
            } else if let Some(out) = &mut escaped {
                out.extend_from_slice(raw.get(idx..idx + len).unwrap_or_default());
            }
            self.follow(byte, len as u64);
            idx += len;
        }
        escaped
    }

    /// Moves on by `len` bytes, the first of which is `byte`; more than one only where no byte means
    /// anything.
    fn follow(&mut self, byte: u8, len: u64) {
        self.at = match self.at {
            At::Line(has_begun) => match byte {
                b'\n' if has_begun => {
                    self.framing = Framing::Bytes(0);
                    At::Headers
                }
                b'\r' | b'\n' => self.at,
                _ => At::Line(true),
            },
            At::Body(left) => after_bytes(left - len, At::Line(false), At::Body),
            At::Chunk(left) => after_bytes(left - len, At::ChunkSize, At::Chunk),
            At::Lost => At::Lost,
            At::Headers | At::ChunkSize | At::Trailers if byte != b'\n' => {
                if self.line.len() < HEADER_PREFIX_BYTES_MAX {
                    self.line.push(byte);
                }
                self.at
            }
            At::Headers => self.end_header(),
            At::ChunkSize => self.end_chunk_size(),
            At::Trailers => {
                let is_last = self.line.trim_ascii().is_empty();
                self.line.clear();
                if is_last { At::Line(false) } else { At::Trailers }
            }
        };
    }

    fn end_header(&mut self) -> At {
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii();
        let at = if text.is_empty() {
            match self.framing {
                Framing::Bytes(count) => after_bytes(count, At::Line(false), At::Body),
                Framing::Chunked => At::ChunkSize,
                Framing::Unknown => At::Lost,
            }
        } else {
            self.note_header(text);
            At::Headers
        };
        self.line = line;
        self.line.clear();
        at
    }

    fn note_header(&mut self, line: &[u8]) {
        let mut parts = line.splitn(2, |&byte| byte == b':');
        let name = parts.next().unwrap_or_default();
        let value = parts.next().unwrap_or_default();
        let value = value.trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let count = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            // Chunks win over a length, as in the HTTP parser.
            if self.framing != Framing::Chunked {
                self.framing = count.map_or(Framing::Unknown, Framing::Bytes);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_chunked = value.eq_ignore_ascii_case(b"chunked");
            self.framing = if is_chunked { Framing::Chunked } else { Framing::Unknown };
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.framing = Framing::Unknown;
        }
    }

    fn end_chunk_size(&mut self) -> At {
        let size = self.line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        let size = std::str::from_utf8(size).ok().and_then(|size| u64::from_str_radix(size, 16).ok());
        // The line after a chunk ends with it: its bytes, and CR LF.
        let is_blank = self.line.trim_ascii().is_empty();
        self.line.clear();
        match size {
            Some(0) => At::Trailers,
            Some(size) if size < u64::MAX - 2 => At::Chunk(size + 2),
            _ if is_blank => At::ChunkSize,
            _ => At::Lost,
        }
    }
}

/// Position of the reader when `left` bytes are left: `next` after the last.
fn after_bytes(left: u64, next: At, within: impl Fn(u64) -> At) -> At {
    if left == 0 { next } else { within(left) }
}

fn escape_of(byte: u8) -> Option<&'static [u8]> {
    match byte {
        b'"' => Some(b"%22"),
        b'<' => Some(b"%3C"),
        b'>' => Some(b"%3E"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `sent` in parts of every length from 1 byte to all at once.
    #[track_caller]
    fn check(sent: &str, want: &str) {
        for part_bytes in 1..=sent.len() {
            let mut lines = RequestLines::new();
            let mut got = Vec::new();
            for part in sent.as_bytes().chunks(part_bytes) {
                got.extend(lines.escape(part).unwrap_or_else(|| part.to_vec()));
            }
            assert_eq!(String::from_utf8(got).as_deref(), Ok(want), "in parts of {part_bytes} bytes");
        }
    }

    /// Quotes worked in the first request of a connection only: proxies and browsers keep connections.
    #[test]
    fn quotes_are_escaped_in_every_request_line_of_a_connection_and_nowhere_else() {
        let rest = "HTTP/1.1\r\nX: \"<a>\"\r\n";
        check(
            &format!("GET /q?a=\"b\"<> {rest}\r\nGET /\" {rest}\r\n"),
            &format!("GET /q?a=%22b%22%3C%3E {rest}\r\nGET /%22 {rest}\r\n"),
        );
        check("\r\n\r\nGET /\" x\n\n\nGET /\" x\n\n", "\r\n\r\nGET /%22 x\n\n\nGET /%22 x\n\n");
    }

    #[test]
    fn bodies_pass_whatever_they_hold() {
        let body = "\"\r\n\r\nGET /\" \n";
        let length = format!("Content-length: {}\r\n\r\n{body}", body.len());
        check(
            &format!("POST /\" x\r\n{length}GET /\" x\r\n\r\n"),
            &format!("POST /%22 x\r\n{length}GET /%22 x\r\n\r\n"),
        );
        let chunks = "transfer-encoding: Chunked\r\nContent-Length: 3\r\n\r\n3;e=\"\r\n\"\r\n\r\nA\r\n\"\n\"\n\"\n\"\n\"\n\r\n0\r\nT: \"\r\n\r\n";
        check(
            &format!("POST /\" x\r\n{chunks}GET /\" x\r\n\r\n"),
            &format!("POST /%22 x\r\n{chunks}GET /%22 x\r\n\r\n"),
        );
    }

    #[test]
    fn what_is_not_understood_ends_the_escaping() {
        for header in ["Content-Length: many", "Transfer-Encoding: gzip, chunked", "Upgrade: websocket"] {
            let rest = format!("{header}\r\n\r\n\"GET /\" x\r\n\r\n");
            check(&format!("POST /\" x\r\n{rest}"), &format!("POST /%22 x\r\n{rest}"));
        }
        check(
            "POST / x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\"",
            "POST / x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\"",
        );
    }
}
