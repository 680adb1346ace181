//! Asks a server one shape several times, compressed and plain in alternation: time, CPU and memory of each.
//! Invariants: the first round warms up, and its answer is checked; result caches are bypassed; no response
//! is decompressed while the clock runs.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::compare::Answer;
use super::shapes::Ask;
use crate::http::{self, Accept, QueryConnection, Received};
use crate::latency::median;
use crate::proc::{self, Stopwatch};
use crate::report::MIB;
use crate::server::Server;

/// A slow shape is not timed again after this: one figure of it says enough.
const ROUNDS_WAIT: Duration = Duration::from_secs(40);

/// Cost of one shape in one server.
#[derive(Debug, Clone)]
pub(super) struct Cost {
    /// Median of all rounds, with gzip.
    pub(super) wall_ms: f64,
    /// Median of the server's CPU time, with gzip.
    pub(super) cpu_ms: f64,
    /// Median of all rounds without compression; NaN for queries asked just once.
    pub(super) plain_ms: f64,
    /// The most resident memory grew while a query ran.
    pub(super) memory_mib: f64,
    /// The most memory that was resident while a query ran.
    pub(super) resident_mib: f64,
}

/// Runs `ask` once to warm up and `rounds` times in each coding for the figures; what must be fresh just
/// once.
pub(super) fn measure(server: &Server, ask: &Ask, rounds: usize) -> Result<(Cost, Answer)> {
    let mut figures = Figures::default();
    if let Ask::Fresh(asks) = ask {
        let mut all = Answer::default();
        for (idx, ask) in asks.iter().enumerate() {
            let mut connection = QueryConnection::open(server.port)?;
            let started = figures.begin(server)?;
            let received = connection.fetch(&path(ask)?)?;
            figures.end(server, &started, Accept::Gzip)?;
            all.join(idx, Answer::parse(&check(&received)?.text()?)?);
        }
        return Ok((figures.cost(), all));
    }
    let mut connection = QueryConnection::open(server.port)?;
    let mut answer = Answer::default();
    send(&mut connection, server.port, ask, &mut |idx, received| {
        answer.join(idx, Answer::parse(&received.text()?)?);
        Ok(())
    })?;
    let begun = Instant::now();
    for round in 0..rounds {
        for accept in [Accept::Gzip, Accept::Plain] {
            if round > 0 && begun.elapsed() > ROUNDS_WAIT {
                break;
            }
            connection.set_accept(accept);
            let started = figures.begin(server)?;
            send(&mut connection, server.port, ask, &mut |_, _| Ok(()))?;
            figures.end(server, &started, accept)?;
        }
    }
    Ok((figures.cost(), answer))
}

/// Figures of some runs.
#[derive(Default)]
struct Figures {
    walls_ms: Vec<f64>,
    cpus_ms: Vec<f64>,
    plains_ms: Vec<f64>,
    memory_bytes: u64,
    resident_bytes: u64,
}

/// State of the server when a run began.
struct Started {
    stopwatch: Stopwatch,
    memory_bytes: u64,
}

impl Figures {
    fn begin(&self, server: &Server) -> Result<Started> {
        proc::reset_peak(server.pid())?;
        let memory_bytes = server.memory()?.now_bytes;
        Ok(Started { memory_bytes, stopwatch: Stopwatch::start(server.pid())? })
    }

    fn end(&mut self, server: &Server, started: &Started, accept: Accept) -> Result<()> {
        let spent = started.stopwatch.spent()?;
        let wall_ms = spent.wall_seconds * 1e3;
        match accept {
            Accept::Gzip => {
                self.walls_ms.push(wall_ms);
                self.cpus_ms.push(spent.cpu.total() * 1e3);
            }
            Accept::Plain => self.plains_ms.push(wall_ms),
            Accept::Zstd => unreachable!("zstd is asked for by graph-answers alone"),
        }
        let peak_bytes = server.memory()?.peak_bytes;
        self.resident_bytes = self.resident_bytes.max(peak_bytes);
        self.memory_bytes = self.memory_bytes.max(peak_bytes.saturating_sub(started.memory_bytes));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost {
            wall_ms: median(&self.walls_ms),
            cpu_ms: median(&self.cpus_ms),
            plain_ms: median(&self.plains_ms),
            memory_mib: self.memory_bytes as f64 / MIB,
            resident_mib: self.resident_bytes as f64 / MIB,
        }
    }
}

/// Asks over `connection`, or over one connection each, and hands every response on.
fn send(
    connection: &mut QueryConnection,
    port: u16,
    ask: &Ask,
    take: &mut dyn FnMut(usize, &Received<'_>) -> Result<()>,
) -> Result<()> {
    match ask {
        Ask::Many(asks) => {
            let accept = connection.accept();
            for (idx, ask) in asks.iter().enumerate() {
                let mut own = QueryConnection::open(port)?;
                own.set_accept(accept);
                take(idx, check(&own.fetch(&path(ask)?)?)?)?;
            }
            Ok(())
        }
        Ask::ManyKept(asks) => {
            let mut asks = asks.iter().enumerate();
            asks.try_for_each(|(idx, ask)| take(idx, check(&connection.fetch(&path(ask)?)?)?))
        }
        single => take(0, check(&connection.fetch(&path(single)?)?)?),
    }
}

fn check<'a>(received: &'a Received<'a>) -> Result<&'a Received<'a>> {
    if received.status != 200 {
        bail!("HTTP {}: {:.300}", received.status, received.text()?);
    }
    Ok(received)
}

fn path(ask: &Ask) -> Result<String> {
    Ok(match ask {
        Ask::Instant { query, time_ms } => http::query_path(query, *time_ms),
        Ask::Range { query, start_ms, end_ms, step_s } => {
            http::range_path(query, (*start_ms, *end_ms, *step_s))
        }
        Ask::LabelValues { label, start_ms, end_ms } => {
            let start = start_ms / 1000;
            let end = end_ms / 1000;
            format!("/api/v1/label/{label}/values?start={start}&end={end}")
        }
        Ask::Many(_) | Ask::ManyKept(_) | Ask::Fresh(_) => bail!("a list within a list"),
    })
}
