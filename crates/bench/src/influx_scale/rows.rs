//! Case `rows`: SELECT * of many rows: memory of the server while the answer streams.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::case::{Case, Options};
use super::lines::{count_byte, now_ns, query_path};
use crate::influx::{LineWriter, execute};
use crate::proc;
use crate::report::{Bound, Table, Target};
use crate::server::{Kind, Server};

const ROW_COUNT: u64 = 10_000_000;
const SERIES_COUNT: u64 = 100;
const STEP_NS: i64 = 10_000_000_000;
const MIB: f64 = 1_048_576.0;

pub(super) fn run(options: &Options) -> Result<Case> {
    let row_count = options.sized(ROW_COUNT);
    let server = Server::start(Kind::Chronolith, &options.data, 1)?;
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
    let before_bytes = proc::memory(server.pid())?.now_bytes;
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
        peaks.push(proc::memory(server.pid())?.peak_bytes as f64 / MIB);
    }
    let peak = peaks.iter().copied().fold(0.0, f64::max);
    table.row("time, s", 2, seconds);
    table.row("answer, MiB", 1, mib);
    table.row("memory before, MiB", 1, [before_bytes as f64 / MIB; 2]);
    table.row("peak RSS of the server, MiB", 1, peaks);
    Ok(Case { table, targets: vec![Target::new("rows: peak RSS, MiB", peak, Bound::AtMost(256.0))] })
}
