//! Benchmark `write-path`: the store in this process, without HTTP and parsing: how throughput, latency and
//! syncs change with the number of writers, the size of a batch and whether a batch is synced before it is
//! acknowledged.
//!
//! Invariants: every writer has series of its own that exist before the clock starts; a batch has one sample
//! of each; nothing may be rejected. With `--against` two binaries do the same work in alternation
//! (`against`).
//! Not here: background work (no windows are cut, no checkpoints are written while the clock runs); only
//! segments of the log are prepared, as in a server.

mod against;
mod commit_clock;
mod report;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use chronolith_base::{Clock, Env, RealDisk, SystemClock};
use chronolith_model::StoreId;
use chronolith_tsdb::{SyncMode, Tsdb, TsdbOptions, WalJobs};

use crate::driver::{Benchmark, Run};
use crate::observed_disk::ObservedDisk;
use crate::proc::{Spent, Stopwatch};
use crate::workers::in_parallel;
use commit_clock::CommitClock;
use writer::Writer;

/// Writer 0 takes part in all cases and writes hours of samples in each; nothing of it may lie in the future.
const START_AGE_MS: i64 = 20 * 86_400_000;
const QUICK_WRITERS: usize = 4;
const QUICK_BATCH: usize = 500;
const QUICK_SECONDS: f64 = 0.1;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Writers at once, one case each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 10, 50, 200])]
    writers: Vec<usize>,
    /// Samples per batch, one case each.
    #[arg(long, value_delimiter = ',', default_values_t = [5_000, 10_000])]
    batch: Vec<usize>,
    /// Seconds a case.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Batches per case, of all writers together, instead of a time: the same work in each run.
    #[arg(long)]
    batches: Option<usize>,
    /// Only with fsync (`fsync`) or only without (`os`).
    #[arg(long, value_parser = ["fsync", "os"])]
    sync: Option<String>,
    /// A `chronolith-bench` of another commit: both do the same work in alternation and are compared.
    #[arg(long, value_name = "BINARY")]
    against: Option<PathBuf>,
    /// Runs of each binary with `--against`.
    #[arg(long, default_value_t = 10)]
    pairs: usize,
    /// Print the figures as one line of JSON instead of a report: what `--against` reads.
    #[arg(long)]
    figures: bool,
    /// At most 4 writers, batches of 500, and a tenth of a second a case: shows that the benchmark works.
    #[arg(long)]
    quick: bool,
}

/// Parameters of one run.
#[derive(Debug, Clone, Copy)]
struct Case {
    sync: SyncMode,
    batch_len: usize,
    writer_count: usize,
}

/// Figures of one run.
struct Measured {
    case: Case,
    batch_count: usize,
    /// Wall time, and CPU time of this process including the generation of samples.
    spent: Spent,
    sync_count: u64,
    written_bytes: u64,
    /// Latency of each batch.
    ack_ms: Vec<f64>,
    /// Duration of each commit of the log (its write and sync); empty without syncs.
    commit_ms: Vec<f64>,
}

/// End of a case.
#[derive(Debug, Clone, Copy)]
enum Extent {
    Seconds(f64),
    /// Number of batches of all writers together.
    Batches(usize),
}

impl Benchmark for Options {
    fn variant(&self) -> Option<&str> {
        self.against.is_some().then_some("against")
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        if let Some(binary) = &self.against {
            return against::measure(self, binary, run);
        }
        let measured = self.measure_all(run)?;
        match self.figures {
            true => println!("{}", report::figures(&measured)),
            false => report::add(self, &measured, run),
        }
        Ok(())
    }
}

impl Options {
    fn measure_all(&self, run: &mut Run) -> Result<Vec<Measured>> {
        let capped = |counts: &[usize], most: usize| -> Vec<usize> {
            let mut counts: Vec<usize> =
                counts.iter().map(|count| if self.quick { (*count).min(most) } else { *count }).collect();
            counts.dedup();
            counts
        };
        let writers = capped(&self.writers, QUICK_WRITERS);
        let batches = capped(&self.batch, QUICK_BATCH);
        let seconds = if self.quick { self.seconds.min(QUICK_SECONDS) } else { self.seconds };
        let extent = self.batches.map_or(Extent::Seconds(seconds), Extent::Batches);
        let counts = writers.iter().chain(&batches).chain(&self.batches);
        ensure!(seconds > 0.0 && counts.into_iter().all(|count| *count > 0), "counts must be above 0");
        let mut measured = Vec::new();
        let modes = [("fsync", SyncMode::Fsync), ("os", SyncMode::Os)];
        for (_, sync) in modes.into_iter().filter(|(name, _)| self.sync.as_ref().is_none_or(|s| s == name)) {
            for &batch_len in &batches {
                measured.extend(run.with_directory(None, |_, dir| {
                    measure_store(dir, sync, batch_len, &writers, extent, self.figures)
                })?);
            }
        }
        Ok(measured)
    }
}

/// One store for all numbers of writers, so that its series are made once.
fn measure_store(
    dir: &Path,
    sync: SyncMode,
    batch_len: usize,
    writer_counts: &[usize],
    extent: Extent,
    is_quiet: bool,
) -> Result<Vec<Measured>> {
    let options = TsdbOptions { sync, ..TsdbOptions::new(dir.to_owned()) };
    let clock = CommitClock::default();
    let disk = ObservedDisk::new(RealDisk::new(), Arc::new(clock.clone()));
    let env = Env { disk: Arc::new(disk), ..Env::real() };
    let tsdb = Tsdb::open(env, options, Arc::default()).map_err(|error| anyhow!("{error}"))?;
    // As in a server that has run for a second; what comes later is prepared while the clock runs.
    tsdb.wal_jobs().prepare_segment();
    let writer_max = writer_counts.iter().copied().max().unwrap_or(0);
    let start_ms = SystemClock::new().now_ms() - START_AGE_MS;
    let mut writers: Vec<Writer> =
        (0..writer_max).map(|idx| Writer::new(idx * batch_len, batch_len, start_ms)).collect();
    for writer in &mut writers {
        writer.append(&tsdb, &StoreId::anonymous())?;
    }
    if !is_quiet {
        println!("{sync:?}, batches of {batch_len}: {} series", writer_max * batch_len);
    }
    let mut measured = Vec::new();
    for &writer_count in writer_counts {
        let case = Case { sync, batch_len, writer_count };
        clock.take();
        let mut one = measure(&tsdb, case, &mut writers[..writer_count], extent)?;
        one.commit_ms = clock.take();
        if !is_quiet {
            println!("  {}", one.summary());
        }
        measured.push(one);
    }
    Ok(measured)
}

fn measure(tsdb: &Tsdb, case: Case, writers: &mut [Writer], extent: Extent) -> Result<Measured> {
    let tenant = StoreId::anonymous();
    let stop = AtomicBool::new(false);
    let is_over = AtomicBool::new(false);
    let batches_left = AtomicUsize::new(match extent {
        Extent::Seconds(_) => usize::MAX,
        Extent::Batches(count) => count,
    });
    let take = |left: usize| left.checked_sub(1);
    let before = tsdb.statistics().stats();
    let stopwatch = Stopwatch::of_this_process()?;
    let write = |_, writer: &mut Writer| {
        let mut ack_ms = Vec::new();
        while batches_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            ack_ms.push(writer.append(tsdb, &tenant)?.as_secs_f64() * 1e3);
            // After a batch: a writer that starts after the end of a short run writes one, too.
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(ack_ms)
    };
    let ack_ms = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                tsdb.wal_jobs().prepare_segment();
                std::thread::sleep(WalJobs::PREPARE_PAUSE);
            }
        });
        if let Extent::Seconds(seconds) = extent {
            let stop = &stop;
            scope.spawn(move || {
                std::thread::sleep(Duration::from_secs_f64(seconds));
                stop.store(true, Ordering::Relaxed);
            });
        }
        let written = in_parallel(writers, write);
        is_over.store(true, Ordering::Relaxed);
        written.and_then(|ack_ms| Ok((ack_ms.concat(), stopwatch.spent()?)))
    });
    let (ack_ms, spent) = ack_ms?;
    let after = tsdb.statistics().stats();
    let appended = after.head.samples.appended - before.head.samples.appended;
    ensure!(appended == (ack_ms.len() * case.batch_len) as u64, "the store counts {appended} samples");
    Ok(Measured {
        case,
        batch_count: ack_ms.len(),
        spent,
        sync_count: after.head.wal.sync_count - before.head.wal.sync_count,
        written_bytes: after.head.wal.written_bytes - before.head.wal.written_bytes,
        ack_ms,
        commit_ms: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Measured, Options};
    use crate::driver::{CommonOptions, Run};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        common: CommonOptions,
    }

    fn measure(flags: &[&str]) -> Vec<Measured> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let line = ["bench", "--data", path, "--out", path].into_iter().chain(flags.iter().copied());
        let Line { options, common } = Line::try_parse_from(line).unwrap();
        options.measure_all(&mut Run::new("write-path", &options, &common).unwrap()).unwrap()
    }

    #[test]
    fn a_quick_run_measures_every_case() {
        let measured = measure(&["--writers", "1,3", "--batch", "100", "--seconds", "0.05", "--quick"]);
        assert_eq!(measured.len(), 4);
        assert!(measured.iter().all(|one| one.batch_count > 0 && one.ack_ms.len() == one.batch_count));
        // With fsync no batch is acknowledged before a sync.
        assert!(measured[..2].iter().all(|one| one.sync_count > 0));
    }

    #[test]
    fn fixed_work_is_the_same_work_and_every_commit_is_timed() {
        let measured = measure(&["--writers", "1,3", "--batch", "50", "--batches", "40", "--sync", "fsync"]);
        assert_eq!(measured.iter().map(|one| one.batch_count).collect::<Vec<_>>(), [40, 40]);
        assert_eq!(measured[0].commit_ms.len(), 40, "one writer commits alone");
        assert!((1..=40).contains(&measured[1].commit_ms.len()));
    }
}
