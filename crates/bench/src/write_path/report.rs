//! Figures of `write-path`. Not here: measurement (`write_path`).

use anyhow::Result;
use serde_json::{Value, json};

use super::{Measured, Options};
use crate::report::{Report, Table, grouped};

impl Measured {
    /// One line for the impatient.
    pub(super) fn summary(&self) -> String {
        format!(
            "{} writers: {} samples/s, p99 {:.1} ms, {:.0} syncs/s",
            self.case.writer_count,
            grouped(self.samples_per_second(), 0),
            self.ack_ms(0.99),
            self.sync_count as f64 / self.seconds,
        )
    }

    fn sample_count(&self) -> f64 {
        (self.batch_count * self.case.batch_len) as f64
    }

    fn samples_per_second(&self) -> f64 {
        self.sample_count() / self.seconds
    }

    fn ack_ms(&self, quantile: f64) -> f64 {
        quantile_ms(&self.ack_us, quantile)
    }

    fn commit_ms(&self, quantile: f64) -> f64 {
        quantile_ms(&self.commit_us, quantile)
    }

    fn title(&self) -> String {
        let batch_len = grouped(self.case.batch_len as f64, 0);
        format!("{:?}, batches of {batch_len}, {} writers", self.case.sync, self.case.writer_count)
    }
}

/// Quantile of ascending microseconds, in milliseconds; NaN without any.
fn quantile_ms(ascending_us: &[u32], quantile: f64) -> f64 {
    let rank = (ascending_us.len().saturating_sub(1) as f64 * quantile).round();
    ascending_us.get(rank as usize).map_or(f64::NAN, |us| f64::from(*us) / 1000.0)
}

/// Figures by which two binaries are compared, as one line of JSON.
pub(super) fn figures(measured: &[Measured]) -> Value {
    let cases = measured.iter().map(|one| {
        json!({
            "case": one.title(),
            "figures": {
                "commit p50, ms": one.commit_ms(0.5),
                "ack p50, ms": one.ack_ms(0.5),
                "ack p99, ms": one.ack_ms(0.99),
                "samples/s": one.samples_per_second(),
                "CPU seconds": one.cpu_seconds,
            },
        })
    });
    Value::Array(cases.collect())
}

/// Prints the tables and writes both files.
pub(super) fn write(options: &Options, measured: &[Measured]) -> Result<()> {
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
            one.sample_count() / one.cpu_seconds,
            one.ack_ms(0.5),
            one.ack_ms(0.99),
            one.commit_ms(0.5),
            one.commit_ms(0.99),
            one.sync_count as f64 / one.seconds,
            one.batch_count as f64 / one.sync_count as f64,
            one.written_bytes as f64 / one.sample_count(),
        ];
        if let Some(table) = tables.last_mut() {
            table.row(format!("{} writers", one.case.writer_count), 1, cells);
        }
    }
    let notes = vec![
        "in process: no HTTP, no parsing; a writer has one sample of each of its series in a batch"
            .to_owned(),
        format!(
            "{} per case; CPU is that of the whole process, the making of values included",
            options
                .batches
                .map_or_else(|| format!("{} s", options.seconds), |count| format!("{count} batches"))
        ),
        "a commit is the write and sync of the log that one or more batches wait for".to_owned(),
        "values: half counters, half random walks with two decimals; ten labels per series".to_owned(),
    ];
    Report { name: "write-path".to_owned(), kinds: Vec::new(), notes, tables, targets: Vec::new() }
        .write(&options.out)
}
