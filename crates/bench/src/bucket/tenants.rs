//! 10,000 blocks of 200 tenants: start of a read-only process, memory, the first query of each tenant.
//!
//! Invariant: the bucket is a local directory; tenants share the objects by hard links, so that each block
//! has
//! files and a record of its own name.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chronolith_base::Env;
use chronolith_bucket::StoreConfig;
use chronolith_model::TimeRange;

use super::content::{DAY_MS, Shape, dense_metric, write_block};
use super::gateway::Client;
use crate::driver::Run;
use crate::http::{QueryConnection, ok, query_path};
use crate::latency::{largest, median, timed};
use crate::report::{MIB, Table};
use crate::server::{Kind, Server, Setup};

const TENANTS: usize = 200;
const BLOCKS_PER_TENANT: usize = 50;
const SHAPE: Shape = Shape { metrics: 1, dense: 20 };
const HOUR_MS: i64 = 3_600_000;
const READY_WAIT: Duration = Duration::from_secs(60);

/// Program that wrote the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Catalogues and sidecars.
    Chronolith,
    /// Blocks alone, as Mimir has them.
    Mimir,
}

pub(super) fn measure(work: &Path, end_ms: i64, repeats: usize, run: &mut Run) -> Result<()> {
    let mut table = Table::new(
        "10,000 blocks of 200 tenants",
        [
            "exec to ready ms",
            "RSS MiB",
            "first queries of 200 tenants, s",
            "p50 ms",
            "max ms",
            "RSS MiB then",
        ],
    );
    for layout in [Layout::Chronolith, Layout::Mimir] {
        let dir = work.join(format!("tenants-{layout:?}"));
        write_bucket(&dir, layout, end_ms)?;
        let runs =
            (0..repeats).map(|_| measure_once(&dir, work, end_ms)).collect::<Result<Vec<[f64; 6]>>>()?;
        std::fs::remove_dir_all(&dir)?;
        let middle: Vec<f64> =
            (0..6).map(|column| median(&runs.iter().map(|run| run[column]).collect::<Vec<f64>>())).collect();
        let [ready_ms, rss, ..] = middle[..] else { continue };
        table.row(format!("{layout:?}'s layout"), 1, middle.clone());
        let (ready_max, name) = match layout {
            Layout::Chronolith => (1000.0, "catalogues"),
            Layout::Mimir => (3000.0, "Mimir's layout"),
        };
        run.at_most(format!("10,000 blocks, {name}: exec to ready, ms"), ready_ms, ready_max);
        run.at_most(format!("10,000 blocks, {name}: RSS MiB"), rss, 120.0);
        let what = format!("10,000 blocks, {name}: RSS MiB after queries of all tenants");
        run.at_most(what, middle[5], 256.0 + 128.0);
    }
    run.table(table);
    Ok(())
}

/// Start, then one query over all blocks of each tenant.
fn measure_once(dir: &Path, parent: &Path, end_ms: i64) -> Result<[f64; 6]> {
    let bucket = format!("--bucket=file://{}", dir.display());
    let setup = Setup::new(0).own_flags(["--read-only=true", "--multitenancy=true", &bucket]);
    let mut server = Server::start(Kind::Chronolith, parent, setup)?;
    server.kill()?;
    let ready_ms = server.start_again(READY_WAIT)? * 1e3;
    let rss = server.memory()?.now_bytes as f64 / MIB;
    let samples = SHAPE.dense as i64 * BLOCKS_PER_TENANT as i64 * HOUR_MS / super::content::STEP_MS;
    let query = format!("sum(count_over_time({}[{}h]))", dense_metric(SHAPE), BLOCKS_PER_TENANT);
    let mut times = Vec::new();
    let all = Instant::now();
    for tenant in 0..TENANTS {
        let mut connection = QueryConnection::open_as(server.port, &tenant_name(tenant))?;
        let path = query_path(&query, end_ms - 1);
        let answer = timed(&mut times, || ok(connection.get(&path)?))?;
        let found = answer["data"]["result"][0]["value"][1].as_str().context("no value")?;
        ensure!(found == samples.to_string(), "{found} samples of {samples}");
    }
    let seconds = all.elapsed().as_secs_f64();
    let rss_then = server.memory()?.now_bytes as f64 / MIB;
    Ok([ready_ms, rss, seconds, median(&times), largest(&times), rss_then])
}

fn tenant_name(number: usize) -> String {
    format!("tenant-{number:03}")
}

fn write_bucket(dir: &Path, layout: Layout, end_ms: i64) -> Result<()> {
    let env = Env::real();
    let first = dir.join(tenant_name(0));
    let mut blocks = Vec::new();
    for number in 0..BLOCKS_PER_TENANT as i64 {
        let start = end_ms / DAY_MS * DAY_MS - (number + 1) * HOUR_MS;
        blocks.push(write_block(&env, &first, TimeRange::new(start, start + HOUR_MS), SHAPE)?);
    }
    if layout == Layout::Mimir {
        return (1..TENANTS).try_for_each(|tenant| link_tree(&first, &dir.join(tenant_name(tenant))));
    }
    let client = Client::open(&StoreConfig::new(&format!("file://{}", dir.canonicalize()?.display())))?;
    // The files are in their place: uploading compares them, and adds the sidecar.
    let records = blocks.iter().map(|block| client.upload(&tenant_name(0), block));
    let records = records.collect::<Result<Vec<_>>>()?;
    for tenant in 1..TENANTS {
        link_tree(&first, &dir.join(tenant_name(tenant)))?;
    }
    (0..TENANTS).try_for_each(|tenant| client.publish(&tenant_name(tenant), &records))
}

/// Copies a directory by hard links.
pub(super) fn link_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target: PathBuf = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => link_tree(&entry.path(), &target)?,
            false => std::fs::hard_link(entry.path(), target)?,
        }
    }
    Ok(())
}
