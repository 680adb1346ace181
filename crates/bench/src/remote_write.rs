//! Benchmark `remote-write`: the same load to each server, one after another on this machine, and what it
//! cost.
//!
//! Invariants: a fresh process over an empty directory for every measurement; the count of series and samples
//! and the sum of values are read back before a figure counts; bodies are compressed before the clock starts.
//! Not here: interpretation of the figures (BENCHMARKS.md).

mod report;

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::driver::{Benchmark, Run};
use crate::fleet::{Content, Fleet, Shape};
use crate::options::Servers;
use crate::proc::{self, CpuSeconds, Memory, Spent, Stopwatch};
use crate::server::{Kind, Server, Setup};
use crate::traffic::{self, STEP_MS};

/// Steps by which a connection may be ahead of the slowest: five minutes of samples.
const LEAD_STEPS_MAX: usize = 20;
/// Time for flushes and merges in the background before memory and disk are read again.
const SETTLE: Duration = Duration::from_secs(5);
/// Summing in another order changes the last digits only.
const SUM_TOLERANCE: f64 = 1e-9;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    only: Servers,
    /// Series of the throughput scenario.
    #[arg(long, default_value_t = 100_000)]
    series: usize,
    /// Samples per series in the throughput scenario, 15 s apart.
    #[arg(long, default_value_t = 200)]
    steps: usize,
    /// Series of the memory scenario, three samples each; 0 leaves it out.
    #[arg(long, default_value_t = 1_000_000)]
    memory_series: usize,
    /// Samples per request.
    #[arg(long, default_value_t = 5_000)]
    batch: usize,
    /// Connections, each with a thread and its own part of the series.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Number of runs per server; servers take turns.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

/// One size of load.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    name: &'static str,
    series_count: usize,
    step_count: usize,
}

impl Scenario {
    fn sample_count(&self) -> f64 {
        (self.series_count * self.step_count) as f64
    }
}

/// Cost of one part of a run.
struct Phase {
    sample_count: usize,
    server: Spent,
    client: Spent,
    /// Latency of each request.
    ack_ms: Vec<f64>,
}

/// One run against one server.
struct Measured {
    scenario: Scenario,
    /// The first step, in which every series is new.
    create: Phase,
    /// All other steps.
    steady: Phase,
    /// CPU of the server from the first request until the background work had its time.
    settled_cpu: CpuSeconds,
    /// Resident memory before the load.
    empty_bytes: u64,
    /// Resident memory after the last answer, and the most so far.
    loaded: Memory,
    /// Resident memory after the background work had its time.
    settled_bytes: u64,
    settled_disk_bytes: u64,
    /// After an orderly stop.
    stopped_disk_bytes: u64,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        self.only.of(&Kind::ALL)
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(
            self.batch > 0 && self.connections > 0 && self.steps > 1,
            "all counts must be above 0, steps above 1"
        );
        run.note(format!(
            "{} samples per request, {} connections, client on the same machine",
            self.batch, self.connections
        ));
        let Options { series, steps, memory_series, .. } = *self;
        let throughput = Scenario { name: "throughput", series_count: series, step_count: steps };
        let memory = Scenario { name: "memory", series_count: memory_series, step_count: 3 };
        for scenario in [throughput, memory].into_iter().filter(|scenario| scenario.series_count > 0) {
            self.measure_scenario(scenario, run);
        }
        Ok(())
    }
}

impl Options {
    fn measure_scenario(&self, scenario: Scenario, run: &mut Run) {
        let Scenario { name, series_count, step_count } = scenario;
        println!("\n{name}: {series_count} series, {step_count} steps");
        let shape = Shape::up_to_now(series_count, self.batch, self.connections, Content::Noisy, step_count);
        let shape = Shape { lead_steps_max: LEAD_STEPS_MAX, ..shape };
        let setup = |_| Some(Setup::new(series_count));
        let measured =
            run.measure_servers(name, self.rounds, setup, |server| measure(server, &shape, scenario));
        run.table(measured.table(scenario.title(), &run.kinds(), &report::FIGURES));
    }
}

fn measure(server: &mut Server, shape: &Shape, scenario: Scenario) -> Result<Measured> {
    let mut fleet = Fleet::new(shape);
    println!("bodies: {} requests per step, {} bytes each", fleet.batches().count(), fleet.body_bytes_mean());
    let empty_bytes = server.memory()?.now_bytes;
    let cpu_start = server.cpu()?;
    let create = send(server, &mut fleet, scenario, 0..1)?;
    let steady = send(server, &mut fleet, scenario, 1..scenario.step_count)?;
    let loaded = server.memory()?;
    std::thread::sleep(SETTLE);
    let settled_bytes = server.memory()?.now_bytes;
    let settled_cpu = server.cpu()?.since(cpu_start);
    let settled_disk_bytes = proc::disk_bytes(&server.data_dir());
    server.make_visible()?;
    verify(server, &fleet, shape, scenario)?;
    server.stop()?;
    let stopped_disk_bytes = proc::disk_bytes(&server.data_dir());
    Ok(Measured {
        scenario,
        create,
        steady,
        settled_cpu,
        empty_bytes,
        loaded,
        settled_bytes,
        settled_disk_bytes,
        stopped_disk_bytes,
    })
}

fn send(
    server: &Server,
    fleet: &mut Fleet,
    scenario: Scenario,
    steps: std::ops::Range<usize>,
) -> Result<Phase> {
    let sample_count = scenario.series_count * steps.len();
    let of_client = Stopwatch::of_this_process()?;
    let of_server = Stopwatch::start(server.pid())?;
    let ack_ms = fleet.send_all(server.port, steps)?;
    Ok(Phase { sample_count, server: of_server.spent()?, client: of_client.spent()?, ack_ms })
}

/// Reads acknowledged samples back: the series, the sum of their last values, the number of samples.
fn verify(server: &Server, fleet: &Fleet, shape: &Shape, scenario: Scenario) -> Result<()> {
    let step_count = scenario.step_count as i64;
    let last_ms = shape.start_ms + (step_count - 1) * STEP_MS;
    let ask = |query: &str| crate::http::query_number(server.port, query, last_ms);
    let all = traffic::SELECTOR;
    expect("series", ask(&format!("count({all})"))?, scenario.series_count as f64)?;
    expect("sum of the last values", ask(&format!("sum({all})"))?, fleet.sum_of_values())?;
    // The step before the first is outside for servers that include the start of a range, and for those that
    // do not.
    let range_s = step_count * STEP_MS / 1000;
    let sample_count = ask(&format!("sum(count_over_time({all}[{range_s}s]))"))?;
    expect("samples", sample_count, scenario.sample_count())
}

fn expect(what: &str, found: f64, expected: f64) -> Result<()> {
    if (found - expected).abs() > expected.abs() * SUM_TOLERANCE {
        bail!("acknowledged data is not there: {what}: expected {expected}, found {found}");
    }
    Ok(())
}
