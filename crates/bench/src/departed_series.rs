//! Benchmark `departed-series`: resident memory of a server whose series have all been flushed to blocks,
//! compared with the empty server, at the peak, and after a restart over the same blocks.
//!
//! Invariants: samples lie in windows that are over, so that the server flushes them within seconds; it fails
//! if series stay in the head, or more memory than `--left-mb` above the empty server.
//! Not here: memory per active series (`memory`).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, SystemClock};

use crate::driver::{Benchmark, Run};
use crate::http::WriteConnection;
use crate::proc::Memory;
use crate::report::Table;
use crate::server::{Kind, Server, Setup};
use crate::traffic::{STEP_MS, SeriesBody};

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
const FLAGS: [&str; 5] = ["--multitenancy", "--flush-delay", "1s", "--self-scrape", "off"];

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

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        let columns = ["MB empty", "peak", "after", "of it anonymous", "after a restart", "CPU s"];
        let mut table = Table::new("memory by tenants x series", columns);
        for &shape in &self.shapes {
            let name = format!("{} x {}", shape.tenant_count, shape.series_count);
            let setup = Setup::new(shape.series_count).own_flags(FLAGS);
            let done = run.measure_server(Kind::Chronolith, setup, |server| measure(server, shape, self));
            let Some(one) = run.keep(&name, done) else { continue };
            let mb = |bytes: u64| bytes as f64 / MB;
            let cells = [
                (1, mb(one.empty.now_bytes)),
                (1, mb(one.full.peak_bytes)),
                (1, mb(one.left.now_bytes)),
                (1, mb(one.left.anonymous_bytes)),
                (1, mb(one.restarted.now_bytes)),
                (2, one.cpu_seconds),
            ];
            table.mixed_row(&name, cells);
            let left = mb(one.left.now_bytes) - mb(one.empty.now_bytes);
            run.keep(&name, self.check(left));
        }
        run.table(table);
        Ok(())
    }
}

impl Options {
    fn check(&self, left_mb: f64) -> Result<()> {
        ensure!(left_mb <= self.left_mb, "{left_mb:.1} MB more than the empty server");
        Ok(())
    }
}

fn measure(server: &mut Server, shape: Tenants, options: &Options) -> Result<Measured> {
    let empty = server.memory()?;
    send(server, shape, options.batch)?;
    let full = server.memory()?;
    server.wait_for("the removal of all series from the head", POLL, LEAVE_WAIT, |server| {
        Ok((server.metric("head_series")? == 0.0).then_some(()))
    })?;
    std::thread::sleep(SETTLE);
    let left = server.memory()?;
    let cpu_seconds = server.cpu()?.total();
    // The peak may lie in the flush.
    let full = Memory { peak_bytes: full.peak_bytes.max(left.peak_bytes), ..full };
    server.restart_with(FLAGS)?;
    let restarted = server.memory()?;
    Ok(Measured { empty, full, left, restarted, cpu_seconds })
}

/// Sends [`STEPS`] samples of each series, tenant by tenant.
fn send(server: &Server, shape: Tenants, batch_len: usize) -> Result<()> {
    let mut connection = WriteConnection::open(server.port)?;
    let start_ms = (SystemClock::new().now_ms() - AGE_MS) / STEP_MS * STEP_MS;
    for tenant in 0..shape.tenant_count {
        connection.set_tenant(&format!("tenant-{tenant}"));
        for first in (0..shape.series_count).step_by(batch_len) {
            let end = shape.series_count.min(first + batch_len);
            let mut series = SeriesBody::new(first..end);
            for step in 0..STEPS as i64 {
                connection.post(series.step(start_ms + step * STEP_MS))?;
            }
        }
    }
    Ok(())
}
