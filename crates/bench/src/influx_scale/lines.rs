//! Queries of the cases, and the time of their points.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock as _, SystemClock};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::http;

/// Path of a query; times of the answer are nanoseconds.
pub(super) fn query_path(database: &str, statement: &str) -> String {
    let text = utf8_percent_encode(statement, NON_ALPHANUMERIC);
    format!("/query?db={database}&epoch=ns&q={text}")
}

/// Returns the whole answer of a query.
pub(super) fn query(port: u16, database: &str, statement: &str) -> Result<String> {
    let (status, body) = http::get(port, &query_path(database, statement))?;
    ensure!(status == 200 && !body.contains("\"error\""), "{statement}: HTTP {status}: {body:.300}");
    Ok(body)
}

/// Reads an answer of any size without keeping it; returns its bytes and how often `byte` occurs.
pub(super) fn count_byte(port: u16, path: &str, byte: u8) -> Result<(u64, u64)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n").as_bytes())?;
    let mut buffer = vec![0; 1 << 18];
    let mut bytes = 0;
    let mut count = 0;
    loop {
        let len = stream.read(&mut buffer).context("the answer ends early")?;
        let part = &buffer[..len];
        if part.is_empty() {
            return Ok((bytes, count));
        }
        bytes += len as u64;
        count += part.iter().filter(|one| **one == byte).count() as u64;
    }
}

/// Returns the time of day in nanoseconds, exact to a millisecond.
pub(super) fn now_ns() -> i64 {
    SystemClock::new().now_ms() * 1_000_000
}
