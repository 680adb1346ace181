//! Benchmark `write-path`: the store in this process, without HTTP and parsing: how throughput, latency and syncs change
//! with the number of writers, the size of a batch and whether a batch is synced before it is acknowledged.
//!
//! Holds: every writer has series of its own that exist before the clock starts; a batch has one sample of each;
//! nothing may be rejected.
//! Not here: background work (no windows are cut, no checkpoints are written while the clock runs).

mod report;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use chronolith_base::{Clock, Env, SystemClock};
use chronolith_model::TenantId;
use chronolith_tsdb::{SyncMode, Tsdb, TsdbOptions};

use crate::proc;
use writer::Writer;

/// Writer 0 takes part in all cases and writes hours of samples in each; nothing of it may lie in the future.
const START_AGE_MS: i64 = 20 * 86_400_000;
const QUICK_WRITERS: usize = 4;
const QUICK_BATCH: usize = 500;
const QUICK_SECONDS: f64 = 0.1;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Writers at once, one case each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 10, 50, 200])]
    writers: Vec<usize>,
    /// Samples a batch, one case each.
    #[arg(long, value_delimiter = ',', default_values_t = [5_000, 10_000])]
    batch: Vec<usize>,
    /// Seconds a case.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// At most 4 writers, batches of 500, and a tenth of a second a case: shows that the benchmark works.
    #[arg(long)]
    quick: bool,
    /// Where the report goes.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
    /// Where data directories go; its disk is part of what is measured.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    data: PathBuf,
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Case {
    sync: SyncMode,
    batch_len: usize,
    writer_count: usize,
}

/// What was found.
struct Measured {
    case: Case,
    seconds: f64,
    batch_count: usize,
    /// Of this process, the making of samples included.
    cpu_seconds: f64,
    sync_count: u64,
    written_bytes: u64,
    /// Of each batch, ascending, in microseconds.
    ack_us: Vec<u32>,
}

/// The command.
pub(crate) fn run(options: &Options) -> Result<()> {
    let measured = measure_all(options)?;
    report::write(options, &measured)
}

fn measure_all(options: &Options) -> Result<Vec<Measured>> {
    let capped = |counts: &[usize], most: usize| -> Vec<usize> {
        let mut counts: Vec<usize> =
            counts.iter().map(|count| if options.quick { (*count).min(most) } else { *count }).collect();
        counts.dedup();
        counts
    };
    let (writers, batches) = (capped(&options.writers, QUICK_WRITERS), capped(&options.batch, QUICK_BATCH));
    let seconds = if options.quick { options.seconds.min(QUICK_SECONDS) } else { options.seconds };
    ensure!(
        seconds > 0.0 && writers.iter().chain(&batches).all(|count| *count > 0),
        "counts must be above 0"
    );
    let mut measured = Vec::new();
    for sync in [SyncMode::Fsync, SyncMode::Os] {
        for &batch_len in &batches {
            let dir = options.data.join(format!("chronolith-bench-{}-write-path", std::process::id()));
            let done = measure_store(&dir, sync, batch_len, &writers, seconds);
            // What the store leaves is gigabytes, also after a failure.
            std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
            measured.extend(done?);
        }
    }
    Ok(measured)
}

/// One store for all numbers of writers, so that its series are made once.
fn measure_store(
    dir: &Path,
    sync: SyncMode,
    batch_len: usize,
    writer_counts: &[usize],
    seconds: f64,
) -> Result<Vec<Measured>> {
    std::fs::create_dir_all(dir)?;
    let options = TsdbOptions { sync, ..TsdbOptions::new(dir.to_owned()) };
    let tsdb = Tsdb::open(Env::real(), options, Arc::default()).map_err(|error| anyhow!("{error}"))?;
    let writer_max = writer_counts.iter().copied().max().unwrap_or(0);
    let start_ms = SystemClock::new().now_ms() - START_AGE_MS;
    let mut writers: Vec<Writer> =
        (0..writer_max).map(|idx| Writer::new(idx * batch_len, batch_len, start_ms)).collect();
    for writer in &mut writers {
        writer.append(&tsdb, &TenantId::anonymous())?;
    }
    println!("{sync:?}, batches of {batch_len}: {} series", writer_max * batch_len);
    let mut measured = Vec::new();
    for &writer_count in writer_counts {
        let case = Case { sync, batch_len, writer_count };
        let one = measure(&tsdb, case, &mut writers[..writer_count], seconds)?;
        println!("  {}", one.summary());
        measured.push(one);
    }
    Ok(measured)
}

fn measure(tsdb: &Tsdb, case: Case, writers: &mut [Writer], seconds: f64) -> Result<Measured> {
    let tenant = TenantId::anonymous();
    let stop = AtomicBool::new(false);
    let (before, cpu_before) = (tsdb.stats(), proc::cpu_seconds(std::process::id())?);
    let start = Instant::now();
    let written: Vec<Result<Vec<u32>>> = std::thread::scope(|scope| {
        let workers = writers.iter_mut().map(|writer| {
            let (stop, tenant) = (&stop, &tenant);
            scope.spawn(move || {
                let mut ack_us = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let elapsed = writer.append(tsdb, tenant)?;
                    ack_us.push(u32::try_from(elapsed.as_micros()).unwrap_or(u32::MAX));
                }
                Ok(ack_us)
            })
        });
        let workers: Vec<_> = workers.collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("a writer does not panic")).collect()
    });
    let elapsed_seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = proc::cpu_seconds(std::process::id())?.since(cpu_before).total();
    let mut ack_us = written.into_iter().collect::<Result<Vec<Vec<u32>>>>()?.concat();
    ack_us.sort_unstable();
    let after = tsdb.stats();
    let appended = after.samples_appended - before.samples_appended;
    ensure!(appended == (ack_us.len() * case.batch_len) as u64, "the store counts {appended} samples");
    Ok(Measured {
        case,
        seconds: elapsed_seconds,
        batch_count: ack_us.len(),
        cpu_seconds,
        sync_count: after.wal_sync_count - before.wal_sync_count,
        written_bytes: after.wal_written_bytes - before.wal_written_bytes,
        ack_us,
    })
}

#[cfg(test)]
mod tests {
    use super::{Options, measure_all};

    #[test]
    fn a_quick_run_measures_every_case() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            writers: vec![1, 3],
            batch: vec![100],
            seconds: 0.05,
            quick: true,
            out: dir.path().to_owned(),
            data: dir.path().to_owned(),
        };
        let measured = measure_all(&options).unwrap();
        assert_eq!(measured.len(), 4);
        assert!(measured.iter().all(|one| one.batch_count > 0 && one.ack_us.len() == one.batch_count));
        // With fsync no batch is acknowledged before a sync.
        assert!(measured[..2].iter().all(|one| one.sync_count > 0));
    }
}
