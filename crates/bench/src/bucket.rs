//! Benchmark `bucket`: queries of a read-only server over an S3 server that is 30 ms away, scans of it on
//! loopback, 10,000 blocks of 200 tenants, and two tenants next to each other.
//!
//! Invariants: answers are compared with a server that has the same blocks locally; the bucket is versitygw
//! over a directory, also for cases without delay; requests are counted by the proxy.
//! Not here: series from a block without a server (`block_series`).

mod cold;
mod content;
mod gateway;
mod neighbours;
mod proxy;
mod scan;
mod tenants;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use chronolith_base::{Clock, Env, SystemClock};
use chronolith_model::TimeRange;

use self::cold::{Case, CaseBounds};
use self::content::{DAY_MS, Shape, dense_metric, write_block};
use self::gateway::Gateway;
use self::neighbours::Neighbours;
use self::proxy::{Distance, Proxy};
use crate::driver::{Benchmark, Run};
use crate::server::{Kind, Server, Setup};

const DAY_TENANT: &str = "day";
const FOREIGN_TENANT: &str = "foreign";
const YEAR_TENANT: &str = "year";
const SCAN_TENANT: &str = "scan";
/// A million series.
const DAY_SHAPE: Shape = Shape { metrics: 1000, dense: 1000 };
const YEAR_SHAPE: Shape = Shape { metrics: 3, dense: 10 };
const SCAN_SHAPE: Shape = Shape { metrics: 1, dense: 1000 };
const YEAR_BLOCKS: i64 = 14;
const BLOCK_DAYS: i64 = 27;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Delay of each request through the proxy, ms.
    #[arg(long, default_value_t = 30)]
    delay_ms: u64,
    /// Bandwidth of each connection through the proxy, MB per second.
    #[arg(long, default_value_t = 90.0)]
    bandwidth: f64,
    /// Parts to run: queries, scan, tenants, neighbours (default: all).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Repetitions of each figure, of which the median counts.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Length of a phase of `neighbours`, seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// The S3 server (default: where `cargo xtask peers` built it, or in PATH).
    #[arg(long)]
    versitygw: Option<PathBuf>,
    /// Directory for blocks and buckets; removed afterwards.
    #[arg(long, default_value = "target/bench-bucket")]
    dir: PathBuf,
}

impl Options {
    fn has(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == part)
    }

    fn gateway_program(&self) -> Result<PathBuf> {
        let built = std::env::var_os("CHRONOLITH_PEERS").map(|dir| PathBuf::from(dir).join("versitygw"));
        let named = self.versitygw.clone().or(built).filter(|path| path.is_file());
        Ok(named.unwrap_or_else(|| PathBuf::from("versitygw")))
    }
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        run.note(format!(
            "proxy: {} ms per request, {} MB/s per connection; medians of {} runs, each a process of its own; \
             day: a block of 24 h with 1,000,000 series, of which the 1000 of the metric that is queried have a \
             sample every 15 s, the others every hour; year: {YEAR_BLOCKS} blocks of {BLOCK_DAYS} days",
            self.delay_ms, self.bandwidth, self.repeats
        ));
        // The end of the last whole day.
        let end_ms = SystemClock::new().now_ms() / DAY_MS * DAY_MS;
        run.with_directory(Some(&self.dir), |run, work| {
            if self.has("tenants") {
                tenants::measure(work, end_ms, self.repeats, run)?;
            }
            if ["queries", "scan", "neighbours"].iter().any(|part| self.has(part)) {
                measure_gateway(self, work, end_ms, run)?;
            }
            Ok(())
        })
    }
}

/// Measures the parts over an S3 server.
fn measure_gateway(options: &Options, work: &Path, end_ms: i64, run: &mut Run) -> Result<()> {
    let gateway = Gateway::start(&options.gateway_program()?, &work.join("gateway"))?;
    let blocks = work.join("blocks");
    fill(options, &gateway, &blocks, end_ms)?;
    let distance =
        Distance { delay: Duration::from_millis(options.delay_ms), bandwidth: options.bandwidth * 1e6 };
    if options.has("queries") {
        let proxy = Proxy::start(gateway.port, distance)?;
        let local = local_server(work, &blocks)?;
        cold::measure(&cases(end_ms), &proxy, &local, work, options.repeats, run)?;
    }
    if options.has("scan") {
        scan::measure(&gateway, SCAN_TENANT, options.repeats, run)?;
    }
    if options.has("neighbours") {
        let year_ms = YEAR_BLOCKS * BLOCK_DAYS * DAY_MS;
        let neighbours = Neighbours {
            dashboard_tenant: DAY_TENANT,
            dashboard_query: &format!("sum(rate({}[1h]))", dense_metric(DAY_SHAPE)),
            greedy_tenant: YEAR_TENANT,
            greedy_query: "count(last_over_time({__name__=~\".+\"}[1d]))",
            greedy_range: (end_ms - year_ms + DAY_MS, end_ms - 1000, 86_400),
            end_ms,
            phase: Duration::from_secs(options.seconds),
        };
        neighbours.measure(&gateway, work, run)?;
    }
    Ok(())
}

/// Writes the blocks and uploads them.
fn fill(options: &Options, gateway: &Gateway, blocks: &Path, end_ms: i64) -> Result<()> {
    let env = Env::real();
    let client = &gateway.client;
    let upload = |tenant, block: &Path| client.publish(tenant, &[client.upload(tenant, block)?]);
    if options.has("queries") || options.has("neighbours") {
        let range = TimeRange::new(end_ms - DAY_MS, end_ms);
        let day = write_block(&env, &blocks.join(DAY_TENANT), range, DAY_SHAPE)?;
        upload(DAY_TENANT, &day)?;
        client.upload_files(FOREIGN_TENANT, &day)?;
        tenants::link_tree(&blocks.join(DAY_TENANT), &blocks.join(FOREIGN_TENANT))?;
        for number in 0..YEAR_BLOCKS {
            let end = end_ms - number * BLOCK_DAYS * DAY_MS;
            let range = TimeRange::new(end - BLOCK_DAYS * DAY_MS, end);
            let block = write_block(&env, &blocks.join(YEAR_TENANT), range, YEAR_SHAPE)?;
            upload(YEAR_TENANT, &block)?;
        }
    }
    if options.has("scan") {
        let range = TimeRange::new(end_ms - BLOCK_DAYS * DAY_MS, end_ms);
        let block = write_block(&env, &blocks.join(SCAN_TENANT), range, SCAN_SHAPE)?;
        upload(SCAN_TENANT, &block)?;
    }
    Ok(())
}

/// A server that has the blocks locally.
fn local_server(work: &Path, blocks: &Path) -> Result<Server> {
    let flags = ["--multitenancy=true", "--self-scrape=off", "--compaction-size=0"];
    let mut server = Server::start(Kind::Chronolith, work, Setup::new(0).own_flags(flags))?;
    server.stop()?;
    tenants::link_tree(blocks, &server.data_dir().join("tenants"))?;
    server.start_again(Duration::from_secs(60))?;
    Ok(server)
}

fn cases(end_ms: i64) -> Vec<Case> {
    let day_query = format!("sum(sum_over_time({}[24h]))", dense_metric(DAY_SHAPE));
    let year_ms = YEAR_BLOCKS * BLOCK_DAYS;
    let year_query = format!("sum(sum_over_time({}[{year_ms}d]))", dense_metric(YEAR_SHAPE));
    let case = |name, tenant, query: &str, bounds| Case {
        name,
        tenant,
        query: query.to_owned(),
        time_ms: end_ms - 1,
        knows_catalogue: true,
        bounds,
    };
    let day_bounds = CaseBounds { gets: 4.0, rounds: 3.0, ms: 150.0, warm_ratio: 1.1 };
    let foreign_bounds = CaseBounds { gets: 6.0, ..CaseBounds::NONE };
    let year_bounds = CaseBounds { ms: 250.0, warm_ratio: 1.1, ..CaseBounds::NONE };
    vec![
        case("1000 series of a day", DAY_TENANT, &day_query, day_bounds),
        Case {
            knows_catalogue: false,
            ..case("1000 series of a day, with the catalogue", DAY_TENANT, &day_query, CaseBounds::NONE)
        },
        case("1000 series of a day, block of others", FOREIGN_TENANT, &day_query, foreign_bounds),
        case("10 series of a year", YEAR_TENANT, &year_query, year_bounds),
    ]
}
