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

use anyhow::{Result, ensure};
use chronolith_base::Env;
use chronolith_model::BlockEncoding;

use crate::driver::{Benchmark, Run};
use crate::report::Table;
use content::Content;
use measure::{Cell, Figures, Mode, World};
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

impl Benchmark for Options {
    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(self.operations > 0 && self.rounds > 0, "operations and rounds must be above 0");
        run.note(
            "Mimir's best, quoted: unsharded 6.52 ms at one worker, 3.50 ms at more, 1500 allocations; sharded \
             1.51 ms, 1.00 ms, 750 allocations; it fetches 1.95 (sharded 3.8) bytes for a byte returned",
        );
        run.note(format!("{} operations a cell, best of {} rounds", self.operations, self.rounds));
        for (name, encoding) in [("xor", BlockEncoding::Prometheus), ("dense", BlockEncoding::Dense)] {
            if self.blocks.iter().any(|wanted| wanted == name) {
                run.with_directory(Some(&self.dir.join(name)), |run, dir| {
                    measure_block(self, name, encoding, dir, run)
                })?;
            }
        }
        Ok(())
    }
}

/// Measures all cells over one block.
fn measure_block(
    options: &Options,
    name: &str,
    encoding: BlockEncoding,
    dir: &Path,
    run: &mut Run,
) -> Result<()> {
    let content = Content::write(&Env::real(), dir, encoding)?;
    run.note(format!("{name} block: {:.2} MB of chunks", content.chunks_bytes() as f64 / 1e6));
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
                let cell = Cell { shape, worker_count, operation_count: options.operations };
                let mut best: Option<Figures> = None;
                for _ in 0..options.rounds {
                    let figures = world.measure(&content, cell)?;
                    best = Some(best.map_or(figures, |best| best.faster(figures)));
                }
                let Some(figures) = best else { continue };
                let label = format!("{}, {}, C={worker_count}", aims.mode.name(), shape.name());
                table.row(&label, 3, figures.cells());
                add_targets(&aims, cell, &figures, &format!("{name}: {label}"), run);
            }
        }
    }
    run.table(table);
    Ok(())
}

fn add_targets(aims: &Aims, cell: Cell, figures: &Figures, label: &str, run: &mut Run) {
    let times = match cell.shape {
        Shape::Unsharded => aims.unsharded_ms,
        Shape::Sharded => aims.sharded_ms,
    };
    let aim_ms = if cell.worker_count == 1 { times.one } else { times.more };
    run.at_most(format!("{label}: ms/op"), figures.ms, aim_ms * MUST_FACTOR);
    if cell.worker_count == 1 {
        let allocations_max = aims.allocations * MUST_FACTOR;
        run.at_most(format!("{label}: allocations/op"), figures.allocations, allocations_max);
        let fetched = figures.fetched_per_returned;
        run.at_most(format!("{label}: fetched/returned"), fetched, FETCHED_PER_RETURNED_MAX);
    }
}
