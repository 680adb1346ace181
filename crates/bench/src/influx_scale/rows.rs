//! Case `rows`: SELECT * of many rows: memory of the server while the answer streams.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::case::Options;
use super::lines::{count_byte, now_ns, query_path};
use crate::driver::Run;
use crate::influx::{LineWriter, execute};
use crate::latency::largest;
use crate::proc;
use crate::report::{MIB, Table};
use crate::server::{Kind, Setup};

const ROW_COUNT: u64 = 10_000_000;
const SERIES_COUNT: u64 = 100;
const STEP_NS: i64 = 10_000_000_000;

pub(super) fn measure(options: &Options, run: &mut Run) -> Result<()> {
    let row_count = options.sized(ROW_COUNT);
    let server = run.start(Kind::Chronolith, Setup::new(1))?;
    execute(server.port, "CREATE DATABASE rows")?;
    let mut writer = LineWriter::open(server.port, "rows")?;
    let step_count = (row_count / SERIES_COUNT) as i64;
    let end_ns = now_ns() / STEP_NS * STEP_NS;
    for step in 0..step_count {
        let time = end_ns - (step_count - step) * STEP_NS;
        for series in 0..SERIES_COUNT {
            writer.line(format_args!("m,host=h{series} v={}.25,n={step}i {time}", step % 1000))?;
        }
    }
    writer.flush()?;
    let before_bytes = server.memory()?.now_bytes;
    let mut table = Table::new(
        format!("rows: SELECT * FROM m, {row_count} rows of two fields and a tag"),
        ["one document", "chunked"],
    );
    let mut seconds = Vec::new();
    let mut mib = Vec::new();
    let mut peaks = Vec::new();
    for suffix in ["", "&chunked=true"] {
        proc::reset_peak(server.pid())?;
        let start = Instant::now();
        let path = format!("{}{suffix}", query_path("rows", "SELECT * FROM m"));
        // Each row is an array, and so are the columns and values of each document.
        let (bytes, array_count) = count_byte(server.port, &path, b'[')?;
        seconds.push(start.elapsed().as_secs_f64());
        ensure!(array_count >= row_count, "{array_count} arrays of {row_count} rows");
        mib.push(bytes as f64 / MIB);
        peaks.push(server.memory()?.peak_bytes as f64 / MIB);
    }
    run.at_most("rows: peak RSS, MiB", largest(&peaks), 256.0);
    table.row("time, s", 2, seconds);
    table.row("answer, MiB", 1, mib);
    table.row("memory before, MiB", 1, [before_bytes as f64 / MIB; 2]);
    table.row("peak RSS of the server, MiB", 1, peaks);
    run.table(table);
    Ok(())
}
