//! Asks a server one shape several times: time, CPU and memory of each.
//! Invariants: the first time warms up and its answer is the one that is checked; result caches are
//! bypassed.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::compare::Answer;
use super::shapes::Ask;
use crate::http::{self, QueryConnection};
use crate::proc;
use crate::server::Server;

/// A slow shape is not timed again after this: one figure of it says enough.
const ROUNDS_WAIT: Duration = Duration::from_secs(40);

/// What one shape cost one server.
#[derive(Debug, Clone)]
pub(super) struct Cost {
    /// Median of all rounds.
    pub(super) wall_ms: f64,
    /// Median of the server's CPU time.
    pub(super) cpu_ms: f64,
    /// The most resident memory grew while a query ran.
    pub(super) memory_mib: f64,
    /// The most memory that was resident while a query ran.
    pub(super) resident_mib: f64,
}

/// Runs `ask` once to warm up and `rounds` times for the figures; what must be fresh just once.
pub(super) fn measure(server: &Server, ask: &Ask, rounds: usize) -> Result<(Cost, Answer)> {
    let mut figures = Figures::default();
    if let Ask::Fresh(asks) = ask {
        let mut all = Answer::default();
        for (idx, ask) in asks.iter().enumerate() {
            let mut answer = String::new();
            figures.add(server, ask, &mut |_, body| {
                answer = body.to_owned();
                Ok(())
            })?;
            all.join(idx, Answer::parse(&answer)?);
        }
        return Ok((figures.cost(), all));
    }
    let answer = read(server.port, ask)?;
    let begun = Instant::now();
    for round in 0..rounds {
        if round > 0 && begun.elapsed() > ROUNDS_WAIT {
            break;
        }
        figures.add(server, ask, &mut |_, _| Ok(()))?;
    }
    Ok((figures.cost(), answer))
}

/// Figures of some runs.
#[derive(Default)]
struct Figures {
    walls_ms: Vec<f64>,
    cpus_ms: Vec<f64>,
    memory_bytes: u64,
    resident_bytes: u64,
}

impl Figures {
    /// Runs `ask` once.
    fn add(
        &mut self,
        server: &Server,
        ask: &Ask,
        take: &mut dyn FnMut(usize, &str) -> Result<()>,
    ) -> Result<()> {
        let pid = server.pid();
        proc::reset_peak(pid)?;
        let before = proc::memory(pid)?;
        let cpu = proc::cpu_seconds(pid)?;
        let started = Instant::now();
        send(server.port, ask, take)?;
        self.walls_ms.push(started.elapsed().as_secs_f64() * 1000.0);
        self.cpus_ms.push(proc::cpu_seconds(pid)?.since(cpu).total() * 1000.0);
        let peak_bytes = proc::memory(pid)?.peak_bytes;
        self.resident_bytes = self.resident_bytes.max(peak_bytes);
        self.memory_bytes = self.memory_bytes.max(peak_bytes.saturating_sub(before.now_bytes));
        Ok(())
    }

    fn cost(&mut self) -> Cost {
        Cost {
            wall_ms: median(&mut self.walls_ms),
            cpu_ms: median(&mut self.cpus_ms),
            memory_mib: self.memory_bytes as f64 / 1_048_576.0,
            resident_mib: self.resident_bytes as f64 / 1_048_576.0,
        }
    }
}

fn read(port: u16, ask: &Ask) -> Result<Answer> {
    let mut all = Answer::default();
    send(port, ask, &mut |idx, body| {
        all.join(idx, Answer::parse(body)?);
        Ok(())
    })?;
    Ok(all)
}

/// Asks and hands every body on.
fn send(port: u16, ask: &Ask, take: &mut dyn FnMut(usize, &str) -> Result<()>) -> Result<()> {
    let mut kept = match ask {
        Ask::ManyKept(_) => Some(QueryConnection::open(port)?),
        _ => None,
    };
    let mut one = |ask: &Ask| match ask {
        Ask::Instant { query, time_ms } => match &mut kept {
            Some(connection) => connection.get(&http::query_path(query, *time_ms)),
            None => http::query(port, query, *time_ms),
        },
        Ask::Range { query, start_ms, end_ms, step_s } => {
            http::query_range(port, query, (*start_ms, *end_ms, *step_s))
        }
        Ask::LabelValues { label, start_ms, end_ms } => {
            let start = start_ms / 1000;
            let end = end_ms / 1000;
            http::get(port, &format!("/api/v1/label/{label}/values?start={start}&end={end}"))
        }
        Ask::Many(_) | Ask::ManyKept(_) | Ask::Fresh(_) => anyhow::bail!("a list within a list"),
    };
    let asks = match ask {
        Ask::Many(asks) | Ask::ManyKept(asks) => asks.as_slice(),
        single => std::slice::from_ref(single),
    };
    for (idx, ask) in asks.iter().enumerate() {
        let (status, body) = one(ask)?;
        ensure!(status == 200, "HTTP {status}: {body:.300}");
        take(idx, &body)?;
    }
    Ok(())
}

/// The middle of a list, which it sorts.
pub(super) fn median(list: &mut [f64]) -> f64 {
    list.sort_by(f64::total_cmp);
    list.get(list.len() / 2).copied().unwrap_or(f64::NAN)
}
