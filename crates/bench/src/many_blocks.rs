//! Benchmark `many-blocks`: a server over a directory with many blocks. Measured: start to ready, memory
//! maps, resident memory, and whether old blocks answer, a window is flushed and blocks are compacted.
//!
//! Invariants: blocks are written by the crate's own writer, in this process, without a sync; an answer
//! counts only if it equals the written samples.
//! Not here: peers, which keep one directory a tenant or have no tenants.

mod fill;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use chronolith_base::{Clock, SystemClock};

use crate::body::Body;
use crate::http::{self, WriteConnection};
use crate::options::{DataDirectory, ReportDirectory};
use crate::proc::{self, CpuSeconds, Memory};
use crate::report::{Bound, Failures, Report, Table, Target};
use crate::server::{Kind, Server, Setup};

const POLL: Duration = Duration::from_millis(2);
const READY_WAIT: Duration = Duration::from_secs(300);
/// Time limit for a flush and a compaction to begin.
const MAINTENANCE_WAIT: Duration = Duration::from_secs(120);
/// Tenants, and times of each, that are queried.
const QUERIED_TENANTS: usize = 50;
const QUERIED_TIMES: usize = 24;
const HOUR_MS: i64 = 3_600_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Tenants with a block for each of `--days`.
    #[arg(long, default_value_t = 1500)]
    tenants: usize,
    /// Blocks of a day, of each tenant.
    #[arg(long, default_value_t = 24)]
    days: usize,
    /// Blocks of two hours, of one tenant more.
    #[arg(long, default_value_t = 200_000)]
    windows: usize,
    /// 50 tenants, 6 days, 2,000 windows: shows that the benchmark works.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    out: ReportDirectory,
    #[command(flatten)]
    data: DataDirectory,
}

/// Blocks of one run.
#[derive(Debug, Clone, Copy)]
struct Shape {
    tenants: usize,
    days: usize,
    windows: usize,
    now_ms: i64,
}

struct Measured {
    first_start_seconds: f64,
    start_seconds: f64,
    maps: usize,
    memory: Memory,
    query_seconds: f64,
    query_count: usize,
    maps_after: usize,
    memory_after: Memory,
    flush_seconds: f64,
    compaction_seconds: f64,
    compacted: f64,
    cpu: CpuSeconds,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let now_ms = SystemClock::new().now_ms();
    let Options { tenants, days, windows, .. } = *options;
    let quick = options.quick;
    let cases = [
        (
            "tenants",
            Shape {
                tenants: if quick { 50 } else { tenants },
                days: if quick { 6 } else { days },
                windows: 0,
                now_ms,
            },
        ),
        ("one tenant", Shape { tenants: 0, days: 0, windows: if quick { 2000 } else { windows }, now_ms }),
    ];
    let mut measured = Vec::new();
    let mut failures = Failures::default();
    for (name, shape) in cases {
        println!("{name}: {shape:?}");
        if let Some(one) = failures.keep(name.to_owned(), measure(options, shape)) {
            println!(
                "  ready after {:.3} s (first start {:.3} s), {} maps, {} MB",
                one.start_seconds,
                one.first_start_seconds,
                one.maps,
                one.memory.now_bytes >> 20
            );
            measured.push((name, one));
        }
    }
    report(options, &measured)?;
    failures.end()
}

fn measure(options: &Options, shape: Shape) -> Result<Measured> {
    let flags = ["--multitenancy", "--flush-delay", "1s"].map(str::to_owned).to_vec();
    let mut server =
        Server::start_with(Kind::Chronolith, &options.data, Setup { flags, ..Setup::default() })?;
    server.stop()?;
    let started = Instant::now();
    fill::fill(&server.data_dir(), shape)?;
    println!("  blocks written in {:.1} s", started.elapsed().as_secs_f64());
    measure_over(&mut server, shape).with_context(|| format!("log ends with:\n{}", server.log_tail()))
}

fn measure_over(server: &mut Server, shape: Shape) -> Result<Measured> {
    let first_start_seconds = start(server)?;
    server.stop()?;
    let start_seconds = start(server)?;
    let maps = proc::map_count(server.pid())?;
    let memory = proc::memory(server.pid())?;
    let compacted_before = server.metric("compaction_runs")?;
    let begun = Instant::now();
    let query_count = query_old_blocks(server, shape)?;
    let query_seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let flushed_before = server.metric("flushes")?;
    write_old_window(server, shape)?;
    wait_for(server, "a flush", || Ok(server.metric("flushes")? > flushed_before))?;
    let flush_seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    wait_for(server, "a compaction", || Ok(server.metric("compaction_runs")? > compacted_before))?;
    let compaction_seconds = begun.elapsed().as_secs_f64();
    // Some time of compaction, with blocks coming and going.
    std::thread::sleep(Duration::from_secs(5));
    query_old_blocks(server, shape)?;
    Ok(Measured {
        first_start_seconds,
        start_seconds,
        maps,
        memory,
        query_seconds,
        query_count,
        maps_after: proc::map_count(server.pid())?,
        memory_after: proc::memory(server.pid())?,
        flush_seconds,
        compaction_seconds,
        compacted: server.metric("compaction_runs")? - compacted_before,
        cpu: proc::cpu_seconds(server.pid())?,
    })
}

/// Seconds from exec to ready.
fn start(server: &mut Server) -> Result<f64> {
    let begun = server.exec_again()?;
    while !server.is_ready() {
        server.check_alive()?;
        ensure!(begun.elapsed() < READY_WAIT, "not ready after {} s", READY_WAIT.as_secs());
        std::thread::sleep(POLL);
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Asks for single samples all over the blocks; gives how many.
fn query_old_blocks(server: &Server, shape: Shape) -> Result<usize> {
    let mut asked = Vec::new();
    for n in (0..shape.tenants).step_by((shape.tenants / QUERIED_TENANTS).max(1)) {
        asked.extend((0..shape.days).map(|day| (fill::tenant(n), fill::day_sample(shape, n, day))));
    }
    let step = (shape.windows / (QUERIED_TENANTS * QUERIED_TIMES)).max(1);
    asked.extend(
        (0..shape.windows).step_by(step).map(|w| (fill::ONE.to_owned(), fill::window_sample(shape, w))),
    );
    for (tenant, (time_ms, value)) in &asked {
        let path = http::query_path("sum(last_over_time(m[1m]))", *time_ms);
        let (status, body) = http::get_of(server.port, &path, tenant)?;
        let wanted = format!("\"{value}\"]");
        ensure!(
            status == 200 && body.contains(&wanted),
            "{tenant} at {time_ms}: {value} wanted, HTTP {status}: {body:.300}"
        );
    }
    Ok(asked.len())
}

/// Writes a sample of the window before the current one, which is due at once.
fn write_old_window(server: &Server, shape: Shape) -> Result<()> {
    let labels = vec![("__name__", "fresh".to_owned()), ("job", "bench".to_owned())];
    let mut body = Body::new(std::iter::once(labels));
    body.set(shape.now_ms - 3 * HOUR_MS, std::iter::once(1.0));
    let tenant = if shape.tenants > 0 { fill::tenant(0) } else { fill::ONE.to_owned() };
    let mut connection = WriteConnection::open(server.port, "/api/v1/write")?;
    connection.set_tenant(&tenant);
    connection.post(body.bytes())
}

fn wait_for(server: &Server, what: &str, done: impl Fn() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !done()? {
        if begun.elapsed() > MAINTENANCE_WAIT {
            bail!("{what} did not happen within {} s\n{}", MAINTENANCE_WAIT.as_secs(), server.log_tail());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn report(options: &Options, measured: &[(&str, Measured)]) -> Result<()> {
    let mut table = Table::new("Start over many blocks", measured.iter().map(|(name, _)| *name));
    let all = |of: fn(&Measured) -> f64| measured.iter().map(move |(_, one)| of(one)).collect::<Vec<_>>();
    table.row("first start, reads each meta.json, s", 3, all(|m| m.first_start_seconds));
    table.row("start to ready, s", 3, all(|m| m.start_seconds));
    table.row("memory maps when ready", 0, all(|m| m.maps as f64));
    table.row("resident when ready, MB", 1, all(|m| m.memory.now_bytes as f64 / 1e6));
    table.row("queries of old blocks", 0, all(|m| m.query_count as f64));
    table.row("ms per query of an old block", 2, all(|m| m.query_seconds * 1000.0 / m.query_count as f64));
    table.row("write to flush, s", 2, all(|m| m.flush_seconds));
    table.row("then to a compaction, s", 2, all(|m| m.compaction_seconds));
    table.row("compactions", 0, all(|m| m.compacted));
    table.row("memory maps at the end", 0, all(|m| m.maps_after as f64));
    table.row("resident at the end, MB", 1, all(|m| m.memory_after.now_bytes as f64 / 1e6));
    table.row("resident peak, MB", 1, all(|m| m.memory_after.peak_bytes as f64 / 1e6));
    table.row("CPU of the server, s", 2, all(|m| m.cpu.total()));
    let mut targets = Vec::new();
    for (name, one) in measured {
        let maps = one.maps.max(one.maps_after) as f64;
        targets.push(Target::new(
            format!("{name}: start to ready, s"),
            one.start_seconds,
            Bound::AtMost(1.0),
        ));
        targets.push(Target::new(format!("{name}: memory maps"), maps, Bound::AtMost(500.0)));
        let resident = one.memory_after.peak_bytes as f64 / 1e6;
        targets.push(Target::new(format!("{name}: resident peak, MB"), resident, Bound::AtMost(300.0)));
    }
    let Options { tenants, days, windows, .. } = options;
    let shape = format!(
        "{tenants} tenants with {days} blocks of a day each; one tenant with {windows} blocks of two hours"
    );
    let notes = vec![shape, if options.quick { "--quick: a part of that".to_owned() } else { String::new() }];
    Report {
        name: "many-blocks".to_owned(),
        kinds: vec![Kind::Chronolith],
        notes,
        tables: vec![table],
        targets,
    }
    .write(&options.out)
}
