//! Figures of `write-path`. Not here: measurement (`write_path`).

use serde_json::{Value, json};

use super::{Measured, Options};
use crate::driver::Run;
use crate::latency::at;
use crate::report::{Table, grouped};

impl Measured {
    /// One line for the impatient.
    pub(super) fn summary(&self) -> String {
        format!(
            "{} writers: {} samples/s, p99 {:.1} ms, {:.0} syncs/s",
            self.case.writer_count,
            grouped(self.samples_per_second(), 0),
            at(&self.ack_ms, 0.99),
            self.sync_count as f64 / self.spent.wall_seconds,
        )
    }

    fn sample_count(&self) -> f64 {
        (self.batch_count * self.case.batch_len) as f64
    }

    fn samples_per_second(&self) -> f64 {
        self.sample_count() / self.spent.wall_seconds
    }

    fn title(&self) -> String {
        let batch_len = grouped(self.case.batch_len as f64, 0);
        format!("{:?}, batches of {batch_len}, {} writers", self.case.sync, self.case.writer_count)
    }
}

/// Figures by which two binaries are compared, as one line of JSON.
pub(super) fn figures(measured: &[Measured]) -> Value {
    let cases = measured.iter().map(|one| {
        json!({
            "case": one.title(),
            "figures": {
                "commit p50, ms": at(&one.commit_ms, 0.5),
                "ack p50, ms": at(&one.ack_ms, 0.5),
                "ack p99, ms": at(&one.ack_ms, 0.99),
                "samples/s": one.samples_per_second(),
                "CPU seconds": one.spent.cpu.total(),
            },
        })
    });
    Value::Array(cases.collect())
}

/// Adds the tables and the notes to the report.
pub(super) fn add(options: &Options, measured: &[Measured], run: &mut Run) {
    let columns = [
        "samples/s",
        "samples per CPU second",
        "p50, ms",
        "p99, ms",
        "commit p50, ms",
        "commit p99, ms",
        "syncs/s",
        "batches a sync",
        "log bytes a sample",
    ];
    let mut tables: Vec<Table> = Vec::new();
    let mut last = None;
    for one in measured {
        let group = (format!("{:?}", one.case.sync), one.case.batch_len);
        if last.as_ref() != Some(&group) {
            tables
                .push(Table::new(format!("{}, batches of {}", group.0, grouped(group.1 as f64, 0)), columns));
            last = Some(group);
        }
        let cells = [
            one.samples_per_second(),
            one.sample_count() / one.spent.cpu.total(),
            at(&one.ack_ms, 0.5),
            at(&one.ack_ms, 0.99),
            at(&one.commit_ms, 0.5),
            at(&one.commit_ms, 0.99),
            one.sync_count as f64 / one.spent.wall_seconds,
            one.batch_count as f64 / one.sync_count as f64,
            one.written_bytes as f64 / one.sample_count(),
        ];
        if let Some(table) = tables.last_mut() {
            table.row(format!("{} writers", one.case.writer_count), 1, cells);
        }
    }
    tables.into_iter().for_each(|table| run.table(table));
    run.note("in process: no HTTP, no parsing; a writer has one sample of each of its series in a batch");
    let extent = |count| format!("{count} batches");
    run.note(format!(
        "{} per case; CPU is that of the whole process, the making of values included",
        options.batches.map_or_else(|| format!("{} s", options.seconds), extent)
    ));
    run.note("a commit is the write and sync of the log that one or more batches wait for");
    run.note("values: half counters, half random walks with two decimals; ten labels per series");
}
