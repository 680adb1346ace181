//! Case `databases`: many databases with few series: memory of each, and the time of a start.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::case::Options;
use super::lines::{now_ns, query};
use crate::driver::Run;
use crate::influx::{LineWriter, execute};
use crate::report::Table;
use crate::server::{Kind, Server, Setup};

const DATABASE_COUNT: u64 = 2_000;
const SERIES_COUNT: u64 = 50;
const STEP_COUNT: u64 = 10;
const STEP_NS: i64 = 10_000_000_000;
const KIB: f64 = 1024.0;
const POLL: Duration = Duration::from_millis(2);
const ANSWER_WAIT: Duration = Duration::from_secs(600);

pub(super) fn measure(options: &Options, run: &mut Run) -> Result<()> {
    let database_count = options.sized(DATABASE_COUNT);
    let mut server = run.start(Kind::Chronolith, Setup::new(1))?;
    let before_bytes = server.memory()?.now_bytes;
    let start = Instant::now();
    for idx in 0..database_count {
        execute(server.port, &format!("CREATE DATABASE d{idx}"))?;
    }
    let create_ms = start.elapsed().as_secs_f64() * 1e3 / database_count as f64;
    for idx in 0..database_count {
        fill(server.port, idx)?;
    }
    let filled_bytes = server.memory()?.now_bytes;
    let killed_seconds = restart(&mut server, true)?;
    let stopped_seconds = restart(&mut server, false)?;
    let restarted_bytes = server.memory()?.now_bytes;
    let of_each = |bytes: u64| bytes.saturating_sub(before_bytes) as f64 / database_count as f64 / KIB;
    let title = format!("databases: {database_count} databases of {SERIES_COUNT} series");
    let mut table = Table::new(title, ["chronolith"]);
    table.row("CREATE DATABASE, ms", 2, [create_ms]);
    table.row("memory per database after the writes, KiB", 1, [of_each(filled_bytes)]);
    table.row("memory per database after a restart, KiB", 1, [of_each(restarted_bytes)]);
    table.row("kill -9 to first answer, s", 2, [killed_seconds]);
    table.row("start to first answer after a stop, s", 2, [stopped_seconds]);
    run.table(table);
    run.at_most("databases: start, s", stopped_seconds.max(killed_seconds), 2.0);
    run.at_most("databases: memory of each, KiB", of_each(filled_bytes), 64.0);
    Ok(())
}

fn fill(port: u16, database: u64) -> Result<()> {
    let mut writer = LineWriter::open(port, &format!("d{database}"))?;
    let newest_ns = now_ns() / STEP_NS * STEP_NS;
    for step in 0..STEP_COUNT {
        let time = newest_ns - (STEP_COUNT - step) as i64 * STEP_NS;
        for series in 0..SERIES_COUNT {
            writer.line(format_args!("cpu,host=h{series} v={}.5 {time}", series + step))?;
        }
    }
    writer.flush()
}

/// Ends the server and starts it again; returns the seconds from exec to the first answer.
fn restart(server: &mut Server, is_killed: bool) -> Result<f64> {
    if is_killed {
        server.kill()?
    } else {
        server.stop()?
    }
    let start = server.exec_again()?;
    let want = format!("[0,{}]", SERIES_COUNT * STEP_COUNT);
    server.wait_for("an answer", POLL, ANSWER_WAIT, |server| {
        let Ok(answer) = query(server.port, "d0", "SELECT count(v) FROM cpu") else { return Ok(None) };
        let is_whole = answer.replace(' ', "").contains(&want);
        is_whole.then(|| Some(start.elapsed().as_secs_f64())).with_context(|| answer)
    })
}
