//! Rate of a scan: all series of a block selected from the S3 server on loopback, and the same bytes fetched
//! by curl.
//!
//! Invariant: both fetch the chunks of one block with 16 requests at the same time; no sample is decoded.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use chronolith_base::Env;
use chronolith_bucket::store::request::Operation;
use chronolith_bucket::{BlockCatalog, CatalogOptions, Store};
use chronolith_model::{MatchOp, Matcher, ReadContext, Selector, SeriesRead, TenantId, TimeRange};

use super::gateway::{ACCESS_KEY, BUCKET, Gateway, REGION, SECRET_KEY};
use crate::driver::Run;
use crate::latency::median;
use crate::report::Table;

const REQUESTS: u64 = 16;
const RANGE_BYTES: u64 = 4 << 20;
const RATIO_MIN: f64 = 0.7;

/// Measures both `repeats` times in alternation.
pub(super) fn measure(gateway: &Gateway, tenant: &str, repeats: usize, run: &mut Run) -> Result<()> {
    let mut scans = Vec::new();
    let mut bares = Vec::new();
    for _ in 0..repeats {
        let (bytes, scan) = scan(gateway, tenant)?;
        scans.push(scan);
        bares.push(bare(gateway, tenant, bytes)?);
    }
    let mut table = Table::new("Scan of a block over loopback", ["MB per second"]);
    let ratios: Vec<f64> = scans.iter().zip(&bares).map(|(scan, bare)| scan / bare).collect();
    let ratio = median(&ratios);
    table.row("selection of all series", 0, [median(&scans) / 1e6]);
    table.row("curl, 16 ranges of 4 MiB at the same time", 0, [median(&bares) / 1e6]);
    run.table(table);
    run.at_least("scan: rate over that of curl", ratio, RATIO_MIN);
    Ok(())
}

/// Selects all series and drops their chunks; returns bytes and bytes per second.
fn scan(gateway: &Gateway, tenant: &str) -> Result<(u64, f64)> {
    let env = Env::real();
    let handle = gateway.client.runtime().handle().clone();
    let config = super::gateway::store_config(gateway.port);
    let store = std::sync::Arc::new(Store::open(&config, &env, handle.clone())?);
    let options = CatalogOptions { keeps_chunks: false, ..CatalogOptions::default() };
    let catalog = BlockCatalog::new(store.clone(), env.clock.clone(), handle, &options);
    let ctx = ReadContext::unlimited(env.clock.clone());
    let blocks = catalog.blocks_in(&TenantId::new(tenant)?, TimeRange::ALL, &ctx)?;
    let block = blocks.first().context("no block to scan")?;
    let matchers = [Matcher::new("__name__", MatchOp::Regex, ".+")?];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let before = received(&store);
    let start = Instant::now();
    let mut batches = block.select(&selector, &ctx);
    let mut series: Vec<SeriesRead> = Vec::new();
    let mut count = 0;
    while batches.next_batch(&mut series)? {
        count += series.len();
        series.clear();
    }
    let seconds = start.elapsed().as_secs_f64();
    ensure!(count > 0, "the block has no series");
    let bytes = received(&store) - before;
    Ok((bytes, bytes as f64 / seconds))
}

fn received(store: &Store) -> u64 {
    let counters = store.counters();
    let gets = counters.operations.iter().find(|found| found.operation == Operation::Get);
    gets.map_or(0, |gets| gets.received_bytes)
}

/// Fetches the first `bytes` bytes of the chunks of the block; returns bytes per second.
fn bare(gateway: &Gateway, tenant: &str, bytes: u64) -> Result<f64> {
    let listed = gateway.client.objects(tenant)?;
    let mut left = bytes;
    let mut command = Command::new("curl");
    command.args(["-s", "-f", "-Z", "--parallel-max", &REQUESTS.to_string()]);
    let mut is_first = true;
    for (key, len) in listed.iter().filter(|(key, _)| key.contains("/chunks/")) {
        let mut offset = 0;
        while offset < *len && left > 0 {
            let end = (offset + RANGE_BYTES.min(left)).min(*len);
            if !is_first {
                command.arg("--next").args(["-s", "-f"]);
            }
            is_first = false;
            command
                .args(["--aws-sigv4", &format!("aws:amz:{REGION}:s3")])
                .args(["--user", &format!("{ACCESS_KEY}:{SECRET_KEY}")])
                // An S3 server requires this header among the signed ones; curl sends it since version 8.
                .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
                .args(["-r", &format!("{offset}-{}", end - 1), "-o", "/dev/null"])
                .arg(format!("http://127.0.0.1:{}/{BUCKET}/{key}", gateway.port));
            left -= end - offset;
            offset = end;
        }
    }
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status().context("curl is not there")?;
    ensure!(status.success(), "curl ended with {status}");
    Ok((bytes - left) as f64 / start.elapsed().as_secs_f64())
}
