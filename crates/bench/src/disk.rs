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

use crate::driver::{Benchmark, Run};
use crate::families::{ClockKind, Family};
use crate::options::Servers;
use crate::server::{Kind, Setup};
use crate::sizes::{self, Sizes};
use crate::traffic::{POD_SERIES, STEP_MS};
use crate::workers::in_parallel;
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

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        self.only.of(&Kind::ALL)
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        let capped = |count: usize, most: usize| if self.quick { count.min(most) } else { count };
        let series_count = capped(self.series, QUICK_SERIES);
        let step_count = capped(self.steps, QUICK_STEPS);
        ensure!(series_count > 0 && step_count > 0, "series and steps must be above 0");
        ensure!(step_count as i64 * STEP_MS <= DAY_MS, "steps must be at most a day, 5760");
        // A whole day of UTC: all servers keep to aligned ranges.
        let now_ms = SystemClock::new().now_ms();
        let start_ms = (now_ms - QUIET_MS).div_euclid(DAY_MS) * DAY_MS - DAY_MS;
        let extent = Extent { series_count, step_count, start_ms };
        let mut measured = Vec::new();
        for clock in ClockKind::ALL {
            for kind in run.kinds() {
                println!("{}, {} clock: {series_count} series of each family", kind.name(), clock.name());
                // All families side by side: their servers wait more than they work, and no time is measured.
                let of_family = |_, family| measure(kind, clock, family, extent, run);
                measured.extend(in_parallel(Family::ALL, of_family)?);
            }
        }
        report::add(extent, &measured, run);
        Ok(())
    }
}

fn measure(kind: Kind, clock: ClockKind, family: Family, extent: Extent, run: &Run) -> Result<Measured> {
    // Windows are cut when the load is done instead of an hour later, small ones too, and no other series are
    // there.
    let setup = Setup::new(extent.series_count).own_flags([
        "--block-encoding=dense",
        "--flush-delay=15s",
        "--flush-small-window=0",
        "--self-scrape=off",
    ]);
    let load = Load::new(family, clock, extent);
    let sample_count = load.sample_count();
    let measured = run.measure_server(kind, setup, |server| {
        load.send(server)?;
        sizes::wait_compacted(server, sample_count + 1, QUIET)?;
        let checked = check::read_back(server, &load, kind)?;
        let sizes = Sizes::of(server);
        println!("  {}: {:.3} bytes per sample", family.name(), sizes.total() / sample_count as f64);
        Ok(Measured { kind, clock, family, sample_count, sizes, checked })
    });
    measured.with_context(|| family.name().to_owned())
}

/// Query results are limited by bytes; a pod and four hours stay far below.
const CHECK_SERIES: usize = POD_SERIES / 2;
const CHECK_MS: i64 = 4 * 3_600_000;
