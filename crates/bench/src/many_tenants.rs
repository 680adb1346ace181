//! Benchmark `many-tenants`: CPU time, syncs and blocks of flushing the windows of many small tenants for two
//! days.
//!
//! Invariants: the store runs in this process on a real disk under a clock that is set by hand, so that two
//! days take minutes; every background job runs on this thread, as on the server's maintenance thread. At the
//! end samples of some tenants are counted.
//! Not here: HTTP, the write path (`write_path`).

mod disk_counter;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use chronolith_base::{Clock, Env, ManualClock, RealDisk, Rng};
use chronolith_model::{Columns, Labels, Matcher, ReadContext, Selector, TenantId, TimeRange, WriteBatch};
use chronolith_tsdb::{SyncMode, Tsdb, TsdbOptions};

use crate::driver::{Benchmark, Run};
use crate::observed_disk::ObservedDisk;
use crate::proc::{self, Stopwatch};
use crate::report::{Figure, MIB, Table};
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

struct Store<'a> {
    options: &'a Options,
    tenant_count: usize,
    clock: Arc<ManualClock>,
    disk: Arc<DiskCounter>,
    tsdb: Arc<Tsdb>,
}

impl Benchmark for Options {
    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(self.series > 0 && self.interval > 0 && self.days > 0, "counts must be above 0");
        run.with_directory(None, |run, dir| measure(self, dir, run))
    }
}

fn measure(options: &Options, dir: &Path, run: &mut Run) -> Result<()> {
    let clock = Arc::new(ManualClock::new(START_MS));
    let disk = Arc::new(DiskCounter::default());
    let observed = ObservedDisk::new(RealDisk::new(), disk.clone());
    let env = Env { clock: clock.clone(), disk: Arc::new(observed), rng: Arc::new(Rng::from_seed(1)) };
    // The measurement does not include appends.
    let mut store = TsdbOptions { sync: SyncMode::Os, ..TsdbOptions::new(dir.to_owned()) };
    store.flush.small_window_bytes = options.small_window;
    let tsdb = Tsdb::open(env, store, Arc::default()).map_err(|error| anyhow!("{error}"))?;
    let tenant_count = if options.quick { options.tenants.min(200) } else { options.tenants };
    let store = Store { options, tenant_count, clock, disk, tsdb };
    run.note(format!(
        "{tenant_count} tenants of {} series, a sample in {} s",
        options.series, options.interval
    ));
    let mut days = Vec::new();
    for day in 1..=options.days {
        days.push(store.day()?);
        println!("day {day} of {}", options.days);
    }
    let memory = proc::memory(std::process::id())?;
    store.check()?;
    run.note(format!("samples of {CHECKED_COUNT} tenants are all there"));
    let mut table = Table::new("a day", (1..=options.days).map(|day| format!("day {day}")));
    table.figures(&FIGURES, days.iter());
    run.table(table);
    let mut of_process = Table::new("this process", ["resident MiB", "at most"]);
    of_process.row("at the end", 0, [memory.now_bytes as f64 / MIB, memory.peak_bytes as f64 / MIB]);
    run.table(of_process);
    Ok(())
}

impl Store<'_> {
    fn tenant(idx: usize) -> Result<TenantId> {
        TenantId::new(&format!("tenant-{idx:05}")).map_err(|error| anyhow!("{error}"))
    }

    fn day(&self) -> Result<Day> {
        let mut day = Day::default();
        for _ in 0..DAY_HOURS {
            self.append_hour()?;
            let blocks = self.tsdb.statistics().stats().maintenance.flush_count;
            let disk = self.disk.counts();
            let stopwatch = Stopwatch::of_this_process()?;
            // Flushes are searched every ten seconds; each run has a budget of compactions.
            self.tsdb.maintenance().run();
            let spent = stopwatch.spent()?;
            let block_count = self.tsdb.statistics().stats().maintenance.flush_count - blocks;
            if block_count > 0 {
                day.flush_cpu_seconds += spent.cpu.total();
                day.flush_seconds += spent.wall_seconds;
                day.block_count += block_count;
                day.disk.add(self.disk.counts().since(disk));
            } else {
                day.other_cpu_seconds += spent.cpu.total();
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
        Ok(())
    }
}

const FIGURES: [Figure<Day>; 7] = [
    ("blocks flushed", 0, |day| day.block_count as f64),
    ("in CPU s", 2, |day| day.flush_cpu_seconds),
    ("in s", 1, |day| day.flush_seconds),
    ("files synced per block", 2, |day| day.per_block(day.disk.file_syncs)),
    ("directories synced per block", 2, |day| day.per_block(day.disk.dir_syncs)),
    ("files made per block", 2, |day| day.per_block(day.disk.files)),
    ("looks without a flush, CPU s", 2, |day| day.other_cpu_seconds),
];

impl Day {
    fn per_block(&self, count: u64) -> f64 {
        count as f64 / self.block_count.max(1) as f64
    }
}
