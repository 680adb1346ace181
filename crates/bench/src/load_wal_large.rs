//! Benchmark `load-wal-large`: a log of 100 million samples (`--full`: a billion) over 10 000 series, and one
//! of 20 million over a million series: load of a Prometheus log, full replay of our own after a kill,
//! Prometheus itself.
//!
//! Invariants: each measurement is a process of its own; count and checksum of all samples are compared with
//! the generator's before a figure counts.

mod measure;
mod report;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use chronolith_model::BlockEncoding;

use crate::load_wal::content::{Checksum, Content, LabelList, Pair, Visit, checksum, mix};
use crate::load_wal::{clear, fill_own, import, read_back, write_log};
use crate::options::ReportDirectory;
use measure::{Step, Used};

/// Time between two samples of a series.
const STEP_MS: i64 = 15_000;
/// First time: 2026-11-01 00:00 UTC.
const START_MS: i64 = 1_793_491_200_000;
/// Series of one target, which are scraped together.
const TARGET_SERIES: usize = 1000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A billion samples over 10 000 series.
    #[arg(long)]
    full: bool,
    /// Shapes to measure: "wide" (a million series), "long" (10 000 series).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Divides the samples per series: a quick look.
    #[arg(long, default_value_t = 1)]
    divide: usize,
    /// Encoding of the blocks that the load writes.
    #[arg(long, value_enum, default_value_t = Encoding::Dense)]
    encoding: Encoding,
    /// Leaves our own log out.
    #[arg(long)]
    skip_own: bool,
    /// Leaves Prometheus out.
    #[arg(long)]
    skip_prometheus: bool,
    /// Directory for logs and stores; removed afterwards.
    #[arg(long, default_value = "target/load-wal-large")]
    dir: PathBuf,
    #[command(flatten)]
    out: ReportDirectory,
    /// One step in this process, for the benchmark itself.
    #[arg(long, hide = true)]
    step: Option<Step>,
}

/// Encoding of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Encoding {
    /// Dense chunks, readable by Chronolith only.
    Dense,
    /// Prometheus's XOR chunks.
    Prometheus,
}

impl Encoding {
    fn name(self) -> &'static str {
        match self {
            Encoding::Dense => "dense",
            Encoding::Prometheus => "prometheus",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(super) name: &'static str,
    pub(super) series: usize,
    pub(super) samples_per_series: usize,
    /// Wall seconds, CPU seconds and peak bytes of Prometheus 3.14, as published, for the size without
    /// `--full`.
    pub(super) prometheus: (f64, f64, f64),
}

impl Shape {
    pub(crate) fn samples(&self) -> u64 {
        (self.series * self.samples_per_series) as u64
    }

    fn is_counter(series: usize) -> bool {
        series.is_multiple_of(2)
    }
}

impl Content for Shape {
    fn series_count(&self) -> usize {
        self.series
    }

    fn labels(&self, series: usize) -> LabelList {
        let target = series / TARGET_SERIES;
        let metric = series % TARGET_SERIES;
        let hash = mix(target as u64);
        let namespace = ["checkout", "payments", "search-frontend", "monitoring"][target % 4];
        let kind = if Shape::is_counter(series) { "total" } else { "current" };
        let pairs = [
            ("__name__", format!("container_{}_operations_{kind}", metric / 4)),
            ("cluster", "bench-eu-1".to_owned()),
            ("container", format!("{namespace}-server")),
            ("device", format!("/dev/disk/by-id/nvme-{}", metric % 4)),
            ("id", format!("/kubepods/burstable/pod{:08x}-{:04x}", hash >> 32, hash & 0xffff)),
            ("instance", format!("10.{}.{}.{}:9100", target >> 16 & 255, target >> 8 & 255, target & 255)),
            ("job", format!("kubernetes-{namespace}")),
            ("namespace", namespace.to_owned()),
            ("pod", format!("{namespace}-server-{:08x}-{target:05}", hash as u32)),
            ("region", "eu-central-1".to_owned()),
        ];
        pairs.into_iter().map(Pair).collect()
    }

    fn series_ref(&self, series: usize) -> u64 {
        series as u64 + 1
    }

    fn series_per_record(&self) -> usize {
        TARGET_SERIES
    }

    fn for_each_record(&self, visit: &mut Visit<'_>) -> Result<()> {
        // Counters in units, gauges in hundredths.
        let mut current: Vec<i64> = (0..self.series).map(|s| (mix(s as u64) % 100_000) as i64).collect();
        let mut values = vec![0.0; TARGET_SERIES];
        let mut random = 7u64;
        for step in 0..self.samples_per_series {
            for (target, part) in current.chunks_mut(TARGET_SERIES).enumerate() {
                for (at, (current, value)) in part.iter_mut().zip(&mut values).enumerate() {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let draw = (random >> 33) as i64;
                    if Shape::is_counter(at) {
                        *current += draw % 1000;
                        *value = *current as f64;
                    } else {
                        *current += draw % 201 - 100;
                        *value = *current as f64 / 100.0;
                    }
                }
                // Targets are scraped one after the other within the interval.
                let phase = (mix(target as u64) % STEP_MS as u64) as i64;
                let time = START_MS + step as i64 * STEP_MS + phase;
                visit(target * TARGET_SERIES, time, &values[..part.len()])?;
            }
        }
        Ok(())
    }
}

/// Figures of one shape.
pub(crate) struct Measured {
    pub(super) shape: Shape,
    pub(super) log_bytes: u64,
    pub(super) checksum: Checksum,
    pub(super) rows: Vec<(&'static str, Used)>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(step) = options.step {
        return run_step(options, step);
    }
    let mut measured = Vec::new();
    for shape in shapes(options) {
        if options.only.is_empty() || options.only.iter().any(|name| name == shape.name) {
            eprintln!("{}: {} series x {} samples", shape.name, shape.series, shape.samples_per_series);
            measured.push(measure_shape(options, shape)?);
        }
    }
    ensure!(!measured.is_empty(), "no shape of that name");
    report::write(options, &measured)
}

fn shapes(options: &Options) -> [Shape; 2] {
    let factor = if options.full { 10 } else { 1 };
    let shape = |name, series, samples_per_series: usize, prometheus| Shape {
        name,
        series,
        samples_per_series: (samples_per_series / options.divide.max(1)).max(1),
        prometheus,
    };
    [
        shape("wide", 1_000_000, 20, (7.2, 13.4, 1.03e9)),
        shape("long", 10_000, 10_000 * factor, (8.4, 15.8, 162e6)),
    ]
}

fn measure_shape(options: &Options, shape: Shape) -> Result<Measured> {
    clear(&options.dir)?;
    let source = options.dir.join("prometheus");
    write_log(&shape, &source)?;
    let log_bytes = crate::proc::disk_bytes(&source);
    let checksum = checksum(&shape, |_| true)?;
    let mut rows = Vec::new();
    let used = measure::step(options, shape.name, Step::Import)?;
    verify(&options.dir.join("store"), checksum)?;
    eprintln!("  load of a Prometheus log: {used}");
    rows.push(("Chronolith: load of a Prometheus log", used));
    clear(&options.dir.join("store"))?;
    if !options.skip_prometheus {
        let used = measure::prometheus(&source, shape.series)?;
        eprintln!("  Prometheus on the same log: {used}");
        rows.push(("Prometheus on the same log", used));
    }
    clear(&source)?;
    if !options.skip_own {
        let used = measure::fill_and_kill(options, shape.name)?;
        eprintln!("  filling our own log: {used}");
        rows.push(("Chronolith: writing the same content, then kill -9", used));
        let used = measure::step(options, shape.name, Step::Replay)?;
        verify(&options.dir.join("own"), checksum)?;
        eprintln!("  restart after kill -9, full replay: {used}");
        rows.push(("Chronolith: restart after kill -9, full replay of its own log", used));
    }
    clear(&options.dir)?;
    Ok(Measured { shape, log_bytes, checksum, rows })
}

fn verify(dir: &Path, expected: Checksum) -> Result<()> {
    let found = read_back::all(&*read_back::open(dir)?)?;
    ensure!(found == expected, "read back {found:?}, expected {expected:?}");
    Ok(())
}

fn run_step(options: &Options, step: Step) -> Result<()> {
    let shape = shapes(options).into_iter().find(|shape| options.only.iter().any(|name| name == shape.name));
    let Some(shape) = shape else { anyhow::bail!("a step needs a shape") };
    match step {
        Step::Import => {
            let store = options.dir.join("store");
            let encoding = match options.encoding {
                Encoding::Dense => BlockEncoding::Dense,
                Encoding::Prometheus => BlockEncoding::Prometheus,
            };
            let report = import(&options.dir.join("prometheus"), &store, encoding)?;
            ensure!(report.damages.is_empty(), "{:?}", report.damages);
            let tsdb = read_back::open(&store)?;
            read_back::first_answer(&tsdb, "container_0_operations_total")?;
        }
        Step::Replay => {
            let tsdb = read_back::open(&options.dir.join("own"))?;
            read_back::first_answer(&tsdb, "container_0_operations_total")?;
            measure::print_used();
            // The next start is to find what this one found.
            std::process::abort();
        }
        Step::Fill => {
            fill_own(&shape, &options.dir.join("own"), usize::MAX)?;
            measure::print_used();
            // Whoever started this ends it with a kill.
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
    }
    measure::print_used();
    Ok(())
}
