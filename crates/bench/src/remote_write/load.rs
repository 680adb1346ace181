//! Sends the load over several connections and measures: wall time, CPU of the server and of this process,
//! latency.
//!
//! Invariants: a series belongs to one connection, so its samples go out in order; connections drift apart by
//! at most a few steps, so no server has to take samples far out of order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::body::Body;
use crate::http::WriteConnection;
use crate::proc::{self, CpuSeconds};
use crate::traffic::{self, STEP_MS, Values};

/// Steps by which a connection may be ahead of the slowest: five minutes of samples.
const LEAD_STEPS_MAX: usize = 20;
const LEAD_POLL: Duration = Duration::from_millis(1);

/// One request's worth of series.
struct Batch {
    body: Body,
    values: Values,
    first_idx: usize,
}

/// All series, cut to requests, dealt to connections.
pub(super) struct Load {
    /// Batches of each connection.
    parts: Vec<Vec<Batch>>,
    series_count: usize,
    start_ms: i64,
}

/// Cost of one part of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Phase {
    pub(super) sample_count: usize,
    pub(super) wall_seconds: f64,
    pub(super) server_cpu: CpuSeconds,
    pub(super) client_cpu: CpuSeconds,
    /// Latency of each request, ascending, in microseconds.
    pub(super) ack_us: Vec<u32>,
}

/// A finished run.
pub(super) struct Ran {
    /// The server's CPU time when it began.
    pub(super) cpu_start: CpuSeconds,
    /// The first step, in which every series is new.
    pub(super) create: Phase,
    /// All other steps.
    pub(super) steady: Phase,
}

impl Load {
    /// Builds and compresses all bodies.
    pub(super) fn new(series_count: usize, batch_len: usize, connection_count: usize, start_ms: i64) -> Load {
        let mut parts: Vec<Vec<Batch>> = (0..connection_count).map(|_| Vec::new()).collect();
        for (idx, first_idx) in (0..series_count).step_by(batch_len).enumerate() {
            let end = series_count.min(first_idx + batch_len);
            let body = Body::new((first_idx..end).map(traffic::labels));
            let values = Values::new(first_idx, end - first_idx);
            parts[idx % connection_count].push(Batch { body, values, first_idx });
        }
        Load { parts, series_count, start_ms }
    }

    /// Goes back to before the first step, so that the next server gets the same samples.
    pub(super) fn reset(&mut self) {
        for batch in self.parts.iter_mut().flatten() {
            batch.values = Values::new(batch.first_idx, batch.values.len());
        }
    }

    pub(super) fn series_count(&self) -> usize {
        self.series_count
    }

    /// Requests per step.
    pub(super) fn request_count(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }

    /// Mean size of a compressed body.
    pub(super) fn body_bytes_mean(&self) -> usize {
        let bytes: usize = self.parts.iter().flatten().map(|batch| batch.body.bytes().len()).sum();
        bytes / self.request_count().max(1)
    }

    pub(super) fn time_of_step(&self, step: usize) -> i64 {
        self.start_ms + step as i64 * STEP_MS
    }

    /// Sum of the values sent last.
    pub(super) fn sum_of_values(&self) -> f64 {
        self.parts.iter().flatten().map(|batch| batch.values.sum()).sum()
    }

    /// Sends `step_count` steps to the server at `port`, whose process is `pid`.
    pub(super) fn run(&mut self, port: u16, path: &str, pid: u32, step_count: usize) -> Result<Ran> {
        let part_count = self.parts.len();
        let mut connections = (0..part_count)
            .map(|_| WriteConnection::open(port, path))
            .collect::<Result<Vec<WriteConnection>>>()?;
        let cpu_start = proc::cpu_seconds(pid)?;
        let create = self.run_phase(&mut connections, pid, 0..1)?;
        let steady = self.run_phase(&mut connections, pid, 1..step_count)?;
        Ok(Ran { cpu_start, create, steady })
    }

    fn run_phase(
        &mut self,
        connections: &mut [WriteConnection],
        pid: u32,
        steps: std::ops::Range<usize>,
    ) -> Result<Phase> {
        let progress: Vec<AtomicUsize> = self.parts.iter().map(|_| AtomicUsize::new(steps.start)).collect();
        let sample_count = self.series_count * steps.len();
        let start_ms = self.start_ms;
        let server_start = proc::cpu_seconds(pid)?;
        let client_start = proc::cpu_seconds(std::process::id())?;
        let start = Instant::now();
        let sent: Vec<Result<Vec<u32>>> = std::thread::scope(|scope| {
            let workers =
                self.parts.iter_mut().zip(connections).enumerate().map(|(idx, (part, connection))| {
                    let progress = &progress;
                    let steps = steps.clone();
                    scope.spawn(move || {
                        let done = send_part(part, connection, start_ms, steps, progress, idx);
                        // Others must not wait for one that failed or has finished.
                        progress[idx].store(usize::MAX, Ordering::Release);
                        done
                    })
                });
            let workers: Vec<_> = workers.collect();
            workers.into_iter().map(|worker| worker.join().expect("a sender does not panic")).collect()
        });
        let wall_seconds = start.elapsed().as_secs_f64();
        let server_cpu = proc::cpu_seconds(pid)?.since(server_start);
        let client_cpu = proc::cpu_seconds(std::process::id())?.since(client_start);
        let mut ack_us = sent.into_iter().collect::<Result<Vec<Vec<u32>>>>()?.concat();
        ack_us.sort_unstable();
        Ok(Phase { sample_count, wall_seconds, server_cpu, client_cpu, ack_us })
    }
}

fn send_part(
    part: &mut [Batch],
    connection: &mut WriteConnection,
    start_ms: i64,
    steps: std::ops::Range<usize>,
    progress: &[AtomicUsize],
    own_idx: usize,
) -> Result<Vec<u32>> {
    let mut ack_us = Vec::with_capacity(part.len() * steps.len());
    for step in steps {
        progress[own_idx].store(step, Ordering::Release);
        while progress.iter().any(|other| other.load(Ordering::Acquire).saturating_add(LEAD_STEPS_MAX) < step)
        {
            std::thread::sleep(LEAD_POLL);
        }
        for batch in part.iter_mut() {
            batch.body.set(start_ms + step as i64 * STEP_MS, batch.values.step());
            let sent = Instant::now();
            connection.post(batch.body.bytes()).with_context(|| format!("step {step}"))?;
            ack_us.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
    }
    Ok(ack_us)
}
