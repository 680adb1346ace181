//! Writers: each takes the next request, sends it and waits for the answer.
//!
//! Invariants: requests are numbered step after step, so the values of a series are out of order by at most
//! the requests in flight; at a fixed rate the latency counts from the moment at which a request was due,
//! however late a writer was free.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::body::{STEP_NS, Template, Walk};
use super::rows::Row;
use crate::http::WriteConnection;
use crate::proc::{Spent, Stopwatch};
use crate::workers::in_parallel;

/// Failed requests after which a run ends.
const ERROR_COUNT_MAX: u64 = 200;

/// Load of one row.
pub(super) struct Load {
    row: Row,
    walk: Walk,
    templates: Vec<Template>,
    start_ns: i64,
    step_count: usize,
}

/// A finished run.
pub(super) struct Ran {
    server: Spent,
    pub(super) client: Spent,
    pub(super) acked_count: u64,
    pub(super) error_count: u64,
    /// Latency of each request.
    pub(super) ack_ms: Vec<f64>,
}

/// State that the writers of a run share.
struct Shared {
    next: AtomicUsize,
    acked_lines: AtomicU64,
    errors: AtomicU64,
    is_over: AtomicBool,
}

impl Load {
    /// `value_count` is rounded up to whole steps; the last step is a minute before `now_ns`.
    pub(super) fn new(row: &Row, value_count: u64, now_ns: i64) -> Load {
        let per_step = (row.series_count * row.fields.count()) as u64;
        let step_count = value_count.div_ceil(per_step).max(1) as usize;
        let start_ns = (now_ns - 60_000_000_000) / STEP_NS * STEP_NS - step_count as i64 * STEP_NS;
        Load { row: row.clone(), walk: Walk::new(), templates: Template::all(row), start_ns, step_count }
    }

    pub(super) fn step_count(&self) -> usize {
        self.step_count
    }

    /// Time of the last step.
    pub(super) fn end_ns(&self) -> i64 {
        self.start_ns + (self.step_count as i64 - 1) * STEP_NS
    }

    /// Bytes of a line on average.
    pub(super) fn line_bytes(&self) -> f64 {
        let mut body = Vec::new();
        let Some(template) = self.templates.first() else { return f64::NAN };
        template.write(&self.walk, 0, self.start_ns, &mut body);
        body.len() as f64 / template.line_count() as f64
    }

    /// Sends all steps to `path` of the server at `port`, whose process is `pid`.
    pub(super) fn run(&self, port: u16, path: &str, pid: u32) -> Result<Ran> {
        let headers = if self.row.is_gzip { "Content-Encoding: gzip\r\n" } else { "" };
        let open = || WriteConnection::open_with(port, path, headers);
        let connections = (0..self.row.writers).map(|_| open()).collect::<Result<Vec<_>>>()?;
        let shared = Shared {
            next: AtomicUsize::new(0),
            acked_lines: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        };
        let of_client = Stopwatch::of_this_process()?;
        let of_server = Stopwatch::start(pid)?;
        let start = Instant::now();
        let ack_ms = in_parallel(connections, |_, connection| {
            let done = self.write(connection, open, start, &shared);
            done.inspect_err(|_| shared.is_over.store(true, Ordering::Relaxed))
        })?;
        let acked_lines = shared.acked_lines.load(Ordering::Relaxed);
        Ok(Ran {
            server: of_server.spent()?,
            client: of_client.spent()?,
            acked_count: acked_lines * self.row.fields.count() as u64,
            error_count: shared.errors.load(Ordering::Relaxed),
            ack_ms: ack_ms.concat(),
        })
    }

    /// One writer; returns the latency of its requests.
    fn write(
        &self,
        mut connection: WriteConnection,
        open: impl Fn() -> Result<WriteConnection>,
        start: Instant,
        shared: &Shared,
    ) -> Result<Vec<f64>> {
        let mut body = Vec::new();
        let mut packed = Vec::new();
        let mut ack_ms = Vec::new();
        let request_count = self.templates.len() * self.step_count;
        while !shared.is_over.load(Ordering::Relaxed) {
            let number = shared.next.fetch_add(1, Ordering::Relaxed);
            if number >= request_count {
                break;
            }
            let step = number / self.templates.len();
            let template = &self.templates[number % self.templates.len()];
            template.write(&self.walk, step, self.start_ns + step as i64 * STEP_NS, &mut body);
            let bytes = if self.row.is_gzip { gzip(&body, &mut packed)? } else { &body };
            let sent = self.wait_until_due(number, start);
            let answered = connection.send(bytes);
            ack_ms.push(sent.elapsed().as_secs_f64() * 1e3);
            let error = match answered {
                Ok((204 | 200, _)) => {
                    shared.acked_lines.fetch_add(template.line_count() as u64, Ordering::Relaxed);
                    continue;
                }
                Ok((status, text)) => format!("HTTP {status}: {:.200}", text.trim()),
                Err(error) => {
                    connection = open().context("the server is gone")?;
                    format!("{error:#}")
                }
            };
            let error_count = shared.errors.fetch_add(1, Ordering::Relaxed);
            if error_count == 0 {
                eprintln!("first failed request: {error}");
            }
            if error_count >= ERROR_COUNT_MAX {
                shared.is_over.store(true, Ordering::Relaxed);
            }
        }
        Ok(ack_ms)
    }

    /// Returns the moment from which the latency of a request counts.
    fn wait_until_due(&self, number: usize, start: Instant) -> Instant {
        let Some(rate) = self.row.rate else { return Instant::now() };
        let value_count = number * self.row.batch * self.row.fields.count();
        let due = start + Duration::from_secs_f64(value_count as f64 / rate as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    }
}

impl Ran {
    /// Values per second.
    pub(super) fn per_second(&self) -> f64 {
        self.acked_count as f64 / self.server.wall_seconds
    }

    /// Values per CPU second of the server.
    pub(super) fn per_cpu_second(&self) -> f64 {
        self.acked_count as f64 / self.server.cpu.total()
    }
}

fn gzip<'a>(body: &[u8], packed: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    packed.clear();
    let mut encoder = flate2::write::GzEncoder::new(&mut *packed, flate2::Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()?;
    Ok(packed)
}
