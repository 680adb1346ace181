//! HTTP client of one keep-alive connection: requests are sent and answers received apart, so that both
//! servers work on a request at the same time.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Time after which a server counts as hung.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    /// Path and query.
    pub(crate) target: String,
    /// Names and values.
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: Vec<u8>,
}

/// Answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Connection to a port of this machine.
pub(crate) struct Connection {
    port: u16,
    stream: Option<BufReader<TcpStream>>,
}

impl Connection {
    pub(crate) fn new(port: u16) -> Connection {
        Connection { port, stream: None }
    }

    /// Sends a request; the answer has to be received before the next one.
    pub(crate) fn send(&mut self, request: &Request) -> Result<()> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            self.stream = Some(BufReader::new(stream));
        }
        let mut bytes = format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", request.method, request.target);
        for (name, value) in &request.headers {
            let _ = write!(bytes, "{name}: {value}\r\n");
        }
        let _ = write!(bytes, "Content-Length: {}\r\n\r\n", request.body.len());
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(&request.body);
        self.open()?.get_mut().write_all(&bytes)
    }

    /// Receives the answer to the request that was sent.
    pub(crate) fn receive(&mut self) -> Result<Reply> {
        let result = self.receive_head().and_then(|head| {
            let body = self.receive_body(&head)?;
            if head.closes {
                self.stream = None;
            }
            Ok(Reply { status: head.status, content_type: head.content_type, body })
        });
        if result.is_err() {
            self.stream = None;
        }
        result
    }

    fn open(&mut self) -> Result<&mut BufReader<TcpStream>> {
        self.stream.as_mut().ok_or_else(|| Error::other("not connected"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        if self.open()?.read_until(b'\n', &mut line)? == 0 {
            return Err(Error::other("the server closed the connection"));
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    fn receive_head(&mut self) -> Result<Head> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| Error::other(format!("no status in {status_line:?}")))?;
        let mut head = Head { status, content_type: String::new(), length: 0, chunked: false, closes: false };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { return Ok(head) };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.length = value.parse().map_err(Error::other)?,
                "transfer-encoding" => head.chunked = value.eq_ignore_ascii_case("chunked"),
                "connection" => head.closes = value.eq_ignore_ascii_case("close"),
                "content-type" => value.clone_into(&mut head.content_type),
                _ => {}
            }
        }
    }

    fn receive_body(&mut self, head: &Head) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        if !head.chunked {
            body.resize(head.length, 0);
            self.open()?.read_exact(&mut body)?;
            return Ok(body);
        }
        loop {
            let line = self.line()?;
            let length = usize::from_str_radix(&line, 16).map_err(Error::other)?;
            let start = body.len();
            body.resize(start + length, 0);
            self.open()?.read_exact(&mut body[start..])?;
            self.line()?;
            if length == 0 {
                return Ok(body);
            }
        }
    }
}

struct Head {
    status: u16,
    content_type: String,
    length: usize,
    chunked: bool,
    closes: bool,
}

/// Percent-encodes all bytes but letters and digits.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
