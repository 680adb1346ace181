//! HTTP/1.1 client of the load generators: keep-alive connections for writes and queries, short ones of
//! HTTP/1.0 for pages of status.
//!
//! Invariants: queries accept gzip, as Grafana, browsers and Go's clients do, unless a benchmark sets another
//! coding. A response is decompressed only when its text is read, so that a benchmark may do it after the
//! clock stops.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::MultiGzDecoder;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;

/// Longer than the two minutes after which servers give a query up, so that it is they who say so.
const IO_WAIT: Duration = Duration::from_secs(150);
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Path of remote write in all servers.
const WRITE_PATH: &str = "/api/v1/write";
/// Buffer of a connection for queries.
const READ_BYTES: usize = 64 << 10;

/// Bytes of a connection, plain or encrypted.
pub(crate) enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl From<TcpStream> for Wire {
    fn from(stream: TcpStream) -> Wire {
        Wire::Plain(stream)
    }
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.read(buf),
            Wire::Tls(stream) => stream.read(buf),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.write(bytes),
            Wire::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Wire::Plain(stream) => stream.flush(),
            Wire::Tls(stream) => stream.flush(),
        }
    }
}

/// Connection that posts bodies.
pub(crate) struct WriteConnection {
    stream: BufReader<Wire>,
    head: String,
    /// `X-Chronolith-Offsets` of the last answer.
    offsets: String,
}

impl WriteConnection {
    /// Connects to `port` of this machine for remote write.
    pub(crate) fn open(port: u16) -> Result<WriteConnection> {
        WriteConnection::open_as(port, "anonymous")
    }

    /// The same for a tenant.
    pub(crate) fn open_as(port: u16, tenant: &str) -> Result<WriteConnection> {
        Ok(WriteConnection::remote_write_over(connect(port)?.into(), port, tenant))
    }

    /// Remote write for a tenant over a connection that is there.
    pub(crate) fn remote_write_over(stream: Wire, port: u16, tenant: &str) -> WriteConnection {
        let headers = format!(
            "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n\
             X-Prometheus-Remote-Write-Version: 0.1.0\r\nX-Scope-OrgID: {tenant}\r\n"
        );
        WriteConnection::over(stream, port, WRITE_PATH, &headers)
    }

    /// Connects to `port`; bodies go to `path` with `headers`, each of which ends with a line break.
    pub(crate) fn open_with(port: u16, path: &str, headers: &str) -> Result<WriteConnection> {
        Ok(WriteConnection::over(connect(port)?.into(), port, path, headers))
    }

    fn over(stream: Wire, port: u16, path: &str, headers: &str) -> WriteConnection {
        let head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}");
        WriteConnection { stream: BufReader::new(stream), head, offsets: String::new() }
    }

    /// Offsets that the last answer names; empty if it names none.
    pub(crate) fn offsets(&self) -> &str {
        &self.offsets
    }

    /// Sends what follows for `tenant`.
    pub(crate) fn set_tenant(&mut self, tenant: &str) {
        let before = self.head.find("X-Scope-OrgID").unwrap_or(self.head.len());
        self.head.truncate(before);
        self.head.push_str(&format!("X-Scope-OrgID: {tenant}\r\n"));
    }

    /// Sends one body and waits for the answer, which must be 2xx.
    pub(crate) fn post(&mut self, body: &[u8]) -> Result<()> {
        let (status, answer) = self.send(body)?;
        if status / 100 != 2 {
            bail!("HTTP {status}: {}", answer.trim());
        }
        Ok(())
    }

    /// Sends one body: status and text of the answer.
    pub(crate) fn send(&mut self, body: &[u8]) -> Result<(u16, String)> {
        let head = format!("{}Content-Length: {}\r\n\r\n", self.head, body.len());
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        stream.flush()?;
        let (status, len) = self.read_head()?;
        let mut answer = vec![0; len];
        self.stream.read_exact(&mut answer)?;
        Ok((status, String::from_utf8_lossy(&answer).into_owned()))
    }

    fn read_head(&mut self) -> Result<(u16, usize)> {
        let head = read_head(&mut self.stream)?;
        self.offsets = head.offsets;
        Ok((head.status, head.len.unwrap_or(0)))
    }
}

/// The part of a response head that matters here.
struct Head {
    status: u16,
    /// `None` of a response in chunks.
    len: Option<usize>,
    coding: Accept,
    offsets: String,
}

fn read_head(stream: &mut BufReader<Wire>) -> Result<Head> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
    let status = status.with_context(|| format!("not an HTTP answer: {line:?}"))?;
    let mut head = Head { status, len: None, coding: Accept::Plain, offsets: String::new() };
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            None => return Ok(head),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                head.len = Some(value.trim().parse()?);
            }
            Some((name, value)) if name.eq_ignore_ascii_case("content-encoding") => {
                head.coding = Accept::of_answer(value.trim())?;
            }
            Some((name, value)) if name.eq_ignore_ascii_case("x-chronolith-offsets") => {
                value.trim().clone_into(&mut head.offsets);
            }
            Some(_) => {}
        }
    }
}

/// Content coding of an answer; a request accepts one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accept {
    Gzip,
    Zstd,
    Plain,
}

impl Accept {
    fn header(self) -> &'static str {
        match self {
            Accept::Gzip => "Accept-Encoding: gzip\r\n",
            Accept::Zstd => "Accept-Encoding: zstd\r\n",
            Accept::Plain => "",
        }
    }

    /// Value of `Content-Encoding`.
    fn of_answer(value: &str) -> Result<Accept> {
        match value {
            "gzip" => Ok(Accept::Gzip),
            "zstd" => Ok(Accept::Zstd),
            "identity" | "" => Ok(Accept::Plain),
            other => bail!("content encoding {other:?}: expected gzip, zstd or identity"),
        }
    }
}

/// A response as it came over the wire.
pub(crate) struct Received<'a> {
    pub(super) status: u16,
    coding: Accept,
    /// The body without the framing of chunks.
    pub(super) body: &'a [u8],
}

impl Received<'_> {
    pub(crate) fn coding(&self) -> Accept {
        self.coding
    }

    /// The body, decompressed.
    pub(crate) fn text(&self) -> Result<String> {
        let mut text = Vec::new();
        match self.coding {
            Accept::Gzip => {
                MultiGzDecoder::new(self.body)
                    .take(ANSWER_BYTES_MAX)
                    .read_to_end(&mut text)
                    .context("gzip")?;
            }
            Accept::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(self.body).context("zstd")?;
                decoder.take(ANSWER_BYTES_MAX).read_to_end(&mut text).context("zstd")?;
            }
            Accept::Plain => text.extend_from_slice(self.body),
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Connection for many queries.
pub(crate) struct QueryConnection {
    stream: BufReader<Wire>,
    port: u16,
    tenant: String,
    accept: Accept,
    /// Other headers of each request, each with its line break.
    headers: String,
    body: Vec<u8>,
}

impl QueryConnection {
    /// Connects to `port` of this machine.
    pub(crate) fn open(port: u16) -> Result<QueryConnection> {
        QueryConnection::open_as(port, "anonymous")
    }

    /// The same for a tenant.
    pub(crate) fn open_as(port: u16, tenant: &str) -> Result<QueryConnection> {
        Ok(QueryConnection::over(connect(port)?.into(), port, tenant))
    }

    /// The same over a connection that is there.
    pub(crate) fn over(stream: Wire, port: u16, tenant: &str) -> QueryConnection {
        let stream = BufReader::with_capacity(READ_BYTES, stream);
        let tenant = tenant.to_owned();
        QueryConnection {
            stream,
            port,
            tenant,
            accept: Accept::Gzip,
            headers: String::new(),
            body: Vec::new(),
        }
    }

    pub(crate) fn accept(&self) -> Accept {
        self.accept
    }

    /// Accepts `accept` from the next request on.
    pub(crate) fn set_accept(&mut self, accept: Accept) {
        self.accept = accept;
    }

    /// Waits in each request from the next one on for these offsets of the log.
    pub(crate) fn set_min_offsets(&mut self, offsets: &str) {
        self.headers = format!("X-Chronolith-Min-Offsets: {offsets}\r\n");
    }

    /// Waits in each request from the next one on for the ends of the log.
    pub(crate) fn set_strong(&mut self) {
        "X-Chronolith-Read-Consistency: strong\r\n".clone_into(&mut self.headers);
    }

    /// Answer to a GET: status and decompressed body.
    pub(crate) fn get(&mut self, path: &str) -> Result<(u16, String)> {
        let received = self.fetch(path)?;
        Ok((received.status, received.text()?))
    }

    /// Response to a GET, as it comes.
    pub(crate) fn fetch(&mut self, path: &str) -> Result<Received<'_>> {
        let port = self.port;
        let tenant = &self.tenant;
        let accept = self.accept.header();
        let headers = &self.headers;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Scope-OrgID: {tenant}\r\n{accept}{headers}\r\n"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.stream.get_mut().flush()?;
        let head = read_head(&mut self.stream)?;
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        match head.len {
            Some(len) => {
                body.resize(len, 0);
                self.stream.read_exact(&mut body)?;
            }
            None => self.read_chunks(&mut body)?,
        }
        self.body = body;
        Ok(Received { status: head.status, coding: head.coding, body: &self.body })
    }

    fn read_chunks(&mut self, body: &mut Vec<u8>) -> Result<()> {
        let mut line = String::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let len = usize::from_str_radix(line.trim_end(), 16)
                .with_context(|| format!("not the length of a chunk: {line:?}"))?;
            let start = body.len();
            body.resize(start + len, 0);
            self.stream.read_exact(&mut body[start..])?;
            line.clear();
            self.stream.read_line(&mut line)?;
            if len == 0 {
                return Ok(());
            }
        }
    }
}

/// Answer to a GET: status and body.
pub(crate) fn get(port: u16, path: &str) -> Result<(u16, String)> {
    get_with(port, path, "")
}

/// Answer to a GET of `tenant`.
pub(crate) fn get_of(port: u16, path: &str, tenant: &str) -> Result<(u16, String)> {
    get_with(port, path, &format!("X-Scope-OrgID: {tenant}\r\n"))
}

fn get_with(port: u16, path: &str, headers: &str) -> Result<(u16, String)> {
    let mut stream = connect(port)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").context("not an HTTP answer")?;
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).context("no HTTP status")?;
    Ok((status, body.to_owned()))
}

/// Answer to an instant query: status and body.
pub(crate) fn query(port: u16, query: &str, time_ms: i64) -> Result<(u16, String)> {
    QueryConnection::open(port)?.get(&query_path(query, time_ms))
}

/// JSON of a successful answer.
pub(crate) fn ok(answer: (u16, String)) -> Result<Value> {
    let (status, body) = answer;
    ensure!(status == 200, "HTTP {status}: {body:.300}");
    serde_json::from_str(&body).with_context(|| format!("no JSON: {body:.200}"))
}

/// Path and parameters of an instant query.
pub(crate) fn query_path(query: &str, time_ms: i64) -> String {
    let seconds = time_ms / 1000;
    let ms = time_ms % 1000;
    format!(
        "/api/v1/query?nocache=1&time={seconds}.{ms:03}&query={}",
        utf8_percent_encode(query, NON_ALPHANUMERIC)
    )
}

/// Value of an instant query that yields one number.
pub(crate) fn query_number(port: u16, text: &str, time_ms: i64) -> Result<f64> {
    let answer = query(port, text, time_ms)?;
    number_of(answer.0, &answer.1).with_context(|| text.to_owned())
}

/// The number that the answer of an instant query has.
pub(crate) fn number_of(status: u16, body: &str) -> Result<f64> {
    let answer: Value = serde_json::from_str(body).with_context(|| format!("HTTP {status}: {body:.200}"))?;
    ensure!(answer["status"] == "success", "HTTP {status}: {body:.300}");
    let number = answer["data"]["result"][0]["value"][1].as_str();
    number.context("no result")?.parse().context("not a number")
}

/// Path and parameters of a range query past the cache of results; `range` as in [`query_range`].
pub(crate) fn range_path(text: &str, range: (i64, i64, i64)) -> String {
    let start_s = range.0 / 1000;
    let end_s = range.1 / 1000;
    let step_s = range.2;
    let query = utf8_percent_encode(text, NON_ALPHANUMERIC);
    format!("/api/v1/query_range?nocache=1&start={start_s}&end={end_s}&step={step_s}&query={query}")
}

/// Answer to a range query; `range` is start and end in milliseconds and the step in seconds.
pub(crate) fn query_range(port: u16, text: &str, range: (i64, i64, i64)) -> Result<(u16, String)> {
    QueryConnection::open(port)?.get(&range_path(text, range))
}

/// Returns a loopback port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Connects to `port` of this machine.
pub(crate) fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).with_context(|| format!("port {port}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IO_WAIT))?;
    stream.set_write_timeout(Some(IO_WAIT))?;
    Ok(stream)
}

#[cfg(test)]
mod tests;
