//! Benchmark `load-wal`: the four cases of Prometheus's BenchmarkLoadWAL, as a load of a Prometheus log and
//! as full replay of our own log of the same content, in this process.
//!
//! Invariants: time runs until the store is open and answers; count and checksum of all samples are compared
//! with the generator's before a figure counts.
//! Not here: Prometheus itself; its published figures are quoted in BENCHMARKS.md.

pub(crate) mod content;
pub(crate) mod prometheus_wal;
pub(crate) mod read_back;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use chronolith_base::Env;
use chronolith_format::chunk::xor;
use chronolith_import::{ImportOptions, ImportReport};
use chronolith_model::{BlockEncoding, Labels, StoreId, WriteBatch};
use stats_alloc::Region;

use crate::driver::{Benchmark, Run, clear};
use crate::latency::{median, timed};
use crate::proc;
use crate::report::Table;
use content::{Checksum, Content, LabelList, Visit, checksum, texts};
use prometheus_wal::{WalWriter, write_head_chunks};

/// Time between two samples of a series, as published.
const STEP_MS: i64 = 10;
/// Refs of neighbours are this far apart, so that they do not fall on workers in turn.
const REF_STEP: u64 = 101;
/// Value of the sample in the m-mapped chunk.
const MAPPED_VALUE: f64 = 42.0;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Cases to measure, by number 1 to 4 (default: all).
    #[arg(long, value_delimiter = ',')]
    only: Vec<usize>,
    /// Rounds of each case.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Directory for logs and stores; removed afterwards.
    #[arg(long, default_value = "target/load-wal")]
    dir: PathBuf,
}

/// One published case.
#[derive(Debug, Clone, Copy)]
struct Case {
    batches: usize,
    series_per_batch: usize,
    samples_per_series: usize,
    /// Last time of an m-mapped chunk of every series; samples up to there are in the log too.
    mapped_until: Option<i64>,
    /// Milliseconds that Prometheus 3.14 takes on two such cores.
    prometheus_ms: f64,
    /// Megabytes that it allocates.
    prometheus_mb: f64,
}

const CASES: [Case; 4] = [
    case(10, 100, 7200, None, 352.0, 42.0),
    case(10, 10_000, 50, None, 796.0, 258.0),
    case(10, 1000, 480, None, 272.0, 56.0),
    case(100, 1000, 480, Some(3800), 2277.0, 289.0),
];

const fn case(
    batches: usize,
    series_per_batch: usize,
    samples_per_series: usize,
    mapped_until: Option<i64>,
    prometheus_ms: f64,
    prometheus_mb: f64,
) -> Case {
    Case { batches, series_per_batch, samples_per_series, mapped_until, prometheus_ms, prometheus_mb }
}

impl Case {
    fn name(&self) -> String {
        let Case { batches, series_per_batch, samples_per_series, .. } = self;
        let mapped = self.mapped_until.map_or(String::new(), |until| format!(", m-mapped to {until}"));
        format!("{batches} x {series_per_batch} series x {samples_per_series} samples{mapped}")
    }

    fn logged(&self) -> u64 {
        (self.batches * self.series_per_batch * self.samples_per_series) as u64
    }

    /// Expected checksum of a load: the sample of the m-mapped chunk, and the samples of the log after it.
    fn expected(&self) -> Result<Checksum> {
        let until = self.mapped_until.unwrap_or(i64::MIN);
        let mut sum = checksum(self, |time| time > until)?;
        if let Some(time) = self.mapped_until {
            for series in 0..self.series_count() {
                let hash = content::series_hash(texts(&self.labels(series)));
                sum.add(hash, time, MAPPED_VALUE.to_bits());
            }
        }
        Ok(sum)
    }
}

impl Content for Case {
    fn series_count(&self) -> usize {
        self.batches * self.series_per_batch
    }

    fn labels(&self, series: usize) -> LabelList {
        let names = ["__name__", "l1", "l2", "l3", "l4"];
        let value = |at: usize| match at {
            0 => "test_metric".to_owned(),
            1 => format!("{series}"),
            at => format!("value_of_label_{at}"),
        };
        names.iter().enumerate().map(|(at, name)| (*name, value(at))).collect()
    }

    fn series_ref(&self, series: usize) -> u64 {
        (series as u64 + 1) * REF_STEP
    }

    fn series_per_record(&self) -> usize {
        self.series_per_batch
    }

    fn for_each_record(&self, visit: &mut Visit<'_>) -> Result<()> {
        for step in 0..self.samples_per_series {
            let values = vec![step as f64 * 100.0; self.series_per_batch];
            for batch in 0..self.batches {
                visit(batch * self.series_per_batch, step as i64 * STEP_MS, &values)?;
            }
        }
        Ok(())
    }
}

/// Figures of one way to load one case.
#[derive(Debug, Clone, Default)]
struct Figures {
    round_ms: Vec<f64>,
    peak_bytes: u64,
    allocations: usize,
    allocated_bytes: usize,
}

const COLUMNS: [&str; 7] = [
    "ms",
    "ns a logged sample",
    "resident, added at peak, MB",
    "allocations",
    "allocated, MB",
    "Prometheus 3.14, quoted, ms",
    "and MB allocated",
];

impl Figures {
    fn cells(&self, case: &Case) -> [(usize, f64); 7] {
        let ms = median(&self.round_ms);
        [
            (0, ms),
            (1, ms * 1e6 / case.logged() as f64),
            (0, self.peak_bytes as f64 / 1e6),
            (0, self.allocations as f64),
            (0, self.allocated_bytes as f64 / 1e6),
            (0, case.prometheus_ms),
            (0, case.prometheus_mb),
        ]
    }
}

impl Benchmark for Options {
    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(self.rounds > 0, "rounds must be above 0");
        let mut table = Table::new("load of a log", COLUMNS);
        for (number, case) in (1..).zip(CASES) {
            if self.only.is_empty() || self.only.contains(&number) {
                eprintln!("case {number}: {}", case.name());
                run.with_directory(Some(&self.dir), |_, dir| measure(self.rounds, &case, dir, &mut table))?;
            }
        }
        ensure!(!table.is_empty(), "no case of that number");
        run.table(table);
        run.note(format!("median of {} rounds; peak and allocations of the worst and last", self.rounds));
        Ok(())
    }
}

fn measure(rounds: usize, case: &Case, dir: &Path, table: &mut Table) -> Result<()> {
    let source = dir.join("prometheus");
    write_log(case, &source)?;
    write_mapped(case, &source)?;
    let expected = case.expected()?;
    let mut prometheus_log = Figures::default();
    let store = dir.join("store");
    for _ in 0..rounds {
        clear(&store)?;
        measure_load(&mut prometheus_log, &store, expected, || {
            let report = import(&source, &store, BlockEncoding::Dense)?;
            ensure!(report.damages.is_empty(), "{:?}", report.damages);
            ensure!(report.head.samples == expected.count, "{:?}", report.head);
            Ok(())
        })?;
    }
    let own = dir.join("own");
    fill_own(case, &own, usize::MAX)?;
    let expected = checksum(case, |_| true)?;
    let mut own_log = Figures::default();
    for _ in 0..rounds {
        measure_load(&mut own_log, &own, expected, || Ok(()))?;
    }
    for (log, figures) in [("Prometheus's", &prometheus_log), ("our own", &own_log)] {
        table.mixed_row(format!("{}, {log} log", case.name()), figures.cells(case));
        table.keep_rounds(0, figures.round_ms.clone());
    }
    Ok(())
}

/// Times `load` and the opening of `store`, then reads everything back.
fn measure_load(
    figures: &mut Figures,
    store: &Path,
    expected: Checksum,
    load: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let own_pid = std::process::id();
    proc::reset_peak(own_pid)?;
    let before = proc::memory(own_pid)?.now_bytes;
    let region = Region::new(crate::allocations::ALLOCATOR);
    let tsdb = timed(&mut figures.round_ms, || -> Result<_> {
        load()?;
        let tsdb = read_back::open(store)?;
        read_back::first_answer(&tsdb, "test_metric")?;
        Ok(tsdb)
    })?;
    let change = region.change();
    let peak = proc::memory(own_pid)?.peak_bytes;
    figures.peak_bytes = figures.peak_bytes.max(peak.saturating_sub(before));
    figures.allocations = change.allocations + change.reallocations;
    figures.allocated_bytes = change.bytes_allocated;
    let found = read_back::all(&tsdb)?;
    ensure!(found == expected, "read back {found:?}, expected {expected:?}");
    Ok(())
}

/// Writes `content` as a Prometheus log into `dir`.
pub(crate) fn write_log(content: &dyn Content, dir: &Path) -> Result<()> {
    let mut log = WalWriter::create(dir)?;
    let series: Vec<usize> = (0..content.series_count()).collect();
    for part in series.chunks(content.series_per_record()) {
        log.series(part.iter().map(|&series| (content.series_ref(series), content.labels(series))))?;
    }
    content.for_each_record(&mut |first, time, values| {
        log.samples((first..).zip(values).map(|(series, &value)| (content.series_ref(series), time, value)))
    })?;
    log.finish()
}

fn write_mapped(case: &Case, dir: &Path) -> Result<()> {
    let Some(time) = case.mapped_until else { return Ok(()) };
    let bytes = xor::encode_whole(&[time], &[MAPPED_VALUE]);
    let chunks = (0..case.series_count()).map(|series| (case.series_ref(series), time, time, bytes.clone()));
    write_head_chunks(dir, chunks)
}

/// Imports `source` into the store of `dir`.
pub(crate) fn import(source: &Path, dir: &Path, encoding: BlockEncoding) -> Result<ImportReport> {
    let blocks_dir = chronolith_tsdb::tenant_dir(dir, &StoreId::anonymous());
    let state_path = dir.join("import.json");
    let options = ImportOptions { source: source.to_owned(), blocks_dir, state_path, encoding };
    Ok(chronolith_import::run(&Env::real(), &options, &mut |_| {})?)
}

/// Writes `content` through the append path of a store in `dir`, whose log is never cut, and ends without a
/// stop. `samples_max` bounds the batch.
pub(crate) fn fill_own(content: &dyn Content, dir: &Path, samples_max: usize) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let tsdb = read_back::open_to_fill(dir)?;
    let tenant = StoreId::anonymous();
    let labels: Vec<Labels> =
        (0..content.series_count()).map(|s| Labels::from_pairs(texts(&content.labels(s)))).collect();
    let mut batch = WriteBatch::from_labels();
    content.for_each_record(&mut |first, time, values| {
        for (at, part) in values.chunks(samples_max.min(5000)).enumerate() {
            batch.clear();
            let first = first + at * samples_max.min(5000);
            for (labels, &value) in labels[first..].iter().zip(part) {
                batch.push_labels(labels, &[(time, value)]);
            }
            let outcome = tsdb.append(&tenant, &batch)?;
            ensure!(outcome.accepted_count == part.len() as u64, "{outcome:?}");
        }
        Ok(())
    })?;
    Ok(())
}
