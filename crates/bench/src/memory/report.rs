//! Figures of `memory`. Not here: measurement (`memory`).

use anyhow::Result;

use super::{FILL_STEPS, Measured, Options, Run};
use crate::fleet::Content;
use crate::report::{Bound, Report, Table, Target, grouped};
use crate::server::Kind;

const MIB: f64 = 1_048_576.0;
/// The number of series that the target is about.
const TARGET_SERIES: usize = 1_000_000;
const TARGET_BYTES: f64 = 500.0;

impl Run {
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
        self.settled.now_bytes as f64 / self.run.series_count as f64
    }
}

/// Prints the tables and writes both files.
pub(super) fn write(options: &Options, kinds: &[Kind], measured: &[Measured]) -> Result<()> {
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
    for one in measured {
        let cells = [
            one.bytes_per_series(),
            one.settled.anonymous_bytes as f64 / one.run.series_count as f64,
            one.settled.now_bytes as f64 / MIB,
            one.settled.peak_bytes as f64 / MIB,
            one.empty_bytes as f64 / MIB,
            one.series_ever as f64,
            one.sample_count as f64,
            one.steps_sent as f64,
        ];
        table.row(one.run.title(), 0, cells);
    }
    let mut tables = vec![table];
    for one in measured.iter().filter(|one| !one.parts.is_empty()) {
        let mut parts =
            Table::new(format!("{}: what it says about its memory", one.run.title()), ["figure", "a series"]);
        for (name, number) in &one.parts {
            parts.row(name.clone(), 1, [*number, number / one.run.series_count as f64]);
        }
        tables.push(parts);
    }
    let target = |content: Content, what: &str| {
        let is_wanted = |one: &&Measured| {
            let run = one.run;
            run.kind == Kind::Chronolith
                && run.content == content
                && run.churn_minutes == 0
                && run.series_count == TARGET_SERIES
        };
        let found = measured.iter().find(is_wanted).map_or(f64::NAN, Measured::bytes_per_series);
        Target::new(format!("RSS an active series at 1 000 000, {what}"), found, Bound::AtMost(TARGET_BYTES))
    };
    let notes = vec![
        format!(
            "ten labels per series; it starts with 1 to {FILL_STEPS} samples (a chunk), evenly spread, then one sample per step"
        ),
        "mix: the families and weights of `disk`; noisy: half counters, half random walks with two decimals"
            .to_owned(),
        format!("at most {} series per request, {} connections", options.batch, options.connections),
        "RSS is VmRSS 5 s after the last sample, divided by the series that are active then".to_owned(),
    ];
    let targets = vec![target(Content::Mix, "mix"), target(Content::Noisy, "noisy")];
    Report { name: "memory".to_owned(), kinds: kinds.to_vec(), notes, tables, targets }.write(&options.out)
}
