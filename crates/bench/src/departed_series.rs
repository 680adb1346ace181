//! Benchmark `departed-series`: resident memory of a server whose series have all been flushed to blocks,
//! compared with the empty server, at the peak, and after a restart over the same blocks.
//!
//! Invariants: samples lie in windows that are over, so that the server flushes them within seconds; it fails
//! if series stay in the head, or more memory than `--left-mb` above the empty server.
//! Not here: memory per active series (`memory`).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, SystemClock};

use crate::body::Body;
use crate::http::{self, WriteConnection};
use crate::options::DataDirectory;
use crate::proc::{self, Memory};
use crate::report::Failures;
use crate::server::{Kind, Server, Setup};
use crate::traffic::{self, STEP_MS, Values};

/// Samples per series.
const STEPS: usize = 4;
/// Age of the samples: their window has ended.
const AGE_MS: i64 = 4 * 3_600_000;
/// Time limit for the removal of the series from the head.
const LEAVE_WAIT: Duration = Duration::from_secs(90);
/// Time for the checkpoint and the checks that the server runs every 10 s.
const SETTLE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(500);
const MB: f64 = 1e6;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Tenants and series of each, one measurement per entry.
    #[arg(long, value_delimiter = ',', default_values = ["250x4000", "1x1000000"])]
    shapes: Vec<Tenants>,
    /// Series of a request at most.
    #[arg(long, default_value_t = 4_000)]
    batch: usize,
    /// Memory in MB above the empty server at which the benchmark fails.
    #[arg(long, default_value_t = 20.0)]
    left_mb: f64,
    #[command(flatten)]
    data: DataDirectory,
}

/// A number of tenants with a number of series each, written `250x4000`.
#[derive(Debug, Clone, Copy)]
struct Tenants {
    tenant_count: usize,
    series_count: usize,
}

impl std::str::FromStr for Tenants {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Tenants> {
        let (tenants, series) = text.split_once('x').context("such as 250x4000")?;
        Ok(Tenants { tenant_count: tenants.parse()?, series_count: series.parse()? })
    }
}

/// Memory of the server at four times.
struct Measured {
    empty: Memory,
    full: Memory,
    left: Memory,
    restarted: Memory,
    cpu_seconds: f64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    println!("{}", Kind::Chronolith.version()?);
    println!("| tenants x series | MB empty | peak | after | of it anonymous | after a restart | CPU s |");
    println!("|---|---|---|---|---|---|---|");
    let mut failures = Failures::default();
    for &shape in &options.shapes {
        let name = format!("{} x {}", shape.tenant_count, shape.series_count);
        let Some(one) = failures.keep(name.clone(), measure(shape, options)) else { continue };
        let mb = |bytes: u64| bytes as f64 / MB;
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.2} |",
            mb(one.empty.now_bytes),
            mb(one.full.peak_bytes),
            mb(one.left.now_bytes),
            mb(one.left.anonymous_bytes),
            mb(one.restarted.now_bytes),
            one.cpu_seconds,
        );
        let left = mb(one.left.now_bytes) - mb(one.empty.now_bytes);
        let judge = || -> Result<()> {
            ensure!(left <= options.left_mb, "{left:.1} MB more than the empty server");
            Ok(())
        };
        failures.keep(name, judge());
    }
    failures.end()
}

fn measure(shape: Tenants, options: &Options) -> Result<Measured> {
    let flags = ["--multitenancy", "--flush-delay", "1s", "--self-scrape", "off"];
    let setup = Setup { flags: flags.map(str::to_owned).to_vec(), ..Setup::default() };
    let mut server = Server::start_with(Kind::Chronolith, &options.data, setup)?;
    let empty = proc::memory(server.pid())?;
    send(&server, shape, options.batch)?;
    let full = proc::memory(server.pid())?;
    let started = Instant::now();
    while head_series(&server)? > 0.0 {
        ensure!(started.elapsed() < LEAVE_WAIT, "series are still in the head\n{}", server.log_tail());
        std::thread::sleep(POLL);
    }
    std::thread::sleep(SETTLE);
    let left = proc::memory(server.pid())?;
    let cpu_seconds = proc::cpu_seconds(server.pid())?.total();
    // The peak may lie in the flush.
    let full = Memory { peak_bytes: full.peak_bytes.max(left.peak_bytes), ..full };
    let flags = flags.map(str::to_owned).to_vec();
    server.restart_with(flags)?;
    let restarted = proc::memory(server.pid())?;
    Ok(Measured { empty, full, left, restarted, cpu_seconds })
}

/// Sends [`STEPS`] samples of each series, tenant by tenant.
fn send(server: &Server, shape: Tenants, batch_len: usize) -> Result<()> {
    let mut connection = WriteConnection::open(server.port, "/api/v1/write")?;
    let start_ms = (SystemClock::new().now_ms() - AGE_MS) / STEP_MS * STEP_MS;
    for tenant in 0..shape.tenant_count {
        connection.set_tenant(&format!("tenant-{tenant}"));
        for first in (0..shape.series_count).step_by(batch_len) {
            let end = shape.series_count.min(first + batch_len);
            let mut body = Body::new((first..end).map(traffic::labels));
            let mut values = Values::new(first, end - first);
            for step in 0..STEPS as i64 {
                body.set(start_ms + step * STEP_MS, values.step());
                connection.post(body.bytes())?;
            }
        }
    }
    Ok(())
}

fn head_series(server: &Server) -> Result<f64> {
    let (_, metrics) = http::get(server.port, "/metrics")?;
    let line = metrics.lines().find(|line| line.starts_with("chronolith_head_series "));
    let (_, number) = line.and_then(|line| line.split_once(' ')).context("no chronolith_head_series")?;
    Ok(number.parse()?)
}
