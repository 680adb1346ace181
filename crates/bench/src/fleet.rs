//! Many series that send one sample each per step, over several connections, until it is stopped.
//!
//! Invariants: a series belongs to one connection, so its samples go out in order; connections stay within a
//! few steps of each other; what the server has acknowledged is counted request by request.
//! Not here: CPU time (`proc`).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use chronolith_base::{Clock, SystemClock};

use crate::body::Body;
use crate::families::{Family, Walk};
use crate::http::WriteConnection;
use crate::latency::timed;
use crate::traffic::{self, STEP_MS, Values};
use crate::workers::{Progress, in_parallel};

/// Steps by which a connection may be ahead of the slowest, unless the benchmark allows more.
const LEAD_STEPS_MAX: usize = 3;
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
const WATCH_POLL: Duration = Duration::from_millis(20);

/// Content of the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Content {
    /// Half counters, half gauges that walk at random: `remote-write`'s load, hard to compress.
    Noisy,
    /// The mix of six families.
    Mix,
}

enum Source {
    Noisy(Values),
    Mix(Vec<Walk>),
}

impl Source {
    fn new(content: Content, first_idx: usize, count: usize) -> Source {
        match content {
            Content::Noisy => Source::Noisy(Values::new(first_idx, count)),
            Content::Mix => {
                let walk = |idx| Walk::new(Family::of_mix(idx), idx);
                Source::Mix((first_idx..first_idx + count).map(walk).collect())
            }
        }
    }

    fn step_into(&mut self, out: &mut Vec<f64>) {
        out.clear();
        match self {
            Source::Noisy(values) => out.extend(values.step()),
            Source::Mix(walks) => out.extend(walks.iter_mut().map(Walk::next)),
        }
    }
}

/// A sample of the first series of a request, and the sum over all its series at that time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    pub(super) time_ms: i64,
    pub(super) value: f64,
    pub(super) sum: f64,
}

/// One request's worth of series.
pub(crate) struct Batch {
    body: Body,
    source: Source,
    /// Values of the last step.
    values: Vec<f64>,
    pub(super) first_idx: usize,
    pub(super) series_count: usize,
    /// Samples per series that the server has acknowledged.
    pub(super) acked_count: usize,
    /// Series that it started with.
    fill_count: usize,
    /// One an acknowledged request, for batches that are probed.
    pub(super) probes: Vec<Probe>,
}

impl Batch {
    fn new(content: Content, first_idx: usize, series_count: usize) -> Batch {
        Batch {
            body: Body::new((first_idx..first_idx + series_count).map(traffic::labels)),
            source: Source::new(content, first_idx, series_count),
            values: Vec::new(),
            first_idx,
            series_count,
            acked_count: 0,
            fill_count: 0,
            probes: Vec::new(),
        }
    }
}

pub(crate) struct Fleet {
    /// Batches of each connection.
    parts: Vec<Vec<Batch>>,
    content: Content,
    /// Time of step 0.
    start_ms: i64,
    lead_steps_max: usize,
}

/// Series and how they are cut to requests.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(super) series: Range<usize>,
    pub(super) batch_len: usize,
    pub(super) connection_count: usize,
    pub(super) content: Content,
    pub(super) start_ms: i64,
    /// Steps by which a connection may be ahead of the slowest.
    pub(super) lead_steps_max: usize,
}

impl Shape {
    /// A number of series whose last step lies a minute back, so that no server sees the future.
    pub(crate) fn up_to_now(
        series_count: usize,
        batch_len: usize,
        connection_count: usize,
        content: Content,
        step_count: usize,
    ) -> Shape {
        let last_ms = SystemClock::new().now_ms() - 60_000;
        let start_ms = (last_ms - step_count as i64 * STEP_MS) / STEP_MS * STEP_MS;
        let lead_steps_max = LEAD_STEPS_MAX;
        Shape { series: 0..series_count, batch_len, connection_count, content, start_ms, lead_steps_max }
    }
}

/// Samples of replaced series by outcome.
pub(crate) struct Replaced {
    /// Acknowledged samples of those that ended.
    pub(super) acked_sample_count: usize,
    /// The first series that does not exist yet.
    pub(super) next_idx: usize,
}

/// Progress of the senders, for a caller that watches them.
pub(crate) struct Watch {
    progress: Progress,
    end: AtomicBool,
    failures_expected: AtomicBool,
    failed: AtomicBool,
}

impl Watch {
    /// Accepts failures of requests from here on: the server is about to be killed.
    pub(crate) fn expect_failures(&self) {
        self.failures_expected.store(true, Ordering::Release);
    }

    /// Waits until all connections have finished `step_count` steps or `limit` is over; true for the former.
    pub(crate) fn wait(&self, step_count: usize, limit: Duration) -> Result<bool> {
        let start = Instant::now();
        let mut told = start;
        loop {
            if self.failed.load(Ordering::Acquire) {
                bail!("a sender failed");
            }
            let slowest = self.progress.slowest();
            if slowest >= step_count {
                return Ok(true);
            }
            if start.elapsed() >= limit {
                return Ok(false);
            }
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                println!("  {:.0} s: step {slowest} of {step_count}", start.elapsed().as_secs_f64());
            }
            std::thread::sleep(WATCH_POLL);
        }
    }
}

impl Fleet {
    /// Builds and compresses all bodies.
    pub(crate) fn new(shape: &Shape) -> Fleet {
        let mut parts: Vec<Vec<Batch>> = (0..shape.connection_count).map(|_| Vec::new()).collect();
        for (idx, first_idx) in shape.series.clone().step_by(shape.batch_len).enumerate() {
            let series_count = shape.series.end.min(first_idx + shape.batch_len) - first_idx;
            parts[idx % shape.connection_count].push(Batch::new(shape.content, first_idx, series_count));
        }
        let Shape { content, start_ms, lead_steps_max, .. } = *shape;
        Fleet { parts, content, start_ms, lead_steps_max }
    }

    pub(crate) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.parts.iter().flatten()
    }

    /// Number of samples that the server has acknowledged.
    pub(crate) fn acked_sample_count(&self) -> usize {
        self.batches().map(|batch| batch.acked_count * batch.series_count).sum()
    }

    /// Steps that all requests have been through, first samples aside.
    pub(crate) fn steps_sent(&self) -> usize {
        self.batches().map(|batch| batch.acked_count - batch.fill_count).min().unwrap_or(0)
    }

    /// Ends the oldest series of each connection, one in `part`, and puts new ones in their place, from
    /// `next_idx` on.
    pub(crate) fn replace_oldest(&mut self, part: usize, next_idx: usize) -> Replaced {
        let mut replaced = Replaced { acked_sample_count: 0, next_idx };
        for batches in &mut self.parts {
            let gone: Vec<Batch> = batches.drain(..batches.len().div_ceil(part)).collect();
            for batch in gone {
                replaced.acked_sample_count += batch.acked_count * batch.series_count;
                batches.push(Batch::new(self.content, replaced.next_idx, batch.series_count));
                replaced.next_idx += batch.series_count;
            }
        }
        replaced
    }

    /// First request of the first connection: its acknowledged samples are kept as probes.
    pub(crate) fn probed(&self) -> &Batch {
        &self.parts[0][0]
    }

    /// Sends an own number of past samples per series with each request, which ends with step `-1`: of
    /// `fills` requests in a row, the first has one sample per series, the last `fills`. Open chunks are then
    /// as full as in a server that has been running for long.
    pub(crate) fn fill(&mut self, port: u16, fills: usize, limit: Duration) -> Result<()> {
        let start_ms = self.start_ms;
        let part_count = self.parts.len();
        let started = Instant::now();
        in_parallel(&mut self.parts, |part_idx, part| {
            let mut connection = WriteConnection::open(port)?;
            part.iter_mut().enumerate().try_for_each(|(idx, batch)| {
                // A factor that is prime to the usual lengths of chunks: few requests have all lengths, too.
                let count = 1 + (idx * part_count + part_idx) * 37 % fills;
                ensure!(started.elapsed() < limit, "first samples take longer than {limit:?}");
                fill_batch(batch, &mut connection, start_ms, count)
            })
        })
        .map(drop)
    }

    /// Sum of the values sent last.
    pub(crate) fn sum_of_values(&self) -> f64 {
        self.batches().flat_map(|batch| &batch.values).sum()
    }

    /// Mean size of a compressed body.
    pub(crate) fn body_bytes_mean(&self) -> usize {
        let bytes: usize = self.batches().map(|batch| batch.body.bytes().len()).sum();
        bytes / self.batches().count().max(1)
    }

    /// Sends all of `steps`; returns the latency of each request in milliseconds.
    pub(crate) fn send_all(&mut self, port: u16, steps: Range<usize>) -> Result<Vec<f64>> {
        let watch = self.watch(steps.start);
        self.send_parts(port, steps, &watch)
    }

    /// Sends all of `steps`, a request of each connection every `request_every`, later if one takes longer;
    /// returns the latency of each request in milliseconds.
    pub(crate) fn send_paced(
        &mut self,
        port: u16,
        steps: Range<usize>,
        request_every: Duration,
    ) -> Result<Vec<f64>> {
        let start_ms = self.start_ms;
        let sent = in_parallel(&mut self.parts, |_, part| {
            let mut connection = WriteConnection::open(port)?;
            let mut latencies_ms = Vec::new();
            let mut next = Instant::now();
            for step in steps.clone() {
                for batch in part.iter_mut() {
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                    next = Instant::now().max(next) + request_every;
                    post_step(batch, &mut connection, start_ms, step, &mut latencies_ms)?;
                }
            }
            Ok(latencies_ms)
        });
        Ok(sent?.concat())
    }

    /// Sends `steps` while `during` runs in this thread, and ends when that ends.
    pub(crate) fn send(
        &mut self,
        port: u16,
        steps: Range<usize>,
        during: impl FnOnce(&Watch) -> Result<()>,
    ) -> Result<()> {
        let watch = self.watch(steps.start);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| self.send_parts(port, steps, &watch));
            let watched = during(&watch);
            watch.end.store(true, Ordering::Release);
            // The error of a sender explains more than the failure of the watcher.
            sender.join().expect("a sender does not panic").and(watched)
        })
    }

    fn watch(&self, step: usize) -> Watch {
        Watch {
            progress: Progress::new(self.parts.len(), step, self.lead_steps_max),
            end: AtomicBool::new(false),
            failures_expected: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        }
    }

    fn send_parts(&mut self, port: u16, steps: Range<usize>, watch: &Watch) -> Result<Vec<f64>> {
        let start_ms = self.start_ms;
        let sent = in_parallel(&mut self.parts, |idx, part| {
            let mut latencies_ms = Vec::new();
            let done = send_part(part, port, start_ms, steps.clone(), watch, idx, &mut latencies_ms);
            let done = if watch.failures_expected.load(Ordering::Acquire) { Ok(()) } else { done };
            watch.failed.fetch_or(done.is_err(), Ordering::AcqRel);
            watch.progress.end(idx);
            done.map(|()| latencies_ms)
        });
        Ok(sent?.concat())
    }
}

fn fill_batch(
    batch: &mut Batch,
    connection: &mut WriteConnection,
    start_ms: i64,
    count: usize,
) -> Result<()> {
    let mut steps = vec![Vec::new(); count];
    steps.iter_mut().for_each(|values| batch.source.step_into(values));
    // Each request has the sample count of later steps: larger requests would leave larger buffers.
    let group_len = (batch.series_count / count).max(1);
    for first in (0..batch.series_count).step_by(group_len) {
        let group = first..batch.series_count.min(first + group_len);
        let labels = group.clone().map(|series| (traffic::labels(batch.first_idx + series), count));
        let mut body = Body::with_counts(labels);
        body.set_each(group.flat_map(|series| {
            let times = (0..count).map(|step| start_ms + (step as i64 - count as i64) * STEP_MS);
            times.zip(steps.iter().map(move |values| values[series]))
        }));
        connection.post(body.bytes()).context("first samples")?;
    }
    batch.acked_count += count;
    batch.fill_count = count;
    Ok(())
}

fn send_part(
    part: &mut [Batch],
    port: u16,
    start_ms: i64,
    steps: Range<usize>,
    watch: &Watch,
    own_idx: usize,
    latencies_ms: &mut Vec<f64>,
) -> Result<()> {
    let mut connection = WriteConnection::open(port)?;
    for step in steps {
        watch.progress.begin(own_idx, step);
        for (idx, batch) in part.iter_mut().enumerate() {
            if watch.end.load(Ordering::Acquire) {
                return Ok(());
            }
            let time_ms = post_step(batch, &mut connection, start_ms, step, latencies_ms)?;
            if (own_idx, idx) == (0, 0) {
                let value = batch.values.first().copied().unwrap_or(f64::NAN);
                batch.probes.push(Probe { time_ms, value, sum: batch.values.iter().sum() });
            }
        }
    }
    Ok(())
}

/// Sends the next sample of each series of `batch`; returns their time.
fn post_step(
    batch: &mut Batch,
    connection: &mut WriteConnection,
    start_ms: i64,
    step: usize,
    latencies_ms: &mut Vec<f64>,
) -> Result<i64> {
    let time_ms = start_ms + step as i64 * STEP_MS;
    batch.source.step_into(&mut batch.values);
    batch.body.set(time_ms, batch.values.iter().copied());
    let body = batch.body.bytes();
    timed(latencies_ms, || connection.post(body)).with_context(|| format!("step {step}"))?;
    batch.acked_count += 1;
    Ok(time_ms)
}

#[cfg(test)]
mod tests;
