//! Figures of `memory`. Not here: measurement (`memory`).

use super::{Case, FILL_STEPS, Measured, Options};
use crate::driver::Run;
use crate::fleet::Content;
use crate::report::{MIB, Table, grouped};
use crate::server::Kind;

/// The number of series that the target is about.
const TARGET_SERIES: usize = 1_000_000;
const TARGET_BYTES: f64 = 500.0;

impl Case {
    /// Title of the measured case.
    pub(super) fn title(&self) -> String {
        let values = match self.content {
            Content::Mix => "mix",
            Content::Noisy => "noisy",
        };
        let churn = match self.churn_minutes {
            0 => String::new(),
            minutes => format!(", a tenth replaced each minute for {minutes} minutes"),
        };
        format!("{}: {} series, {values}{churn}", self.kind.name(), grouped(self.series_count as f64, 0))
    }
}

impl Measured {
    pub(super) fn bytes_per_series(&self) -> f64 {
        self.settled.now_bytes as f64 / self.case.series_count as f64
    }

    fn cells(&self) -> [f64; 8] {
        [
            self.bytes_per_series(),
            self.settled.anonymous_bytes as f64 / self.case.series_count as f64,
            self.settled.now_bytes as f64 / MIB,
            self.settled.peak_bytes as f64 / MIB,
            self.empty_bytes as f64 / MIB,
            self.loaded.series_ever as f64,
            self.loaded.sample_count as f64,
            self.loaded.steps_sent as f64,
        ]
    }

    /// Memory by the server's own account.
    fn parts_table(&self) -> Table {
        let title = format!("{}: what it says about its memory", self.case.title());
        let mut table = Table::new(title, ["figure", "a series"]);
        for (name, number) in &self.parts {
            table.row(name.clone(), 1, [*number, number / self.case.series_count as f64]);
        }
        table
    }
}

/// Adds the tables, the targets and the notes to the report.
pub(super) fn add(options: &Options, measured: &[Measured], run: &mut Run) {
    let columns = [
        "bytes an active series",
        "of that not of files",
        "RSS, MiB",
        "peak RSS, MiB",
        "RSS when empty, MiB",
        "series ever",
        "samples",
        "steps",
    ];
    let mut table = Table::new("resident memory", columns);
    measured.iter().for_each(|one| table.row(one.case.title(), 0, one.cells()));
    run.table(table);
    for one in measured.iter().filter(|one| !one.parts.is_empty()) {
        run.table(one.parts_table());
    }
    for (content, what) in [(Content::Mix, "mix"), (Content::Noisy, "noisy")] {
        let is_wanted = |one: &&Measured| {
            let Case { kind, content: found, series_count, churn_minutes } = one.case;
            (kind, found, series_count, churn_minutes) == (Kind::Chronolith, content, TARGET_SERIES, 0)
        };
        let found = measured.iter().find(is_wanted).map_or(f64::NAN, Measured::bytes_per_series);
        run.at_most(format!("RSS an active series at 1 000 000, {what}"), found, TARGET_BYTES);
    }
    run.note(format!(
        "ten labels per series; it starts with 1 to {FILL_STEPS} samples (a chunk), evenly spread, then one sample per step"
    ));
    run.note(
        "mix: the families and weights of `disk`; noisy: half counters, half random walks with two decimals",
    );
    run.note(format!("at most {} series per request, {} connections", options.batch, options.connections));
    run.note("RSS is VmRSS 5 s after the last sample, divided by the series that are active then");
}
