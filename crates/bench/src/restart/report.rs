//! Figures of `restart`. Not here: measurement (`restart`).

use super::{Measured, Options};
use crate::driver::{Measurements, Run, Summary};
use crate::report::{Figure, MIB, grouped};
use crate::server::Kind;

const FIGURES: [Figure<Measured>; 12] = [
    ("exec to the first correct answer, s", 3, |m| m.answered.first_seconds),
    ("exec to a correct answer about the newest acknowledged samples, s", 3, |m| m.answered.newest_seconds),
    ("CPU until 3 s after that, s", 2, |m| m.restart_cpu.total()),
    ("acknowledged samples", 0, |m| m.loaded.acked_count as f64),
    ("all steps were loaded (1) or the time was over (0)", 0, |m| f64::from(u8::from(m.loaded.whole))),
    ("acknowledged samples lost", 0, |m| m.lost_count as f64),
    ("RSS before the kill, MiB", 1, |m| m.loaded.memory.now_bytes as f64 / MIB),
    ("peak RSS until 3 s after the first answer, MiB", 1, |m| m.restarted.peak_bytes as f64 / MIB),
    ("peak RSS / RSS before the kill", 3, Measured::peak_ratio),
    ("of RSS before the kill not of files, MiB", 1, |m| m.loaded.memory.anonymous_bytes as f64 / MIB),
    ("RSS 3 s after the first answer, MiB", 1, |m| m.restarted.now_bytes as f64 / MIB),
    ("data directory at the kill, MiB", 1, |m| m.loaded.disk_bytes as f64 / MIB),
];

impl Measured {
    fn peak_ratio(&self) -> f64 {
        self.restarted.peak_bytes as f64 / self.loaded.memory.now_bytes as f64
    }
}

impl Summary for Measured {
    fn summary(&self) -> String {
        format!(
            "{:.3} s to the first answer, {:.3} s to the newest sample, {} samples lost, peak {:.0} MiB after {:.0} MiB",
            self.answered.first_seconds,
            self.answered.newest_seconds,
            grouped(self.lost_count as f64, 0),
            self.restarted.peak_bytes as f64 / MIB,
            self.loaded.memory.now_bytes as f64 / MIB,
        )
    }
}

/// Adds the table, the targets and the notes to the report.
pub(super) fn add(
    options: &Options,
    series_count: usize,
    load_seconds: u64,
    measured: &Measurements<Measured>,
    run: &mut Run,
) {
    let series = grouped(series_count as f64, 0);
    let title = format!("{series} series, kill -9 while they are written");
    run.table(measured.table(title, &run.kinds(), &FIGURES));
    let own = |figure: fn(&Measured) -> f64| measured.median(Kind::Chronolith, figure);
    run.at_most("exec to the newest acknowledged sample, s", own(|m| m.answered.newest_seconds), 1.5);
    let first = |kind: Kind| measured.median(kind, |m| m.answered.first_seconds);
    let ratio = first(Kind::Prometheus) / first(Kind::Chronolith);
    run.at_least("times faster than Prometheus, to the first correct answer", ratio, 20.0);
    run.at_most("acknowledged samples lost", own(|m| m.lost_count as f64), 0.0);
    run.at_most("peak RSS / RSS before the kill", own(Measured::peak_ratio), 1.05);
    run.note(format!(
        "{series} series, up to {} samples each 15 s apart up to now, {load_seconds} s to load a server",
        options.steps
    ));
    run.note(format!(
        "{} samples per request, {} connections, client on the same machine",
        options.batch, options.connections
    ));
    run.note("files stay in the page cache across the kill; no power cut");
}
