//! Benchmark `many-blocks`: a server over a directory with many blocks. Measured: start to ready, memory
//! maps, resident memory, and whether old blocks answer, a window is flushed and blocks are compacted.
//!
//! Invariants: blocks are written by the crate's own writer, in this process, without a sync; an answer
//! counts only if it equals the written samples.
//! Not here: peers, which keep one directory a tenant or have no tenants.

mod fill;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use chronolith_base::{Clock, SystemClock};

use crate::body::Body;
use crate::driver::{Benchmark, Run};
use crate::http::{self, WriteConnection};
use crate::proc::{self, CpuSeconds, Memory};
use crate::report::{Figure, Table};
use crate::server::{Kind, Server, Setup};

const POLL: Duration = Duration::from_millis(100);
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

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        let now_ms = SystemClock::new().now_ms();
        let Options { tenants, days, windows, quick, .. } = *self;
        let shape = if quick {
            Shape { tenants: 50, days: 6, windows: 2000, now_ms }
        } else {
            Shape { tenants, days, windows, now_ms }
        };
        let cases = [
            ("tenants", Shape { windows: 0, ..shape }),
            ("one tenant", Shape { tenants: 0, days: 0, ..shape }),
        ];
        let mut measured = Vec::new();
        for (name, shape) in cases {
            println!("{name}: {shape:?}");
            let setup = Setup::new(0).own_flags(["--multitenancy", "--flush-delay", "1s"]);
            let done = run.measure_server(Kind::Chronolith, setup, |server| measure(server, shape));
            if let Some(one) = run.keep(name, done) {
                println!("  ready after {:.3} s, {} maps", one.start_seconds, one.maps);
                measured.push((name, one));
            }
        }
        run.note(format!(
            "{tenants} tenants with {days} blocks of a day each; one tenant with {windows} blocks of two hours"
        ));
        run.note(if quick { "--quick: a part of that" } else { "" });
        report(&measured, run);
        Ok(())
    }
}

fn measure(server: &mut Server, shape: Shape) -> Result<Measured> {
    server.stop()?;
    let started = Instant::now();
    fill::fill(&server.data_dir(), shape)?;
    println!("  blocks written in {:.1} s", started.elapsed().as_secs_f64());
    let first_start_seconds = server.start_again(READY_WAIT)?;
    server.stop()?;
    let start_seconds = server.start_again(READY_WAIT)?;
    let maps = proc::map_count(server.pid())?;
    let memory = server.memory()?;
    let compacted_before = server.metric("compaction_runs")?;
    let begun = Instant::now();
    let query_count = query_old_blocks(server, shape)?;
    let query_seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let flushed_before = server.metric("flushes")?;
    write_old_window(server, shape)?;
    wait_for_more(server, "flushes", flushed_before)?;
    let flush_seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    wait_for_more(server, "compaction_runs", compacted_before)?;
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
        memory_after: server.memory()?,
        flush_seconds,
        compaction_seconds,
        compacted: server.metric("compaction_runs")? - compacted_before,
        cpu: server.cpu()?,
    })
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
    let labels = [("__name__", "fresh".to_owned()), ("job", "bench".to_owned())];
    let body = Body::of_sample(&labels, shape.now_ms - 3 * HOUR_MS, 1.0);
    let tenant = if shape.tenants > 0 { fill::tenant(0) } else { fill::ONE.to_owned() };
    WriteConnection::open_as(server.port, &tenant)?.post(body.bytes())
}

fn wait_for_more(server: &mut Server, metric: &str, before: f64) -> Result<()> {
    server.wait_for(metric, POLL, MAINTENANCE_WAIT, |server| {
        Ok((server.metric(metric)? > before).then_some(()))
    })
}

const FIGURES: [Figure<Measured>; 13] = [
    ("first start, reads each meta.json, s", 3, |m| m.first_start_seconds),
    ("start to ready, s", 3, |m| m.start_seconds),
    ("memory maps when ready", 0, |m| m.maps as f64),
    ("resident when ready, MB", 1, |m| m.memory.now_bytes as f64 / 1e6),
    ("queries of old blocks", 0, |m| m.query_count as f64),
    ("ms per query of an old block", 2, |m| m.query_seconds * 1000.0 / m.query_count as f64),
    ("write to flush, s", 2, |m| m.flush_seconds),
    ("then to a compaction, s", 2, |m| m.compaction_seconds),
    ("compactions", 0, |m| m.compacted),
    ("memory maps at the end", 0, |m| m.maps_after as f64),
    ("resident at the end, MB", 1, |m| m.memory_after.now_bytes as f64 / 1e6),
    ("resident peak, MB", 1, |m| m.memory_after.peak_bytes as f64 / 1e6),
    ("CPU of the server, s", 2, |m| m.cpu.total()),
];

fn report(measured: &[(&str, Measured)], run: &mut Run) {
    let mut table = Table::new("Start over many blocks", measured.iter().map(|(name, _)| *name));
    table.figures(&FIGURES, measured.iter().map(|(_, one)| one));
    run.table(table);
    for (name, one) in measured {
        let maps = one.maps.max(one.maps_after) as f64;
        let resident = one.memory_after.peak_bytes as f64 / 1e6;
        run.at_most(format!("{name}: start to ready, s"), one.start_seconds, 1.0);
        run.at_most(format!("{name}: memory maps"), maps, 500.0);
        run.at_most(format!("{name}: resident peak, MB"), resident, 300.0);
    }
}
