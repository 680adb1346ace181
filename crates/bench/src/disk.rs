//! Benchmark `disk`: bytes per sample after compaction, for six families of values and three clocks.
//!
//! Invariants: each family has a server of its own over an empty directory, so nothing is shared between
//! them; all servers get the same samples in the same requests; sizes are read after every sample is in a
//! block and no file has changed for a while; stored samples are read back and compared bit by bit.
//! Not here: logs and caches (`remote-write` shows the whole directory of a running server).

mod check;
mod load;
mod report;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, SystemClock};

use crate::families::{ClockKind, Family};
use crate::options::{DataDirectory, ReportDirectory, Servers};
use crate::server::{Kind, Server, Setup};
use crate::sizes::{self, Sizes};
use crate::traffic::{POD_SERIES, STEP_MS};
use check::Checked;
use load::Load;

const DAY_MS: i64 = 86_400_000;
/// Prometheus cuts a block from its head once the head spans three hours; the load ends before that.
const QUIET_MS: i64 = 11_400_000;
/// Longer than any server pauses between two looks for something to merge, cleaning up included.
const QUIET: Duration = Duration::from_secs(25);
/// Series and steps of `--quick`: four hours.
const QUICK_SERIES: usize = 100;
const QUICK_STEPS: usize = 960;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    only: Servers,
    /// Series of each family.
    #[arg(long, default_value_t = 1000)]
    series: usize,
    /// Samples per series, 15 s apart: 5760 are a day.
    #[arg(long, default_value_t = 5760)]
    steps: usize,
    /// At most 100 series and 4 hours: shows that the benchmark works.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    out: ReportDirectory,
    #[command(flatten)]
    data: DataDirectory,
}

/// Figures of one family, clock and server.
struct Measured {
    kind: Kind,
    clock: ClockKind,
    family: Family,
    sample_count: usize,
    sizes: Sizes,
    checked: Checked,
}

/// Size of the load.
#[derive(Debug, Clone, Copy)]
struct Extent {
    series_count: usize,
    step_count: usize,
    start_ms: i64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let kinds = options.only.chosen(&Kind::ALL)?;
    let mut series_count = options.series;
    let mut step_count = options.steps;
    if options.quick {
        (series_count, step_count) = (series_count.min(QUICK_SERIES), step_count.min(QUICK_STEPS));
    }
    ensure!(series_count > 0 && step_count > 0, "series and steps must be above 0");
    ensure!(step_count as i64 * STEP_MS <= DAY_MS, "steps must be at most a day, 5760");
    // A whole day of UTC: all servers keep to aligned ranges.
    let now_ms = SystemClock::new().now_ms();
    let start_ms = (now_ms - QUIET_MS).div_euclid(DAY_MS) * DAY_MS - DAY_MS;
    let extent = Extent { series_count, step_count, start_ms };
    let mut measured = Vec::new();
    for clock in ClockKind::ALL {
        for kind in &kinds {
            println!("{}, {} clock: {series_count} series of each family", kind.name(), clock.name());
            measured.extend(measure_families(*kind, clock, extent, options)?);
        }
    }
    report::write(options, extent, &kinds, &measured)
}

/// All families side by side: their servers wait more than they work, and no time is measured.
fn measure_families(
    kind: Kind,
    clock: ClockKind,
    extent: Extent,
    options: &Options,
) -> Result<Vec<Measured>> {
    std::thread::scope(|scope| {
        let workers =
            Family::ALL.map(|family| scope.spawn(move || measure(kind, clock, family, extent, options)));
        workers.into_iter().map(|worker| worker.join().expect("a measurement does not panic")).collect()
    })
}

fn measure(
    kind: Kind,
    clock: ClockKind,
    family: Family,
    extent: Extent,
    options: &Options,
) -> Result<Measured> {
    let setup = Setup { series_count: extent.series_count, flags: flags(kind), config: String::new() };
    let mut server = Server::start_with(kind, &options.data, setup)?;
    let load = Load::new(family, clock, extent);
    let mut run = || -> Result<Measured> {
        load.send(&server)?;
        sizes::wait_compacted(&mut server, load.sample_count() + 1, QUIET)?;
        let checked = check::read_back(&server, &load, kind)?;
        let sizes = Sizes::of(&server);
        let sample_count = load.sample_count();
        println!("  {}: {:.3} bytes per sample", family.name(), sizes.total() / sample_count as f64);
        Ok(Measured { kind, clock, family, sample_count, sizes, checked })
    };
    let done = run();
    done.with_context(|| {
        format!("{}, {}; its log ends with:\n{}", kind.name(), family.name(), server.log_tail())
    })
}

fn flags(kind: Kind) -> Vec<String> {
    let flags: &[&str] = match kind {
        // Windows are cut when the load is done instead of an hour later, small ones too, and no other series
        // are there.
        Kind::Chronolith => {
            &["--block-encoding=dense", "--flush-delay=15s", "--flush-small-window=0", "--self-scrape=off"]
        }
        Kind::Prometheus | Kind::VictoriaMetrics | Kind::Influx(_) | Kind::Carbon => &[],
    };
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

/// Query results are limited by bytes; a pod and four hours stay far below.
const CHECK_SERIES: usize = POD_SERIES / 2;
const CHECK_MS: i64 = 4 * 3_600_000;
