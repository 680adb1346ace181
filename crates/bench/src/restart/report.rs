//! Figures of `restart`. Not here: measurement (`restart`).

use anyhow::Result;

use super::{Measured, Options};
use crate::report::{Bound, Report, Table, Target, grouped};
use crate::server::Kind;

const MIB: f64 = 1_048_576.0;

impl Measured {
    /// One line for the impatient.
    pub(super) fn summary(&self) -> String {
        format!(
            "{:.3} s to the first answer, {:.3} s to the newest sample, {} samples lost, peak {:.0} MiB after {:.0} MiB",
            self.answered.first_seconds,
            self.answered.newest_seconds,
            grouped(self.lost_count as f64, 0),
            self.restarted.peak_bytes as f64 / MIB,
            self.loaded.memory.now_bytes as f64 / MIB,
        )
    }

    fn peak_ratio(&self) -> f64 {
        self.restarted.peak_bytes as f64 / self.loaded.memory.now_bytes as f64
    }
}

/// Prints the table and writes both files.
pub(super) fn write(
    options: &Options,
    series_count: usize,
    load_seconds: u64,
    measured: &[(Kind, Measured)],
) -> Result<()> {
    let kinds: Vec<Kind> = measured.iter().map(|(kind, _)| *kind).collect();
    let series = grouped(series_count as f64, 0);
    let mut table = Table::new(
        format!("{series} series, kill -9 while they are written"),
        kinds.iter().map(|kind| kind.name()),
    );
    let mut row = |label: &str, decimals: usize, figure: fn(&Measured) -> f64| {
        table.row(label, decimals, measured.iter().map(|(_, one)| figure(one)));
    };
    row("exec to the first correct answer, s", 3, |m| m.answered.first_seconds);
    row("exec to a correct answer about the newest acknowledged samples, s", 3, |m| {
        m.answered.newest_seconds
    });
    row("CPU until 3 s after that, s", 2, |m| m.restart_cpu.total());
    row("acknowledged samples", 0, |m| m.loaded.acked_count as f64);
    row("all steps were loaded (1) or the time was over (0)", 0, |m| f64::from(u8::from(m.loaded.whole)));
    row("acknowledged samples lost", 0, |m| m.lost_count as f64);
    row("RSS before the kill, MiB", 1, |m| m.loaded.memory.now_bytes as f64 / MIB);
    row("peak RSS until 3 s after the first answer, MiB", 1, |m| m.restarted.peak_bytes as f64 / MIB);
    row("peak RSS / RSS before the kill", 3, Measured::peak_ratio);
    row("of RSS before the kill not of files, MiB", 1, |m| m.loaded.memory.anonymous_bytes as f64 / MIB);
    row("RSS 3 s after the first answer, MiB", 1, |m| m.restarted.now_bytes as f64 / MIB);
    row("data directory at the kill, MiB", 1, |m| m.loaded.disk_bytes as f64 / MIB);
    let of = |wanted: Kind| measured.iter().find(|(kind, _)| *kind == wanted).map(|(_, one)| one);
    let own = |figure: fn(&Measured) -> f64| of(Kind::Chronolith).map_or(f64::NAN, figure);
    let first = |kind: Kind| of(kind).map_or(f64::NAN, |m| m.answered.first_seconds);
    let newest = own(|m| m.answered.newest_seconds);
    let targets = vec![
        Target::new("exec to the newest acknowledged sample, s", newest, Bound::AtMost(1.5)),
        Target::new(
            "times faster than Prometheus, to the first correct answer",
            first(Kind::Prometheus) / first(Kind::Chronolith),
            Bound::AtLeast(20.0),
        ),
        Target::new("acknowledged samples lost", own(|m| m.lost_count as f64), Bound::AtMost(0.0)),
        Target::new("peak RSS / RSS before the kill", own(Measured::peak_ratio), Bound::AtMost(1.05)),
    ];
    let notes = vec![
        format!(
            "{series} series, up to {} samples each 15 s apart up to now, {load_seconds} s to load a server",
            options.steps
        ),
        format!(
            "{} samples per request, {} connections, client on the same machine",
            options.batch, options.connections
        ),
        "files stay in the page cache across the kill; no power cut".to_owned(),
    ];
    Report { name: "restart".to_owned(), kinds, notes, tables: vec![table], targets }.write(&options.out)
}
