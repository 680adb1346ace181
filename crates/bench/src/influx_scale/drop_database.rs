//! Case `drop`: DROP DATABASE of many series: the time of the statement, and until the disk is free.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::case::Options;
use super::lines::{now_ns, query};
use crate::driver::Run;
use crate::influx::{LineWriter, execute};
use crate::proc;
use crate::report::{MIB, Table};
use crate::server::{Kind, Server, Setup};

const SERIES_COUNT: u64 = 1_000_000;
const STEP_COUNT: i64 = 3;
const STEP_NS: i64 = 10_000_000_000;
/// Three hours: windows before it are flushed to blocks.
const OLD_NS: i64 = 3 * 3_600_000_000_000;
const WAIT: Duration = Duration::from_secs(120);

pub(super) fn measure(options: &Options, run: &mut Run) -> Result<()> {
    let series_count = options.sized(SERIES_COUNT);
    let mut server = run.start(Kind::Chronolith, Setup::new(1))?;
    let empty_bytes = used_bytes(&server.data_dir());
    execute(server.port, "CREATE DATABASE large")?;
    let mut writer = LineWriter::open(server.port, "large")?;
    let newest_ns = now_ns() / STEP_NS * STEP_NS;
    for time in [newest_ns - OLD_NS, newest_ns].map(|end| end - STEP_COUNT * STEP_NS) {
        for step in 0..STEP_COUNT {
            let time = time + step * STEP_NS;
            for series in 0..series_count {
                writer.line(format_args!(
                    "m,host=h{},port=p{} v={series} {time}",
                    series / 100,
                    series % 100
                ))?;
            }
        }
    }
    writer.flush()?;
    let filled_bytes = used_bytes(&server.data_dir());
    let filled_memory = server.memory()?.now_bytes;
    let start = Instant::now();
    execute(server.port, "DROP DATABASE large")?;
    let drop_ms = start.elapsed().as_secs_f64() * 1e3;
    ensure!(!query(server.port, "", "SHOW DATABASES")?.contains("large"), "the database is still listed");
    let free_seconds = wait_until_free(&mut server, start, filled_bytes, empty_bytes)?;
    let left_bytes = used_bytes(&server.data_dir());
    let left_memory = server.memory()?.now_bytes;
    let mut table = Table::new(format!("drop: DROP DATABASE of {series_count} series"), ["chronolith"]);
    table.row("DROP DATABASE, ms", 1, [drop_ms]);
    table.row("disk before without reserved segments, MiB", 1, [filled_bytes as f64 / MIB]);
    table.row("until 95 % of it is free, s", 1, [free_seconds]);
    table.row("disk then without reserved segments, MiB", 1, [left_bytes as f64 / MIB]);
    table.row("memory before, MiB", 1, [filled_memory as f64 / MIB]);
    table.row("memory then, MiB", 1, [left_memory as f64 / MIB]);
    run.table(table);
    run.at_most("drop: statement, ms", drop_ms, 100.0);
    run.at_most("drop: disk free after, s", free_seconds, 10.0);
    Ok(())
}

/// Returns the bytes on disk without the WAL's reserve for the next writes: spare segments and the open one.
fn used_bytes(data_dir: &Path) -> u64 {
    let wal = std::fs::read_dir(data_dir.join("wal"));
    let files: Vec<PathBuf> = wal.into_iter().flatten().flatten().map(|file| file.path()).collect();
    let of_kind =
        |kind: &'static str| files.iter().filter(move |path| path.extension().is_some_and(|e| e == kind));
    let reserved = of_kind("spare").chain(of_kind("seg").max());
    let bytes: u64 = reserved.filter_map(|path| Some(path.metadata().ok()?.blocks() * 512)).sum();
    proc::disk_bytes(data_dir).saturating_sub(bytes)
}

/// Returns the seconds until 95 % of what the database added is gone; NaN if that takes too long.
fn wait_until_free(server: &mut Server, start: Instant, filled: u64, empty: u64) -> Result<f64> {
    let allowed = empty + filled.saturating_sub(empty) / 20;
    while start.elapsed() < WAIT {
        server.check_alive()?;
        if used_bytes(&server.data_dir()) <= allowed {
            return Ok(start.elapsed().as_secs_f64());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(f64::NAN)
}
