//! Benchmark `remote-write`: the same load to each server, one after another on this machine, and what it
//! cost.
//!
//! Invariants: a fresh process over an empty directory for every measurement; the count of series and samples
//! and the sum of values are read back before a figure counts; bodies are compressed before the clock starts.
//! Not here: interpretation of the figures (BENCHMARKS.md).

mod load;
mod report;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use chronolith_base::{Clock, SystemClock};

use crate::options::{DataDirectory, ReportDirectory, Servers};
use crate::proc;
use crate::server::{Kind, Server};
use crate::traffic::{self, STEP_MS};
use load::Load;
use report::{Measured, Scenario};

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
    #[command(flatten)]
    out: ReportDirectory,
    #[command(flatten)]
    data: DataDirectory,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let kinds = options.only.chosen(&Kind::ALL)?;
    ensure!(
        options.batch > 0 && options.connections > 0 && options.steps > 1,
        "all counts must be above 0, steps above 1"
    );
    let mut scenarios = vec![Scenario::new("throughput", options.series, options.steps)];
    if options.memory_series > 0 {
        scenarios.push(Scenario::new("memory", options.memory_series, 3));
    }
    for scenario in &mut scenarios {
        measure_scenario(options, &kinds, scenario)?;
    }
    report::write(&options.out, options.batch, options.connections, &kinds, &scenarios)
}

fn measure_scenario(options: &Options, kinds: &[Kind], scenario: &mut Scenario) -> Result<()> {
    // The last step lies a minute back, so that no server sees the future and all steps are fresh.
    let span_ms = i64::try_from(scenario.step_count)? * STEP_MS;
    let start_ms = (SystemClock::new().now_ms() - 60_000 - span_ms) / STEP_MS * STEP_MS;
    println!("\n{}: {} series, {} steps", scenario.name, scenario.series_count, scenario.step_count);
    let mut load = Load::new(scenario.series_count, options.batch, options.connections, start_ms);
    println!("bodies: {} requests per step, {} bytes each", load.request_count(), load.body_bytes_mean());
    for round in 0..options.rounds {
        for kind in kinds {
            load.reset();
            let mut server = Server::start(*kind, &options.data, scenario.series_count)?;
            let measured = measure(&mut server, &mut load, scenario.step_count)
                .with_context(|| format!("{}; its log ends with:\n{}", kind.name(), server.log_tail()))?;
            println!("round {} {}: {}", round + 1, kind.name(), measured.summary(scenario));
            scenario.measured.push((*kind, measured));
        }
    }
    Ok(())
}

fn measure(server: &mut Server, load: &mut Load, step_count: usize) -> Result<Measured> {
    let pid = server.pid();
    let empty_bytes = proc::memory(pid)?.now_bytes;
    let ran = load.run(server.port, "/api/v1/write", pid, step_count)?;
    let loaded = proc::memory(pid)?;
    std::thread::sleep(SETTLE);
    let settled = proc::memory(pid)?;
    let settled_cpu = proc::cpu_seconds(pid)?.since(ran.cpu_start);
    let settled_disk_bytes = proc::disk_bytes(&server.data_dir());
    server.make_visible()?;
    verify(server, load, step_count)?;
    server.stop()?;
    Ok(Measured {
        create: ran.create,
        steady: ran.steady,
        settled_cpu,
        empty_bytes,
        loaded,
        settled_bytes: settled.now_bytes,
        settled_disk_bytes,
        stopped_disk_bytes: proc::disk_bytes(&server.data_dir()),
    })
}

/// Reads acknowledged samples back: the series, the sum of their last values, the number of samples.
fn verify(server: &Server, load: &Load, step_count: usize) -> Result<()> {
    let last_ms = load.time_of_step(step_count - 1);
    let ask = |query: &str| crate::http::query_number(server.port, query, last_ms);
    let all = traffic::SELECTOR;
    expect("series", ask(&format!("count({all})"))?, load.series_count() as f64)?;
    expect("sum of the last values", ask(&format!("sum({all})"))?, load.sum_of_values())?;
    // The step before the first is outside for servers that include the start of a range, and for those that
    // do not.
    let range_s = i64::try_from(step_count)? * STEP_MS / 1000;
    let sample_count = (load.series_count() * step_count) as f64;
    expect("samples", ask(&format!("sum(count_over_time({all}[{range_s}s]))"))?, sample_count)
}

fn expect(what: &str, found: f64, expected: f64) -> Result<()> {
    if (found - expected).abs() > expected.abs() * SUM_TOLERANCE {
        bail!("acknowledged data is not there: {what}: expected {expected}, found {found}");
    }
    Ok(())
}
