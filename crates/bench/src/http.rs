//! As much HTTP/1.1 as a load generator needs: keep-alive connections for writes and for many small queries,
//! a short one for each other query. Not here: long chunked answers; queries over short connections are
//! HTTP/1.0, which has none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// Longer than the two minutes after which servers give a query up, so that it is they who say so.
const IO_WAIT: Duration = Duration::from_secs(150);
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Connection that posts bodies.
pub(crate) struct WriteConnection {
    stream: BufReader<TcpStream>,
    head: String,
}

impl WriteConnection {
    /// Connects to `port` of this machine; bodies go to `path`.
    pub(crate) fn open(port: u16, path: &str) -> Result<WriteConnection> {
        WriteConnection::open_as(port, path, "anonymous")
    }

    /// The same for a tenant.
    pub(crate) fn open_as(port: u16, path: &str, tenant: &str) -> Result<WriteConnection> {
        let stream = connect(port)?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/x-protobuf\r\n\
             Content-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\nX-Scope-OrgID: {tenant}\r\n"
        );
        Ok(WriteConnection { stream: BufReader::new(stream), head })
    }

    /// Connects to `port`; bodies go to `path` with `headers`, each of which ends with a line break.
    pub(crate) fn open_with(port: u16, path: &str, headers: &str) -> Result<WriteConnection> {
        let stream = connect(port)?;
        let head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}");
        Ok(WriteConnection { stream: BufReader::new(stream), head })
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
        let (status, len) = self.read_head()?;
        let mut answer = vec![0; len];
        self.stream.read_exact(&mut answer)?;
        Ok((status, String::from_utf8_lossy(&answer).into_owned()))
    }

    fn read_head(&mut self) -> Result<(u16, usize)> {
        let (status, len) = read_head(&mut self.stream)?;
        Ok((status, len.unwrap_or(0)))
    }
}

/// Status and length of an answer, if it says one.
fn read_head(stream: &mut BufReader<TcpStream>) -> Result<(u16, Option<usize>)> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
    let status = status.with_context(|| format!("not an HTTP answer: {line:?}"))?;
    let mut len = None;
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            None => return Ok((status, len)),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                len = Some(value.trim().parse()?);
            }
            Some(_) => {}
        }
    }
}

/// Connection for many queries.
pub(crate) struct QueryConnection {
    stream: BufReader<TcpStream>,
    port: u16,
    tenant: String,
}

impl QueryConnection {
    /// Connects to `port` of this machine.
    pub(crate) fn open(port: u16) -> Result<QueryConnection> {
        QueryConnection::open_as(port, "anonymous")
    }

    /// The same for a tenant.
    pub(crate) fn open_as(port: u16, tenant: &str) -> Result<QueryConnection> {
        Ok(QueryConnection { stream: BufReader::new(connect(port)?), port, tenant: tenant.to_owned() })
    }

    /// Answer to a GET: status and body.
    pub(crate) fn get(&mut self, path: &str) -> Result<(u16, String)> {
        let port = self.port;
        let tenant = &self.tenant;
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Scope-OrgID: {tenant}\r\n\r\n");
        self.stream.get_mut().write_all(head.as_bytes())?;
        let (status, len) = read_head(&mut self.stream)?;
        let mut body = Vec::new();
        match len {
            Some(len) => {
                body.resize(len, 0);
                self.stream.read_exact(&mut body)?;
            }
            None => self.read_chunks(&mut body)?,
        }
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
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
    get(port, &query_path(query, time_ms))
}

/// What an instant query asks for.
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
    let (status, body) = query(port, text, time_ms)?;
    let answer: Value = serde_json::from_str(&body).with_context(|| format!("HTTP {status}: {body:.200}"))?;
    if answer["status"] != "success" {
        bail!("{text}: {body:.300}");
    }
    let number = answer["data"]["result"][0]["value"][1].as_str();
    number.with_context(|| format!("{text}: no result"))?.parse().context("not a number")
}

/// What a range query past the cache of results asks for; `range` as in [`query_range`].
pub(crate) fn range_path(text: &str, range: (i64, i64, i64)) -> String {
    let start_s = range.0 / 1000;
    let end_s = range.1 / 1000;
    let step_s = range.2;
    let query = utf8_percent_encode(text, NON_ALPHANUMERIC);
    format!("/api/v1/query_range?nocache=1&start={start_s}&end={end_s}&step={step_s}&query={query}")
}

/// Answer to a range query; `range` is start and end in milliseconds and the step in seconds.
pub(crate) fn query_range(port: u16, text: &str, range: (i64, i64, i64)) -> Result<(u16, String)> {
    get(port, &range_path(text, range))
}

fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).with_context(|| format!("port {port}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IO_WAIT))?;
    stream.set_write_timeout(Some(IO_WAIT))?;
    Ok(stream)
}
