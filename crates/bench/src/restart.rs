//! Benchmark `restart`: a server with many series is killed (`kill -9`) while it is written to and started
//! again.
//! Measured: the time from exec to the first correct answer, and how many acknowledged samples are gone.
//!
//! Invariants: one server at a time; all get the same samples in the same order until the time for loading is
//! over; an answer is correct only if one series' value, and the count and sum of 5000 series, equal the sent
//! samples.
//! Not here: a loss of power (a killed process loses nothing that the kernel has).

mod poll;
mod report;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::driver::{Benchmark, Run};
use crate::fleet::{Content, Fleet, Shape};
use crate::http;
use crate::options::Servers;
use crate::proc::{self, CpuSeconds, Memory};
use crate::server::{Kind, Server, Setup};
use crate::traffic::{self, POD_SERIES, STEP_MS};
use poll::Answered;

/// Series and seconds of `--quick`.
const QUICK_SERIES: usize = 20_000;
const QUICK_SECONDS: u64 = 8;
/// Time for remaining work after the start before memory is read.
const SETTLE: Duration = Duration::from_secs(3);
/// A range that exceeds the sent samples by this many steps covers all of them.
const RANGE_SPARE_STEPS: i64 = 20;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    only: Servers,
    /// Number of series.
    #[arg(long, default_value_t = 1_000_000)]
    series: usize,
    /// Samples per series, 15 s apart: 480 are two hours.
    #[arg(long, default_value_t = 480)]
    steps: usize,
    /// Longest time of loading a server; what it has not taken by then it does not get.
    #[arg(long, default_value_t = 600)]
    load_seconds: u64,
    /// Samples per request.
    #[arg(long, default_value_t = 5_000)]
    batch: usize,
    /// Connections, each with a thread and its own part of the series.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// At most 20 000 series and 8 s: shows that the benchmark works.
    #[arg(long)]
    quick: bool,
}

/// Figures of one server.
struct Measured {
    loaded: Loaded,
    answered: Answered,
    /// CPU of the started server until its memory was read.
    restart_cpu: CpuSeconds,
    restarted: Memory,
    /// Acknowledged samples that are not there.
    lost_count: usize,
}

/// The server at the moment of the kill.
struct Loaded {
    /// True if all steps were sent.
    whole: bool,
    acked_count: usize,
    memory: Memory,
    disk_bytes: u64,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        self.only.of(&Kind::ALL)
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        let series = if self.quick { self.series.min(QUICK_SERIES) } else { self.series };
        let load_seconds = if self.quick { self.load_seconds.min(QUICK_SECONDS) } else { self.load_seconds };
        ensure!(
            self.batch > 0 && self.batch.is_multiple_of(POD_SERIES) && series.is_multiple_of(POD_SERIES),
            "series and batch must be multiples of {POD_SERIES}, the series of a pod"
        );
        ensure!(self.connections > 0 && self.steps > 0, "connections and steps must be above 0");
        let shape = Shape::up_to_now(series, self.batch, self.connections, Content::Noisy, self.steps);
        println!("up to {} steps of {series} series in {load_seconds} s", self.steps);
        let limit = Duration::from_secs(load_seconds);
        let setup = |_| Some(Setup::new(series));
        let measured =
            run.measure_servers("restart", 1, setup, |server| measure(server, &shape, self.steps, limit));
        report::add(self, series, load_seconds, &measured, run);
        Ok(())
    }
}

fn measure(server: &mut Server, shape: &Shape, step_count: usize, limit: Duration) -> Result<Measured> {
    let mut fleet = Fleet::new(shape);
    let loaded = load_and_kill(server, &mut fleet, step_count, limit)?;
    println!("  killed with {} acknowledged samples; starting", loaded.acked_count);
    let started = server.exec_again()?;
    let batch = fleet.probed();
    let newest = *batch.probes.last().context("nothing was acknowledged")?;
    // A server that loses what it has not written may lose most of a short load.
    let older = [2, 4, 16, usize::MAX].map(|part| batch.probes[batch.probes.len() / part]);
    let slice = batch.first_idx..batch.first_idx + batch.series_count;
    let answered = poll::first_answers(server, started, slice, &older, newest)?;
    println!("  answered after {:.3} s", answered.first_seconds);
    std::thread::sleep(SETTLE);
    let restarted = server.memory()?;
    let restart_cpu = server.cpu()?;
    server.make_visible()?;
    let lost_count = count_lost(server, &fleet, shape.start_ms)?;
    Ok(Measured { loaded, answered, restart_cpu, restarted, lost_count })
}

fn load_and_kill(
    server: &mut Server,
    fleet: &mut Fleet,
    step_count: usize,
    limit: Duration,
) -> Result<Loaded> {
    let mut at_kill = None;
    fleet.send(server.port, 0..usize::MAX, |watch| {
        let whole = watch.wait(step_count, limit)?;
        let disk_bytes = proc::disk_bytes(&server.data_dir());
        at_kill = Some((whole, server.memory()?, disk_bytes));
        // Requests are on their way: the senders go on until their connections break.
        watch.expect_failures();
        server.kill()
    })?;
    let (whole, memory, disk_bytes) = at_kill.context("the server was not killed")?;
    Ok(Loaded { whole, acked_count: fleet.acked_sample_count(), memory, disk_bytes })
}

/// Counts the stored samples, request by request, and compares them with the acknowledged ones.
fn count_lost(server: &Server, fleet: &Fleet, start_ms: i64) -> Result<usize> {
    let mut lost_count = 0;
    let step_count = fleet.batches().map(|batch| batch.acked_count).max().unwrap_or(0) as i64;
    let end_ms = start_ms + (step_count + RANGE_SPARE_STEPS / 2) * STEP_MS;
    let range_s = (step_count + RANGE_SPARE_STEPS) * STEP_MS / 1000;
    for batch in fleet.batches() {
        let pods = traffic::pods_selector(batch.first_idx, batch.first_idx + batch.series_count);
        let query = format!("sum(count_over_time({pods}[{range_s}s])) or vector(0)");
        let found_count = http::query_number(server.port, &query, end_ms)? as usize;
        let acked_count = batch.acked_count * batch.series_count;
        // The request that was on its way may be there or not, but nothing else may.
        ensure!(
            found_count <= acked_count + batch.series_count,
            "{pods}: {found_count} samples are there, {acked_count} were acknowledged"
        );
        lost_count += acked_count.saturating_sub(found_count);
    }
    Ok(lost_count)
}
