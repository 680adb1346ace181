//! Benchmark `block-series`: Mimir's published benchmark of series from a block in a bucket, on our reader of
//! blocks in this process; the bucket is a local directory.
//!
//! Invariants: an operation is a selection as a query makes it, to its last batch: lists, entries, all chunks
//! in memory, labels of the first series, release; no sample is decoded. The series and bytes of each
//! operation are compared with the generated content before a figure counts.
//! Not here: Mimir itself; its published figures are quoted in the targets.

mod content;
mod measure;
mod shape;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use chronolith_base::Env;
use chronolith_model::BlockEncoding;

use crate::options::ReportDirectory;
use crate::report::{Bound, Report, Table, Target};
use content::Content;
use measure::{Figures, Mode, Run, World};
use shape::Shape;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Operations of each cell.
    #[arg(long, default_value_t = 640)]
    operations: usize,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32])]
    workers: Vec<usize>,
    /// Blocks to measure: xor, dense (default: both).
    #[arg(long, value_delimiter = ',', default_values_t = ["xor".to_owned(), "dense".to_owned()])]
    blocks: Vec<String>,
    /// Modes to measure: those whose names contain one of these texts (default: all).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds over all cells; the best of each counts, as a neighbour disturbs some of them.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Directory for the bucket; removed afterwards.
    #[arg(long, default_value = "target/block-series")]
    dir: PathBuf,
    #[command(flatten)]
    out: ReportDirectory,
}

/// Targets of one mode: ms per operation at one worker and at more, unsharded and sharded, and allocations.
struct Aims {
    mode: Mode,
    unsharded_ms: Times,
    sharded_ms: Times,
    allocations: f64,
}

#[derive(Clone, Copy)]
struct Times {
    one: f64,
    more: f64,
}

const AIMS: [Aims; 3] = [
    aims(Mode::Owned, times(1.6, 0.85), times(0.28, 0.15), 100.0),
    aims(Mode::OwnedVerified, times(2.2, 1.2), times(0.40, 0.22), 100.0),
    aims(Mode::Cached, times(0.20, 0.11), times(0.08, 0.045), 32.0),
];
/// Limits of the figures, as a multiple of the aims.
const MUST_FACTOR: f64 = 1.5;
const FETCHED_PER_RETURNED_MAX: f64 = 1.02;

const fn times(one: f64, more: f64) -> Times {
    Times { one, more }
}

const fn aims(mode: Mode, unsharded_ms: Times, sharded_ms: Times, allocations: f64) -> Aims {
    Aims { mode, unsharded_ms, sharded_ms, allocations }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.operations > 0 && options.rounds > 0, "operations and rounds must be above 0");
    let mut report = Report {
        name: "block-series".to_owned(),
        kinds: Vec::new(),
        notes: vec![
            "Mimir's best, quoted: unsharded 6.52 ms at one worker, 3.50 ms at more, 1500 allocations; sharded \
             1.51 ms, 1.00 ms, 750 allocations; it fetches 1.95 (sharded 3.8) bytes for a byte returned"
                .to_owned(),
            format!("{} operations a cell, best of {} rounds", options.operations, options.rounds),
        ],
        tables: Vec::new(),
        targets: Vec::new(),
    };
    for (name, encoding) in [("xor", BlockEncoding::Prometheus), ("dense", BlockEncoding::Dense)] {
        if !options.blocks.iter().any(|wanted| wanted == name) {
            continue;
        }
        let dir = options.dir.join(name);
        // Left by a run that was interrupted.
        let _ = std::fs::remove_dir_all(&dir);
        let measured = measure_block(options, name, encoding, &dir, &mut report);
        std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        measured?;
    }
    report.write(&options.out)
}

/// Measures all cells over one block.
fn measure_block(
    options: &Options,
    name: &str,
    encoding: BlockEncoding,
    dir: &Path,
    report: &mut Report,
) -> Result<()> {
    let content = Content::write(&Env::real(), dir, encoding)?;
    report.notes.push(format!("{name} block: {:.2} MB of chunks", content.chunks_bytes() as f64 / 1e6));
    let columns = [
        "ms/op",
        "CPU ms/op",
        "allocations/op",
        "allocated kB/op",
        "fetched MB/op",
        "requests/op",
        "fetched/returned",
    ];
    let mut table = Table::new(format!("{name} block"), columns);
    for aims in AIMS {
        if !options.only.is_empty() && !options.only.iter().any(|n| aims.mode.name().contains(n.as_str())) {
            continue;
        }
        let world = World::open(dir, aims.mode)?;
        for shape in [Shape::Unsharded, Shape::Sharded] {
            for &worker_count in &options.workers {
                let run = Run { shape, worker_count, operation_count: options.operations };
                let mut best: Option<Figures> = None;
                for _ in 0..options.rounds {
                    let figures = world.measure(&content, run)?;
                    best = Some(best.map_or(figures, |best| best.faster(figures)));
                }
                let Some(figures) = best else { continue };
                let label = format!("{}, {}, C={worker_count}", aims.mode.name(), shape.name());
                table.row(&label, 3, figures.cells());
                add_targets(&aims, run, &figures, &format!("{name}: {label}"), report);
            }
        }
    }
    report.tables.push(table);
    Ok(())
}

fn add_targets(aims: &Aims, run: Run, figures: &Figures, label: &str, report: &mut Report) {
    let times = match run.shape {
        Shape::Unsharded => aims.unsharded_ms,
        Shape::Sharded => aims.sharded_ms,
    };
    let aim_ms = if run.worker_count == 1 { times.one } else { times.more };
    let mut add = |what: &str, found: f64, most: f64| {
        report.targets.push(Target::new(format!("{label}: {what}"), found, Bound::AtMost(most)));
    };
    add("ms/op", figures.ms, aim_ms * MUST_FACTOR);
    if run.worker_count == 1 {
        add("allocations/op", figures.allocations, aims.allocations * MUST_FACTOR);
        add("fetched/returned", figures.fetched_per_returned, FETCHED_PER_RETURNED_MAX);
    }
}
