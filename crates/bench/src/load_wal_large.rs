//! Benchmark `load-wal-large`: a log of 100 million samples (`--full`: a billion) over 10 000 series, and one
//! of 20 million over a million series: load of a Prometheus log, full replay of our own after a kill,
//! Prometheus itself.
//!
//! Invariants: each measurement is a process of its own; count and checksum of all samples are compared with
//! the generator's before a figure counts.

mod measure;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use chronolith_model::BlockEncoding;

use crate::driver::{Benchmark, Run, clear};
use crate::load_wal::content::{Checksum, Content, LabelList, Visit, checksum};
use crate::load_wal::{fill_own, import, read_back, write_log};
use crate::proc;
use crate::report::Table;
use crate::server::Kind;
use crate::traffic::mix;
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
    /// One step in this process, for the benchmark itself.
    #[arg(long, hide = true)]
    step: Option<Step>,
}

/// Encoding of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Encoding {
    /// Dense chunks, readable by Chronolith only.
    Dense,
    /// Prometheus's XOR chunks.
    Prometheus,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    name: &'static str,
    series: usize,
    samples_per_series: usize,
    /// Prometheus 3.14, as published, for the size without `--full`.
    prometheus: Used,
}

impl Shape {
    fn samples(&self) -> u64 {
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
        vec![
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
        ]
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

impl Benchmark for Options {
    /// The version of Prometheus belongs to the report even if it is quoted only.
    fn servers(&self) -> Result<Vec<Kind>> {
        let is_needed = self.step.is_none() && (!self.skip_prometheus || Kind::Prometheus.program().is_ok());
        Ok(if is_needed { vec![Kind::Prometheus] } else { Vec::new() })
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        if let Some(step) = self.step {
            return run_step(self, step);
        }
        let wanted = |shape: &Shape| self.only.is_empty() || self.only.iter().any(|name| name == shape.name);
        let shapes: Vec<Shape> = shapes(self).into_iter().filter(wanted).collect();
        ensure!(!shapes.is_empty(), "no shape of that name");
        for shape in shapes {
            eprintln!("{}: {} series x {} samples", shape.name, shape.series, shape.samples_per_series);
            run.with_directory(Some(&self.dir), |run, dir| measure_shape(self, shape, dir, run))?;
        }
        Ok(())
    }
}

fn shapes(options: &Options) -> [Shape; 2] {
    let factor = if options.full { 10 } else { 1 };
    let shape = |name, series, samples_per_series: usize, prometheus| Shape {
        name,
        series,
        samples_per_series: (samples_per_series / options.divide.max(1)).max(1),
        prometheus,
    };
    let of_wide = Used { wall_seconds: 7.2, cpu_seconds: 13.4, peak_bytes: 1.03e9 };
    let of_long = Used { wall_seconds: 8.4, cpu_seconds: 15.8, peak_bytes: 162e6 };
    [shape("wide", 1_000_000, 20, of_wide), shape("long", 10_000, 10_000 * factor, of_long)]
}

fn measure_shape(options: &Options, shape: Shape, dir: &Path, run: &mut Run) -> Result<()> {
    let source = dir.join("prometheus");
    write_log(&shape, &source)?;
    let log_mb = proc::disk_bytes(&source) as f64 / 1e6;
    let checksum = checksum(&shape, |_| true)?;
    let title = format!(
        "{}: {} series x {} samples, {log_mb:.0} MB of log, count and checksum verified",
        shape.name, shape.series, shape.samples_per_series
    );
    run.note(format!("{}: checksum {:016x}", shape.name, checksum.sum));
    let mut table = Table::new(title, ["wall s", "CPU s", "ns CPU a sample", "peak RSS MB"]);
    let mut add = |name: &str, used: Used| {
        eprintln!("  {name}: {used}");
        let ns = used.cpu_seconds * 1e9 / shape.samples() as f64;
        let cells = [(2, used.wall_seconds), (2, used.cpu_seconds), (1, ns), (0, used.peak_bytes / 1e6)];
        table.mixed_row(name, cells);
    };
    let used = measure::step(options, shape.name, Step::Import)?;
    verify(&dir.join("store"), checksum)?;
    add("Chronolith: load of a Prometheus log", used);
    clear(&dir.join("store"))?;
    if !options.skip_prometheus {
        add("Prometheus on the same log", measure::prometheus(&source, shape.series)?);
    }
    clear(&source)?;
    if !options.skip_own {
        let used = measure::fill_and_kill(options, shape.name)?;
        add("Chronolith: writing the same content, then kill -9", used);
        let used = measure::step(options, shape.name, Step::Replay)?;
        verify(&dir.join("own"), checksum)?;
        add("Chronolith: restart after kill -9, full replay of its own log", used);
    }
    if !options.full && options.divide <= 1 {
        add("Prometheus 3.14, quoted", shape.prometheus);
    }
    run.table(table);
    Ok(())
}

fn verify(dir: &Path, expected: Checksum) -> Result<()> {
    let found = read_back::all(&*read_back::open(dir)?)?;
    ensure!(found == expected, "read back {found:?}, expected {expected:?}");
    Ok(())
}

fn run_step(options: &Options, step: Step) -> Result<()> {
    let shape = shapes(options).into_iter().find(|shape| options.only.iter().any(|name| name == shape.name));
    let shape = shape.context("a step needs a shape")?;
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
            measure::print_used()?;
            // The next start is to find what this one found.
            std::process::abort();
        }
        Step::Fill => {
            fill_own(&shape, &options.dir.join("own"), usize::MAX)?;
            measure::print_used()?;
            // Whoever started this ends it with a kill.
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
    }
    measure::print_used()
}
