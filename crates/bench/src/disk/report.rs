//! Figures of `disk`. Not here: measurement (`disk`).

use super::{Extent, Measured, Sizes};
use crate::driver::Run;
use crate::families::{ClockKind, Family};
use crate::report::{Table, grouped};
use crate::server::Kind;

/// Bytes per sample of each family and of their mix.
struct Figures<'a> {
    measured: &'a [Measured],
    clock: ClockKind,
}

impl Figures<'_> {
    fn of(&self, kind: Kind, family: Family) -> Option<&Measured> {
        self.measured.iter().find(|m| (m.kind, m.clock, m.family) == (kind, self.clock, family))
    }

    fn per_sample(&self, kind: Kind, family: Family, bytes: fn(&Sizes) -> f64) -> f64 {
        self.of(kind, family).map_or(f64::NAN, |m| bytes(&m.sizes) / m.sample_count as f64)
    }

    fn mix(&self, kind: Kind, bytes: fn(&Sizes) -> f64) -> f64 {
        let parts =
            Family::ALL.map(|family| self.per_sample(kind, family, bytes) * family.percent() as f64 / 100.0);
        parts.iter().sum()
    }

    fn table(&self, kinds: &[Kind], what: &str, bytes: fn(&Sizes) -> f64) -> Table {
        let title = format!("{} clock: {what}, bytes a sample", self.clock.name());
        let mut table = Table::new(title, kinds.iter().map(|kind| kind.name()));
        for family in Family::ALL {
            table.row(family.name(), 3, kinds.iter().map(|kind| self.per_sample(*kind, family, bytes)));
        }
        table.row("**mix**", 3, kinds.iter().map(|kind| self.mix(*kind, bytes)));
        table
    }

    fn changed_table(&self, kinds: &[Kind]) -> Table {
        let title =
            format!("{} clock: samples that came back with another value, percent", self.clock.name());
        let mut table = Table::new(title, kinds.iter().map(|kind| kind.name()));
        for family in Family::ALL {
            let cells = kinds.iter().map(|kind| {
                self.of(*kind, family).map_or(f64::NAN, |m| {
                    100.0 * m.checked.changed_count as f64 / m.checked.sample_count as f64
                })
            });
            table.row(family.name(), 3, cells);
        }
        table
    }
}

/// Bytes of the mix as a part of a peer's.
fn bounds(clock: ClockKind) -> &'static [(Kind, f64)] {
    match clock {
        ClockKind::Regular => &[(Kind::Prometheus, 0.5), (Kind::VictoriaMetrics, 1.0)],
        ClockKind::Jittered => &[(Kind::Prometheus, 0.45), (Kind::VictoriaMetrics, 0.75)],
        ClockKind::Scraped => &[],
    }
}

/// Adds the tables, the targets and the notes to the report.
pub(super) fn add(extent: Extent, measured: &[Measured], run: &mut Run) {
    let kinds = run.kinds();
    for clock in ClockKind::ALL {
        let figures = Figures { measured, clock };
        run.table(figures.table(&kinds, "all files", Sizes::total));
        run.table(figures.table(&kinds, "times and values only", |sizes| sizes.chunk_bytes as f64));
        run.table(figures.changed_table(&kinds));
        let own = figures.mix(Kind::Chronolith, Sizes::total);
        for (peer, bound) in bounds(clock) {
            let what = format!("{} clock, mix: bytes / those of {}", clock.name(), peer.name());
            run.at_most(what, own / figures.mix(*peer, Sizes::total), *bound);
        }
    }
    let mix = Family::ALL.map(|family| format!("{} {} %", family.name(), family.percent()));
    run.note(format!(
        "{} series a family, {} samples each 15 s apart, sent by remote write in the order of time",
        grouped(extent.series_count as f64, 0),
        extent.step_count
    ));
    run.note(format!("mix (assumed): {}", mix.join(", ")));
    run.note("blocks only, lengths of their files; logs, caches and the head do not count");
    run.note("Chronolith: `--block-encoding dense`; all of it read back and equal bit by bit");
    run.note("VictoriaMetrics: after a forced merge; it rounds values on purpose, see the tables of changed values");
}
