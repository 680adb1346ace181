//! An HTTP proxy that makes a bucket on this machine as far away as one in a data centre: each request waits
//! before it is forwarded, and each connection has a limited bandwidth.
//!
//! Invariants: one request at a time per connection, as HTTP/1.1 clients send them; the time of each request
//! is that from its head to the last byte of its answer. Answers without a length are refused.
//! Not here: faults.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use chronolith_base::thread;

const PIECE_BYTES: usize = 64 << 10;

/// Distance of the bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Distance {
    pub(super) delay: Duration,
    /// Bytes per second of one connection.
    pub(super) bandwidth: f64,
}

/// A request that was answered.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Method, path and range.
    pub(super) what: String,
    pub(super) start: Instant,
    pub(super) end: Instant,
    /// Bytes of the body.
    pub(super) bytes: u64,
}

/// A running proxy; its threads end with the process.
pub(super) struct Proxy {
    pub(super) port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Proxy {
    /// Forwards requests to `target` of this machine.
    pub(super) fn start(target: u16, distance: Distance) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let requests = seen.clone();
        thread::spawn("bench-proxy", move || {
            for client in listener.incoming().flatten() {
                let requests = requests.clone();
                let spawned = thread::spawn("bench-proxy-connection", move || {
                    // A connection that fails is seen by its client.
                    let _ = serve(client, target, distance, &requests);
                });
                drop(spawned);
            }
        })?;
        Ok(Proxy { port, seen })
    }

    /// Returns the requests since the last call, by their start.
    pub(super) fn take(&self) -> Vec<Seen> {
        let mut seen = std::mem::take(&mut *self.seen.lock().expect("the lock is not poisoned"));
        seen.sort_by_key(|request| request.start);
        seen
    }
}

/// Requests by wave: a wave has all requests that start before its first one ends.
pub(super) fn waves(seen: &[Seen]) -> Vec<&[Seen]> {
    let mut waves = Vec::new();
    let mut rest = seen;
    while let Some(first_end) = rest.first().map(|first| first.end) {
        let mut end = first_end;
        let mut count = 0;
        while let Some(request) = rest.get(count).filter(|request| request.start < end) {
            end = end.min(request.end);
            count += 1;
        }
        let (wave, others) = rest.split_at(count);
        waves.push(wave);
        rest = others;
    }
    waves
}

fn serve(client: TcpStream, target: u16, distance: Distance, seen: &Mutex<Vec<Seen>>) -> Result<()> {
    client.set_nodelay(true)?;
    let server = TcpStream::connect(("127.0.0.1", target))?;
    server.set_nodelay(true)?;
    let mut from_client = BufReader::new(client.try_clone()?);
    let mut from_server = BufReader::with_capacity(PIECE_BYTES, server.try_clone()?);
    let mut to_client = client;
    let mut to_server = server;
    loop {
        let Some(request) = read_head(&mut from_client)? else { return Ok(()) };
        let start = Instant::now();
        std::thread::sleep(distance.delay);
        to_server.write_all(request.text.as_bytes())?;
        std::io::copy(&mut (&mut from_client).take(request.body_bytes.unwrap_or(0)), &mut to_server)?;
        let answer = read_head(&mut from_server)?.context("the server closed the connection")?;
        to_client.write_all(answer.text.as_bytes())?;
        let has_body = !request.text.starts_with("HEAD") && !answer.text.contains(" 204 ");
        let bytes = match (has_body, answer.body_bytes) {
            (false, _) => 0,
            (true, Some(bytes)) => bytes,
            (true, None) => bail!("an answer without a length"),
        };
        copy_at(&mut from_server, &mut to_client, bytes, distance.bandwidth)?;
        let done = Seen { what: request.what(), start, end: Instant::now(), bytes };
        seen.lock().expect("the lock is not poisoned").push(done);
    }
}

/// Copies `bytes` bytes, at most `bandwidth` per second.
fn copy_at(from: &mut impl Read, to: &mut impl Write, bytes: u64, bandwidth: f64) -> Result<()> {
    let start = Instant::now();
    let mut piece = vec![0; PIECE_BYTES];
    let mut done = 0u64;
    while done < bytes {
        let len = from.read(&mut piece[..PIECE_BYTES.min((bytes - done) as usize)])?;
        if len == 0 {
            bail!("the body of an answer is cut");
        }
        to.write_all(&piece[..len])?;
        done += len as u64;
        let due = Duration::from_secs_f64(done as f64 / bandwidth);
        if let Some(early) = due.checked_sub(start.elapsed()) {
            std::thread::sleep(early);
        }
    }
    Ok(())
}

/// Head of a request or an answer.
struct Head {
    text: String,
    body_bytes: Option<u64>,
}

impl Head {
    fn what(&self) -> String {
        let mut words = self.text.split(' ');
        let method = words.next().unwrap_or_default();
        let path = words.next().unwrap_or_default();
        let range = self.text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("range").then(|| value.trim().to_owned())
        });
        format!("{method} {path} {}", range.unwrap_or_default())
    }
}

/// Reads up to the empty line; `None` if the connection has ended.
fn read_head(from: &mut impl BufRead) -> Result<Option<Head>> {
    let mut text = String::new();
    let mut body_bytes = None;
    loop {
        let start = text.len();
        if from.read_line(&mut text)? == 0 {
            return Ok(None);
        }
        let line = &text[start..];
        if line == "\r\n" {
            return Ok(Some(Head { text, body_bytes }));
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            body_bytes = Some(value.trim().parse()?);
        }
    }
}
