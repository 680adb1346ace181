//! Benchmark `many-tenants`: CPU time, syncs and blocks of flushing the windows of many small tenants for two
//! days.
//!
//! Invariants: the store runs in this process on a real disk under a clock that is set by hand, so that two
//! days take minutes; every background job runs on this thread, as on the server's maintenance thread. At the
//! end samples of some tenants are counted.
//! Not here: HTTP, the write path (`write_path`).

mod disk_counter;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use chronolith_base::{Clock, Env, ManualClock, RealDisk, Rng};
use chronolith_model::{Columns, Labels, Matcher, ReadContext, Selector, TenantId, TimeRange, WriteBatch};
use chronolith_tsdb::{SyncMode, Tsdb, TsdbOptions};

use crate::observed_disk::ObservedDisk;
use crate::options::DataDirectory;
use crate::proc;
use disk_counter::{DiskCounter, DiskCounts};

/// 2026-11-20 00:00 UTC.
const START_MS: i64 = 1_795_132_800_000;
const HOUR_MS: i64 = 3_600_000;
const DAY_HOURS: i64 = 24;
/// Tenants whose samples are counted at the end.
const CHECKED_COUNT: usize = 20;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of tenants.
    #[arg(long, default_value_t = 10_000)]
    tenants: usize,
    /// Series of each.
    #[arg(long, default_value_t = 20)]
    series: usize,
    /// Seconds between two samples of a series.
    #[arg(long, default_value_t = 300)]
    interval: i64,
    /// Days that are simulated; the last one is measured.
    #[arg(long, default_value_t = 2)]
    days: i64,
    /// Estimated bytes below which a window waits; 0 flushes each window after its delay.
    #[arg(long, default_value_t = 1 << 20)]
    small_window: u64,
    /// 200 tenants: shows that the benchmark works.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    data: DataDirectory,
}

/// Cost of one day.
#[derive(Default)]
struct Day {
    flush_cpu_seconds: f64,
    flush_seconds: f64,
    other_cpu_seconds: f64,
    block_count: u64,
    disk: DiskCounts,
}

struct Run<'a> {
    options: &'a Options,
    tenant_count: usize,
    clock: Arc<ManualClock>,
    disk: Arc<DiskCounter>,
    tsdb: Arc<Tsdb>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.series > 0 && options.interval > 0 && options.days > 0, "counts must be above 0");
    let dir = options.data.join(format!("chronolith-bench-{}-many-tenants", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let done = measure(options, &dir);
    std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
    done
}

fn measure(options: &Options, dir: &std::path::Path) -> Result<()> {
    let clock = Arc::new(ManualClock::new(START_MS));
    let disk = Arc::new(DiskCounter::default());
    let observed = ObservedDisk::new(RealDisk::new(), disk.clone());
    let env = Env { clock: clock.clone(), disk: Arc::new(observed), rng: Arc::new(Rng::from_seed(1)) };
    // The measurement does not include appends.
    let mut store = TsdbOptions { sync: SyncMode::Os, ..TsdbOptions::new(dir.to_owned()) };
    store.flush.small_window_bytes = options.small_window;
    let tsdb = Tsdb::open(env, store, Arc::default()).map_err(|error| anyhow!("{error}"))?;
    let tenant_count = if options.quick { options.tenants.min(200) } else { options.tenants };
    let run = Run { options, tenant_count, clock, disk, tsdb };
    println!("{tenant_count} tenants of {} series, a sample in {} s", options.series, options.interval);
    for day in 0..options.days {
        let measured = run.day()?;
        println!("  day {}: {}", day + 1, measured.summary());
    }
    let memory = proc::memory(std::process::id())?;
    println!("  resident {} MiB, most {} MiB", memory.now_bytes >> 20, memory.peak_bytes >> 20);
    run.check()
}

impl Run<'_> {
    fn tenant(idx: usize) -> Result<TenantId> {
        TenantId::new(&format!("tenant-{idx:05}")).map_err(|error| anyhow!("{error}"))
    }

    fn day(&self) -> Result<Day> {
        let mut day = Day::default();
        for _ in 0..DAY_HOURS {
            self.append_hour()?;
            let blocks = self.tsdb.statistics().stats().maintenance.flush_count;
            let disk = self.disk.counts();
            let cpu = proc::cpu_seconds(std::process::id())?.total();
            let start = Instant::now();
            // Flushes are searched every ten seconds; each run has a budget of compactions.
            self.tsdb.maintenance().run();
            let cpu_seconds = proc::cpu_seconds(std::process::id())?.total() - cpu;
            let block_count = self.tsdb.statistics().stats().maintenance.flush_count - blocks;
            if block_count > 0 {
                day.flush_cpu_seconds += cpu_seconds;
                day.flush_seconds += start.elapsed().as_secs_f64();
                day.block_count += block_count;
                day.disk.add(self.disk.counts().since(disk));
            } else {
                day.other_cpu_seconds += cpu_seconds;
            }
        }
        Ok(day)
    }

    /// Appends an hour of samples of all tenants; the clock is at its end afterwards.
    fn append_hour(&self) -> Result<()> {
        let start_ms = self.clock.now_ms();
        self.clock.advance(Duration::from_millis(HOUR_MS.unsigned_abs()));
        let times: Vec<i64> = (0..HOUR_MS / (self.options.interval * 1000))
            .map(|i| start_ms + i * self.options.interval * 1000)
            .collect();
        let mut batch = WriteBatch::from_labels();
        for idx in 0..self.tenant_count {
            batch.clear();
            for series in 0..self.options.series {
                let samples: Vec<(i64, f64)> =
                    times.iter().map(|&time| (time, (time / 1000 % 977 * series as i64) as f64)).collect();
                let name = format!("metric_{series}");
                let labels = [("__name__", name.as_str()), ("instance", "host-1:9100"), ("job", "node")];
                batch.push_labels(&Labels::from_pairs(labels), &samples);
            }
            let outcome = self.tsdb.append(&Self::tenant(idx)?.into(), &batch)?;
            ensure!(outcome.rejected_count() == 0, "samples were rejected: {:?}", outcome.first_reject);
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let want = self.options.days * DAY_HOURS * (HOUR_MS / (self.options.interval * 1000));
        for idx in (0..self.tenant_count).step_by((self.tenant_count / CHECKED_COUNT).max(1)) {
            let ctx = ReadContext::unlimited(self.clock.clone());
            let matchers = [Matcher::equal("__name__", "metric_0")];
            let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
            let mut batches = self.tsdb.reader().queryable(&Self::tenant(idx)?).select(&selector, &ctx)?;
            let mut series = Vec::new();
            while batches.next_batch(&mut series)? {}
            let mut columns = Columns::default();
            for one in &series {
                one.samples.read(TimeRange::ALL, &mut columns)?;
            }
            ensure!(
                columns.times.len() as i64 == want,
                "tenant {idx}: {} of {want} samples",
                columns.times.len()
            );
        }
        println!("  samples of {CHECKED_COUNT} tenants are all there");
        Ok(())
    }
}

impl Day {
    fn summary(&self) -> String {
        let Day { flush_cpu_seconds, flush_seconds, other_cpu_seconds, block_count, disk } = self;
        let each = |count: u64| count as f64 / (*block_count).max(1) as f64;
        format!(
            "{block_count} blocks flushed in {flush_cpu_seconds:.2} s of CPU, {flush_seconds:.1} s; per block {:.2} files synced, \
             {:.2} directories synced, {:.2} files made; looks without a flush {other_cpu_seconds:.2} s of CPU",
            each(disk.file_syncs),
            each(disk.dir_syncs),
            each(disk.files),
        )
    }
}
